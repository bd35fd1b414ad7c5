import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openDatabase, openForReading } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { MIGRATIONS, SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { restoreBucket } from "../../../lib/bucket/snapshots/restore.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { assertUpgraded, SCHEMA_2, SCHEMA_4, SCHEMA_4_TROUBLE, schema2Bucket, schema4Bucket } from "../../helpers/schemas.ts";
import { BELIEVING } from "../../helpers/snapshots.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

test("the schema has a migration for each of its versions", () => {
  assert.equal(MIGRATIONS.length, SCHEMA_VERSION);
});

test("CP-354 a bucket of schema 2 is refused until init upgrades it in place: every file is kept, the large ones beside the database", async (t) => {
  const layout = await schema2Bucket(t);
  const before = statSync(layout.database).size;
  for (const open of [openDatabase, openForReading])
    assert.throws(() => open(layout.database), { code: "schema_upgrade_required", details: { schema_version: 2 } });
  const { upgraded } = await initBucket(layout.root, { source: false });
  assert.equal(upgraded, true);
  await assertUpgraded(layout);
  assert.equal(readdirSync(path.join(layout.data, "contents")).length, 2);
  assert.ok(statSync(layout.database).size < before - 2_800_000, "what went out of the database takes no room there");
  assert.deepEqual(await initBucket(layout.root, { source: false }).then((again) => again.upgraded), false);
});

test("CP-354 a snapshot of schema 2 is restored and upgraded", async (t) => {
  const dir = path.join(temporaryFolder(t), "bucket");
  await restoreBucket(dir, SCHEMA_2, BELIEVING);
  using db = openDatabase(layoutOf(dir).database);
  assert.deepEqual(
    db
      .all("SELECT path, size_bytes, content IS NULL AS beside FROM job_files WHERE path = 'large'")
      .map((row) => ({ ...(row as object) })),
    [{ path: "large", size_bytes: 1_440_000, beside: 1 }],
  );
  assert.equal(readdirSync(db.contents).length, 2);
});

const TROUBLES = "SELECT worker_ip, outcome, unsettled, troubled_since FROM allocations ORDER BY worker_ip";
const UPGRADED = [
  ["127.0.0.1", "changed", 0, null],
  ["127.0.0.2", "failed", 1, SCHEMA_4_TROUBLE],
  ["127.0.0.3", "changed", 1, SCHEMA_4_TROUBLE],
];

test("CP-434 a bucket of schema 4 is refused until init upgrades it: its troubles began with the last run", async (t) => {
  const layout = await schema4Bucket(t);
  for (const open of [openDatabase, openForReading])
    assert.throws(() => open(layout.database), { code: "schema_upgrade_required", details: { schema_version: 4 } });
  assert.equal((await initBucket(layout.root, { source: false })).upgraded, true);
  using db = openDatabase(layout.database);
  assert.deepEqual(db.tuples(TROUBLES), UPGRADED);
});

test("CP-434 a snapshot of schema 4 is restored and upgraded", async (t) => {
  const dir = path.join(temporaryFolder(t), "bucket");
  await restoreBucket(dir, SCHEMA_4, BELIEVING);
  using db = openDatabase(layoutOf(dir).database);
  assert.deepEqual(db.tuples(TROUBLES), UPGRADED);
});
