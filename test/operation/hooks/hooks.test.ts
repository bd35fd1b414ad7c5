import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, realpathSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { CatalogJob } from "../../../lib/bucket/base/model.ts";
import { catalogAllocations, catalogJobs, catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import type { Failure } from "../../../lib/core/errors.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { type HookPass, HookSession, type ScriptResult } from "../../../lib/operation/hooks/hooks.ts";
import { Deploys, HOSTS, type JobsSpec } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { processesIn } from "../../helpers/worker.ts";

const [A, B, C] = HOSTS;

interface Setup {
  deploys: Deploys;
  dir: string;
  job(name?: string): CatalogJob;
  /** Runs a pass in a session of its own; what scripts wrote is stored. */
  run(pass: Omit<HookPass, "job"> & { job?: string }, signal?: AbortSignal): Promise<ScriptResult[]>;
}

async function setUp(t: TestContext, jobs: JobsSpec, options: Parameters<Deploys["build"]>[1] = {}): Promise<Setup> {
  const deploys = await Deploys.make(t);
  await deploys.build(jobs, options);
  const { bucket } = deploys;
  const job = (name = "web") => catalogJobs(bucket.db).find((one) => one.name === name) as CatalogJob;
  return {
    deploys,
    dir: bucket.dir,
    job,
    async run({ job: name, ...pass }, signal) {
      const context = bucket.context("hooks", signal);
      const fleet = new Fleet(context, catalogWorkers(bucket.db));
      const session = new HookSession(context, fleet);
      try {
        return await session.run({ ...pass, job: job(name) });
      } finally {
        context.kv.flush();
        await session[Symbol.asyncDispose]();
        await fleet[Symbol.asyncDispose]();
        context.log.close();
      }
    },
  };
}

/** A job with one hook for cli. */
function web(script: string, manifest: Record<string, unknown> = {}): JobsSpec {
  return { web: { manifest: { ...hooksOf({ go: ["cli"] }), ...manifest }, files: { "_hooks/go.py": script } } };
}

const activity = ({ deploys }: Setup) => deploys.bucket.activity.join("");

test("HR-001 HR-014 HR-015 HR-017 HR-021 HR-026 HR-027 HR-129 HR-130 HR-140 HR-141 HR-142 a script runs here, once for each allocation, in the bucket's folder", async (t) => {
  const where = `${RECORD}print(open(f"/proc/{os.getppid()}/comm").read().strip(), os.getcwd(), os.path.isfile(f"tmp/workers/{ops.allocation_ip()}/jobs/web/conf/a"))\n`;
  const jobs = web(where);
  const set = await setUp(t, { web: { ...jobs.web, files: { ...jobs.web?.files, "conf/a": "1" } } }, { hosts: [A, B] });
  const results = await set.run({ kind: "cli" });
  assert.deepEqual(
    results.map(({ hook, worker, error }) => ({ hook, worker, error })),
    [A, B].map((worker) => ({ hook: "go", worker, error: null })),
  );
  const root = realpathSync(set.dir);
  for (const [index, trace] of traces(set.dir).entries()) {
    const allocation = catalogAllocations(set.deploys.bucket.db)[index];
    assert.equal(trace.ALLOCATION_ID, allocation?.id);
    assert.equal(trace.ALLOCATION_IP, allocation?.worker);
    assert.equal(trace.ALLOCATION_INDEX, String(index));
    const own = `ops/job/web/worker/${allocation?.worker}`;
    assert.equal(set.deploys.bucket.kv().get(own, "web_allocation_index"), trace.ALLOCATION_INDEX);
    assert.deepEqual([trace.BUCKET_ROOT, trace.PWD], [root, root]);
    assert.deepEqual([trace.CURRENT_VERSION, trace.NEW_VERSION], ["0.0.0", "1.0.0"]);
    assert.deepEqual([trace.BATCH_INDEX, trace.BATCH_COUNT], [String(index), "2"]);
    assert.deepEqual([trace.EVENT, trace.DEPLOY_PHASE, trace.HOOK], ["cli", "cli", "go"]);
  }
  assert.match(activity(set), new RegExp(`web@${A} \\| bash ${root} True\n`));
});

test("HR-002 HR-013 a script in TypeScript runs on this very Node and does what one in Python does", async (t) => {
  const typescript = `import { writeFileSync } from "node:fs";
import { getCompileCacheDir } from "node:module";
import { allocationIp, getStoreValue, putJobVariable } from "./ops.ts";
interface Said { value: string }
await putJobVariable("who", allocationIp() as string);
const said: Said = await (await getStoreValue("vars/job/web", "who")).json();
writeFileSync("said", said.value);
console.log(process.execPath, process.argv.length, getCompileCacheDir());
`;
  const set = await setUp(
    t,
    { web: { manifest: hooksOf({ go: ["cli"] }), files: { "_hooks/go.py": null as never, "_hooks/go.ts": typescript } } },
    { hosts: [A] },
  );
  await set.run({ kind: "cli" });
  assert.equal(readFileSync(path.join(set.dir, "said"), "utf8"), A);
  assert.match(activity(set), new RegExp(`web@${A} \\| ${process.execPath} 2 undefined\n`));
  assert.doesNotMatch(activity(set), / ! /, "and Node has no warning about it");
  assert.equal(set.deploys.bucket.kv().get("vars/job/web", "who"), A);
});

for (const [what, script, error] of [
  ["a code that it sets", "process.exitCode = 3;", "exit code 3"],
  ["an exit", "process.exit(4);", "exit code 4"],
  ["an error", 'throw new Error("bad");', /^exit code 1:\nError: bad\n +at /],
  ["an error later", 'setTimeout(() => { throw new Error("bad"); }, 10);', /^exit code 1:\n.*\nError: bad\n +at /s],
] as const)
  test(`a script in JavaScript fails by ${what}`, async (t) => {
    const files = { "_hooks/go.py": null as never, "_hooks/go.js": `import "node:fs";\n${script}` };
    const set = await setUp(t, { web: { manifest: hooksOf({ go: ["cli"] }), files } }, { hosts: [A] });
    const failure = await set.run({ kind: "cli" }).catch((thrown: Failure) => thrown);
    const [script_] = ((failure as Failure).details as { scripts: ScriptResult[] }).scripts;
    if (typeof error === "string") assert.equal(script_?.error, error);
    else {
      assert.match(script_?.error ?? "", error);
      assert.match((failure as Failure).message, /: exit code 1: Error: bad$/);
    }
  });

test("HR-012 HR-013 HR-031 HR-032 HR-033 T-102 a batch runs at once and to its end, every error is told, and the next batch does not start", async (t) => {
  const meet = `${RECORD}import sys, time
open("here-" + ops.allocation_ip(), "w").close()
while not all(os.path.exists("here-" + one) for one in os.environ["BATCH_ALLOCATIONS"].split(",")): time.sleep(0.01)
print("first reason", file=sys.stderr)
print(f"no luck on {ops.allocation_ip()}", file=sys.stderr)
sys.exit(3)
`;
  const set = await setUp(t, web(meet, { max_concurrent_upgrades: 2 }));
  await assert.rejects(set.run({ kind: "cli" }), {
    code: "ErrHookFailed",
    message:
      `hook go (cli) of job web failed on 2 workers: ${A}: exit code 3: no luck on ${A}; ` + `${B}: exit code 3: no luck on ${B}`,
  });
  assert.deepEqual(
    traces(set.dir).map((trace) => trace.BATCH_ALLOCATIONS),
    [`${A},${B}`, `${A},${B}`],
  );
});

test("HR-009 HR-012 HR-153 batches follow each other in the rollout order, which an earlier hook may have put", async (t) => {
  const alone = `${RECORD}import time
os.mkdir("busy")
time.sleep(0.05)
os.rmdir("busy")
`;
  const order = `${RECORD}if ops.allocation_ip() == "${A}": ops.put_rollout_order(["${C}", "${A}", "${B}"]).raise_for_status()\n`;
  const set = await setUp(t, {
    web: { manifest: hooksOf({ go: ["cli"], a_order: ["cli"] }), files: { "_hooks/go.py": alone, "_hooks/a_order.py": order } },
  });
  await set.run({ kind: "cli" });
  assert.deepEqual(
    traces(set.dir).map((trace) => [trace.HOOK, trace.ALLOCATION_IP, trace.ROLLOUT_ORDER_SOURCE].join(" ")),
    [...[A, B, C].map((host) => `a_order ${host} default`), ...[C, A, B].map((host) => `go ${host} kv`)],
    "hooks go by name",
  );
});

test("a script reads the catalog's order before anybody has put one, and may speak for another hook of its job", async (t) => {
  const script = `import os, ops
print("order", ops.get_rollout_order())
for os.environ["COMMAND"] in ("later", "none"): print("asked", ops.list_hook_demands().text)
`;
  const files = { "_hooks/go.py": script, "_hooks/later.py": "" };
  const manifest = hooksOf({ go: ["cli"], later: ["post_deploy"] });
  const set = await setUp(t, { web: { manifest, files } }, { disabled: { web: [B] } });
  await set.run({ kind: "cli", workers: [A], hook: "go" });
  const said = activity(set);
  assert.match(said, new RegExp(`order ${[A, B, C].join()}\n`));
  assert.match(said, /asked \[\]\n.*asked \{"error":"COMMAND is no hook of the job"\}\n/s);
});

test("HR-280 an order of the active workers is read back by scripts, though a disabled worker is not in it", async (t) => {
  const script = `import os, ops
if ops.is_one_shot(): ops.put_rollout_order(["${C}", "${A}"]).raise_for_status()
print("order", ops.get_rollout_order())
`;
  const set = await setUp(t, web(script), { disabled: { web: [B] } });
  await set.run({ kind: "cli", workers: [A] });
  assert.match(activity(set), new RegExp(`order ${C},${A}\n`));
});

test("HR-034 HR-035 HR-036 HR-037 the job's own Python goes before the one on PATH, and stays where it is", async (t) => {
  const set = await setUp(t, web(RECORD), { hosts: [A] });
  const job = path.join(set.dir, "workspace/jobs/web");
  const said = async () => {
    const before = set.deploys.bucket.activity.length;
    await set.run({ kind: "cli" });
    return set.deploys.bucket.activity
      .slice(before)
      .join("")
      .match(/\| from (\S+)/)?.[1];
  };
  const install = (name: string) => {
    mkdirSync(path.join(job, name, "bin"), { recursive: true });
    const python = path.join(job, name, "bin/python3");
    writeFileSync(python, `#!/bin/sh\necho from ${name}\nexec python3 "$@"\n`);
    chmodSync(python, 0o755);
  };
  assert.equal(await said(), undefined);
  // From the least to the most wanted; _modules is an older name of _hooks.
  const places = ["_modules/venv", "_modules/.venv", "_hooks/venv", "_hooks/.venv"];
  for (const place of places) {
    install(place);
    assert.equal(await said(), place);
  }
  assert.equal(traces(set.dir).length, 1 + places.length);
  const staged = readdirSync(path.join(set.dir, "tmp"), { recursive: true }).map(String);
  assert.ok(staged.some((file) => file.endsWith("_hooks/go.py")));
  assert.deepEqual(
    staged.filter((file) => file.includes("venv")),
    [],
  );
});

test("HR-016 HR-030 a script finds the files as a deploy stages them, its modules and the certificates", async (t) => {
  const look = `import lib, os
here = os.path.dirname(__file__)
names = lambda folder: sorted(name for name in os.listdir(folder) if name != "__pycache__")
for folder in (os.path.dirname(here), here):
    print(names(folder), names(folder + "/certs"))
print(lib.NAME, open(os.path.dirname(here) + "/known").read(), oct(os.stat(here + "/certs/internal.key").st_mode)[-3:])
`;
  const files = {
    "_hooks/go.py": look,
    "_hooks/lib.py": "NAME = 'a module'\n",
    "known.tpl": "{{ .WorkerIP }}",
    "unknown.tpl": '{{ getSecret "not yet" }}',
  };
  const set = await setUp(t, { web: { manifest: hooksOf({ go: ["cli"] }), files } }, { hosts: [A] });
  const kv = set.deploys.bucket.kv();
  kv.put("ops/worker", "certs/ca.crt", "the ca");
  kv.put(`ops/job/web/worker/${A}`, "certs/internal.crt", "a certificate");
  kv.put(`ops/job/web/worker/${A}`, "certs/internal.key", "a key");
  kv.flush();
  await set.run({ kind: "cli" });
  const said = activity(set);
  const certs = "['ca.crt', 'internal.crt', 'internal.key']";
  assert.match(said, new RegExp(escaped(`| ['Makefile', '_hooks', 'certs', 'known', 'manifest.json'] ${certs}`)));
  assert.match(said, new RegExp(escaped("| ['certs', 'go.py', 'lib.py', 'ops.py', 'ops.ts', 'package.json']")));
  assert.match(said, new RegExp(escaped(`| a module ${A} 600`)));
});

const escaped = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

test("a script may be a template; where it cannot be rendered that is the error", async (t) => {
  const files = { "_hooks/go.py": null as never, "_hooks/go.py.tpl": 'print("{{ getSecret "name" }}"[:3])\n' };
  const set = await setUp(t, { web: { manifest: hooksOf({ go: ["cli"] }), files } }, { hosts: [A] });
  await assert.rejects(set.run({ kind: "cli" }), {
    message: /failed on 1 worker: 127\.0\.0\.1: Cannot render a template of job web on 127\.0\.0\.1: .*key "name" is missing/,
  });
  const kv = set.deploys.bucket.kv();
  kv.put("secrets/job/web", "name", "abcdefgh");
  kv.flush();
  await set.run({ kind: "cli" });
  assert.match(activity(set), /\| abc\n/);
});

test("HR-052 HR-054 HR-056 HR-057 HR-136 HR-157 what the passes are for, and the variables of each", async (t) => {
  const events = ["cli", "health_check", "job_control", "after_allocation_stopped"];
  const jobs = { web: { manifest: hooksOf({ go: events }), files: { "_hooks/go.py": RECORD } } };
  const set = await setUp(t, jobs, { disabled: { web: [B] } });
  const told = async (pass: Omit<HookPass, "job">, ...names: string[]) => {
    await set.run(pass);
    return traces(set.dir).map((trace) => ["ALLOCATION_IP", "DISABLED", ...names].map((name) => trace[name] ?? "-").join(" "));
  };
  const all = [`${A} 0`, `${B} 1`, `${C} 0`];
  assert.deepEqual(await told({ kind: "cli" }), all);
  assert.deepEqual(await told({ kind: "health_check" }), all);
  const variables = { NEW_ALLOCATIONS: A, UPDATED_ALLOCATIONS: "" };
  assert.deepEqual(
    await told({ kind: "deploy_control", variables }, "NEW_ALLOCATIONS", "UPDATED_ALLOCATIONS", "TARGET"),
    all.map((one) => `${one} ${A}  -`),
  );
  assert.deepEqual(
    await told({ kind: "command_control", workers: [B, C], variables: { TARGET: "reload" } }, "TARGET", "NEW_ALLOCATIONS"),
    [`${C} 0 reload -`],
  );
  await set.deploys.build(jobs, { hosts: [A, B], disabled: { web: [B] } });
  assert.deepEqual(await told({ kind: "stopped", workers: [B, C] }, "DEPLOY_PHASE", "ALLOCATION_INDEX"), [
    `${B} 1 stop 1`,
    `${C} 0 stop 2`,
  ]);
});

test("T-109 a removed allocation is known to the API while its hooks run, and not before", async (t) => {
  const events = ["cli", "after_allocation_stopped"];
  const jobs = {
    web: {
      manifest: hooksOf({ go: events }),
      files: {
        "_hooks/go.py": `import json, ops, os, urllib.request
def ask(allocation):
    request = urllib.request.Request(f"http://{os.environ['HOOK_API_HOST']}:{os.environ['HOOK_API_PORT']}/demands")
    for name, value in (("X-ALLOCATION-ID", allocation), ("EVENT", ops.hook_event()), ("COMMAND", "go")): request.add_header(name, value)
    try: return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error: return error.code
print("answer", [ask(one) for one in open("ids").read().split()])
`,
      },
    },
  };
  const set = await setUp(t, jobs, { hosts: [A, B] });
  await set.deploys.build(jobs, { hosts: [A] });
  const removed = catalogAllocations(set.deploys.bucket.db).find((one) => one.removed);
  writeFileSync(path.join(set.dir, "ids"), removed?.id ?? "");
  await set.run({ kind: "cli" });
  await set.run({ kind: "stopped", workers: [B] });
  const answers = [...activity(set).matchAll(/answer \[(\d+)\]/g)].map(([, status]) => status);
  assert.deepEqual(answers, ["404", "200"]);
});

test("HR-024 HR-025 CP-137 T-49 output goes to Activity and the worker's log line by line, long lines in parts, secrets masked", async (t) => {
  const talk = `import ops, sys
ops.put_job_secret("password", "hunter2-hunter2").raise_for_status()
print("the password is hunter2-hunter2")
print("x" * 70000)
sys.stderr.write("no newline")
`;
  const set = await setUp(t, web(talk), { hosts: [A] });
  const begun = performance.now();
  await set.run({ kind: "cli", verbose: true });
  const tookMs = performance.now() - begun;
  const said = activity(set);
  assert.match(said, /web@127\.0\.0\.1 \| the password is \*\*\*\n/);
  assert.match(said, /web@127\.0\.0\.1 ! no newline\n/);
  assert.match(said, /web@127\.0\.0\.1: hook go succeeded after \d+ ms\n/);
  assert.doesNotMatch(said, /hunter2/);
  assert.deepEqual(
    [...said.matchAll(/\| (x+)\n/g)].map(([, text]) => text?.length),
    [65_536, 70_000 - 65_536],
  );
  const log = readFileSync(path.join(set.dir, "logs", `${A}.log`), "utf8");
  const line = log.split("\n").find((one) => one.includes("the password")) ?? "";
  assert.match(
    line,
    /^ts=\S+ level=info run=\S+ ops=hooks worker=127\.0\.0\.1 job=web phase=cli action=go stream=stdout msg="the password is \*\*\*"$/,
  );
  const run = /run=(\S+)/.exec(line)?.[1] ?? "";
  assert.equal(readFileSync(path.join(set.dir, "logs/runs", run, `${A}.log`), "utf8"), log);
  assert.match(log, /event=command_begin .*phase=cli action=go cmd="hook go"/);
  const [, durationMs] = /event=command_end .*phase=cli action=go cmd="hook go" exit=0 duration_ms=(\d+)/.exec(log) ?? [];
  assert.ok(Number(durationMs) > 0 && Number(durationMs) <= Math.ceil(tookMs), log);
});

test("HR-024 a warning of the API is in the worker's log with the phase of its script", async (t) => {
  const set = await setUp(t, web(`import ops\nops.get_kv_value("ops", "bucket_id")\n`), { hosts: [A] });
  await set.run({ kind: "cli" });
  const log = readFileSync(path.join(set.dir, "logs", `${A}.log`), "utf8");
  assert.match(log, /job=web phase=cli action=go stream=stderr msg="warning: the namespace ops is an older name of ops\/bucket"/);
});

test("HR-005 HR-006 HR-008 the API answers the first line of a script, and nobody once the session is closed", async (t) => {
  const set = await setUp(t, web(`import ops\nprint("id", ops.get_kv_value("ops/bucket", "bucket_id"))\n`), { hosts: [A] });
  const listening = () => process.getActiveResourcesInfo().filter((one) => one === "TCPServerWrap").length;
  const before = listening();
  await set.run({ kind: "cli" });
  const [, id] = /id (\S+)/.exec(activity(set)) ?? [];
  assert.equal(id, set.deploys.bucket.bucketId);
  // A request to the API's address would prove nothing: another test may listen there by now.
  await until("nobody to listen", () => listening() === before);
});

test("the workers file tells how each worker is reached; without a key there is no ssh configuration, and that is said", async (t) => {
  const set = await setUp(t, web(RECORD), { hosts: [A] });
  await set.run({ kind: "cli" });
  const [trace] = traces(set.dir);
  const { bucketId } = set.deploys.bucket;
  const root = path.join(set.deploys.workers, A);
  assert.deepEqual(JSON.parse(readFileSync(trace?.OPS_WORKERS_FILE ?? "", "utf8")), {
    bucket_id: bucketId,
    workers: { [A]: { connection: "local", root, folder: `${root}/${bucketId}`, use_sudo: false } },
    runner: "bin/runner",
  });
  assert.equal(statSync(trace?.OPS_WORKERS_FILE ?? "").mode & 0o777, 0o600);
  assert.equal(trace?.OPS_SSH_CONFIG, undefined);
  assert.doesNotMatch(activity(set), /warning/);
});

test("HR-338 a script gets the outputs of its command as they are, also with a secret that logs mask", async (t) => {
  const script = `import ops
ops.put_job_secret("password", "correct horse battery").raise_for_status()
done = ops.run_ssh(ops.allocation_ip(), "echo correct horse battery; echo correct horse battery >&2")
print(done.stdout.splitlines(), [len(line) for line in done.stderr.splitlines()])
`;
  const set = await setUp(t, web(script), { hosts: [A] });
  await set.run({ kind: "cli" });
  assert.match(activity(set), new RegExp(`web@${A} \\| \\['\\*\\*\\*'\\] \\[21\\]\n`));
});

test("HR-337 a command for what is no worker of the bucket is not found", async (t) => {
  const script = `import ops
try: ops.run_ssh("10.255.255.1", "true")
except Exception as error: print("refused:", error)
`;
  const set = await setUp(t, web(script), { hosts: [A] });
  await set.run({ kind: "cli" });
  assert.match(activity(set), /refused: '10\.255\.255\.1' is not a worker of this bucket/);
});

test("a health check's script is tried again until it succeeds or has had its attempts", async (t) => {
  const third = `open("tries-" + ops.allocation_ip(), "a").write("x")
import sys
sys.exit(0 if len(open("tries-" + ops.allocation_ip()).read()) >= 3 else 1)
`;
  const jobs = { web: { manifest: hooksOf({ go: ["health_check"] }), files: { "_hooks/go.py": RECORD + third } } };
  const set = await setUp(t, jobs, { hosts: [A] });
  await assert.rejects(set.run({ kind: "health_check", wait: { attempts: 2, intervalSeconds: 0 } }), { code: "ErrHookFailed" });
  await set.run({ kind: "health_check", wait: { attempts: 2, intervalSeconds: 0 } });
  assert.equal(traces(set.dir).length, 3);
});

test("CP-133 a cancel ends the whole group of a script, its wait for a semaphore included", async (t) => {
  const wait = `import ops, subprocess
subprocess.Popen(["sleep", "600"])
print("acquire", ops.acquire_semaphore("one").status_code)
subprocess.run(["sleep", "600"])
`;
  const set = await setUp(t, web(wait, { max_concurrent_upgrades: 2 }), { hosts: [A, B] });
  const cancel = new AbortController();
  t.after(() => cancel.abort());
  const running = set.run({ kind: "cli" }, cancel.signal);
  running.catch(() => {});
  await until("one to hold and one to wait", () => /acquire 200/.test(activity(set)) && processesIn(set.dir).length >= 6);
  cancel.abort();
  await assert.rejects(running, { code: "cancelled" });
  assert.deepEqual(processesIn(set.dir), []);
});

test("HR-212 HR-213 HR-232 a semaphore is in no database, and a slot that was left taken is told and free in the next session", async (t) => {
  const take = `import ops\nprint("acquire", ops.acquire_semaphore("a-name-" + "of-its-own", timeout_seconds=1).status_code)\n`;
  const set = await setUp(t, web(take), { hosts: [A] });
  await set.run({ kind: "cli" });
  await set.run({ kind: "cli" });
  assert.deepEqual(activity(set).match(/acquire \d+/g), ["acquire 200", "acquire 200"]);
  const left = /warning: hook go has ended and semaphore "a-name-of-its-own" is not released: the slot stays taken/g;
  assert.equal(activity(set).match(left)?.length, 2);
  const data = path.join(set.dir, "data");
  for (const file of readdirSync(data)) assert.ok(!readFileSync(path.join(data, file)).includes("a-name-of-its-own"), file);
});

test("what a script leaves running in the background is not waited for", async (t) => {
  const flag = path.join(temporaryFolder(t), "go on");
  const set = await setUp(
    t,
    web(`import subprocess\nsubprocess.Popen(["sh", "-c", "while [ ! -e '${flag}' ]; do sleep 0.05; done; rm '${flag}'"])\n`),
    { hosts: [A] },
  );
  await set.run({ kind: "cli" });
  writeFileSync(flag, "");
  await until("it to go on", () => !existsSync(flag));
});
