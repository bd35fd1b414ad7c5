"""Asks the redis servers of this job, from the control host. Standard library only."""

import socket

import ops


class RedisError(OSError):
    """Redis answers with an error, as it does while it loads its data."""


def primary():
    """The worker whose redis all others follow: the first allocation that is not disabled."""
    return ops.get_kv_value(f"ops/job/{ops.job_name()}", "worker_0")


def workers():
    """Where redis runs: the allocations that are not disabled."""
    return ops.get_kv_value(f"ops/job/{ops.job_name()}", "workers").split(",")


def replication(host):
    """What redis on a worker says of its replication, by name. Raises OSError where it does not answer."""
    address = (host, int(ops.get_kv_value("ops/bucket", "redis_tcp")))
    password = ops.get_kv_value(f"secrets/job/{ops.job_name()}", "password")
    with socket.create_connection(address, timeout=5) as connection, connection.makefile("rwb") as stream:
        _ask(stream, "AUTH", password)
        lines = _ask(stream, "INFO", "replication").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def has_replica(info, host):
    """Whether the primary that says this sends its writes to the replica on a worker."""
    replicas = [value.split(",") for name, value in info.items() if name.startswith("slave")]
    return any(f"ip={host}" in parts and "state=online" in parts for parts in replicas)


def _ask(stream, *words):
    parts = [word.encode() for word in words]
    stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
    stream.flush()
    head = stream.readline().rstrip().decode()
    if head.startswith("-"):
        raise RedisError(f"redis answers: {head[1:]}")
    if not head.startswith("$"):
        return head[1:]
    return stream.read(int(head[1:]) + 2).decode()
