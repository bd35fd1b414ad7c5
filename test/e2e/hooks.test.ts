import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { LocalServer, ops } from "../../scripts/local-server.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { processesIn } from "../helpers/worker.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const HOSTS = ["127.0.0.1", "127.0.0.2"];

/** Tells its own bucket's id and stays until both buckets have a script that runs. */
const MEET = `import glob, ops, os, time
open(os.environ["BUCKET_ROOT"] + "/here-" + ops.allocation_ip(), "w").close()
while len(glob.glob(os.environ["BUCKET_ROOT"] + "/../*/here-*")) < 4: time.sleep(0.02)
print("bucket", ops.get_kv_value("ops/bucket", "bucket_id"), os.environ["HOOK_API_HOST"])
`;
const HANG = `import ops, subprocess
ops.put_job_variable("half", "1").raise_for_status()
print("hangs", flush=True)
subprocess.run(["sleep", "600"])
`;
const SECRET = `import ops
if ops.hook_event() == "post_build" and ops.is_one_shot(): ops.put_job_secret("password", "open-sesame").raise_for_status()
if ops.hook_event() == "cli": print("secret", ops.get_kv_value("secrets/job/web", "password"))
`;
const SERVER_ENVIRONMENT = `import os
print("found", sorted(name for name in os.environ if name.startswith("OPS_SERVE") or name == "NODE_COMPILE_CACHE"))
`;

async function setUp(t: TestContext) {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  const server = await LocalServer.start(root, { env: { OPS_SERVE_EXTRA: "x" } });
  t.after(() => server.stop("SIGKILL"));
  const push = async () => {
    const bucket = await server.createBucket();
    const source = path.join(folder, bucket);
    makeWorkspace(source, {
      workers: HOSTS.map((host) => ({ host, connection: "local", root: path.join(folder, "workers", host) })),
      jobs: {
        web: {
          version: "1.0.0",
          selectors: ["worker"],
          max_concurrent_upgrades: 2,
          hooks: {
            secret: { executed_on: ["post_build", "cli"] },
            meet: { executed_on: ["cli"] },
            hang: { executed_on: ["cli"] },
            look: { executed_on: ["cli"] },
          },
        },
        other: { version: "1.0.0", selectors: ["worker"], hooks: { meet: { executed_on: ["cli"] } } },
      },
      files: {
        "ops.conf": "",
        "workspace/jobs/web/_hooks/secret.py": SECRET,
        "workspace/jobs/web/_hooks/meet.py": MEET,
        "workspace/jobs/web/_hooks/hang.py": HANG,
        "workspace/jobs/web/_hooks/look.py": SERVER_ENVIRONMENT,
        "workspace/jobs/web/password.tpl": '{{ getSecret "password" }}',
      },
    });
    const pushed = await server.push(bucket, source);
    assert.equal(pushed.code, 0, pushed.stdout + pushed.stderr);
    return bucket;
  };
  const run = async (bucket: string, kind: string, params: object = {}) => {
    let text = "";
    const ended = await server.run(bucket, kind, params, (part) => {
      text += part;
    });
    return { ...ended, text };
  };
  return { folder, root, server, push, run };
}

test("CP-127 CP-262 HR-018 HR-139 HR-316 T-46 hooks over HTTP: 400 for what cannot be meant; two buckets at once each have their own API", async (t) => {
  const { root, server, push, run } = await setUp(t);
  const [one, two] = [await push(), await push()];
  const refused = await server.call("POST", `/api/buckets/${one}/hooks`, { hook: "meet" });
  assert.deepEqual(
    [refused.status, refused.body.message],
    [400, "Cannot run hook meet: name one of the jobs that have it: other, web"],
  );
  const unknown = await server.call("POST", `/api/buckets/${one}/hooks`, { hook: "nope", job: "web" });
  assert.equal(unknown.status, 400);
  const both = await Promise.all([one, two].map((bucket) => run(bucket, "hooks", { hook: "meet", job: "web" })));
  const hosts = both.map(({ status, text, result }, index) => {
    assert.equal(status, "succeeded", text);
    const said = [...text.matchAll(/\| bucket (\S+) (\S+)/g)];
    assert.deepEqual(
      said.map(([, id]) => id),
      [index, index].map((at) => [one, two][at]),
    );
    assert.deepEqual(
      (result as { scripts: { worker: string; error: null }[] }).scripts.map(({ worker, error }) => [worker, error]),
      HOSTS.map((host) => [host, null]),
    );
    return said[0]?.[2];
  });
  assert.notEqual(hosts[0], hosts[1]);
  const look = await run(one, "hooks", { hook: "look" });
  assert.match(look.text, /web@127\.0\.0\.1 \| found \[\]\n/);
  assert.deepEqual(readdirSync(path.join(root, one, "tmp")), [], "nothing is left in tmp");
});

test("HR-003 HR-120 a secret of post_build reaches the files of a deploy and is masked wherever a script prints it", async (t) => {
  const { folder, root, push, run } = await setUp(t);
  const bucket = await push();
  const deployed = await run(bucket, "deploy");
  assert.equal(deployed.status, "succeeded", deployed.text);
  const file = path.join(folder, "workers", HOSTS[1] as string, bucket, "jobs/web/password");
  assert.equal(readFileSync(file, "utf8"), "open-sesame");
  const printed = await run(bucket, "hooks", { hook: "secret", verbose: true });
  assert.match(printed.text, /web@127\.0\.0\.1 \| secret \*\*\*\n[\s\S]*hook secret succeeded after/);
  for (const name of readdirSync(path.join(root, bucket, "logs"), { recursive: true }).map(String))
    if (name.endsWith(".log")) assert.doesNotMatch(readFileSync(path.join(root, bucket, "logs", name), "utf8"), /open-sesame/);
});

test("CP-133 a cancel ends the scripts of a hooks command, which ends cancelled and stores nothing", async (t) => {
  const { root, server, push } = await setUp(t);
  const bucket = await push();
  const id = await server.startRun(bucket, "hooks", { hook: "hang" });
  const folder = path.join(root, bucket);
  const activity = path.join(folder, "logs/runs", id, "activity.log");
  await until("both to hang", () => (readFileSync(activity, "utf8").match(/hangs/g) ?? []).length === 2);
  assert.equal((await server.call("POST", `/api/buckets/${bucket}/runs/${id}/cancel`, {})).status, 202);
  const ended = await server.follow(bucket, id);
  assert.equal(ended.status, "cancelled");
  assert.deepEqual(processesIn(folder), []);
  assert.ok(!existsSync(path.join(folder, "data/ops.lock")));
  const kv = await ops(["cat", "kv", "--jobs", "web", "--bucket-dir", folder]);
  assert.doesNotMatch(kv.stdout, /half/);
});

test("a killed server takes the scripts of its runs along when the next one starts, and what they staged goes", async (t) => {
  const { root, server, push } = await setUp(t);
  const bucket = await push();
  const folder = path.join(root, bucket);
  const id = await server.startRun(bucket, "hooks", { hook: "hang" });
  const activity = path.join(folder, "logs/runs", id, "activity.log");
  await until("both to hang", () => (readFileSync(activity, "utf8").match(/hangs/g) ?? []).length === 2);
  await server.stop("SIGKILL");
  const next = await LocalServer.start(root);
  t.after(() => next.stop("SIGKILL"));
  const { body } = await next.call<{ status: string }>("GET", `/api/buckets/${bucket}/runs/${id}`);
  assert.equal(body.status, "failed");
  assert.deepEqual(processesIn(folder), []);
  const again = await next.run(bucket, "hooks", { hook: "look" });
  assert.equal(again.status, "succeeded", again.error ?? "");
});

test("HR-019 ops hooks runs in a bucket on the command line; wrong usage and failures have their exit codes", async (t) => {
  const { root, server, push } = await setUp(t);
  const bucket = await push();
  await server.stop();
  const folder = path.join(root, bucket);
  const run = (...args: string[]) => ops(["hooks", ...args, "--bucket-dir", folder], { env: { OPS_SERVE_TOKEN: "secret" } });
  const look = await run("look");
  assert.equal(look.code, 0, look.stdout + look.stderr);
  assert.match(look.stdout, /web@127\.0\.0\.1 \| found \[\]\n/);
  const several = await run("meet");
  assert.equal(several.code, 1);
  assert.match(several.stderr, /name one of the jobs that have it: other, web/);
  assert.equal((await ops(["hooks", "--bucket-dir", folder])).code, 2);
});
