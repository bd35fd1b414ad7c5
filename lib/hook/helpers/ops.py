"""What hook scripts import: `import ops`. It talks to the runtime API of the session that runs the script, and runs
commands on workers. Standard library only, Python 3.9 or newer.

    import ops

    namespace = f"secrets/job/{ops.job_name()}"
    if ops.get_store_value(namespace, "password").status_code == 404:
        ops.put_job_secret("password", make_password()).raise_for_status()

A function that asks the API returns a Response and raises for no status; only `get_kv_value` and `get_rollout_order`,
which return a value, raise ApiError with the API's message. An API that does not answer is an OSError.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import shlex
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any, Iterable

# How long the API may take for an answer; it is much faster, unless the answer is waited for: a semaphore, a command.
REQUEST_SECONDS = 60


class ApiError(OSError):
    """The API refused a request. The text is its message; `response` is its answer."""

    def __init__(self, response: Response) -> None:
        super().__init__(f"{response.error} ({response.status_code} for {response.request})")
        self.response = response


class Response:
    """An answer of the API."""

    def __init__(self, request: str, status_code: int, text: str) -> None:
        self.request = request
        self.status_code = status_code
        self.text = text

    @property
    def ok(self) -> bool:
        return self.status_code < 400

    @property
    def error(self) -> str:
        """The API's message when it refused, else its whole answer."""
        try:
            return str(self.json()["error"])
        except (ValueError, KeyError, TypeError):
            return self.text

    def json(self) -> Any:
        """The answer as Python values. A value of the store is `.json()["value"]`."""
        return json.loads(self.text)

    def raise_for_status(self) -> None:
        """Raises ApiError when the API refused the request."""
        if not self.ok:
            raise ApiError(self)


# ---- Who this script runs for. None where the variable is not set: outside of a session.


def allocation_id() -> str | None:
    """The allocation's UUID; it never changes."""
    return os.environ.get("ALLOCATION_ID")


def allocation_ip() -> str | None:
    """The worker, as workers.json calls it. The script itself runs on the control host."""
    return os.environ.get("ALLOCATION_IP")


def allocation_index() -> str | None:
    """Its place among all allocations of the job that are not removed, from "0" on."""
    return os.environ.get("ALLOCATION_INDEX")


def job_name() -> str | None:
    return os.environ.get("JOB")


def hook_event() -> str | None:
    """What the script runs for: `pre_deploy`, `cli`, ..."""
    return os.environ.get("EVENT")


def hook_name() -> str | None:
    return os.environ.get("HOOK")


def is_allocation_disabled() -> bool:
    return os.environ.get("DISABLED") == "1"


def is_one_shot() -> bool:
    """True in the first batch for the allocation with index 0. Where a rollout order puts that allocation into a later
    batch, it is true for none."""
    return os.environ.get("BATCH_INDEX") == "0" and os.environ.get("ALLOCATION_INDEX") == "0"


# ---- The key-value store.


def get_store_value(ns: str, key: str) -> Response:
    """`.json()` has namespace, key and value (a secret in clear); 404 where the key does not exist."""
    return _request("GET", "/kv", query={"namespace": ns, "key": key})


def get_kv_value(ns: str, key: str) -> str:
    """The value itself. Raises ApiError where the key does not exist or may not be read."""
    response = get_store_value(ns, key)
    response.raise_for_status()
    return response.json()["value"]


def put_job_variable(key: str, value: str, ttl: int = 0) -> Response:
    """Writes to vars/job/<this job>. After `ttl` seconds the key is gone; 0 means never."""
    return _write("PUT", "/kv", _own("vars"), key, value=value, ttl=ttl)


def put_job_secret(key: str, value: str, ttl: int = 0) -> Response:
    """Writes to secrets/job/<this job>, encrypted. After `ttl` seconds the key is gone; 0 means never."""
    return _write("PUT", "/kv/secret", _own("secrets"), key, value=value, ttl=ttl)


def delete_job_variable(key: str) -> Response:
    return _write("DELETE", "/kv", _own("vars"), key)


def delete_job_secret(key: str) -> Response:
    return _write("DELETE", "/kv/secret", _own("secrets"), key)


def list_job_keys(ns: str | None = None) -> Response:
    """`.json()["namespaces"]` maps a namespace to its keys: `ns`, or without it vars and secrets of this job."""
    return _request("GET", "/kv/keys", query=None if ns is None else {"namespace": ns})


def put_rollout_order(order: str | Iterable[str]) -> Response:
    """In which order the job's workers are rolled out until the next build: hosts in a list, or in a string with commas.
    Only on pre_deploy and cli."""
    text = order if isinstance(order, str) else ",".join(str(host).strip() for host in order)
    return _write("PUT", "/kv", _own("ops"), "rollout_order", value=text)


def get_rollout_order() -> str:
    """The order in force, hosts with commas: the catalog's where nobody has put one. Raises ApiError where the job has no
    workers."""
    return get_kv_value(_own("ops"), "rollout_order")


def list_hook_demands() -> Response:
    """`.json()` lists the hooks that demand this one: job, hook, demand_config."""
    return _request("GET", "/demands")


# ---- Semaphores, shared by the scripts of this job and event.


def acquire_semaphore(name: str, capacity: int = 1, timeout_seconds: int = 600) -> Response:
    """Waits for one of `capacity` (1 to 64) places, at most `timeout_seconds` (to 3600, 0 means 600); 408 when that was
    not enough. Release it in a `finally` block: a place is held until then or to the end of the session."""
    body = {"name": name, "capacity": capacity, "timeout_seconds": timeout_seconds}
    return _request("POST", "/semaphore/acquire", body=body, timeout=(max(timeout_seconds, 0) or 600) + 30)


def release_semaphore(name: str) -> Response:
    """409 where this allocation holds no place."""
    return _request("POST", "/semaphore/release", body={"name": name})


def semaphore_status(name: str) -> Response:
    """`.json()` has name, capacity, holders (allocation ids), waiting and available."""
    return _request("GET", "/semaphore/status", query={"name": name})


# ---- Commands on workers.


class CommandError(subprocess.CalledProcessError):
    """A command on a worker failed. Its text, which may hold a secret, is no part of this: `cmd` says where it ran."""

    def __str__(self) -> str:
        last = (self.stderr.strip() or self.stdout.strip()).rpartition("\n")[2]
        return f"{self.cmd} ended with exit code {self.returncode}{last and f': {last}'}"


def run_ssh(
    worker_ip: str, remote_cmd: str, *, timeout: float = 300, check: bool = True, connect_timeout: int = 15
) -> subprocess.CompletedProcess[str]:
    """Runs a command line on a worker: by bash, or sh where there is no bash; in the bucket's folder on the worker, or
    in / where there is none yet; with nothing to read on its standard input. For a worker with "connection": "local"
    that is this machine; else it goes over the ssh connection of the run, as root where use_sudo says so.

    Returns the exit code and both outputs as text. Raises subprocess.CalledProcessError for another exit code than 0,
    unless `check` is false (255 where the worker cannot be reached; stderr says why), and subprocess.TimeoutExpired when
    it has not ended `timeout` seconds after it began. Then, and when this script is ended, the command's process group on
    the worker gets TERM and later KILL. A lost connection does not end it. `connect_timeout` has no effect: ops.conf says
    how long a connection may take.
    """
    if "ALLOCATION_ID" not in os.environ:
        raise RuntimeError("ALLOCATION_ID is not set: workers can be reached only from a script that ops runs")
    if re.search("[\0\ud800-\udfff]", remote_cmd):
        raise ValueError("a command cannot hold NUL characters or bytes that are not UTF-8")
    body = {"worker": worker_ip, "command": remote_cmd, "timeout_seconds": max(0, math.ceil(timeout))}
    response = _request("POST", "/worker/command", body=body, timeout=None)
    if response.status_code == 404:
        raise ValueError(f"{worker_ip!r} is not a worker of this bucket")
    response.raise_for_status()
    end = response.json()
    what = f"the command on {worker_ip}"
    if end["reason"] == "timeout":
        raise subprocess.TimeoutExpired(what, timeout, end["stdout"], end["stderr"])
    done = subprocess.CompletedProcess(what, end["exit_code"], end["stdout"], end["stderr"])
    if check and done.returncode != 0:
        raise CommandError(done.returncode, what, done.stdout, done.stderr)
    return done


def run_runner_target(
    target: str, *, worker_ip: str | None = None, job: str | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs a Makefile target of a job (this script's, on its worker) as a deploy does: through bin/runner, which lets no
    other target of the job run at the same time. Raises like `run_ssh`."""
    words = ["exec", "sh", "bin/runner", job or job_name() or "", target, "-", "-", str(max(0, int(timeout) - 1))]
    return run_ssh(worker_ip or allocation_ip() or "", shlex.join(words), timeout=timeout)


def run_make_target(
    target: str, *, worker_ip: str | None = None, job: str | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs `make <target>` in the folder of a job (this script's) on a worker (its own), whatever else runs for the job.
    Raises like `run_ssh`."""
    command = shlex.join(["make", "-C", f"jobs/{job or job_name()}", target])
    return run_ssh(worker_ip or allocation_ip() or "", command, timeout=timeout)


def find_bucket_root() -> Path:
    """The bucket's folder: BUCKET_ROOT, else the nearest folder with an ops.conf, from the working folder or from this
    file upwards. Raises FileNotFoundError."""
    root = os.environ.get("BUCKET_ROOT")
    if root:
        return Path(root)
    for start in (Path.cwd(), Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "ops.conf").is_file():
                return folder
    raise FileNotFoundError(f"no ops.conf in {Path.cwd()} or above it: this is no bucket")


def load_ssh() -> tuple[str, Path, bool]:
    """User, private key and whether commands need `sudo -n`, as ops.conf says, for scripts that call ssh themselves.
    They do better with `ssh -F "$OPS_SSH_CONFIG" -- <worker>`: that knows host keys, ports, jump hosts and the users of
    single workers too. Raises FileNotFoundError without a key, ValueError for what it cannot read."""
    root = find_bucket_root()
    conf = root / "ops.conf"
    # Without an ops.conf the settings are those of the file that `ops init` writes.
    settings: dict[str, Any] = {"ssh_user": "agent", "ssh_key": "worker.key", "use_sudo": not conf.exists()}
    for line in conf.read_text(encoding="utf-8").splitlines() if conf.exists() else []:
        if line.lstrip().startswith("["):
            break
        found = re.match(r"""\s*["']?(ssh_user|ssh_key|use_sudo)["']?\s*=\s*(.*)""", line)
        if not found:
            continue
        value = re.fullmatch(r"""(?:(["'])([^"'\\]*)\1|(true|false))\s*(?:#.*)?""", found[2])
        if not value or (value[3] is not None) != (found[1] == "use_sudo"):
            raise ValueError(f"cannot read {found[1]} in {conf}")
        settings[found[1]] = value[2] if value[3] is None else value[3] == "true"
    key = root / "secrets" / settings["ssh_key"]
    if not key.is_file():
        raise FileNotFoundError(f"there is no private key {key}")
    return settings["ssh_user"], key, settings["use_sudo"]


# ---- Older names.

get_allocation_id = allocation_id
get_allocation_ip = allocation_ip
get_allocation_index = allocation_index
get_job = job_name
get_event = hook_event
get_command = hook_name
kv_get = get_store_value
kv_put = put_job_variable
kv_put_secret = put_job_secret
get_demands = list_hook_demands
put_deploy_order = put_rollout_order
get_deploy_order = get_rollout_order


# ---- How it is done.


def _own(kind: str) -> str:
    return f"{kind}/job/{job_name()}"


def _write(method: str, path: str, namespace: str, key: str, **more: object) -> Response:
    return _request(method, path, body={"namespace": namespace, "key": key, **more})


def _request(
    method: str,
    path: str,
    *,
    query: dict[str, str] | None = None,
    body: dict[str, object] | None = None,
    timeout: float | None = REQUEST_SECONDS,
) -> Response:
    if query:
        path = f"{path}?{urllib.parse.urlencode(query, safe='/')}"
    headers = {
        "X-ALLOCATION-ID": os.environ.get("ALLOCATION_ID", ""),
        "EVENT": os.environ.get("EVENT", ""),
        "COMMAND": os.environ.get("COMMAND", ""),
    }
    content = None
    if body is not None:
        headers["Content-Type"] = "application/json"
        content = json.dumps(body).encode()
    host = os.environ.get("HOOK_API_HOST", "127.0.0.1")
    connection = http.client.HTTPConnection(host, int(os.environ.get("HOOK_API_PORT", "8080")), timeout=timeout)
    try:
        connection.request(method, path, content, headers)
        answer = connection.getresponse()
        return Response(f"{method} {path}", answer.status, answer.read().decode())
    finally:
        connection.close()
