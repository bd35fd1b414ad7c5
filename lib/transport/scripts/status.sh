# status <job>: `make status` of a job, with all its output on standard output. Exit codes as of bin/runner.
real "jobs/$1" || exit 71
if [ ! -d "jobs/$1" ]; then
  echo "jobs/$1 is missing on this worker: deploy to it first"
  exit 66
fi
exec make -s -C "jobs/$1" status 2>&1
