import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { bucketIds, createBucket, findBucket, prepareRoot } from "../../../lib/bucket/source/root.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { patience } from "../../../scripts/patience.ts";
import { fifo, temporaryFolder } from "../../helpers/temporary.ts";

const ID = "8c2f6f6e-1111-4222-8333-944455556666";
const LABELS = { project: "shop", name: "not a UUID" };
const nothing = async () => {};

test("CP-005 CP-071 CP-072 CP-073 CP-077 a bucket is a folder named by its id, with project and name", async (t) => {
  const root = temporaryFolder(t);
  const bucket = await createBucket(root, { id: ID, ...LABELS }, nothing);
  assert.deepEqual(readdirSync(root), [ID]);
  assert.equal(bucket.layout.root, path.join(root, ID));
  const stored = JSON.parse(readFileSync(path.join(root, ID, "bucket.json"), "utf8"));
  assert.deepEqual(stored, { ...LABELS, created_at: bucket.created_at });
  assert.deepEqual(findBucket(root, ID), bucket);
});

test("CP-074 a new bucket has the server's folders for its owner only, and no source path", async (t) => {
  const root = temporaryFolder(t);
  const { layout } = await createBucket(root, LABELS, nothing);
  assert.deepEqual(readdirSync(layout.root).sort(), [".ops", ".ssh", "bucket.json", "data", "logs", "secrets", "tmp"]);
  for (const name of readdirSync(layout.root).filter((one) => one !== "bucket.json"))
    assert.equal(statSync(path.join(layout.root, name)).mode & 0o777, 0o700, name);
});

test("any version of UUID is an id; upper case is stored in lower case and found in both", async (t) => {
  const root = temporaryFolder(t);
  for (const id of [ID.toUpperCase(), "018f0000-0000-7000-8000-000000000000", "00000000-0000-0000-0000-000000000000"]) {
    const bucket = await createBucket(root, { id, ...LABELS }, nothing);
    assert.equal(bucket.id, id.toLowerCase());
    for (const spelled of [id.toLowerCase(), id.toUpperCase()]) assert.equal(findBucket(root, spelled).id, bucket.id);
  }
});

for (const id of ["foo", "", "../x", `${ID}/..`, `${ID}x`, ID.replaceAll("-", ""), `{${ID}}`])
  test(`CP-079 CP-080 the id ${JSON.stringify(id)} is refused and leaves nothing`, async (t) => {
    const root = temporaryFolder(t);
    await assert.rejects(createBucket(root, { id, ...LABELS }, nothing), { code: "invalid_bucket_id" });
    assert.deepEqual(readdirSync(root), []);
    assert.throws(() => findBucket(root, id), { code: "bucket_not_found" });
  });

test("an id is given once, also when two ask at the same time", async (t) => {
  const root = temporaryFolder(t);
  const both = await Promise.allSettled([1, 2].map(() => createBucket(root, { id: ID, ...LABELS }, nothing)));
  assert.deepEqual(both.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
  await assert.rejects(createBucket(root, { id: ID, ...LABELS }, nothing), { code: "bucket_exists" });
  assert.deepEqual(readdirSync(root), [ID]);
});

test("a creation that fails leaves nothing; one that was interrupted is removed at the next start", async (t) => {
  const root = temporaryFolder(t);
  const fails = async () => {
    throw new Failure("failed", "the disk is full");
  };
  await assert.rejects(createBucket(root, LABELS, fails), /disk is full/);
  assert.deepEqual(readdirSync(root), []);
  mkdirSync(path.join(root, `.creating-${ID}`, "data"), { recursive: true });
  await createBucket(root, { id: ID, ...LABELS }, nothing);
  await prepareRoot(root);
  assert.deepEqual(readdirSync(root), [ID]);
});

test("only folders named by a UUID that hold bucket.json are buckets, in the order of their ids", async (t) => {
  const root = temporaryFolder(t);
  const [first, second] = [`0${ID.slice(1)}`, `1${ID.slice(1)}`];
  for (const id of [second, first]) await createBucket(root, { id, ...LABELS }, nothing);
  mkdirSync(path.join(root, `2${ID.slice(1)}`));
  mkdirSync(path.join(root, "notes"));
  writeFileSync(path.join(root, `3${ID.slice(1)}`), "");
  symlinkSync(path.join(root, first), path.join(root, `4${ID.slice(1)}`));
  assert.deepEqual(await bucketIds(root), [first, second]);
  for (const digit of [2, 3, 4]) assert.throws(() => findBucket(root, digit + ID.slice(1)), { code: "bucket_not_found" });
});

test("a bucket whose bucket.json is damaged or foreign is still found", async (t) => {
  const root = temporaryFolder(t);
  const { layout } = await createBucket(root, { id: ID, ...LABELS }, nothing);
  for (const [content, expected] of [
    ["{", ["", "", null]],
    ['{"project": 7, "name": "n"}', ["", "n", null]],
    ["[]", ["", "", null]],
    [`{"name": "n"}`.padEnd(64 * 1024), ["", "n", null]],
    [`{"name": "n"}`.padEnd(64 * 1024 + 1), ["", "", null]],
  ] as const) {
    writeFileSync(layout.bucketJson, content);
    await nextTurn();
    const { project, name, created_at } = findBucket(root, ID);
    assert.deepEqual([project, name, created_at], expected);
  }
});

test("a FIFO in the place of bucket.json is not waited for: the bucket has no labels", async (t) => {
  const root = temporaryFolder(t);
  const { layout } = await createBucket(root, { id: ID, ...LABELS }, nothing);
  rmSync(layout.bucketJson);
  fifo(layout.bucketJson);
  // In a process of its own: a read that waits for the FIFO cannot be stopped.
  const module = new URL("../../../lib/bucket/source/root.ts", import.meta.url).href;
  const program = `import { findBucket } from "${module}"; console.log(JSON.stringify(findBucket(${JSON.stringify(root)}, "${ID}").project))`;
  const argv = ["--input-type=module", "-e", program];
  const { stdout, signal } = spawnSync(process.execPath, argv, { encoding: "utf8", timeout: patience(20_000) });
  assert.deepEqual([stdout, signal], ['""\n', null]);
});

test("trouble with a bucket's folder is told, and no reason to say that there is none", () => {
  const root = `/${"x/".repeat(3_000)}`;
  assert.throws(() => findBucket(root, ID), { code: "ENAMETOOLONG" });
});
