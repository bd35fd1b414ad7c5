"""Prints what redis on this allocation's worker says of its replication. Standard library only."""

import json
import os
import re
import socket
import urllib.parse
import urllib.request


def value(namespace, key):
    """A value of the bucket's key-value store."""
    api = f"http://{os.environ['HOOK_API_HOST']}:{os.environ.get('HOOK_API_PORT', '8080')}"
    query = urllib.parse.urlencode({"namespace": namespace, "key": key})
    headers = {
        "X-ALLOCATION-ID": os.environ["ALLOCATION_ID"],
        "EVENT": os.environ["EVENT"],
        "COMMAND": os.environ["COMMAND"],
    }
    with urllib.request.urlopen(urllib.request.Request(f"{api}/kv?{query}", headers=headers), timeout=5) as response:
        return json.load(response)["value"]


def ask(stream, *words):
    """Sends one command and returns its answer; an answer that is an error ends the hook."""
    parts = [word.encode() for word in words]
    stream.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
    stream.flush()
    head = stream.readline().rstrip().decode()
    if head.startswith("-"):
        raise SystemExit(f"redis answers: {head[1:]}")
    if not head.startswith("$"):
        return head[1:]
    return stream.read(int(head[1:]) + 2).decode()


address = (os.environ["ALLOCATION_IP"], int(value("ops/bucket", "redis_tcp")))
with socket.create_connection(address, timeout=5) as connection, connection.makefile("rwb") as stream:
    ask(stream, "AUTH", value("vars/job/redis", "password"))
    lines = ask(stream, "INFO", "replication").splitlines()

wanted = re.compile(r"(role|master_host|master_link_status|connected_slaves|slave\d+):")
print("\n".join(line for line in lines if wanted.match(line)))
