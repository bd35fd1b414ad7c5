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

# How long the API may take for an answer; it is much faster, unless the answer is a wait for a semaphore.
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
        last = self.stderr.strip().rpartition("\n")[2]
        return f"{self.cmd} ended with exit code {self.returncode}{last and f': {last}'}"


def run_ssh(
    worker_ip: str, remote_cmd: str, *, timeout: float = 300, check: bool = True, connect_timeout: int = 15
) -> subprocess.CompletedProcess[str]:
    """Runs a command line on a worker: by bash, or sh where there is no bash; in the bucket's folder on the worker, or
    in / where there is none yet; with nothing to read on its standard input. For a worker with "connection": "local"
    that is this machine; else it goes over ssh with the settings and connection of the run, as root where use_sudo says
    so.

    Returns the exit code and both outputs as text. Raises subprocess.CalledProcessError for another exit code than 0,
    unless `check` is false (255 is ssh's own: it could not connect), and subprocess.TimeoutExpired when it has not
    ended after `timeout` seconds. Then, and when this script is ended, the command's process group on the worker gets
    TERM and after 2 s KILL. What it leaves in the background must not keep its outputs: they are waited for.
    """
    if "\0" in remote_cmd:
        raise ValueError("a command cannot hold a NUL character")
    worker = _worker(worker_ip)
    is_local = worker["connection"] == "local"
    argv = ["sh", "-c", _RUN_A_LINE]
    if not is_local:
        options = ["-T", "-o", f"ConnectTimeout={connect_timeout}", "-o", "LogLevel=ERROR"]
        argv = ["ssh", "-F", _setting("OPS_SSH_CONFIG"), *options, "--", worker_ip, f"exec sh -c '{_RUN_A_LINE}'"]
    lines = [
        *([_AS_ROOT] if worker["use_sudo"] and not is_local else []),
        # Where the network is gone nobody tells the worker that the time is over.
        f"set -- {shlex.quote(worker['folder'])} {math.ceil(timeout) + 30}; {_line(_ATTEND)}",
        _line(remote_cmd),
    ]
    text = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    done = _attend(argv, text, timeout, f"the command on {worker_ip}", is_local)
    if check and done.returncode != 0:
        raise CommandError(done.returncode, done.args, done.stdout, done.stderr)
    return done


def run_runner_target(
    target: str, *, worker_ip: str | None = None, job: str | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs a Makefile target of a job (this script's, on its worker) as a deploy does: through bin/runner, which lets no
    other target of the job run at the same time. Raises like `run_ssh`."""
    host = worker_ip or allocation_ip() or ""
    words = ["exec", "sh", _workers()["runner"], job or job_name() or "", target, "-", "-", str(max(0, int(timeout) - 1))]
    return run_ssh(host, f"cd {shlex.quote(_worker(host)['folder'])} && {shlex.join(words)}", timeout=timeout)


def run_make_target(
    target: str, *, worker_ip: str | None = None, job: str | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs `make <target>` in the folder of a job (this script's) on a worker (its own), whatever else runs for the job.
    Raises like `run_ssh`."""
    host = worker_ip or allocation_ip() or ""
    folder = f"{_worker(host)['folder']}/jobs/{job or job_name()}"
    return run_ssh(host, shlex.join(["make", "-C", folder, target]), timeout=timeout)


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
    timeout: float = REQUEST_SECONDS,
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


def _setting(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set: workers can be reached only from a script that ops runs")
    return value


def _workers() -> dict[str, Any]:
    return json.loads(Path(_setting("OPS_WORKERS_FILE")).read_text(encoding="utf-8"))


def _worker(host: str) -> dict[str, Any]:
    workers = _workers()["workers"]
    if host not in workers:
        raise ValueError(f"{host!r} is not a worker of this bucket")
    return workers[host]


# All that a command needs follows on standard input, a line for each shell on the way, so that no other user sees it in
# the list of processes. `read` takes a line byte by byte and leaves the next one for the next shell.
_RUN_A_LINE = 'IFS= read -r ops_line; eval "$ops_line"'

_AS_ROOT = f"""if [ "$(id -u)" = 0 ]; then set --; else set -- sudo -n; fi; exec "$@" sh -c '{_RUN_A_LINE}'"""

# Runs the line that comes next, in a process group of its own. Standard input stays open as long as the script on the
# control host waits for it. When that ends, or after $2 seconds, the group is ended; the command may not have got it yet.
_ATTEND = f"""
exec 3<&0 4>&2 </dev/null 2>/dev/null
IFS= read -r ops_line <&3
cd "$1" || cd /
shell=sh
if command -v bash >/dev/null; then shell=bash; fi
printf '%s\\n' "$ops_line" |
  setsid "$shell" -c 'IFS= read -r ops_line; exec </dev/null; eval "$ops_line"' 2>&4 3<&- 4>&- &
command=$!
{{
  if command -v timeout; then timeout "$2" cat; else cat; fi <&3
  trap '' TERM
  kill -TERM "-$command" || kill -TERM "$command"
  tries=0
  while {{ kill -0 "-$command" || kill -0 "$command"; }} && [ "$tries" -lt 20 ]; do
    tries=$((tries + 1))
    sleep 0.1 || sleep 1
  done
  kill -KILL "-$command" "$command"
}} >/dev/null 4>&- &
attendant=$!
wait "$command"
code=$?
kill "$attendant"
wait "$attendant"
exit "$code"
"""


def _line(text: str) -> str:
    """A line that runs `text`. A newline cannot be part of a line: a variable stands for it."""
    word = shlex.quote(text).replace("\n", """'"$ops_newline"'""")
    return f"ops_newline=$(printf '\\nx'); ops_newline=${{ops_newline%x}}; eval ' '{word}"


def _attend(
    argv: list[str], text: bytes, timeout: float, what: str, new_session: bool
) -> subprocess.CompletedProcess[str]:
    """Runs a program that gets `text` on its standard input, which stays open until the program or the time has ended."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    # In a session of its own it outlives a signal to this script's group, and can end what it started.
    with subprocess.Popen(argv, start_new_session=new_session, **pipes) as process:
        held = os.dup(process.stdin.fileno())
        try:
            out, err = process.communicate(text, timeout)
        except subprocess.TimeoutExpired:
            process.stdin.close()
            os.close(held)
            held = -1
            out, err = _collect(process)
            raise subprocess.TimeoutExpired(what, timeout, _text(out), _text(err)) from None
        finally:
            if held >= 0:
                os.close(held)
        return subprocess.CompletedProcess(what, process.returncode, _text(out), _text(err))


def _collect(process: subprocess.Popen[bytes]) -> tuple[bytes | None, bytes | None]:
    """What a program has said that was just told to end; one that does not end in time is killed."""
    try:
        return process.communicate(timeout=5)
    except subprocess.TimeoutExpired as late:
        process.kill()
        return late.output, late.stderr


def _text(output: bytes | None) -> str:
    return (output or b"").decode(errors="replace")
