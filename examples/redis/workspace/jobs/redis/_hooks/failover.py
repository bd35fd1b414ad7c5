"""Lets the next deploy restart the replicas first, the one that has most of the data before all others, and the primary
last: whoever fails, the primary is still there. Prints that order. It holds until the next build.
"""

import os
import sys

import ops
import redis_client as redis

# Once for all allocations: by the first script of the first batch.
if os.environ["ROLLOUT_ORDER"].split(",")[0] != ops.allocation_ip():
    sys.exit()


def offset(host):
    """How much of the primary's writes a replica has."""
    return int(redis.replication(host)["slave_repl_offset"])


primary = redis.primary()
replicas = sorted((host for host in redis.workers() if host != primary), key=offset, reverse=True)
disabled = [host for host in os.environ["ROLLOUT_ORDER"].split(",") if host not in [primary, *replicas]]
ops.put_rollout_order([*disabled, *replicas, primary]).raise_for_status()
for host in replicas:
    print(f"{host}: replica, has {offset(host)} bytes of the primary's log")
print(f"{primary}: primary")
