# joblogs <job> <lines> <follow> <seconds> <mark>: what the job logs here, on both outputs: `make logs TAIL=<lines>
# FOLLOW=<follow>` where the job's Makefile has a rule for logs, else the ends of the files in logs/. <follow> is 1 or
# nothing. Writes nothing. Ends all that was started here after <seconds>, and when standard input ends, because then
# nobody reads any more. The reason why there is nothing to show is one line on standard error that begins with <mark>.
mark=$5
refuse() {
  printf '%s%s\n' "$mark" "$1" >&2
  exit 1
}

said=$(real "jobs/$1" 2>&1) || refuse "$said"
said=$(real "jobs/$1/logs" 2>&1) || :
cd "jobs/$1" 2>/dev/null || refuse "jobs/$1 is missing on this worker: deploy to it first"
exec 3<&0 </dev/null

# end: ends everything that this script has started, and this script.
end() {
  trap '' TERM
  kill -TERM 0
  sleep 2
  kill -KILL 0
}
{ cat <&3; end; } >/dev/null 2>&1 &
{ sleep "$4"; end; } >/dev/null 2>&1 3<&- &
exec 3<&-

rule='^([^#:=[:space:]][^#:=]*[[:space:]])?logs([[:space:]][^:=]*)?:([^=]|$)'
if grep -Eq "$rule" Makefile 2>/dev/null; then
  # Make would take the folder logs/ for the target.
  make -s --eval='.PHONY: logs' logs "TAIL=$2" "FOLLOW=$3"
elif [ -n "$said" ]; then
  (refuse "$said")
else
  job=$1 lines=$2 follow=$3
  set --
  cd logs 2>/dev/null && for file in *; do
    case $file in *.gz | *.bz2 | *.xz | *.zst) continue ;; esac
    if [ -f "$file" ] && [ ! -L "$file" ]; then set -- "$@" "$file"; fi
  done
  if [ $# -gt 0 ]; then
    tail ${follow:+-F} -n "$lines" -- "$@"
  else
    (refuse "the Makefile of $job has no target logs, and jobs/$job/logs has no file")
  fi
fi
code=$?
trap '' TERM
kill -TERM 0
exit "$code"
