# compare <job> …: what of these jobs is on this worker? Standard input: one line for each wanted path, `file <path>`, and
# for each folder whose other files are to be told, `folder <path>`, all below jobs/.
# Prints `unsettled <job>` for each job whose files a sync is at work on or was cut off at; `link ./<path>` for the first
# symbolic link on the way to a folder, behind which nothing is looked at; for each wanted path that is a
# regular file `mode <hexadecimal> ./<path>` and `<SHA-256>  ./<path>`, for one that is something else `other ./<path>`;
# for each entry of a folder that is no folder `entry ./<path>`; at last `end`. Writes nothing.
LC_ALL=C
export LC_ALL
newline='
'

tell() {
  [ $# -eq 0 ] || { stat -c 'mode %f %n' "$@" && sha256sum "$@"; }
}

real .sync || exit 1
for job do
  if [ -L ".sync/$job.lock" ] || [ -d ".sync/$job" ]; then echo "unsettled $job"; fi
done
set --
above=
while IFS=' ' read -r what path; do
  case $what in
  file)
    [ "${path%/*}" = "$above" ] || { above=${path%/*} && way "$above"; }
    [ -z "$link" ] || continue
    if [ -L "./$path" ] || { [ -e "./$path" ] && [ ! -f "./$path" ]; }; then
      echo "other ./$path"
    elif [ -f "./$path" ]; then
      set -- "$@" "./$path"
      [ $# -lt 100 ] || { tell "$@" && set --; }
    fi
    ;;
  folder)
    above=$path
    way "$path"
    [ -z "$link" ] || { echo "link ./$link" && continue; }
    for entry in "./$path"/* "./$path"/.[!.]* "./$path"/..?*; do
      if [ -d "$entry" ] && [ ! -L "$entry" ]; then continue; fi
      if [ ! -e "$entry" ] && [ ! -L "$entry" ]; then continue; fi
      case $entry in *"$newline"*) ;; *) printf 'entry %s\n' "$entry" ;; esac
    done
    ;;
  esac
done
tell "$@"
echo end
