# ask <name>: what of the tree <name> is on this worker? Standard input: the wanted paths, one a line.
# Prints `list <line>` for each line of .sync/<name>.list; for each regular file that is wanted or listed
# `mode <hexadecimal> ./<path>` and `<SHA-256>  ./<path>`; at last `end`. Writes nothing, unless a sync was cut off.
LC_ALL=C
export LC_ALL
me=$(holder sync)
list=.sync/$1.list

settle "$1" $(($(date +%s) + 60)) || exit 1
if [ -f "$list" ]; then sed 's/^/list /' "$list"; fi
{
  cat
  if [ -f "$list" ]; then sed 's/^[^ ]*  //' "$list"; fi
} | sort -u | while IFS= read -r path; do
  [ ! -f "./$path" ] || [ -L "./$path" ] || printf './%s\n' "$path"
done | tr '\n' '\0' | xargs -0 -r sh -c 'stat -c "mode %f %n" "$@"; sha256sum "$@"' sh
echo end
