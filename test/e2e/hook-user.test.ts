import assert from "node:assert/strict";
import { chmodSync, chownSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { NEEDS_ROOT, NOBODY } from "../helpers/other-user.ts";
import { commandOf, SshFleet } from "../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { processesIn } from "../helpers/worker.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const LOCAL = "127.0.0.1";
const REMOTE = "127.0.0.2";

/** Tells who the script is, what it may, and where it is. */
const WHO = `import os, ops
lines = open("/proc/self/status").read().splitlines()
status = dict(line.split(":\\t", 1) for line in lines if ":\\t" in line)
print("who", os.getresuid(), os.getresgid(), os.environ.get("USER"), status["NoNewPrivs"], {status["Cap" + one] for one in ("Inh", "Prm", "Eff", "Bnd", "Amb")})
print("there", os.getcwd() == os.environ["BUCKET_ROOT"], sorted(os.listdir(".")), open("workspace/jobs/web/Makefile").read() != "")
open("scratch", "w").write("a script may write in its folder")
ops.put_job_variable("who", "a script").raise_for_status()
print("kept", ops.get_kv_value("vars/job/web", "who"))
`;
const TYPESCRIPT = `import * as ops from "./ops.ts";
await ops.putJobVariable("also", String(process.getuid?.()));
console.log("typescript", process.getuid?.(), (await (await ops.getStoreValue("vars/job/web", "also")).json()).value);
`;
/** Tries to open what the server keeps to itself; the list is part of the source. */
const LOOK = `import json, os, ops
for place in json.load(open("workspace/places.json")):
    try:
        os.listdir(place) if os.path.isdir(place) else open(place).read(1)
        print("OPEN", place)
    except PermissionError:
        print("closed", place)
try:
    print("OPEN", ops.load_ssh())
except FileNotFoundError:
    print("no file of the key")
`;
/** Uses and attacks the agent. */
const SSH = `import os, ops, subprocess
def run(*argv, **more):
    return subprocess.run(argv, capture_output=True, text=True, **more)
config = os.environ["OPS_SSH_CONFIG"]
print("run_ssh", ops.run_ssh("${REMOTE}", "id -u; pwd").stdout.split())
print("ssh", run("ssh", "-F", config, "--", "${REMOTE}", "echo", "$USER").stdout.strip())
os.environ["SSH_AUTH_SOCK"] = os.path.join(os.path.dirname(config), "agent")
print("keys", run("ssh-add", "-L").stdout.split()[:2])
print("emptied", run("ssh-add", "-D").returncode, run("ssh-add", "-s", "/usr/lib/x.so", input="").returncode, len(run("ssh-add", "-L").stdout.splitlines()))
print("the agent itself", os.access(os.path.join(os.path.dirname(config), "keys"), os.X_OK))
`;
const LOCALLY = `import os, ops
print("local", ops.run_ssh("${LOCAL}", "id -u; pwd; grep NoNewPrivs /proc/self/status; touch made").stdout.split())
`;
const HANG = `import os, subprocess
print("hangs in", os.getcwd(), flush=True)
subprocess.run(["sh", "-c", "trap '' TERM; sleep 600 & sleep 600"])
`;

/** What the unit of `ops server install --hook-user` leaves to root. */
const CAPABILITIES = "-all,+chown,+dac_override,+kill,+setgid,+setpcap,+setuid";
const AS_IN_THE_UNIT = ["setpriv", `--bounding-set=${CAPABILITIES}`, "--no-new-privs", "--", process.execPath] as const;

/** A server with the flag, and a bucket with a job on this machine and on a worker over ssh. */
async function setUp(t: TestContext, flags = ["--hook-user", NOBODY.name]) {
  const fleet = await SshFleet.start(t, { hosts: [REMOTE] });
  const folder = temporaryFolder(t);
  // The user has to get to the worker's folder, and to nothing else here.
  chmodSync(folder, 0o711);
  const [root, temporary] = [path.join(folder, "root"), path.join(folder, "temporary")];
  mkdirSync(temporary);
  chmodSync(temporary, 0o1777);
  const start = async () => {
    const node = flags.length > 0 ? { node: [...AS_IN_THE_UNIT] as [string, ...string[]] } : {};
    const server = await LocalServer.start(root, { flags, env: { TMPDIR: temporary }, ...node });
    t.after(() => server.stop("SIGKILL"));
    return server;
  };
  const server = await start();
  const bucket = await server.createBucket();
  const at = (...parts: string[]) => path.join(root, bucket, ...parts);
  const local = path.join(folder, "worker");
  mkdirSync(local);
  if (flags.length > 0) chownSync(local, NOBODY.uid, NOBODY.gid);
  const { user: ssh_user, port: ssh_port } = fleet.sshd;
  const hooks = { who: WHO, look: LOOK, ssh: SSH, locally: LOCALLY, hang: HANG };
  const closed = [root, ...["access.json", "audit.key", "audit"].map((name) => path.join(root, name))];
  const own = ["secrets", "secrets/kv.key", "secrets/ca.key", "secrets/worker.key", "data/ops.db", "logs", ".ssh", "workspace"];
  const places = [...closed, ...own.map((name) => at(name)), `/proc/${server.process.pid}/environ`];
  const source = path.join(folder, "source");
  makeWorkspace(source, {
    workers: [
      { host: LOCAL, connection: "local", root: local },
      { host: REMOTE, root: fleet.worker(REMOTE).root, ssh_user, ssh_port },
    ],
    jobs: {
      web: {
        version: "1.0.0",
        selectors: ["worker"],
        hooks: Object.fromEntries([...Object.keys(hooks), "typed"].map((name) => [name, { executed_on: ["cli"] }])),
      },
    },
    files: {
      "ops.conf": 'ssh_key = "worker.key"\n',
      "workspace/places.json": JSON.stringify(places),
      "workspace/jobs/web/Makefile": "start stop restart reload status:\n\t@id -u\n",
      "workspace/jobs/web/_hooks/typed.ts": TYPESCRIPT,
      "workspace/jobs/web/_hooks/typed.py": null,
      ...Object.fromEntries(Object.entries(hooks).map(([name, text]) => [`workspace/jobs/web/_hooks/${name}.py`, text])),
    },
  });
  const pushed = await server.push(bucket, source);
  assert.equal(pushed.code, 0, pushed.stdout + pushed.stderr);
  copyFileSync(fleet.sshd.clientKey, at("secrets", "worker.key"));
  chmodSync(at("secrets", "worker.key"), 0o600);
  copyFileSync(fleet.knownHostsFile, at(".ssh", "known_hosts"));
  const run = async (kind: string, params: object = {}) => {
    let text = "";
    const ended: Run = await server.run(bucket, kind, params, (part) => {
      text += part;
    });
    return { ...ended, text, said: [...text.matchAll(/web@127\.0\.0\.2 \| (.*)/g)].map(([, line]) => line) };
  };
  const left = {
    /** The folders of sessions. */
    folders: () => readdirSync(temporary).filter((name) => name.startsWith("ops-hooks-")).length,
    agents: () => processes().filter((pid) => commandOf(pid).includes(`ssh-agent -D -a ${temporary}`)).length,
    /** The processes of scripts. */
    scripts: () => processesIn(temporary).length,
    /** Those whose group the lock does not name yet. */
    unnamed() {
      const { groups = [] } = JSON.parse(readFileSync(layoutOf(at()).lock, "utf8")) as { groups?: { pgid: number }[] };
      const named = groups.map(({ pgid }) => pgid);
      return processesIn(temporary).filter((pid) => !named.includes(groupOf(pid))).length;
    },
  };
  return { fleet, start, server, bucket, at, local, places, run, left };
}

/** The group of a process: the third field behind its name. */
function groupOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ")[2]);
}

function processes(): number[] {
  const names = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return names.map(Number);
}

test("CP-661 HR-350 HR-351 HR-352 a script is another user without rights, in a folder that looks like the bucket, and opens nothing of the server", {
  skip: NEEDS_ROOT,
}, async (t) => {
  const { places, run, at, left } = await setUp(t);
  const who = await run("hooks", { hook: "who" });
  assert.deepEqual(
    who.said,
    [
      "who (65534, 65534, 65534) (65534, 65534, 65534) nobody 1 {'0000000000000000'}",
      "there True ['ops.conf', 'scratch', 'tmp', 'workspace'] True",
      "kept a script",
    ],
    who.text,
  );
  assert.equal(existsSync(at("scratch")), false);
  const look = await run("hooks", { hook: "look" });
  assert.deepEqual(look.said, [...places.map((place) => `closed ${place}`), "no file of the key"], look.text);
  const typed = await run("hooks", { hook: "typed" });
  assert.deepEqual(typed.said, ["typescript 65534 65534"], typed.text);
  assert.deepEqual([left.folders(), left.agents()], [0, 0]);
});

test("HR-353 a script reaches workers by run_ssh and ssh; the agent shows and signs, and does nothing else", {
  skip: NEEDS_ROOT,
}, async (t) => {
  const { fleet, run } = await setUp(t);
  const ssh = await run("hooks", { hook: "ssh" });
  const [type, key] = readFileSync(`${fleet.sshd.clientKey}.pub`, "utf8").split(" ");
  assert.deepEqual(
    ssh.said,
    ["run_ssh ['0', '/']", "ssh root", `keys ['${type}', '${key}']`, "emptied 1 1 1", "the agent itself False"],
    ssh.text,
  );
});

test("HR-354 a local worker's commands run as the user, in a folder of the user; one of root's is refused with what to do", {
  skip: NEEDS_ROOT,
}, async (t) => {
  const { bucket, local, run } = await setUp(t);
  const deployed = await run("deploy");
  assert.equal(deployed.status, "succeeded", deployed.text);
  assert.match(deployed.text, /web@127\.0\.0\.1 \| 65534\n/);
  const folder = path.join(local, bucket);
  for (const name of [folder, path.join(folder, "jobs/web/Makefile"), path.join(folder, "bin/runner")])
    assert.equal(statSync(name).uid, NOBODY.uid, name);
  const hook = await run("hooks", { hook: "locally" });
  assert.match(hook.text, new RegExp(`web@127.0.0.1 \\| local \\['65534', '${folder}', 'NoNewPrivs:', '1'\\]`));
  assert.equal(statSync(path.join(folder, "made")).uid, NOBODY.uid);
  chownSync(folder, 0, 0);
  const refused = await run("job_status", { jobs: ["web"] }).catch(() => run("health_check"));
  assert.match(refused.text, new RegExp(`it must be a folder of nobody \\(--hook-user\\).*chown -R nobody: ${folder}`));
});

test("HR-355 a cancel ends all processes of a script; what a killed server and run left goes with the next run", {
  skip: NEEDS_ROOT,
}, async (t) => {
  const { start, server, bucket, left } = await setUp(t);
  const hanging = async () => {
    const id = await server.startRun(bucket, "hooks", { hook: "hang" });
    await until("the script and what it starts", () => left.scripts() === 5);
    return id;
  };
  const id = await hanging();
  assert.deepEqual([left.folders(), left.agents()], [1, 1]);
  assert.equal((await server.call("POST", `/api/buckets/${bucket}/runs/${id}/cancel`)).status, 202);
  assert.equal((await server.follow(bucket, id)).status, "cancelled");
  assert.deepEqual([left.scripts(), left.folders(), left.agents()], [0, 0, 0]);
  await hanging();
  await until("the lock to name what runs", () => left.unnamed() === 0);
  // The server first stands still: it would tidy up for a run that was killed.
  process.kill(server.process.pid as number, "SIGSTOP");
  process.kill(runnerOf(server), "SIGKILL");
  await until("the agent to end with its run", () => left.agents() === 0);
  await server.stop("SIGKILL");
  assert.deepEqual([left.scripts(), left.folders()], [5, 1]);
  const next = await start();
  assert.equal(left.scripts(), 0, "the start ends what the killed run has started");
  assert.equal((await next.run(bucket, "build")).status, "succeeded");
  assert.equal(left.folders(), 0);
});

test("without the flag scripts run as the server does, in the bucket itself", async (t) => {
  const { at, run } = await setUp(t, []);
  const who = await run("hooks", { hook: "who" });
  assert.equal(who.status, "succeeded", who.text);
  assert.equal(existsSync(at("scratch")), true);
  assert.match(String(who.said[0]), new RegExp(`^who \\(${process.getuid?.()},`));
});

/** The process of the run that a server has started. */
function runnerOf(server: LocalServer): number {
  const pid = readFileSync(`/proc/${server.process.pid}/task/${server.process.pid}/children`, "latin1");
  const found = pid
    .split(" ")
    .filter(Boolean)
    .map(Number)
    .find((child) => commandOf(child).includes("worker run"));
  return found as number;
}
