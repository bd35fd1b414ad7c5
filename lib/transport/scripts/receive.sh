# receive <name> <SHA-256 of `digests`> <first line of the list, as `look` printed it>. Standard input: a tar archive of
# a folder <name> with
#   digests     SHA-256 of every other file of the archive, as sha256sum prints them, each with .sync/ in front
#   moves       where new/1, new/2, … belong, one a line: the path of a file, or of a folder with `/` at its end
#   parents     every folder above a file that comes or goes, the highest first; a symbolic link there is removed
#   list        what sync owns afterwards: its files, and the folders it made; the first line differs each time
#   first       only that line, where the rest of the list stays as it is
#   removals    files of an earlier sync that are to go, if there are any
#   emptied     folders an earlier sync made and that are to go once they are empty, the deepest first, if any
#   new/<n>     a file that differs, or
#   new/<n>/…   files that differ and belong into one folder; a name there begins with a letter, a digit or `_`
# Nothing outside .sync changes before the file `commit` is made; from then on the tree is the new one.
LC_ALL=C
export LC_ALL
identify sync
patience=60
name=$1 digest=$2 seen=$3
from=.sync/$name

fail() {
  say "$1"
  exit 1
}

# Before the commit file is made, nothing is worth keeping.
leave() {
  [ "$(readlink "$from.lock")" = "$me" ] || return 0
  [ -f "$from/commit" ] || rm -rf "$from"
  rm -f "$from.lock"
}

# owned <path>: true when this sync removes all that is below the folder.
owned() {
  grep -sqxF -e "$1" "$from/emptied" || return 1
  ! find "./$1" | cut -c3- | grep -vxF -f "$from/removals" -f "$from/emptied" | grep -q .
}

# keeps <link>: true when a job keeps files behind the link: a folder in its place would hide them from the job.
keeps() {
  case $1 in
  jobs) set -- jobs/*/data jobs/*/logs jobs/*/bin ;;
  jobs/*/* | [!j]*) return 1 ;;
  *) set -- "$1/data" "$1/logs" "$1/bin" ;;
  esac
  for kept; do [ ! -e "./$kept" ] || return 0; done
  return 1
}

real .sync || exit 1
[ -d .sync ] || mkdir -p -m 700 .sync || exit 1
take "$from.lock" || exit 1
trap leave EXIT
trap 'exit 143' TERM INT HUP
if [ -d "$from" ] || [ -L "$from" ]; then finish "$name" || exit 1; fi
line=
[ ! -f "$from.list" ] || [ -L "$from.list" ] || IFS= read -r line <"$from.list"
[ "$line" = "$seen" ] || fail "another sync has changed the files meanwhile: run the command again"

tar -xmof - -C .sync || fail "the files did not arrive whole"
sha256sum -c - "$from/digests" >/dev/null <<CHECK || fail "what arrived is not what was sent"
$digest  $from/digests
CHECK

while IFS= read -r path; do
  way "$path"
  [ -z "$link" ] || ! keeps "$link" ||
    fail "$link is a symbolic link on the worker, and a job keeps files behind it (data, logs or bin): make it a folder"
  if [ -z "$link" ] && [ -d "./$path" ]; then continue; fi
  # Another sync may have made it this very moment.
  [ -n "$link" ] || [ ! -e "./$path" ] || [ -d "./$path" ] || grep -sqxF -e "$path" "$from/removals" ||
    fail "$path is a file on the worker, and a folder is to take its place: move it away"
  [ -f "$from/list" ] || { cat "$from/first" && sed 1d "$from.list"; } >"$from/list" || exit 1
  printf 'folder  %s\n' "$path" >>"$from/list" || exit 1
done <"$from/parents" || exit 1
number=0
while IFS= read -r path; do
  number=$((number + 1))
  way "${path%/*}"
  for file in "$from/new/$number"/*; do
    # Where new/<n> is a file, the pattern has found nothing.
    target=$path
    [ ! -f "$file" ] || target=$path${file##*/}
    [ -n "$link" ] || [ ! -d "./$target" ] || [ -L "./$target" ] || owned "$target" ||
      fail "$target is a folder on the worker, and a file is to take its place: move it away"
  done
done <"$from/moves" || exit 1

: >"$from/commit" && finish "$name" "$from.lock" || exit 1
trap - EXIT
