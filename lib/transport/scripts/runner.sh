# bin/runner <job> <target> [<run id> [<hash> [<wait seconds> [<run id>,<run id>,…]]]]
#
# Runs `make -s -C jobs/<job> <target>` in this bucket's folder, one target of a job at a time: it waits at most <wait
# seconds> (default 900) for the target before. A target of one of the listed runs, which are over, is ended instead:
# TERM to its process group, KILL after 2 s. The environment goes to make as it is. When the target has succeeded,
# .runner/<job>.last says `<hash> <target> <boot id>` (`-` for a hash that was not given). While a target runs, and
# after a target that failed, there is no such file: then nobody knows the state of the job, nor after a restart of the
# worker. Both outputs of make come on standard output, refusals as one line on standard error.
# Exit code: that of make (2 when the target failed), or
#   64  wrong arguments                          67  another target of the job is still running
#   65  jobs.json does not list the job          68  files that sync left behind could not be put in place
#   66  jobs/<job> is missing                    69  a program is missing
#   70  .runner cannot be written                 71  a folder on the way is a symbolic link

refuse() {
  say "runner: $2"
  exit "$1"
}

[ $# -ge 2 ] && [ $# -le 6 ] ||
  refuse 64 "usage: bin/runner <job> <target> [<run id> [<hash> [<wait seconds> [<run id>,<run id>,…]]]]"
job=$1 target=$2 run=${3:--} hash=${4:--} patience=${5:-900} over=,${6-},
case $job in [!a-z]* | *[!a-z0-9_-]* | "") refuse 64 "\"$job\" is not the name of a job" ;; esac
case $target in [!A-Za-z0-9]* | *[!A-Za-z0-9_.-]* | "") refuse 64 "\"$target\" is not the name of a target" ;; esac
case $run in *[!A-Za-z0-9-]*) refuse 64 "\"$run\" is not a run id" ;; esac
case $hash in *[!A-Za-z0-9-]*) refuse 64 "\"$hash\" is not a hash" ;; esac
case $over in *[!A-Za-z0-9,-]*) refuse 64 "\"$6\" is not a list of run ids" ;; esac
case $patience in *[!0-9]*) refuse 64 "\"$patience\" is not a number of seconds" ;; esac
for tool in make mkfifo setsid; do
  command -v "$tool" >/dev/null || refuse 69 "$tool is not installed on this worker"
done

case $0 in */*) CDPATH= cd "${0%/*}/.." ;; *) cd .. ;; esac || exit 66
identify "$run"
lock=.runner/$job.lock
real .runner .sync || exit 71
[ -d .runner ] || mkdir -p -m 700 .runner 2>/dev/null || refuse 70 "cannot make the folder .runner"

# A job that is not listed any more lost its allocation here: it can still be stopped.
settle .worker || refuse 68 "worker.json, jobs.json and bin could not be brought up to date"
[ "$target" = stop ] || grep -qF "\"job\": \"$job\"" jobs.json 2>/dev/null ||
  refuse 65 "the job $job is not allocated to this worker (jobs.json does not list it)"

trap '[ "$(readlink "$lock")" != "$me" ] || rm -f "$lock"' EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
trap 'exit 129' HUP
take "$lock" || refuse 67 "another target of $job is still running after $patience seconds"
settle "$job" || refuse 68 "the files of $job could not be brought up to date"
real bin "jobs/$job" || exit 71
[ -d "jobs/$job" ] || refuse 66 "jobs/$job is missing on this worker"

# The output goes through a pipe of our own, and the process that forwards it reads to the end whatever happens. So a
# caller that is gone does not stop the target; and a daemon that keeps its output open neither holds the caller's
# channel nor dies of writing to a closed one.
pipe=.runner/$job.pipe
if [ -e "$pipe" ] || [ -L "$pipe" ]; then rm -f "$pipe"; fi
mkfifo -m 600 "$pipe" || refuse 70 "cannot make a pipe in .runner"
exec 3<>"$pipe" 4<"$pipe" 5>"$pipe" 3>&-
rm -f "$pipe" ".runner/$job.last" || refuse 70 "cannot take back which target of $job succeeded last"
setsid sh -c 'cat <&4 & trap "kill $!" TERM; wait; exec cat <&4 >/dev/null 2>&1' 5>&- &
forward=$!
make -s -C "jobs/$job" "$target" </dev/null >&5 2>&1 4<&- 5>&-
code=$?
exec 5>&-
# The forwarder ends by itself once make's output has been passed on, unless a daemon holds the pipe. Where no daemon of
# this user does, the forwarder has 10 s, for a worker with much to do; what is not passed on by then is lost.
# held: true where a process has this very pipe open for writing. The pipe of an earlier target had the same path: so each
# deleted file that a process writes to, as `/proc/<pid>/fd/<number>`, is compared with the pipe itself.
held() {
  at='/:$/h; /^l-w.* (deleted)$/{s/.* \([0-9]*\) -> .*/\1/; G; s/\(.*\)\n\(.*\):/\2\/\1/p; }'
  for end in $(ls -l /proc/[0-9]*/fd 2>/dev/null | sed -n "$at"); do [ "$end" -ef "/proc/$$/fd/4" ] && return; done
  return 1
}
tries=0
while born "$forward" && [ "$tries" -lt 1000 ]; do
  tries=$((tries + 1))
  if [ $((tries % 20)) -eq 0 ] && held; then break; fi
  sleep 0.01 2>/dev/null || { sleep 1 && tries=$((tries + 99)); }
done
kill "$forward" 2>/dev/null

[ "$code" -eq 0 ] || exit "$code"
[ ! -L ".runner/$job.next" ] || rm -f ".runner/$job.next"
echo "$hash $target $boot" >".runner/$job.next" && mv -f ".runner/$job.next" ".runner/$job.last" ||
  refuse 70 "cannot record that $target of $job has succeeded"
