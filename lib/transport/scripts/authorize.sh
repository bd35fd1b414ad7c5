# authorize <install or remove> <old key> <type> <new key>: changes the authorized_keys of this user, whole or not at all.
# The keys are in base64. `install` adds the new key with the options that the old one has there; `remove` takes the old one
# away where the new one is there.
umask 077
file=$HOME/.ssh/authorized_keys

# No word of a line is the name of a file.
set -f
blank=$(printf ' \t')

# holds <line> <key>: a line that lets this key in. Its words are parted by blanks and tabs.
holds() {
  case ${1#"${1%%[!"$blank"]*}"} in
  '#'*) return 1 ;;
  esac
  for word in $1; do
    [ "$word" = "$2" ] && return 0
  done
  return 1
}

# knows <key>: a line of the file lets this key in.
knows() {
  while IFS= read -r line || [ -n "$line" ]; do
    holds "$line" "$1" && return 0
  done <"$file"
  return 1
}

# changed <what> <old key> <type> <new key>: the lines as they are to be.
changed() {
  added=
  while IFS= read -r line || [ -n "$line" ]; do
    # Another worker with the same home may have been quicker.
    [ "$1" = install ] && holds "$line" "$4" && continue
    if ! holds "$line" "$2"; then
      printf '%s\n' "$line"
    elif [ "$1" = install ]; then
      printf '%s\n' "$line"
      options=${line%%"$2"*}
      # Blanks, then the type of the old key.
      while [ "$options" != "${options%["$blank"]}" ]; do options=${options%?}; done
      while [ "$options" != "${options%[!"$blank"]}" ]; do options=${options%?}; done
      printf '%s\n' "$options$3 $4"
      added=1
    fi
  done <"$file"
  [ "$1" = remove ] || [ -n "$added" ] || printf '%s\n' "$3 $4"
}

if [ "$1" = install ]; then
  mkdir -p "$HOME/.ssh" || exit 1
  [ -e "$file" ] || : >"$file" || exit 1
  knows "$4" && exit 0
else
  [ -e "$file" ] && knows "$2" || exit 0
  knows "$4" || {
    echo "$file does not have the new key, so the old one stays" >&2
    exit 1
  }
fi
file=$(readlink -f "$file") || exit 1
# A name of its own: two workers may share a home.
next=$(mktemp "$file.ops.XXXXXX") || exit 1
trap 'rm -f "$next"' EXIT
cp -p "$file" "$next" || exit 1
changed "$@" >"$next" || exit 1
sync
mv "$next" "$file"
