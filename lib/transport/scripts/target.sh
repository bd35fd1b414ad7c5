# target <arguments of bin/runner>: runs a target of a job through bin/runner. Where bin/runner is missing or a link,
# the exit code is one by which the runner refuses.
real bin bin/runner || exit 71
if [ ! -f bin/runner ]; then
  echo "bin/runner is missing on this worker: deploy to it first" >&2
  exit 66
fi
exec sh bin/runner "$@"
