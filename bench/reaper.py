# reaper.py <output file> <end or keep> <command> …
#
# Runs a command and prints the seconds that it took, and the CPU of all that it started: also of processes that outlive
# the command, such as connections that are kept for a next time. They come back to this process, which ends them and
# waits for them, or with `keep` leaves them alone and uncounted.
import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
output, ending, *argv = sys.argv[1:]
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
    sys.exit("cannot become the parent of orphans")
started = time.monotonic()
with open(output, "wb") as out:
    code = subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
seconds = time.monotonic() - started


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as found:
        return [int(pid) for pid in found.read().split()]


while ending == "end" and children():
    for pid in children():
        os.kill(pid, signal.SIGTERM)
    os.wait()
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(seconds, usage.ru_utime + usage.ru_stime)
sys.exit(code)
