import assert from "node:assert/strict";
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { Database, isDamaged, migrate, openDatabase, schemaVersion } from "../../../lib/bucket/base/database.ts";
import { type Layout, layoutOf, SOURCE_PATHS } from "../../../lib/bucket/base/layout.ts";
import { SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { countFailed } from "../../../lib/bucket/catalog/info.ts";
import {
  commitRestore,
  isEmptyPlace,
  prepareRestore,
  restoreBucket,
  verifySnapshot,
} from "../../../lib/bucket/snapshots/restore.ts";
import { createSnapshot } from "../../../lib/bucket/snapshots/snapshots.ts";
import { listRevisions, markBuilt } from "../../../lib/bucket/source/revisions.ts";
import { acceptSource, receiveSource, recoverSource } from "../../../lib/bucket/source/source.ts";
import { packSource } from "../../../lib/bucket/source/source-rules.ts";
import { STATE_PATHS } from "../../../lib/bucket/source/swap.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { runUntilKilled } from "../../helpers/killed.ts";
import { seeded } from "../../helpers/random.ts";
import { toSchema1 } from "../../helpers/schemas.ts";
import {
  BELIEVING,
  BUCKET,
  type Entry,
  entriesOf,
  listed,
  mark,
  markedBucket,
  marks,
  marksOf,
  snapshotFile,
  writeEntries,
} from "../../helpers/snapshots.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const never = new AbortController().signal;

async function restore(layout: Layout, file: string, withSource: boolean): Promise<void> {
  await commitRestore(layout, await prepareRestore(layout, BUCKET, file, BELIEVING), withSource);
}

function assertClean(layout: Layout): void {
  for (const name of ["staging", "restores", "journal.json"]) assert.ok(!existsSync(path.join(layout.internal, name)), name);
}

test("CP-107 a restore brings back the state and leaves the source alone; with the source, that too", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  await mark(layout, "two");
  // What came later goes too.
  writeFileSync(path.join(layout.secrets, "later.key"), "");
  await restore(layout, file, false);
  assert.deepEqual(await marksOf(layout), marks("one", "two"));
  assert.ok(!existsSync(path.join(layout.secrets, "later.key")));
  await restore(layout, file, true);
  assert.deepEqual(await marksOf(layout), marks("one", "one"));
  for (const [name, mode] of [
    ["data/ops.db", 0o600],
    ["secrets", 0o700],
    ["secrets/kv.key", 0o600],
    [".ssh", 0o700],
    ["workspace", 0o755],
    ["workspace/mark", 0o644],
  ] as const)
    assert.equal(statSync(path.join(layout.root, name)).mode & 0o777, mode, name);
  assertClean(layout);
});

test("a snapshot with an older schema is restored and upgraded", async (t) => {
  const layout = await markedBucket(t);
  toSchema1(layout.database);
  const old = new Database(new DatabaseSync(layout.database));
  const { name, schema_version } = await createSnapshot(layout, old, {}, never);
  old.close();
  assert.equal(schema_version, 1);
  migrate(layout.database, BUCKET);
  await restore(layout, path.join(layout.snapshots, `${name}.tar.gz`), false);
  using db = openDatabase(layout.database);
  assert.deepEqual([schemaVersion(db), countFailed(db)], [SCHEMA_VERSION, 0]);
});

test("a restore goes past the write-ahead log of the database it replaces", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  // Who still has the old one open keeps its log on the disk.
  using reader = openDatabase(layout.database);
  await mark(layout, "two");
  assert.ok(statSync(`${layout.database}-wal`).size > 0);
  await restore(layout, file, false);
  assert.equal((await marksOf(layout)).database, "one");
  assert.equal(reader.get<{ value: string }>("SELECT value FROM key_value WHERE key = 'mark' AND version = 2")?.value, "two");
});

test("a restored source is the revision of the snapshot where that is kept, else none", async (t) => {
  const layout = await markedBucket(t);
  const push = async () => {
    const received = await receiveSource(layout, (await packSource(layout.root)).archive, false, never);
    const { id } = await acceptSource(layout, received, uuidV7());
    await markBuilt(layout, "succeeded");
    return id;
  };
  const first = await push();
  const file = await snapshotFile(layout);
  await mark(layout, "two");
  const second = await push();
  const current = async () => (await listRevisions(layout)).filter((one) => one.current).map(({ id }) => id);
  await restore(layout, file, false);
  assert.deepEqual(await current(), [second]);
  await restore(layout, file, true);
  assert.deepEqual(await current(), [first]);
  assert.deepEqual(
    (await listRevisions(layout)).map(({ build_status }) => build_status),
    ["succeeded", "succeeded"],
  );
  const entries = await entriesOf(file);
  await writeEntries(file, entries, { source_revision: uuidV7() });
  await restore(layout, file, true);
  assert.deepEqual(await current(), []);
});

test("a bucket.json that the snapshot does not have stays", async (t) => {
  const layout = await markedBucket(t);
  rmSync(layout.bucketJson);
  const file = await snapshotFile(layout);
  await mark(layout, "two");
  await restore(layout, file, true);
  assert.deepEqual(await marksOf(layout), { ...marks("one", "one"), labels: "two" });
});

test("a snapshot with a flipped bit is refused, or the bit says nothing about its content", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const whole = readFileSync(file);
  const before = gunzipSync(whole);
  const damaged = path.join(layout.snapshots, "damaged.tar.gz");
  await mark(layout, "two");
  const random = seeded();
  const bits = Array.from({ length: 24 }, () => Math.floor(random() * whole.length * 8));
  let refused = 0;
  for (const bit of [0, 8 * 4, 8 * 9, whole.length * 8 - 1, ...bits]) {
    const bytes = Buffer.from(whole);
    bytes[bit >> 3] = (bytes[bit >> 3] as number) ^ (1 << (bit & 7));
    writeFileSync(damaged, bytes);
    try {
      await prepareRestore(layout, BUCKET, damaged, BELIEVING);
      assert.deepEqual(gunzipSync(bytes), before, `bit ${bit}`);
    } catch (error) {
      assert.match((error as Error).message, /^Cannot use the snapshot .*damaged\.tar\.gz: /, `bit ${bit}`);
      assert.ok(!existsSync(layout.restores));
      refused++;
    }
  }
  assert.ok(refused >= bits.length, `${refused}`);
  assert.deepEqual(await marksOf(layout), marks("two", "two"));
});

test("a sum that differs is found even where the archive itself is whole", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const entries = await entriesOf(file);
  for (const [index, entry] of entries.entries()) {
    if (index === 0 || entry.content?.length === 0) continue;
    const content = Buffer.from(entry.content as Buffer);
    content[content.length - 1] = (content[content.length - 1] as number) ^ 1;
    await writeEntries(file, entries.with(index, { path: entry.path, content }));
    await assert.rejects(prepareRestore(layout, BUCKET, file, BELIEVING), {
      message: `Cannot use the snapshot ${file}: "${entry.path}" differs from its sum in the manifest`,
    });
  }
});

test("a snapshot that is cut off anywhere is refused", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const whole = readFileSync(file);
  const archive = gunzipSync(whole);
  for (const length of [0, 1, 9, 10, 20, whole.length >> 1, whole.length - 9, whole.length - 8, whole.length - 1]) {
    writeFileSync(file, whole);
    truncateSync(file, length);
    await assert.rejects(prepareRestore(layout, BUCKET, file, BELIEVING), { code: "failed" }, `${length} bytes`);
  }
  for (const length of [0, 511, 512, 1024, archive.length >> 1, archive.length - 1024, archive.length - 512]) {
    writeFileSync(file, gzipSync(archive.subarray(0, length)));
    await assert.rejects(prepareRestore(layout, BUCKET, file, BELIEVING), { code: "failed" }, `archive of ${length} bytes`);
  }
  assert.ok(!existsSync(layout.restores));
});

const DATABASE = listed("data/ops.db", "no database");

const HOSTILE: [
  name: string,
  change: (entries: Entry[], files: Record<string, unknown>[]) => [Entry[], Record<string, unknown>],
  message: RegExp,
][] = [
  [
    "a newer schema",
    (entries) => [entries, { schema_version: SCHEMA_VERSION + 1 }],
    new RegExp(`was made by ops .* with schema ${SCHEMA_VERSION + 1}, this program knows ${SCHEMA_VERSION}; use a newer ops$`),
  ],
  ["a schema below the first", (entries) => [entries, { schema_version: 0 }], /its manifest is not right: schema_version /],
  ...[`0${"0".repeat(36)}`, "no id"].map((bucket_id): (typeof HOSTILE)[number] => [
    `the bucket ${bucket_id}`,
    (entries) => [entries, { bucket_id }],
    /its manifest is not right: bucket_id expected a bucket id/,
  ]),
  ["a newer format", (entries) => [entries, { format: 3 }], /use a newer ops$/],
  [
    "another bucket",
    (entries) => [entries, { bucket_id: "0190a5e8-0000-7000-8000-00000000000b" }],
    /its database belongs to bucket .*a, its manifest names .*b$/,
  ],
  [
    "an entry that is not listed",
    (entries) => [[...entries, { path: "workspace/x", content: Buffer.from("") }], {}],
    /it holds "workspace\/x", which its manifest does not list$/,
  ],
  [
    "an entry that is missing",
    (entries) => [entries.slice(0, -1), {}],
    /expected "templates\/a\/mark" of \d+ bytes, found something else$/,
  ],
  [
    "entries in another order",
    ([first, second, third, ...rest]) => [[first, third, second, ...rest] as Entry[], {}],
    /found something else$/,
  ],
  [
    "a folder in the place of a file",
    (entries) => [[...entries.slice(0, -1), { path: "templates/a/mark" }], {}],
    /found something else$/,
  ],
  ["no manifest", (entries) => [entries.slice(1), {}], /does not begin with manifest\.json|Unexpected token/],
  [
    "a file listed twice",
    (entries, files) => [entries, { files: [...files, files[1]] }],
    /lists "bucket\.json": it is listed twice$/,
  ],
  [
    "more bytes than a snapshot can hold",
    (entries, files) => [entries, { files: [...files, { ...files[1], path: "templates/b", size_bytes: 256 * 1024 ** 3 }] }],
    /lists more than a snapshot can hold$/,
  ],
  ["no database", (entries, files) => [entries, { files: files.slice(1) }], /it holds no database$/],
  [
    "a database that is none",
    (entries) => [[entries[0] as Entry, { path: "data/ops.db", content: Buffer.from("no database") }], { files: [DATABASE] }],
    /it is damaged/,
  ],
  [
    "fewer rows than were counted",
    (entries) => [entries, { rows: { kv_version: 7 } }],
    /table kv_version of its database has 2 rows instead of 7$/,
  ],
  [
    "more than can be held",
    (entries, files) => [entries, { files: [{ ...files[0], size_bytes: 2 ** 50 }] }],
    /its manifest is not right: files\/0\/size_bytes /,
  ],
  ...[
    "../x",
    "/etc/x",
    "workspace/../../x",
    "data/other.db",
    "data/contents",
    "data/contents/x",
    `data/contents/${"0".repeat(64)}`,
    "data/ops.db/x",
    "logs/ops.log",
    ".ops/revisions.json",
    "ops.conf/x",
    "workspace",
    "secrets/a\u0000b",
    "workspace//x",
    "",
  ].map((name): (typeof HOSTILE)[number] => [
    `the name ${JSON.stringify(name)}`,
    (entries, files) => [[...entries, { path: name, content: Buffer.from("x") }], { files: [...files, listed(name, "x")] }],
    /its manifest lists /,
  ]),
];

test("hostile snapshots are refused before anything is touched, with a sentence that names the file", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const entries = await entriesOf(file);
  const { files } = JSON.parse(String(entries[0]?.content));
  const outside = readdirSync(path.dirname(layout.root)).filter((name) => name === "x");
  for (const [name, change, message] of HOSTILE)
    await t.test(name, async () => {
      const [changed, manifest] = change(entries, files);
      if (changed[0]?.path === "manifest.json") await writeEntries(file, changed, manifest);
      else await writeEntries(file, [{ path: "data/ops.db", content: Buffer.from("{}") }, ...changed]);
      await assert.rejects(prepareRestore(layout, BUCKET, file, BELIEVING), (error: Error) => {
        assert.ok(error.message.startsWith(`Cannot use the snapshot ${file}: `), error.message);
        assert.match(error.message, message);
        return true;
      });
      assert.ok(!existsSync(layout.restores));
    });
  assert.deepEqual(await marksOf(layout), marks("one", "one"));
  assert.deepEqual(outside, []);
});

test("a snapshot of another bucket is refused in a bucket", async (t) => {
  const layout = await markedBucket(t);
  const other = await markedBucket(t, "0190a5e8-0000-7000-8000-00000000000b");
  await assert.rejects(prepareRestore(layout, BUCKET, await snapshotFile(other), BELIEVING), {
    code: "failed",
    message: /^Cannot restore .*: it is of bucket 0190a5e8.*b, not of .*a; restore it into a folder of its own$/,
  });
});

test("a restore that is cancelled while it unpacks leaves nothing", async (t) => {
  const layout = await markedBucket(t);
  const opening = { ...BELIEVING, signal: AbortSignal.abort() };
  await assert.rejects(prepareRestore(layout, BUCKET, await snapshotFile(layout), opening), { code: "cancelled" });
  assert.ok(!existsSync(layout.restores));
});

test("recovery after a kill at each step of a restore leaves wholly the old or wholly the new state", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout);
  const paths: readonly string[] = [...STATE_PATHS, ...SOURCE_PATHS];
  const staging = path.join(layout.internal, "staging");
  const live = (name: string) => path.join(layout.root, name);
  const moveAway = (name: string) => {
    if (existsSync(live(name))) renameSync(live(name), path.join(staging, "old", name.replace("/", ".")));
  };
  const replace = (name: string) => {
    moveAway(name);
    if (existsSync(path.join(staging, "new", name))) renameSync(path.join(staging, "new", name), live(name));
  };
  const stage = (tree: string) => {
    cpSync(path.join(layout.restores, tree), path.join(staging, "new"), { recursive: true });
    mkdirSync(path.join(staging, "old"));
  };
  const begin = (tree: string) => {
    stage(tree);
    writeFileSync(layout.journal, JSON.stringify({ tree: `restores/${tree}`, paths }));
  };
  const steps: [what: string, winner: "old" | "new", act: (tree: string) => void][] = [
    ["unpacked", "old", () => {}],
    ["staged", "old", stage],
    ["the journal half written", "old", () => writeFileSync(path.join(layout.internal, ".journal.json.0af1.tmp"), "{")],
    ["the journal written", "new", begin],
    ...paths.flatMap((name, index): typeof steps => {
      const after = (act: (name: string) => void) => (tree: string) => {
        begin(tree);
        paths.slice(0, index).forEach(replace);
        act(name);
      };
      return [
        [`${name} moved away`, "new", after(moveAway)],
        [`${name} replaced`, "new", after(replace)],
      ];
    }),
  ];
  for (const [what, winner, act] of steps) {
    await mark(layout, "two");
    writeFileSync(path.join(layout.workspace, "later"), "");
    const { id } = await prepareRestore(layout, BUCKET, file, BELIEVING);
    act(id);
    await recoverSource(layout);
    const kept = winner === "old" ? "two" : "one";
    assert.deepEqual(await marksOf(layout), marks(kept, kept), what);
    assert.equal(existsSync(path.join(layout.workspace, "later")), winner === "old", what);
    assertClean(layout);
  }
});

test("killed at any moment, a restore is after the recovery wholly the old or wholly the new state", async (t) => {
  const layout = await markedBucket(t);
  const files = [await snapshotFile(layout)];
  await mark(layout, "two");
  files.push(await snapshotFile(layout));
  const program = path.join(import.meta.dirname, "../../fixtures/snapshot-restorer.ts");
  const random = seeded();
  for (let round = 0; round < 16; round++) {
    const afterMs = 150 * random();
    await runUntilKilled([process.execPath, program, layout.root, BUCKET, ...files], afterMs);
    // Before the recovery too there is a database: nobody may take the folder for no bucket.
    assert.ok(existsSync(layout.database), `round ${round}`);
    await recoverSource(layout);
    const now = await marksOf(layout);
    const which = now.database as string;
    assert.deepEqual(now, marks(which, which), `round ${round}`);
    assertClean(layout);
  }
});

test("into an empty folder a snapshot makes a whole bucket that stands alone", async (t) => {
  const file = await snapshotFile(await markedBucket(t));
  const parent = temporaryFolder(t);
  for (const name of ["there", "not-there"]) {
    const dir = path.join(parent, name);
    if (name === "there") mkdirSync(dir);
    assert.ok(await isEmptyPlace(dir));
    await restoreBucket(dir, file, BELIEVING);
    const layout = layoutOf(dir);
    assert.ok(!existsSync(layout.bucketJson));
    writeFileSync(layout.bucketJson, '{"name": "one"}');
    assert.deepEqual(await marksOf(layout), marks("one", "one"));
    assert.ok(!(await isEmptyPlace(dir)));
    assert.equal((await initBucket(dir, { bucketId: BUCKET, source: false })).upgraded, false);
  }
  assert.deepEqual(readdirSync(parent).sort(), ["not-there", "there"]);
});

test("below a server root the folder must be named by the snapshot's bucket id, and keeps bucket.json", async (t) => {
  const file = await snapshotFile(await markedBucket(t));
  const root = temporaryFolder(t);
  const wrong = path.join(root, "0190a5e8-0000-7000-8000-00000000000c");
  await assert.rejects(restoreBucket(wrong, file, BELIEVING), {
    message: `Cannot restore ${file} into ${wrong}: below a server root the folder must be named ${BUCKET}`,
  });
  assert.deepEqual(readdirSync(root), []);
  await restoreBucket(path.join(root, BUCKET), file, BELIEVING);
  assert.deepEqual(await marksOf(layoutOf(path.join(root, BUCKET))), marks("one", "one"));
});

test("a damaged snapshot makes no bucket", async (t) => {
  const file = await snapshotFile(await markedBucket(t));
  truncateSync(file, statSync(file).size - 20);
  const parent = temporaryFolder(t);
  await assert.rejects(restoreBucket(path.join(parent, "new"), file, BELIEVING), { code: "failed" });
  assert.deepEqual(readdirSync(parent), []);
});

test("verify restores into a temporary bucket, opens every sealed value and leaves nothing", async (t) => {
  const layout = await markedBucket(t);
  const file = await snapshotFile(layout, "nightly");
  const temporary = temporaryFolder(t);
  const { TMPDIR } = process.env;
  process.env.TMPDIR = temporary;
  t.after(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
  });
  const found = await verifySnapshot(file, BELIEVING);
  assert.deepEqual(
    [found.bucket_id, found.note, found.schema_version, found.sealed_values],
    [BUCKET, "nightly", SCHEMA_VERSION, 1],
  );
  const entries = await entriesOf(file);
  const { files } = JSON.parse(String(entries[0]?.content));
  const key = Buffer.alloc(32, 1);
  const at = entries.findIndex((entry) => entry.path === "secrets/kv.key");
  const sums = files.map((one: { path: string }) => (one.path === "secrets/kv.key" ? listed("secrets/kv.key", key) : one));
  await writeEntries(file, entries.with(at, { path: "secrets/kv.key", content: key }), { files: sums });
  await assert.rejects(verifySnapshot(file, BELIEVING), {
    message: `Cannot use the snapshot ${file}: its kv.key does not open 1 of 1 sealed values, the first is secrets/job/web password`,
  });
  assert.deepEqual(readdirSync(temporary), []);
});

/** A built bucket with a large file in its workspace; answers the name of the file in data/contents. */
async function largeBucket(t: Parameters<typeof makeBucket>[0], text: string) {
  const bucket = await makeBucket(t, {
    workers: ["10.0.0.1"],
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
    files: { "workspace/jobs/web/large": text, "ops.conf": "" },
  });
  await build(bucket.context("build"), {});
  const [name = ""] = readdirSync(bucket.db.contents);
  return { ...bucket, name, place: path.join(bucket.db.contents, name) };
}

test("CP-352 a snapshot has the large contents; verify, restore and a restore into an empty folder bring them back", async (t) => {
  const text = "large\n".repeat(200_000);
  const { layout, db, place, name, bucketId, dir, context } = await largeBucket(t, text);
  writeFileSync(path.join(db.contents, "orphan"), "x");
  const file = await snapshotFile(layout);
  const names = (await entriesOf(file)).map((entry) => entry.path);
  assert.deepEqual(
    names.filter((one) => one.startsWith("data/")),
    ["data/ops.db", `data/contents/${name}`],
  );
  await verifySnapshot(file, BELIEVING);
  writeFileSync(path.join(dir, "workspace/jobs/web/large"), `${text}more`);
  await build(context("build"), {});
  assert.ok(!existsSync(place), "a build removes what it no longer has");
  db.close();
  await commitRestore(layout, await prepareRestore(layout, bucketId, file, BELIEVING), false);
  assert.deepEqual(readdirSync(path.dirname(place)), [name]);
  assert.equal(readFileSync(place, "utf8"), text);
  assert.deepEqual(
    [place, path.dirname(place)].map((one) => statSync(one).mode & 0o777),
    [0o600, 0o700],
  );
  const fresh = path.join(temporaryFolder(t), "fresh");
  await restoreBucket(fresh, file, BELIEVING);
  assert.equal(readFileSync(path.join(fresh, "data/contents", name), "utf8"), text);
});

test("CP-352 a snapshot without a content that its database names is refused, and so is one whose content is not its name", async (t) => {
  const { layout, place, name, db, bucketId } = await largeBucket(t, "large\n".repeat(200_000));
  const file = await snapshotFile(layout);
  const entries = await entriesOf(file);
  const { files } = JSON.parse(String(entries[0]?.content));
  const at = entries.findIndex((entry) => entry.path.endsWith(name));
  const others = files.filter((one: { path: string }) => !one.path.endsWith(name));
  await writeEntries(file, entries.toSpliced(at, 1), { files: others });
  await assert.rejects(prepareRestore(layout, bucketId, file, BELIEVING), {
    message: new RegExp(`it lacks data/contents/${name}$`),
  });
  const changed = entries.with(at, { path: `data/contents/${name}`, content: Buffer.from("other") });
  const sums = files.map((one: { path: string }) => (one.path.endsWith(name) ? listed(one.path, "other") : one));
  await writeEntries(file, changed, { files: sums });
  await assert.rejects(prepareRestore(layout, bucketId, file, BELIEVING), { message: /: its sum is not its name$/ });
  rmSync(place);
  await assert.rejects(createSnapshot(layout, db, {}, never), { message: `Cannot take ${place}: it is missing; build again` });
  assert.ok(isDamaged(layout.database), "so that a restore needs no snapshot of it");
});
