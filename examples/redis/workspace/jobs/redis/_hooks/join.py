"""Waits until the primary knows the replica that was just started, so that the next worker is not touched before."""

import sys
import time

import ops
import redis_client as redis

PATIENCE_SECONDS = 60

host, primary = ops.allocation_ip(), redis.primary()
if host == primary:
    print("is the primary")
    sys.exit()

end = time.monotonic() + PATIENCE_SECONDS
while not redis.has_replica(redis.replication(primary), host):
    # A large data set takes long to copy: that has no limit here.
    if redis.replication(host).get("master_sync_in_progress") == "1":
        end = time.monotonic() + PATIENCE_SECONDS
    if time.monotonic() > end:
        sys.exit(f"the primary {primary} does not know its replica after {PATIENCE_SECONDS} s")
    time.sleep(0.2)
print(f"follows {primary}")
