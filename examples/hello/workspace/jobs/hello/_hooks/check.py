"""Prints what the service on this allocation's worker answers. Standard library only."""

import json
import os
import urllib.parse
import urllib.request

PORT_NAME = "hello_http"


def get(url, headers=None):
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers or {}), timeout=5) as response:
        return json.load(response)


def port():
    """The port that the build gave to this job, from the bucket's key-value store."""
    api = f"http://{os.environ['HOOK_API_HOST']}:{os.environ.get('HOOK_API_PORT', '8080')}"
    query = urllib.parse.urlencode({"namespace": "ops/bucket", "key": PORT_NAME})
    headers = {
        "X-ALLOCATION-ID": os.environ["ALLOCATION_ID"],
        "EVENT": os.environ["EVENT"],
        "COMMAND": os.environ["COMMAND"],
    }
    return get(f"{api}/kv?{query}", headers)["value"]


print(json.dumps(get(f"http://{os.environ['ALLOCATION_IP']}:{port()}/"), indent=2))
