# ask <name> <head>: what of the tree <name> is on this worker? Standard input: the wanted paths, one a line.
# Prints `unsettled` where a sync of it is at work or was cut off, and that is all. Else `list <line>` for each line of
# .sync/<name>.list, only for its first where that begins with <head>: the list names the wanted paths then; for each
# wanted path that is a regular file, with no symbolic link on the way, `mode <hexadecimal> ./<path>` and
# `<SHA-256>  ./<path>`; at last `end`. Writes nothing.
LC_ALL=C
export LC_ALL

tell() {
  [ $# -eq 0 ] || { stat -c 'mode %f %n' "$@" && sha256sum "$@"; }
}

real .sync || exit 1
if [ -L ".sync/$1.lock" ] || [ -d ".sync/$1" ]; then
  echo unsettled
  exit
fi
if [ -f ".sync/$1.list" ] && [ ! -L ".sync/$1.list" ]; then
  IFS= read -r line <".sync/$1.list"
  case $line in
  "$2"*) printf 'list %s\n' "$line" ;;
  *) sed 's/^/list /' ".sync/$1.list" ;;
  esac
fi
set --
above=
while IFS= read -r path; do
  [ "${path%/*}" = "$above" ] || { above=${path%/*} && way "$above"; }
  [ -z "$link" ] || continue
  if [ ! -f "./$path" ] || [ -L "./$path" ]; then continue; fi
  set -- "$@" "./$path"
  [ $# -lt 100 ] || { tell "$@" && set --; }
done
tell "$@"
echo end
