"""Prints what the service on this allocation's worker answers."""

import json
import urllib.request

import ops

port = ops.get_kv_value("ops/bucket", "hello_http")
with urllib.request.urlopen(f"http://{ops.allocation_ip()}:{port}/", timeout=5) as response:
    print(json.dumps(json.load(response), indent=2))
