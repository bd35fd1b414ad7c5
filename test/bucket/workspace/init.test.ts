import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { bucketIdOf, openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../../lib/bucket/kv/kv-access.ts";
import { packSource } from "../../../lib/bucket/source/source-rules.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { schemaOf } from "../../../lib/bucket/workspace/schemas.ts";
import { loadOpsConf } from "../../../lib/bucket/workspace/settings.ts";
import { readTar } from "../../../lib/codec/archive/tar-read.ts";
import { isUuid } from "../../../lib/codec/uuid.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const ID = "0f0e0d0c-0b0a-4908-8706-050403020100";

function modeOf(file: string): string {
  return (statSync(file).mode & 0o777).toString(8);
}

test("a new bucket has its folders, a database, a key and a source to begin with", async (t) => {
  const dir = path.join(temporaryFolder(t), "new", "bucket");
  const done = await initBucket(dir, { source: true });
  assert.ok(isUuid(done.bucketId));
  assert.deepEqual(done, { bucketId: done.bucketId, schemaVersion: SCHEMA_VERSION, upgraded: true });
  const layout = layoutOf(dir);
  for (const folder of ["data", "logs", "logs/runs", "secrets", ".ssh", "tmp", ".ops", ".ops/uploads", ".ops/revisions"])
    assert.equal(modeOf(path.join(dir, folder)), "700", folder);
  for (const file of [layout.database, layout.kvKey]) assert.equal(modeOf(file), "600", file);
  assert.equal(readFileSync(layout.workersJson, "utf8"), "[]\n");
  assert.deepEqual(readdirSync(layout.jobs), []);
  assert.deepEqual(JSON.parse(readFileSync(path.join(layout.schemas, "manifest.json"), "utf8")), schemaOf("manifest"));
  using db = openDatabase(layout.database);
  assert.equal(bucketIdOf(db), done.bucketId);
});

test("folders that are there already become private", async (t) => {
  const dir = temporaryFolder(t);
  const folders = ["data", "logs", "secrets", ".ssh", "tmp", ".ops"].map((name) => path.join(dir, name));
  for (const folder of folders) mkdirSync(folder, { mode: 0o755 });
  await initBucket(dir, { source: false });
  assert.deepEqual(folders.map(modeOf), Array(folders.length).fill("700"));
});

test("the ops.conf that init writes passes its own check and says what holds without it", async (t) => {
  const [dir, empty] = [temporaryFolder(t), temporaryFolder(t)];
  await initBucket(dir, { source: true });
  const written = await loadOpsConf(layoutOf(dir));
  assert.deepEqual(written, await loadOpsConf(layoutOf(empty)));
  assert.deepEqual(written.warnings, []);
});

test("the .gitignore of init keeps state and secrets out of Git, and no file of a job", async (t) => {
  const dir = temporaryFolder(t);
  await initBucket(dir, { source: true });
  for (const folder of ["data", "logs", "tmp", "secrets"]) {
    const own = path.join(dir, "workspace", "jobs", "web", "_hooks", folder);
    mkdirSync(own, { recursive: true });
    writeFileSync(path.join(own, "file"), "");
  }
  const git = (...args: string[]) => execFileSync("git", ["-C", dir, ...args], { encoding: "utf8" });
  git("init", "--quiet");
  git("add", "-A");
  assert.deepEqual(git("ls-files").trim().split("\n"), [
    ".gitignore",
    "ops.conf",
    "workspace/bucket.conf",
    ...["data", "logs", "secrets", "tmp"].map((folder) => `workspace/jobs/web/_hooks/${folder}/file`),
    "workspace/workers.json",
  ]);
});

test("CP-074 init makes the folders of the source, which a push takes along even where they are empty", async (t) => {
  const dir = temporaryFolder(t);
  await initBucket(dir, { source: true });
  const { archive } = await packSource(dir);
  const names = [];
  for await (const entry of readTar(archive)) names.push(entry.path);
  assert.ok(names.includes("templates") && names.includes("workspace/jobs"), names.join());
});

test("a .gitignore of the operator stays as it is", async (t) => {
  const dir = temporaryFolder(t);
  writeFileSync(path.join(dir, ".gitignore"), "# mine\n");
  await initBucket(dir, { source: true });
  assert.equal(readFileSync(path.join(dir, ".gitignore"), "utf8"), "# mine\n");
});

test("a second init changes nothing and keeps id, key and every file of the operator", async (t) => {
  const dir = temporaryFolder(t);
  const layout = layoutOf(dir);
  const first = await initBucket(dir, { source: true });
  const key = readFileSync(layout.kvKey);
  writeFileSync(layout.workersJson, '[{"host": "mine"}]');
  writeFileSync(layout.opsConf, "# mine\n");
  assert.deepEqual(await initBucket(dir, { source: true }), { ...first, upgraded: false });
  assert.deepEqual(readFileSync(layout.kvKey), key);
  assert.equal(readFileSync(layout.workersJson, "utf8"), '[{"host": "mine"}]');
  assert.equal(readFileSync(layout.opsConf, "utf8"), "# mine\n");
});

test("an init that was interrupted can be done again", async (t) => {
  const dir = temporaryFolder(t);
  mkdirSync(path.join(dir, "data"), { recursive: true });
  writeFileSync(path.join(dir, "data", "ops.db"), "");
  const { bucketId } = await initBucket(dir, { source: false });
  rmSync(layoutOf(dir).kvKey);
  assert.equal((await initBucket(dir, { source: false })).bucketId, bucketId);
  assert.equal((await loadKvKey(layoutOf(dir))).length, 32);
});

test("without `source` no source path is written", async (t) => {
  const dir = temporaryFolder(t);
  await initBucket(dir, { bucketId: ID, source: false });
  assert.deepEqual(readdirSync(dir).sort(), [".ops", ".ssh", "data", "logs", "secrets", "tmp"]);
});

test("below a server root the id is the folder's name, and it has to stay so", async (t) => {
  const root = temporaryFolder(t);
  const dir = path.join(root, ID);
  mkdirSync(dir);
  writeFileSync(path.join(dir, "bucket.json"), "{}");
  assert.equal((await initBucket(dir, { source: false })).bucketId, ID);
  const other = path.join(root, "00000000-0000-4000-8000-000000000000");
  renameSync(dir, other);
  await assert.rejects(initBucket(other, { source: false }), { code: "invalid_bucket_id", message: /belongs to bucket 0f0e/ });
  await assert.rejects(initBucket(other, { bucketId: "Nope", source: false }), { code: "invalid_bucket_id" });
});

test("a lost key is not replaced while the database holds secrets sealed with it", async (t) => {
  const dir = temporaryFolder(t);
  const layout = layoutOf(dir);
  await initBucket(dir, { source: false });
  {
    using db = openDatabase(layout.database);
    const kv = new KvStore(db, await loadKvKey(layout));
    kv.put("secrets/job/web", "password", "x");
    kv.flush();
  }
  rmSync(layout.kvKey);
  await assert.rejects(initBucket(dir, { source: false }), /holds secrets sealed with .*kv\.key, which is missing/);
});

test("a database of a newer version is refused and left alone", async (t) => {
  const dir = temporaryFolder(t);
  await initBucket(dir, { source: false });
  {
    using db = openDatabase(layoutOf(dir).database);
    db.run("UPDATE schema_version SET version = 99");
  }
  await assert.rejects(initBucket(dir, { source: false }), { code: "schema_too_new" });
});

test("two inits at once make one bucket", async (t) => {
  const dir = temporaryFolder(t);
  const done = await Promise.all([initBucket(dir, { source: true }), initBucket(dir, { source: true })]);
  assert.equal(done[0].bucketId, done[1].bucketId);
});
