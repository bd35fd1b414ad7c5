# discard <job>: removes all that a job has on this worker: its folder, data and logs included, and what sync and the
# runner keep about it. Waits 5 s for a target or a sync of the job, then fails. Killed half-way, it can be repeated.
identify gc
patience=5
real .runner .sync jobs || exit 1
mkdir -p -m 700 .runner .sync || exit 1
trap '[ "$(readlink ".runner/$1.lock")" != "$me" ] || rm -f ".runner/$1.lock"' EXIT
trap 'exit 143' TERM INT HUP
take ".runner/$1.lock" && take ".sync/$1.lock" || exit 1
# The commit file goes first: the rest of a sync must not look like files to put into place.
rm -rf ".sync/$1/commit" ".sync/$1" ".sync/$1.list" "jobs/$1" ".runner/$1.last" ".runner/$1.next" ".runner/$1.pipe"
code=$?
rm -f ".sync/$1.lock"
exit "$code"
