import assert from "node:assert/strict";
import { readdirSync, statSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { bytesOf, digestOf, piecesOf } from "../../lib/bucket/base/contents.ts";
import { openDatabase, schemaVersion } from "../../lib/bucket/base/database.ts";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { SCHEMA_VERSION } from "../../lib/bucket/base/schema.ts";
import { catalogAllocations, catalogFiles } from "../../lib/bucket/catalog/catalog.ts";
import { keptContent } from "../../lib/bucket/catalog/contents.ts";
import { promotionsOf } from "../../lib/bucket/catalog/promotions.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey, SEALED_CONTENTS, sealedValues } from "../../lib/bucket/kv/kv-access.ts";
import { seal } from "../../lib/codec/crypto/seal.ts";
import { entriesOf } from "./snapshots.ts";
import { temporaryFolder } from "./temporary.ts";

/** Brings a database back to schema 1, as the first version of the program left it. */
export function toSchema1(file: string): void {
  const database = new DatabaseSync(file);
  toSchema2(database);
  database.exec("DROP TABLE last_outcome; ALTER TABLE job DROP COLUMN drift_ignore; UPDATE schema_version SET version = 1");
  database.close();
}

/** Brings a database back to schema 2, in which the rows of allocations have no states. */
export function toSchema2(database: DatabaseSync): void {
  const columns = ["position", "rollout", "outcome", "unsettled", "runs", "promoted_version", "troubled_since"];
  // In schema 3 all contents were in the database.
  database.exec("ALTER TABLE job_files DROP COLUMN size_bytes; ALTER TABLE contents DROP COLUMN size_bytes");
  database.exec(`DROP TRIGGER promotion_new; DROP TRIGGER promotion_changed; DROP TRIGGER outcome_new; DROP TRIGGER trouble;
    DROP INDEX allocations_by_job; DROP INDEX allocations_by_state; DROP INDEX workers_in_order; DROP INDEX certs_in_order;
    ${columns.map((column) => `ALTER TABLE allocations DROP COLUMN ${column};`).join("")}
    ALTER TABLE job_certs DROP COLUMN position; ALTER TABLE job DROP COLUMN after_jobs;
    ALTER TABLE bucket DROP COLUMN schedules; ALTER TABLE bucket DROP COLUMN notify;
    DROP TABLE health_change; UPDATE schema_version SET version = 2`);
}

/**
 * A snapshot that the program made when it wrote schema 2. Job `web` was deployed twice on 127.0.0.1, with small files, a
 * large one that differs each time, an empty one, and one that shows a secret.
 */
export const SCHEMA_2 = fileURLToPath(new URL("../fixtures/schema-2.tar.gz", import.meta.url));

/**
 * A snapshot that the program made when it wrote schema 4. Job `web` was deployed on three workers; then the restart for
 * the next version failed on 127.0.0.2, and the batch of 127.0.0.3 did not begin.
 */
export const SCHEMA_4 = fileURLToPath(new URL("../fixtures/schema-4.tar.gz", import.meta.url));

/** When the run began in which that restart failed. */
export const SCHEMA_4_TROUBLE = "2026-11-24T06:14:19.333Z";

/** The bucket of that snapshot, with its old database. */
export async function schema4Bucket(t: Pick<TestContext, "after">): Promise<Layout> {
  return unpacked(t, SCHEMA_4);
}

async function unpacked(t: Pick<TestContext, "after">, snapshot: string): Promise<Layout> {
  const layout = layoutOf(temporaryFolder(t));
  for (const { path: name, content = "" } of (await entriesOf(snapshot)).slice(1)) {
    await mkdir(path.dirname(path.join(layout.root, name)), { recursive: true, mode: 0o700 });
    await writeFile(path.join(layout.root, name), content, { mode: 0o600 });
  }
  return layout;
}

const LARGE_SECRET = Buffer.from("very secret ".repeat(100_000));
const LARGE_SECRET_DIGEST = digestOf(() => [LARGE_SECRET]);

/** The bucket of that snapshot, with its old database; one more promoted file is large and sealed. */
export async function schema2Bucket(t: Pick<TestContext, "after">): Promise<Layout> {
  const layout = await unpacked(t, SCHEMA_2);
  const packed = [LARGE_SECRET, Buffer.from("very secret ")].map((part) => part.toString("base64")).join(" ");
  const sealed = seal(await loadKvKey(layout), SEALED_CONTENTS, LARGE_SECRET_DIGEST, packed);
  const database = new DatabaseSync(layout.database);
  database.prepare("INSERT INTO contents VALUES (?, 1, ?)").run(LARGE_SECRET_DIGEST, Buffer.from(sealed));
  database.exec(`UPDATE hash SET previous_files = json_set(previous_files, '$.large-secret', '600:${LARGE_SECRET_DIGEST}')`);
  database.close();
  return layout;
}

/** Everything that the old database of {@link schema2Bucket} held is there in the new one, each content at its place. */
export async function assertUpgraded(layout: Layout): Promise<void> {
  using db = openDatabase(layout.database);
  assert.equal(schemaVersion(db), SCHEMA_VERSION);
  const files = catalogFiles(db, "web");
  const shown = files.map(({ path, content }) => [path, content.length, Buffer.isBuffer(content)]);
  assert.deepEqual(shown, [
    ["Makefile", 70, true],
    ["empty", 0, true],
    ["large", 1_440_000, false],
    ["manifest.json", 43, true],
    ["secret.tpl", 36, true],
    ["small", 11, true],
  ]);
  for (const { path: name, sha256, content } of files)
    assert.equal(
      digestOf(() => piecesOf(content)),
      sha256,
      name,
    );
  const key = await loadKvKey(layout);
  assert.deepEqual(sealedValues(db, key).unreadable, []);
  const kv = new KvStore(db, key);
  assert.equal(kv.get("secrets/job/web", "password"), "correct horse battery");
  const [allocation] = catalogAllocations(db);
  const { files: promoted, before, version } = promotionsOf(db, "web")(allocation?.id ?? "");
  assert.equal(version, "1.0.0");
  const kept = [promoted, before.files].map((tree) =>
    Object.entries(tree).map(([name, digest]) => {
      const sha256 = digest.slice(digest.indexOf(":") + 1);
      const { content, isSecret } = keptContent(db, kv, sha256);
      assert.equal(
        digestOf(() => [bytesOf(content)]),
        sha256,
        name,
      );
      return [name, content.length, isSecret];
    }),
  );
  const same = [
    ["Makefile", 70, false],
    ["certs/ca.crt", 709, false],
    ["empty", 0, false],
  ];
  const rest = [
    ["manifest.json", 43, false],
    ["secret", 31, true],
  ];
  assert.deepEqual(kept, [
    [...same, ["large", 1_440_000, false], ...rest, ["small", 11, false], ["large-secret", LARGE_SECRET.length, true]],
    [...same, ["large", 1_380_000, false], ...rest, ["small", 10, false]],
  ]);
  const contents = path.join(layout.data, "contents");
  assert.equal(statSync(contents).mode & 0o777, 0o700);
  for (const name of readdirSync(contents)) assert.equal(statSync(path.join(contents, name)).mode & 0o777, 0o600, name);
}
