"""Fails unless redis on this worker answers in the role it has, a replica with a link to the primary."""

import sys

import ops
import redis_client as redis

if ops.is_allocation_disabled():
    sys.exit()

host, primary = ops.allocation_ip(), redis.primary()
try:
    info = redis.replication(host)
except OSError as error:
    sys.exit(f"redis does not answer: {error}")
role = "master" if host == primary else "slave"
if info["role"] != role:
    sys.exit(f"redis is a {info['role']}, not a {role}")
if host != primary and info["master_link_status"] != "up":
    sys.exit(f"the link to the primary {primary} is down")
