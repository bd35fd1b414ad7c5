# doctor <the bucket's folder> <tool>…: what an operator should know about this worker. Prints `clock <seconds since
# 1970>`; `missing <tool>` for each tool that is not installed; `blocked <path>` for something else in the place of a
# folder; `disk <free> <all>` in KiB for the disk of the folder; `unwritable <path>` for a folder below it in which this
# user cannot write; `held <lock>` for a lock whose holder lives, `left <lock>` for a lock whose holder is gone; `cut <job>`
# for a sync that was cut off; at last `end`. Writes nothing.
folder=$1
shift
echo "clock $(date +%s)"
for tool; do command -v "$tool" >/dev/null 2>&1 || echo "missing $tool"; done
place=$folder
while [ ! -d "$place/" ]; do
  [ ! -e "$place" ] || echo "blocked $place"
  place=${place%/*}
done
df -Pk "$place/" | {
  IFS= read -r _
  read -r _ all _ free _
  echo "disk $free $all"
}
if cd "$folder" 2>/dev/null; then
  for lock in .runner/*.lock .sync/*.lock; do
    holder=$(readlink "$lock") || continue
    if lives "$holder"; then echo "held $lock"; else echo "left $lock"; fi
  done
  for place in . .sync .runner bin jobs jobs/*/; do
    [ ! -e "$place" ] || [ -w "$place" ] || echo "unwritable ${place%/}"
  done
  for tree in .sync/*/; do [ ! -d "$tree" ] || echo "cut $tree"; done
fi
echo end
