import assert from "node:assert/strict";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { acquireLock, readLock } from "../../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

/** A new bucket, and a way to run commands in it. */
async function bucket(t: TestContext) {
  const dir = temporaryFolder(t);
  const run = (...args: string[]) => ops([...args, "--bucket-dir", dir]);
  assert.equal((await run("init")).code, 0);
  return { dir, layout: layoutOf(dir), run };
}

test("what job create makes builds, and the only warning is that no worker has its label", async (t) => {
  const { dir, run, layout } = await bucket(t);
  writeFileSync(layout.workersJson, '[{ "host": "127.0.0.1", "connection": "local" }]\n');
  mkdirSync(path.join(layout.templates, "plain"), { recursive: true });
  writeFileSync(path.join(layout.templates, "plain", "manifest.json"), '{"version": "1.0"}');
  writeFileSync(path.join(layout.templates, "plain", "Makefile"), "start stop restart:\n");
  const made = await run("job", "create", "web");
  assert.deepEqual(
    [made.code, made.stderr, made.stdout],
    [...[0, ""], ["Makefile", "_hooks/example.py", "manifest.json"].map((name) => `workspace/jobs/web/${name}\n`).join("")],
  );
  assert.equal((await run("job", "create", "db", "--template", "plain", "-s", "worker")).code, 0);
  assert.equal(await readLock(layout), undefined);
  const built = await run("build");
  assert.equal(built.code, 0, built.stderr);
  const warnings = `${built.stdout}${built.stderr}`.split("\n").filter((line) => line.startsWith("warning"));
  assert.deepEqual(warnings, [
    "warning: workspace/jobs/web/manifest.json: selectors: the job runs nowhere: there is no worker with the labels web",
  ]);
  assert.ok(existsSync(path.join(dir, "workspace", "jobs", "db", "Makefile")));
});

test("job create works in the source of a bucket on a server, and makes no bucket of it", async (t) => {
  const dir = temporaryFolder(t);
  mkdirSync(path.join(dir, "workspace"));
  assert.equal((await ops(["job", "create", "web", "--bucket-dir", dir])).code, 0);
  assert.ok(!existsSync(layoutOf(dir).database));
  assert.ok(existsSync(path.join(dir, "workspace/jobs/web/Makefile")));
});

test("job create waits for nobody: in a busy bucket it ends with 75 and makes nothing", async (t) => {
  const { run, layout } = await bucket(t);
  const lock = await acquireLock(layout, uuidV7(), "deploy");
  const { code, stderr } = await run("job", "create", "web");
  await lock.release();
  assert.equal(code, 75);
  assert.match(stderr, /^ops: bucket busy: another ops operation is in progress\n/);
  assert.equal(existsSync(path.join(layout.jobs, "web")), false);
});

test("job create outside of a bucket and with a wrong name is an error", async (t) => {
  const { run } = await bucket(t);
  const outside = await ops(["job", "create", "web", "--bucket-dir", temporaryFolder(t)]);
  assert.equal(outside.code, 1);
  assert.match(outside.stderr, /is not an initialised bucket/);
  const wrong = await run("job", "create", "Web");
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /^ops: Cannot use "Web" as a name: it needs small letters/);
});
