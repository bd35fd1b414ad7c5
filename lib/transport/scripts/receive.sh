# receive <name> <SHA-256 of `digests`> <SHA-256 of the list that `ask` printed>. Standard input: a tar archive of
#   digests     SHA-256 of every other file of the archive, as sha256sum prints them
#   moves       where new/1, new/2, … belong, one path a line
#   removals    files of an earlier sync that are to go
#   emptied     folders an earlier sync made and that are to go once they are empty, the deepest first
#   parents     every folder above a file that comes or goes, the highest first
#   list        what sync owns afterwards
#   new/<n>     the files that differ
# Nothing outside .sync changes before `digests` becomes `commit`; from then on the tree is the new one.
LC_ALL=C
export LC_ALL
me=$(holder sync)
name=$1 digest=$2 seen=$3
lock=.sync/$name.lock

fail() {
  say "$1"
  exit 1
}

# Before the commit file there is nothing worth keeping.
leave() {
  [ -f ".sync/$name/commit" ] || rm -rf ".sync/$name"
  rm -f "$lock"
}

# owned <path>: true when all that is below this folder goes with this sync.
owned() {
  grep -qxF -e "$1" "$from/emptied" || return 1
  ! find "./$1" | cut -c3- | grep -vxF -f "$from/removals" -f "$from/emptied" | grep -q .
}

mkdir -p -m 700 .sync || exit 1
take "$lock" $(($(date +%s) + 60)) || exit 1
trap leave EXIT
trap 'exit 143' TERM INT HUP
finish "$name" || exit 1
[ "$(cat ".sync/$name.list" 2>/dev/null | sha256sum)" = "$seen  -" ] ||
  fail "another sync has changed the files meanwhile: run it again"

from=.sync/$name
mkdir -m 700 "$from" && tar -xmof - -C "$from" || fail "the files did not arrive whole"
echo "$digest  digests" >"$from/check"
(cd "./$from" && sha256sum -c check && sha256sum -c digests) >/dev/null || fail "what arrived is not what was sent"

while IFS= read -r path; do
  [ ! -L "./$path" ] || fail "$path is a symbolic link on the worker, which sync does not follow: remove it"
  if [ -d "./$path" ]; then continue; fi
  [ ! -e "./$path" ] || grep -qxF -e "$path" "$from/removals" ||
    fail "$path is a file on the worker, and a folder is to take its place: move it away"
  printf 'folder  %s\n' "$path" >>"$from/list" || exit 1
done <"$from/parents" || exit 1
while IFS= read -r path; do
  [ ! -d "./$path" ] || [ -L "./$path" ] || owned "$path" ||
    fail "$path is a folder on the worker, and a file is to take its place: move it away"
done <"$from/moves" || exit 1

mv -f "$from/digests" "$from/commit" && finish "$name"
