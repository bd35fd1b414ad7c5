"""Prints what redis on this allocation's worker says of its replication."""

import re

import ops
import redis_client as redis

wanted = re.compile(r"role|master_host|master_link_status|connected_slaves|slave\d+")
for name, value in redis.replication(ops.allocation_ip()).items():
    if wanted.fullmatch(name):
        print(f"{name}:{value}")
