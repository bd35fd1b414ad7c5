# reaper.py <output file> <end or keep> <command> …
#
# Runs a command and prints the seconds that it took, the CPU of all that it started, the most memory in KiB and the most
# descriptors of one of its processes. Processes may outlive the command, such as connections that are kept for a next
# time. They come back to this process, which ends them and waits for them, or with `keep` leaves them alone and uncounted.
# Descriptors are counted every now and then, so that a peak of a moment is missed.
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
output, ending, *argv = sys.argv[1:]
if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
    sys.exit("cannot become the parent of orphans")
started = time.monotonic()


def descendants(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as found:
            below = [int(child) for child in found.read().split()]
    except OSError:
        return []
    return below + [one for child in below for one in descendants(child)]


def count_descriptors():
    global most_descriptors
    while not ended.wait(0.2):
        for pid in descendants(os.getpid()):
            try:
                most_descriptors = max(most_descriptors, len(os.listdir(f"/proc/{pid}/fd")))
            except OSError:
                pass


most_descriptors = 0
ended = threading.Event()
threading.Thread(target=count_descriptors, daemon=True).start()
with open(output, "wb") as out:
    code = subprocess.call(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)
seconds = time.monotonic() - started
ended.set()


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as found:
        return [int(pid) for pid in found.read().split()]


while ending == "end" and children():
    for pid in children():
        os.kill(pid, signal.SIGTERM)
    os.wait()
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, most_descriptors)
sys.exit(code)
