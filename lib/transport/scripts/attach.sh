# attach <name> <bytes of name.out> <bytes of name.err>: sends what a command has spooled behind these bytes, and what
# follows, until one line on standard input says `done`: then the spool goes. The end of the input without that line
# means that the connection is lost again: the spool stays. The first line of name.out has the mark of the command's
# output and, as its fifth word, the shell that waits for the command and holds the spool open as descriptor 5; name.code
# has the exit code. Exit code: 3 where the command was never started, and now will never be; 5 without a spool.
place=./$1 out=$2 err=$3
(umask 077 && set -C && : >"$place.out") 2>/dev/null && exit 3
tries=0
until IFS=' ' read -r mark _ _ _ keeper _ 2>/dev/null <"$place.out"; do
  tries=$((tries + 1))
  [ "$tries" -lt 50 ] || exit 5
  sleep 0.1 2>/dev/null || sleep 1
done

# attended: true while the command runs, or its end is being told.
attended() {
  [ "/proc/$keeper/fd/5" -ef "$place.out" ]
}

# server <pid>: sets `$server` to the sshd that a process belongs to, to nothing where there is none.
server() {
  server=
  while { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null; do
    case $stat in *"(sshd"*) server=$1 && return ;; esac
    set -- ${stat##*) }
    shift
  done
}

# more <stream> <bytes>: sends what came behind the bytes, and sets `$size` to the bytes that are sent now.
more() {
  size=$(($(wc -c 2>/dev/null <"$place.$1")))
  [ "$size" -gt "$2" ] || { size=$2 && return; }
  tail -c "+$(($2 + 1))" "$place.$1" 2>/dev/null | head -c "$((size - $2))" 2>/dev/null || exit
}

# follow: sends all of the spool. What comes behind the marks in the spool is read by nobody: so the last lines count
# only where the spool is not complete.
follow() {
  over=
  until [ -n "$over" ]; do
    attended || over=yes
    more out "$out"
    out=$size
    more err "$err" >&2
    err=$size
    [ -n "$over" ] || sleep 0.2 2>/dev/null || sleep 1
  done
  note="… more was not kept while the connection was lost (run_output_limit)"
  { IFS= read -r code <"$place.code"; } 2>/dev/null || code=gone note=
  echo "${note:+$note
}$mark end" >&2
  echo "${note:+$note
}$mark end $code"
}

# A connection of which nobody has told sshd yet that it is lost takes no more output, and holds the command up.
if attended; then
  server $$
  own=$server
  server "$keeper"
  [ -z "$server" ] || [ "$server" = "$own" ] || kill "$server"
fi
follow &
IFS= read -r line && [ "$line" = done ] && rm -f "$place.err" "$place.code" "$place.out"
kill "$!" 2>/dev/null
exit 0
