import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, rmSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { LocalServer, ops } from "../../scripts/local-server.ts";
import { runningConfiguration, serviceHistory, WORKERS, writeServices } from "../helpers/service.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

interface DeployResult {
  jobs: { job: string; outcome: string }[];
}

async function serverOn(t: TestContext, root: string): Promise<LocalServer> {
  const server = await LocalServer.start(root);
  t.after(() => server.stop("SIGKILL"));
  return server;
}

async function put(bucketDir: string, value: string): Promise<void> {
  const layout = layoutOf(bucketDir);
  using db = openDatabase(layout.database);
  const kv = new KvStore(db, await loadKvKey(layout));
  kv.put("secrets/job/base", "password", value);
  kv.flush();
}

test("disaster drill: a snapshot brings a lost bucket back on a new server; its deploy is a no-op, its secrets decrypt", async (t) => {
  const folder = temporaryFolder(t);
  const [root, workers, source] = ["root", "workers", "source"].map((name) => path.join(folder, name)) as [
    string,
    string,
    string,
  ];
  const old = await serverOn(t, root);
  const bucket = await old.createBucket();
  const dir = path.join(root, bucket);
  await put(dir, "correct horse");
  writeServices(source, workers, { version: "1.0.0", template: '{{ getSecret "password" }}\n' });
  const pushed = await ops(["push", old.url, "--bucket", bucket, "--dir", source], { env: { OPS_SERVE_TOKEN: old.token } });
  assert.equal(pushed.code, 0, pushed.stderr);
  assert.equal((await old.run(bucket, "deploy")).status, "succeeded");
  const history = () => WORKERS.map((host) => serviceHistory(workers, host, bucket, "base"));
  const before = history();
  const made = await old.run(bucket, "snapshots");
  const { name, signer } = made.result as { name: string; signer: string };
  const saved = path.join(folder, "saved.tar.gz");
  copyFileSync(path.join(dir, ".ops", "snapshots", `${name}.tar.gz`), saved);

  await old.stop();
  rmSync(root, { recursive: true });

  const strange = await ops(["snapshot", "verify", saved], { cwd: folder });
  assert.deepEqual([strange.code, strange.stderr.includes(`--signer ${signer}`)], [1, true], strange.stderr);
  const verified = await ops(["snapshot", "verify", saved, "--signer", signer, "--json"], { cwd: folder });
  assert.equal(verified.code, 0, verified.stderr);
  assert.equal(JSON.parse(verified.stdout).bucket_id, bucket);
  const newRoot = path.join(folder, "new-root");
  mkdirSync(newRoot);
  const restored = await ops(["snapshot", "restore", saved, "--signer", signer, "--bucket-dir", path.join(newRoot, bucket)]);
  assert.equal(restored.code, 0, restored.stderr);
  const server = await serverOn(t, newRoot);
  const { body } = await server.call<{ name: string; initialized: boolean }>("GET", `/api/buckets/${bucket}`);
  assert.deepEqual([body.name, body.initialized], ["demo", true]);
  for (const round of ["deploy", "build and deploy"]) {
    if (round !== "deploy") assert.equal((await server.run(bucket, "build")).status, "succeeded");
    const deployed = await server.run(bucket, "deploy");
    assert.equal(deployed.status, "succeeded", String(deployed.error));
    const { jobs } = deployed.result as DeployResult;
    assert.deepEqual(
      jobs.map(({ outcome }) => outcome),
      ["skipped", "skipped"],
      round,
    );
  }
  assert.deepEqual(history(), before, "nothing was restarted");
  const shown = await ops(["cat", "kv", "get", "secrets/job/base", "password", "--reveal"], { cwd: path.join(newRoot, bucket) });
  assert.match(shown.stdout, /^value: correct horse$/m);
  assert.equal(runningConfiguration(workers, WORKERS[0] as string, bucket, "base"), "correct horse\n");
});

test("on the command line: verify and restore tell wrong snapshots, places and busy buckets apart", async (t) => {
  const folder = temporaryFolder(t);
  const dir = path.join(folder, "bucket");
  mkdirSync(dir);
  const run = (...args: string[]) => ops(args, { cwd: dir });
  const refused = async (code: number, message: RegExp, ...args: string[]) => {
    const done = await run(...args);
    assert.equal(done.code, code, done.stderr);
    assert.match(done.stderr, message);
  };
  await refused(1, /is not an initialised bucket/, "snapshot", "list");
  await refused(1, /there is no snapshot "nope"/, "snapshot", "restore", "nope");
  assert.equal((await run("init")).code, 0);
  await refused(2, /snapshot is missing/, "snapshot", "verify");
  await refused(2, /did you mean --with-source/, "snapshot", "restore", "x", "--with-sorce");
  await refused(1, /there is no snapshot "nope"/, "snapshot", "restore", "nope");
  await refused(1, /there is no snapshot "nope"/, "snapshot", "delete", "nope");
  await refused(2, /--retain-days/, "gc", "--retain-days", "x");
  await refused(1, /Cannot use the snapshot .*ops\.conf: the archive is not readable as gzip/, "snapshot", "restore", "ops.conf");
  const made = await run("snapshot", "create", "--note", "n", "--json");
  const { name } = JSON.parse(made.stdout);
  const listed = JSON.parse((await run("snapshot", "list", "--json")).stdout);
  assert.deepEqual(
    listed.map((one: { name: string; note: string }) => [one.name, one.note]),
    [[name, "n"]],
  );
  assert.match((await run("snapshot", "list")).stdout, new RegExp(`^name .*\n${name} .* n\n$`));
  assert.match(
    (await run("snapshot", "verify", name.slice(-8))).stdout,
    /^the snapshot \d{8}\S+ can be restored: \d+ files, \S+ KiB, \d+ sealed values opened\n$/,
  );
  const restored = JSON.parse((await run("snapshot", "restore", name, "--with-source", "--json")).stdout);
  assert.deepEqual([restored.snapshot, restored.with_source], [`${name}.tar.gz`, true]);
  assert.equal(JSON.parse((await run("gc", "--json")).stdout).allocations.length, 0);
  assert.equal((await run("snapshot", "delete", name.slice(-8))).code, 0);
  await refused(1, /there is no snapshot/, "snapshot", "verify", name);
});
