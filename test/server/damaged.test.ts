import assert from "node:assert/strict";
import { existsSync, readFileSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { ops } from "../../scripts/local-server.ts";
import { TestServer } from "../helpers/server.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

/** A server with a bucket that has a snapshot, made by its first run. */
async function saved(t: Parameters<typeof TestServer.start>[0]) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const start = async (target: string) => {
    const { status, body } = await server.call("POST", `${bucket.path}/${target}`);
    assert.equal(status, 202, JSON.stringify(body));
    return server.ended(bucket.path, body.run_id);
  };
  const first = await start("snapshots");
  assert.equal(first.status, "succeeded");
  const layout = layoutOf(bucket.folder);
  return { server, bucket, start, first, snapshot: String(first.result.name), layout };
}

/** What is wrong with a database, and what makes the file so. */
const DAMAGES: [string, (file: string) => void][] = [
  ["is no database", (file) => writeFileSync(file, "this is not a database, not at all. ".repeat(300))],
  ["is cut", (file) => truncateSync(file, 9_000)],
  [
    "has schema version 0",
    (file) => {
      using database = new DatabaseSync(file);
      database.exec("UPDATE schema_version SET version = 0");
    },
  ],
  [
    "has no schema version",
    (file) => {
      using database = new DatabaseSync(file);
      database.exec("DELETE FROM schema_version");
    },
  ],
];

/** Damages a database after its write-ahead log is folded in and removed, so that the log cannot mend it. */
function damage(file: string, how: (file: string) => void): void {
  {
    using database = new DatabaseSync(file);
    database.exec("PRAGMA journal_mode = DELETE");
  }
  for (const end of ["-wal", "-shm"]) rmSync(file + end, { force: true });
  how(file);
}

for (const [what, how] of DAMAGES)
  test(`a database that ${what}: init and starts say what to do, and a restore over HTTP mends it`, async (t) => {
    const { server, bucket, start, snapshot, layout } = await saved(t);
    await server.stop();
    damage(layout.database, how);
    await server.open();
    for (const target of ["init", "build", "snapshots"]) {
      const { status, body } = await server.call("POST", `${bucket.path}/${target}`);
      assert.deepEqual([status, body.error], [409, "database_damaged"], `${target}: ${body.message}`);
      assert.match(body.message, /damaged.*; restore a snapshot \(`ops snapshot restore`, or POST /);
    }
    assert.equal((await server.call("GET", `${bucket.path}/info`)).status, 409);
    const { body: shown } = await server.call("GET", "/api/buckets");
    assert.deepEqual([shown.items[0].initialized, shown.items[0].schema_version], [false, null]);
    const bytes = readFileSync(layout.database);
    const outside = path.join(temporaryFolder(t), "outside");
    writeFileSync(outside, "its own");
    symlinkSync(outside, `${layout.database}.damaged`);
    const run = await start(`snapshots/${snapshot}/restore`);
    assert.deepEqual([run.status, run.error, run.result.saved_as], ["succeeded", null, null]);
    assert.deepEqual(readFileSync(`${layout.database}.damaged`), bytes);
    assert.equal(readFileSync(outside, "utf8"), "its own");
    assert.equal((await server.call("GET", `${bucket.path}/info`)).body.bucket_id, bucket.id);
    assert.equal((await start("build")).status, "succeeded");
  });

test("the command line says the same of a damaged database, and restores it", async (t) => {
  const { server, bucket, snapshot, layout } = await saved(t);
  await server.stop();
  damage(layout.database, (file) => truncateSync(file, 9_000));
  const own = ["--bucket-dir", bucket.folder];
  for (const command of ["init", "build", "info"]) {
    const { code, stderr } = await ops([command, ...own]);
    assert.equal(code, 1);
    assert.match(stderr, /damaged.*; restore a snapshot \(`ops snapshot restore`/);
  }
  const restored = await ops(["snapshot", "restore", snapshot, ...own]);
  assert.equal(restored.code, 0, restored.stderr);
  assert.equal((await ops(["info", ...own])).code, 0);
});

test("CP-115 a half-written record is a failed run that says so: in the list, alone, after a restart, until retention removes it", async (t) => {
  const { server, bucket, start, first, layout } = await saved(t);
  const files = runLayout(layout, first.id);
  const whole = readFileSync(files.record, "utf8");
  for (const [text, kind] of [
    [whole.slice(0, whole.length / 2), "snapshot_create"],
    ["", "unknown"],
    ["[]", "unknown"],
  ] as const) {
    await server.stop();
    writeFileSync(files.record, text);
    await server.open();
    const { body: run } = await server.call("GET", `${bucket.path}/runs/${first.id}`);
    assert.deepEqual([run.status, run.kind, run.duration_ms], ["failed", kind, 0]);
    assert.match(
      run.error,
      /^server-run\.json of this run is damaged: its parameters and result are lost; activity\.log tells what the run did/,
    );
    const { body: list } = await server.call("GET", `${bucket.path}/runs`);
    const { progress: _, ...shown } = run;
    assert.deepEqual(list.items, [shown]);
    const { body: log } = await server.call("GET", `${bucket.path}/runs/${first.id}/logs`);
    assert.match(log.data, /snapshot_create of bucket/);
    const cancelled = await server.call("POST", `${bucket.path}/runs/${first.id}/cancel`);
    assert.deepEqual([cancelled.status, cancelled.body.error], [409, "run_not_active"]);
    const retried = await server.call("POST", `${bucket.path}/deploy`, { body: { retry_of: first.id } });
    assert.deepEqual([retried.status, retried.body.error], [409, "retry_impossible"]);
    assert.equal(readFileSync(files.record, "utf8"), text);
  }
  writeFileSync(layout.opsConf, "log_run_retention_count = 1\n");
  assert.equal((await start("build")).status, "succeeded");
  assert.equal(existsSync(path.dirname(files.record)), false);
});

test("a database that another process keeps locked fails a run, and a start over HTTP, with a sentence", async (t) => {
  const { server, bucket, first, layout } = await saved(t);
  await server.stop();
  using holder = new DatabaseSync(layout.database);
  holder.exec("BEGIN IMMEDIATE");
  const { code, stderr } = await ops(["build", "--bucket-dir", bucket.folder]);
  holder.exec("ROLLBACK");
  assert.equal(code, 1);
  assert.match(stderr, /build failed after .*: the bucket's database is busy; try again/);
  assert.doesNotMatch(stderr, /internal error|database is locked/);
  await server.open();
  const { body } = await server.call("GET", `${bucket.path}/runs`);
  assert.match(body.items.find((run: { id: string }) => run.id !== first.id).error, /; try again$/);
});
