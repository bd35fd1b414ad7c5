# target <arguments of bin/runner>: runs a target of a job through bin/runner, which has a link or nothing in its place
# refused by the runner's own exit codes.
real bin bin/runner || exit 71
if [ ! -f bin/runner ]; then
  echo "bin/runner is missing on this worker: deploy to it first" >&2
  exit 66
fi
exec sh bin/runner "$@"
