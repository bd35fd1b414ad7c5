# read <path> <bytes>: the beginning of a regular file with no link on the way to it; nothing where there is no such
# file.
way "$1"
if [ -z "$link" ] && [ -f "./$1" ]; then head -c "$2" "./$1"; fi
