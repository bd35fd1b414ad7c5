# What `ask`, `receive` and `runner` share. The working folder is the bucket's folder on this worker.
umask 022
IFS= read -r boot </proc/sys/kernel/random/boot_id

# say <sentence>: tells what is wrong.
say() {
  printf '%s\n' "$1" >&2
}

# started <pid>: prints when the process started (clock ticks since the boot); fails when it has ended.
started() {
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
  # The name in parentheses may itself hold blanks and parentheses: the fields start behind the last one.
  set -- ${stat##*) }
  case $1 in Z | X) return 1 ;; esac
  echo "${20}"
}

# holder <run id>: what the symlink of a lock says while this process holds it.
holder() {
  echo "$$.$(started $$).$boot.$1"
}

# lives <holder>: true while that very process runs.
lives() (
  IFS=.
  set -- $1
  unset IFS
  [ $# -ge 3 ] && [ "$3" = "$boot" ] && [ "$(started "$1")" = "$2" ]
)

# take <lock> <deadline>: takes a lock for `$me`, waiting for its holder until that second (as `date +%s` counts).
take() {
  missed=0
  until error=$(ln -s "$me" "$1" 2>&1); do
    now=$(readlink "$1")
    if [ -z "$now" ]; then
      # Released this very moment, or nothing can be made here at all.
      missed=$((missed + 1))
      [ "$missed" -lt 20 ] || { say "$error" && return 1; }
    elif ! lives "$now"; then
      clear_lock "$1" "$now" "$2" || return 1
      continue
    elif [ "$(date +%s)" -ge "$2" ]; then
      say "$1 is held by process ${now%%.*} of run ${now##*.}"
      return 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
  done
}

# clear_lock <lock> <holder> <deadline>: removes the lock of a holder that is gone. Only who holds `<lock>.x` may do so:
# else two that saw the same dead holder could each remove what the other has just taken.
clear_lock() {
  take "$1.x" "$3" || return 1
  if [ "$(readlink "$1")" = "$2" ]; then rm -f "$1"; fi
  cleared=$?
  rm -f "$1.x"
  return "$cleared"
}

# settle <name> <deadline>: waits for a sync of the tree that is at work, and ends one that was cut off.
settle() {
  [ -L ".sync/$1.lock" ] || [ -d ".sync/$1" ] || return 0
  take ".sync/$1.lock" "$2" || return 1
  if finish "$1"; then rm -f ".sync/$1.lock"; else
    rm -f ".sync/$1.lock"
    return 1
  fi
}

# finish <name>: puts what a sync has committed into place, or drops what it has not. Needs the tree's lock.
# Every step may have been done before: whoever was killed here, the next one does the rest.
finish() {
  from=.sync/$1
  if [ -f "$from/commit" ]; then place || return 1; fi
  rm -f "$from/commit" && rm -rf "$from"
}

place() {
  while IFS= read -r path; do
    if [ -f "./$path" ] || [ -L "./$path" ]; then rm -f "./$path" || return 1; fi
  done <"$from/removals" || return 1
  while IFS= read -r path; do
    rmdir "./$path" 2>/dev/null || :
  done <"$from/emptied" || return 1
  number=0
  while IFS= read -r path; do
    number=$((number + 1))
    if [ -f "$from/new/$number" ]; then put "$from/new/$number" "./$path" || return 1; fi
  done <"$from/moves" || return 1
  [ ! -f "$from/list" ] || mv -f "$from/list" "$from.list"
}

put() {
  [ -d "${2%/*}" ] || mkdir -p "${2%/*}" || return 1
  # Into a folder of that name `mv` would move the file, instead of failing.
  if [ -d "$2" ] && [ ! -L "$2" ]; then
    say "$2 is a folder on the worker, and a file is to take its place: move it away"
    return 1
  fi
  # `mv` onto a link to a folder follows the link.
  [ ! -L "$2" ] || rm -f "$2" || return 1
  mv -f "$1" "$2"
}
