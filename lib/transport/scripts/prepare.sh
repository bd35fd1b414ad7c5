# prepare <folder> <optional or needed> <run> <mark>: makes the bucket's folder. A folder that another user owns or may
# write to is refused by one line on standard error: scripts there would be under that user's control. An optional folder
# is not made: exit code 3 tells that there is none. With a <run>, exit code 4 tells that other runs have left spools
# (attach.sh) where scripts run: for each `<mark> left`, the name and the first line. An empty spool goes: its command
# never started.
umask 022
bucket=${1##*/} run=$3 mark=$4

# left <folder>: tells of the spools there.
left() {
  [ -n "$run" ] || return 1
  set -- "$1/.ops-$bucket-"*.out
  found=1
  for spool; do
    case $spool in *"-$run-"*) continue ;; esac
    if [ -s "$spool" ]; then
      spool=${spool%.out}
      IFS= read -r line <"$spool.out" && echo "$mark left ${spool##*/} $line" && found=0
    elif [ -e "$spool" ]; then
      rm -f "$spool"
    fi
  done
  return "$found"
}

if [ "$2" = optional ] && [ ! -d "$1" ]; then
  left . && exit 4
  exit 3
fi
[ -d "$1" ] || mkdir -p "$1" || exit 1
found=$(ls -ldn "$1") || exit 1
set -- "$1" $found
case $2 in
d????-??-*)
  if [ -O "$1" ]; then
    left "$1" && exit 4
    exit 0
  fi
  ;;
esac
echo "$1 must be a folder of the user who runs commands there (number $(id -u)), with mode 0755 or less" >&2
exit 1
