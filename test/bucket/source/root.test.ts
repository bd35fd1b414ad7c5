import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import net from "node:net";
import path from "node:path";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import {
  bucketIds,
  createBucket,
  deleteBucket,
  findBucket,
  migrateEnvironments,
  prepareRoot,
  refuseUsedRoot,
  renameBucket,
  takeRoot,
} from "../../../lib/bucket/source/root.ts";
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
  const isInitialised = () => assert.fail("nothing is made where the id is taken");
  await assert.rejects(createBucket(root, { id: ID, ...LABELS }, isInitialised), { code: "bucket_exists" });
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

test("a root that is a bucket, no folder, open to others or of the other variant is refused, each with what to do", async (t) => {
  const refused = async (message: RegExp, make: (root: string) => void, labels?: "env.json") => {
    const root = temporaryFolder(t);
    make(root);
    await assert.rejects(refuseUsedRoot(root, labels), (error: Failure) => {
      assert.equal(error.code, "usage");
      assert.match(error.message.replaceAll(root, "<root>"), message);
      return true;
    });
  };
  for (const sign of ["ops.conf", "data/ops.db", "bucket.json", "env.json"])
    await refused(new RegExp(`^the root <root> is itself a bucket: it contains ${sign}; give its parent folder$`), (root) => {
      mkdirSync(path.join(root, "data"));
      writeFileSync(path.join(root, sign), "");
    });
  await refused(/^others may write the root <root>: chmod o-w <root>$/, (root) => chmodSync(root, 0o702));
  await refused(/^the root <root> is not a folder$/, (root) => {
    rmSync(root, { recursive: true });
    writeFileSync(root, "");
  });
  await refused(/^the root <root> is not a folder$/, (root) => {
    rmSync(root, { recursive: true });
    fifo(root);
  });
  const server = net.createServer();
  await refused(/^Cannot use the root: ENXIO/, (root) => {
    rmSync(root, { recursive: true });
    server.listen(root);
  });
  server.close();
  const holding = (file: string) => (root: string) => {
    mkdirSync(path.join(root, ID));
    writeFileSync(path.join(root, ID, file), "{}");
  };
  const [environments, buckets] = ["`ops server migrate <root>`, or serve them with `ops serve`", "serve them with `ops server`"];
  await refused(
    new RegExp(`^the root <root> holds environments: .* ${environments}; the first one is ${ID}$`),
    holding("env.json"),
  );
  await refused(
    new RegExp(`^the root <root> holds buckets, .*: ${buckets}; the first one is ${ID}$`),
    holding("bucket.json"),
    "env.json",
  );
  const root = temporaryFolder(t);
  holding("bucket.json")(root);
  chmodSync(root, 0o775);
  await refuseUsedRoot(root);
  await refuseUsedRoot(path.join(root, "none"));
});

test("a root is of one server at a time, who else wants it is told who has it and what to do", async (t) => {
  const root = path.join(temporaryFolder(t), "new");
  const lock = await takeRoot(root);
  assert.equal(statSync(path.join(root, ".server")).mode & 0o777, 0o700);
  const message = (advice: string) => new RegExp(`^Cannot take the root ${root}: held by server .*; ${advice}$`);
  await assert.rejects(takeRoot(root), { code: "failed", message: message("give each server a root of its own") });
  await assert.rejects(takeRoot(root, "wait"), { code: "failed", message: message("wait") });
  await lock.release();
  await (await takeRoot(root)).release();
  const broken = path.join(root, ".server/ops.lock");
  rmSync(broken, { force: true });
  mkdirSync(broken);
  await assert.rejects(takeRoot(root), (error: Error) => !error.message.startsWith("Cannot take the root"));
});

test("a bucket gets another project or name, and keeps what is not given; one that has gone is told", async (t) => {
  const root = temporaryFolder(t);
  const bucket = await createBucket(root, { id: ID, ...LABELS }, nothing);
  const labelsOf = ({ project, name, created_at }: typeof bucket) => [project, name, created_at];
  const named = await renameBucket(bucket, { name: "live" });
  assert.deepEqual(labelsOf(named), ["shop", "live", bucket.created_at]);
  assert.deepEqual(findBucket(root, ID), named);
  const moved = await renameBucket({ ...named, created_at: null }, { project: "p" });
  assert.deepEqual(
    [labelsOf(moved), labelsOf(findBucket(root, ID))],
    [
      ["p", "live", null],
      ["p", "live", null],
    ],
  );
  assert.deepEqual(Object.keys(JSON.parse(readFileSync(moved.layout.bucketJson, "utf8"))), ["project", "name"]);
  await deleteBucket(root, bucket);
  assert.deepEqual(readdirSync(root), []);
  await assert.rejects(renameBucket(bucket, { name: "x" }), { code: "bucket_not_found" });
  mkdirSync(path.join(root, `.deleting-${ID}`, "data"), { recursive: true });
  mkdirSync(path.join(root, ".other"));
  await prepareRoot(root);
  assert.deepEqual(readdirSync(root), [".other"]);
});

test("environments become buckets in order, but for those that cannot, and a dry run changes nothing", async (t) => {
  const root = temporaryFolder(t);
  const [both, plain] = [`1${ID.slice(1)}`, `2${ID.slice(1)}`];
  for (const folder of [plain, both, "old", `3${ID.slice(1)}`]) mkdirSync(path.join(root, folder));
  for (const folder of [plain, both, "old"]) writeFileSync(path.join(root, folder, "env.json"), JSON.stringify(LABELS));
  writeFileSync(path.join(root, both, "bucket.json"), "{}");
  writeFileSync(path.join(root, "env.json"), "{}");
  const label = "shop/not a UUID";
  const told = [
    { id: both, label, problem: "it has a bucket.json too" },
    { id: plain, label, problem: null },
    { id: "old", label: "", problem: "its folder is not named by a UUID in small letters" },
  ];
  assert.deepEqual(await Array.fromAsync(migrateEnvironments(root, true)), told);
  assert.deepEqual(readdirSync(path.join(root, plain)), ["env.json"]);
  assert.deepEqual(await Array.fromAsync(migrateEnvironments(root, false)), told);
  assert.deepEqual([readdirSync(path.join(root, plain)), readdirSync(path.join(root, "old"))], [["bucket.json"], ["env.json"]]);
  assert.deepEqual(
    await Array.fromAsync(migrateEnvironments(root, false)),
    told.filter(({ problem }) => problem !== null),
  );
});
