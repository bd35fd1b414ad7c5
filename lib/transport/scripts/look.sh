# look <bucket> <head> <tree>…: what of these trees is on this worker? Standard input: one line for each wanted path,
# `file <path>`, and for each folder whose other files are to be told, `folder <path>`. Prints `unsettled <tree>` for
# each tree that a sync is at work on or was cut off at. With <head>, an unsettled tree ends the answer; else `list
# <line>` tells each line of .sync/<tree>.list, only the first where that begins with <head>: then the list names the
# wanted paths. Then come, for each wanted path that is a regular file, `mode <hexadecimal> ./<path>` and `<SHA-256>
# ./<path>`; `other ./<path>` for a path that is something else; `entry ./<path>` for each entry of a folder that is no
# folder; `link ./<path>` for the first symbolic link on the way to a folder, behind which nothing is looked at; at last
# `end`, which is the whole answer where the working folder is not <bucket>. Writes nothing.
LC_ALL=C
export LC_ALL
newline='
'
bucket=$1 head=$2
shift 2
[ "${PWD##*/}" = "$bucket" ] || { cat >/dev/null && echo end && exit; }

tell() {
  [ $# -eq 0 ] || { stat -c 'mode %f %n' "$@" && sha256sum "$@"; }
}

list() {
  [ -f ".sync/$1.list" ] && [ ! -L ".sync/$1.list" ] || return
  IFS= read -r line <".sync/$1.list"
  case $line in
  "$head"*) printf 'list %s\n' "$line" ;;
  *) sed 's/^/list /' ".sync/$1.list" ;;
  esac
}

real .sync || exit 1
for tree; do
  if [ -L ".sync/$tree.lock" ] || [ -d ".sync/$tree" ]; then
    echo "unsettled $tree"
    [ -z "$head" ] || exit 0
  fi
  [ -z "$head" ] || list "$tree"
done
set --
above=
while IFS= read -r line; do
  path=${line#* }
  case $line in
  "file "*)
    [ "${path%/*}" = "$above" ] || { above=${path%/*} && way "$above"; }
    [ -z "$link" ] || continue
    if [ -L "./$path" ] || { [ -e "./$path" ] && [ ! -f "./$path" ]; }; then
      echo "other ./$path"
    elif [ -f "./$path" ]; then
      set -- "$@" "./$path"
      [ $# -lt 100 ] || { tell "$@" && set --; }
    fi
    ;;
  "folder "*)
    above=$path
    way "$path"
    [ -z "$link" ] || { echo "link ./$link" && continue; }
    for entry in "./$path"/* "./$path"/.[!.]* "./$path"/..?*; do
      if [ -d "$entry" ] && [ ! -L "$entry" ]; then continue; fi
      if [ ! -e "$entry" ] && [ ! -L "$entry" ]; then continue; fi
      case $entry in *"$newline"*) ;; *) printf 'entry %s\n' "$entry" ;; esac
    done
    ;;
  esac
done
tell "$@"
echo end
