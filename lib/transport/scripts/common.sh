# What scripts that deal with locks share. The working folder is the bucket's folder on this worker.
umask 022
IFS= read -r boot </proc/sys/kernel/random/boot_id

# say <sentence>: tells what is wrong.
say() {
  printf '%s\n' "$1" >&2
}

# born <pid>: sets `$born` to the start of the process in clock ticks since the boot; fails for a process that has
# ended.
born() {
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  # The name in parentheses may itself hold blanks and parentheses: the fields start behind the last one.
  set -- ${stat##*) }
  case $1 in Z | X) return 1 ;; esac
  born=${20}
}

# identify <run id>: sets `$me` to the text of a lock's symlink while this process holds the lock.
identify() {
  born $$ && me=$$.$born.$boot.$1
}

# lives <holder>: true while the process that the text of a lock names still runs.
lives() (
  IFS=.
  set -- $1
  unset IFS
  [ $# -ge 3 ] && [ "$3" = "$boot" ] && born "$1" && [ "$born" = "$2" ]
)

# take <lock>: takes a lock for `$me`. All waits of a script together last `$patience` seconds at most. Processes of the
# runs in `$over` (with a comma around each) are not waited for: they are ended.
deadline=
over=
take() {
  missed=0
  until ln -s "$me" "$1" 2>/dev/null; do
    now=$(readlink "$1")
    if [ -z "$now" ]; then
      # Released this very moment, or nothing can be made here at all.
      missed=$((missed + 1))
      [ "$missed" -lt 20 ] || { ln -s "$me" "$1"; return; }
    elif ! lives "$now"; then
      clear_lock "$1" "$now" || return 1
      continue
    elif is_left "$now" && end_group "${now%%.*}" && ! lives "$now"; then
      continue
    elif is_late; then
      say "$1 is held by process ${now%%.*} of run ${now##*.}"
      return 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
  done
}

# is_left <holder>: true when its run is over.
is_left() {
  case $over in *",${1##*.},"*) ;; *) return 1 ;; esac
}

# end_group <pid>: TERM to the process group of this leader, 2 s to unwind, then KILL.
end_group() {
  kill -TERM "-$1" 2>/dev/null
  tries=0
  while kill -0 "-$1" 2>/dev/null && [ "$tries" -lt 20 ]; do
    sleep 0.1 2>/dev/null || sleep 1
    tries=$((tries + 1))
  done
  kill -KILL "-$1" 2>/dev/null || :
}

# is_late: true when there is no time left to wait.
is_late() {
  second=$(date +%s)
  : "${deadline:=$((second + patience))}"
  [ "$second" -ge "$deadline" ]
}

# clear_lock <lock> <holder>: removes the lock of a holder that is gone. Only the holder of `<lock>.x` may do so: else
# two processes that saw the same dead holder could each remove the lock that the other has just taken.
clear_lock() {
  take "$1.x" || return 1
  if [ "$(readlink "$1")" = "$2" ]; then rm -f "$1"; fi
  cleared=$?
  rm -f "$1.x"
  return "$cleared"
}

# settle <name>: waits for a sync of the tree that is at work, and ends one that was cut off.
settle() {
  [ -L ".sync/$1.lock" ] || [ -d ".sync/$1" ] || return 0
  take ".sync/$1.lock" || return 1
  finish "$1" ".sync/$1.lock" || { rm -f ".sync/$1.lock" && return 1; }
}

# finish <name> [<lock>]: puts what a sync has committed into place, or drops what it has not, and releases the lock.
# Needs the tree's lock. Every step may have been done before: where one process was killed, the next does the rest.
finish() {
  from=.sync/$1
  shift
  [ ! -L "$from" ] || rm -f "$from" || return 1
  if [ -f "$from/commit" ]; then place || return 1; fi
  # In this order: what is left must not look like something committed, and the lock goes last.
  rm -rf "$from/commit" "$from" "$@"
}

# place: puts committed files into place. First goes each link in the place of a folder; nothing behind a link is
# touched.
place() {
  while IFS= read -r path; do
    if [ -L "./$path" ]; then rm -f "./$path" || return 1; fi
  done <"$from/parents" || return 1
  if [ -f "$from/removals" ]; then each remove <"$from/removals" || return 1; fi
  if [ -f "$from/emptied" ]; then each fold <"$from/emptied"; fi
  number=0
  while IFS= read -r path; do
    number=$((number + 1))
    if [ -d "$from/new/$number" ]; then
      fill "./$path" "$from/new/$number"/* || return 1
    elif [ -f "$from/new/$number" ]; then
      put "$from/new/$number" "./$path" || return 1
    fi
  done <"$from/moves" || return 1
  [ ! -f "$from/list" ] || put "$from/list" "$from.list" || return 1
  # Over the first line that is there, which is as long.
  [ ! -f "$from/first" ] || { IFS= read -r line <"$from/first" && printf '%s\n' "$line" 1<>"$from.list"; }
}

# each <function>: calls the function with the paths on standard input, up to 100 at a time.
each() {
  what=$1
  set --
  while IFS= read -r path; do
    set -- "$@" "./$path"
    [ $# -lt 100 ] || { "$what" "$@" && set --; } || return 1
  done
  [ $# -eq 0 ] || "$what" "$@"
}

# remove <path>…: removes files and links; a path that has become a folder stays.
remove() {
  for path; do
    shift
    if [ -f "$path" ] || [ -L "$path" ]; then set -- "$@" "$path"; fi
  done
  [ $# -eq 0 ] || rm -f "$@"
}

# fold <folder>…: removes empty folders; others stay.
fold() {
  rmdir "$@" 2>/dev/null || :
}

# fill <folder>/ <file>…: moves files into a folder. Where all are in place already, <file> is a pattern that found
# none.
fill() {
  into=$1
  shift
  [ -f "$1" ] || return 0
  [ -d "$into" ] || mkdir -p "$into" || return 1
  for file; do clear_way "$into${file##*/}" || return 1; done
  mv -f "$@" "$into"
}

# put <file> <path>: moves one file.
put() {
  [ -d "${2%/*}" ] || mkdir -p "${2%/*}" || return 1
  clear_way "$2" && mv -f "$1" "$2"
}

# clear_way <path>: makes sure that `mv` puts a file at the path itself. Else `mv` follows a link to a folder, or moves
# the file into a folder, instead of failing.
clear_way() {
  if [ -L "$1" ]; then
    rm -f "$1"
  elif [ -d "$1" ]; then
    say "$1 is a folder on the worker, and a file is to take its place: move it away"
    return 1
  fi
}
