# vacate <folder> <host>: removes this bucket's folder from a worker that has left the bucket. Says `used` and removes
# nothing where worker.json names another worker: the same machine is in the bucket under another name.
here=$(pwd -P)
[ "${here##*/}" = "$1" ] || { say "$here is not the folder of bucket $1" && exit 1; }
if [ -f worker.json ] && ! grep -qF "\"worker_ip\": \"$2\"" worker.json; then
  echo used
  exit
fi
for lock in .runner/*.lock .sync/*.lock; do
  now=$(readlink "$lock") || continue
  ! lives "$now" || { say "$lock is held by process ${now%%.*}" && exit 1; }
done
cd / && exec rm -rf "$here"
