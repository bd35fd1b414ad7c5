# way <path>: sets `$link` to the first part of the path that is a symbolic link, to nothing where there is none.
way() {
  link= at= rest=$1/
  while [ -n "$rest" ]; do
    at=$at${rest%%/*}
    if [ -L "./$at" ]; then
      link=$at
      return
    fi
    at=$at/ rest=${rest#*/}
  done
}

# real <folder>…: fails, and says why, where a symbolic link is on the way to one of them.
real() {
  for folder; do
    way "$folder"
    [ -z "$link" ] || { echo "$link is a symbolic link on the worker, which ops does not follow: remove it" >&2 && return 1; }
  done
}
