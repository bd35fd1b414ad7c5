# logs <job> <files> <bytes>: the ends of the logs of a job, the last <bytes> of each, newest first, without compressed
# ones. `><name>` comes before each file, and each line of a file begins with `|`. A log that is a link is left out, and so
# are all logs behind a link.
real "jobs/$1/logs" 2>/dev/null || exit 0
cd "jobs/$1/logs" 2>/dev/null || exit 0
left=$2
ls -t 2>/dev/null | while [ "$left" -gt 0 ] && IFS= read -r name; do
  [ -f "./$name" ] && [ ! -L "./$name" ] && [ -s "./$name" ] || continue
  case $name in *.gz | *.bz2 | *.xz | *.zst) continue ;; esac
  left=$((left - 1))
  printf '>%s\n' "$name"
  tail -c "$3" "./$name" | sed 's/^/|/'
  echo
done
