import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import fsp from "node:fs/promises";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { gzipSync } from "node:zlib";
import { type Layout, layoutOf, SOURCE_PATHS } from "../../../lib/bucket/base/layout.ts";
import { listRevisions } from "../../../lib/bucket/source/revisions.ts";
import { acceptSource, receiveSource, recoverSource } from "../../../lib/bucket/source/source.ts";
import { packSource } from "../../../lib/bucket/source/source-rules.ts";
import { checksumOf, FIELDS, fieldOf, writeTar } from "../../../lib/codec/archive/tar-write.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { onFaultPoint } from "../../../lib/core/self.ts";
import { failing } from "../../helpers/faults.ts";
import { runUntilKilled } from "../../helpers/killed.ts";
import { seeded } from "../../helpers/random.ts";
import { archiveBytes, bytesOf, EXAMPLE, entriesOf, push, readTree, writeTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

type Source = Record<string, string>;

/** Differs from EXAMPLE in every way: a file more, one less, one changed, no ops.conf, no templates/. */
const OTHER: Source = {
  "workspace/workers.json": "[]\n",
  "workspace/jobs/db/manifest.json": "{}\n",
  "workspace/jobs/db/bin/start": "#!/bin/sh\nexit 1\n",
};

const never = new AbortController().signal;

function bucket(t: Pick<TestContext, "after">): Layout {
  return layoutOf(temporaryFolder(t));
}

async function* streamOf(...chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

/** What a source looks like once it lies on a disk. */
function onDisk(t: TestContext, source: Source): Source {
  const folder = temporaryFolder(t);
  writeTree(folder, source);
  return readTree(folder);
}

/** No upload, staging, journal or half-written file, and exactly the files of the listed revisions. */
async function assertClean(layout: Layout): Promise<void> {
  const listed = (await listRevisions(layout)).map(({ id }) => id);
  const names = (folder: string) => (existsSync(folder) ? readdirSync(folder).sort() : []);
  assert.deepEqual(names(layout.uploads), []);
  assert.deepEqual(names(layout.revisions), listed.sort());
  const expected = ["revisions", "revisions.json", "uploads"];
  assert.deepEqual(
    names(layout.internal).filter((name) => !expected.includes(name)),
    [],
  );
}

test("CP-154 CP-155 CP-156 a push replaces ops.conf, workspace/ and templates/ as a whole", async (t) => {
  const layout = bucket(t);
  for (const source of [EXAMPLE, OTHER, EXAMPLE]) {
    await push(layout, source);
    assert.deepEqual(readTree(layout.root), onDisk(t, source));
    await assertClean(layout);
  }
});

test("CP-374 a push that changes very many paths exchanges the source as a whole and copies no file twice", async (t) => {
  const layout = bucket(t);
  const jobs = (from: number, to: number, text: string): Source =>
    Object.fromEntries(Array.from({ length: to - from }, (_, index) => [`workspace/jobs/job_${from + index}/file`, text]));
  await push(layout, { ...EXAMPLE, ...jobs(0, 1_200, "first") });
  const inode = (index: number) => statSync(path.join(layout.workspace, `jobs/job_${index}/file`)).ino;
  const before = inode(700);
  const wanted = { ...OTHER, ...jobs(0, 600, "second"), ...jobs(600, 1_100, "first"), "workspace/new/": "" };
  const received = await receiveSource(layout, writeTar(entriesOf(wanted)), false, never);
  assert.ok(received.paths.length > 600);
  const made = statSync(path.join(received.folder, "live/workspace/jobs/job_0/file")).ino;
  await acceptSource(layout, received, uuidV7());
  assert.deepEqual(readTree(layout.root), onDisk(t, wanted));
  assert.deepEqual([inode(0), inode(700)], [made, before]);
  await assertClean(layout);
});

test("CP-090 CP-157 CP-158 CP-159 CP-160 CP-161 T-53 a push clears tmp/ and keeps everything else", async (t) => {
  const layout = bucket(t);
  const kept = ["data/ops.db", "logs/ops.log", "secrets/kv.key", ".ssh/known_hosts", "bucket.json"];
  writeTree(layout.root, Object.fromEntries(kept.map((name) => [name, `kept ${name}`])));
  writeTree(layout.root, { "tmp/workers/10.0.0.1/jobs/web/staged": "old" });
  await push(layout, EXAMPLE);
  assert.deepEqual(readdirSync(layout.tmp), []);
  for (const name of kept) assert.equal(readFileSync(path.join(layout.root, name), "utf8"), `kept ${name}`);
});

test("files and folders get their modes whatever the umask is and whatever the archive says", async (t) => {
  const layout = bucket(t);
  const old = process.umask(0o077);
  t.after(() => process.umask(old));
  const [file, program] = entriesOf({ "workspace/file": "x", "workspace/bin/program": "y" });
  const entries = [
    { ...file, mode: 0o4600 },
    { ...program, mode: 0o7777 },
  ] as ReturnType<typeof entriesOf>;
  const received = await receiveSource(layout, writeTar(entries), false, never);
  await acceptSource(layout, received, uuidV7());
  const mode = (name: string) => statSync(path.join(layout.workspace, name)).mode & 0o7777;
  assert.deepEqual(["", "file", "bin", "bin/program"].map(mode), [0o755, 0o644, 0o755, 0o755]);
});

test("a gzipped archive is the same as a plain one", async (t) => {
  const layout = bucket(t);
  const bytes = await archiveBytes(EXAMPLE);
  const plain = await receiveSource(layout, streamOf(bytes), false, never);
  const packed = await receiveSource(layout, streamOf(gzipSync(bytes)), true, never);
  assert.deepEqual({ ...packed, folder: "" }, { ...plain, folder: "" });
});

test("an archive that tar makes of a whole bucket, with names that begin with ./, is the same source", async (t) => {
  const layout = bucket(t);
  const source = temporaryFolder(t);
  writeTree(source, { ...EXAMPLE, "secrets/ca.key": "" });
  const archive = execFileSync("tar", ["-C", source, "--exclude=./secrets", "-cf", "-", "."]);
  const received = await receiveSource(layout, streamOf(archive), false, never);
  const plain = await receiveSource(layout, streamOf(await archiveBytes(EXAMPLE)), false, never);
  assert.equal(received.sha256, plain.sha256);
  await acceptSource(layout, received, uuidV7());
  assert.deepEqual(readTree(layout.root), onDisk(t, EXAMPLE));
});

const X = { "workspace/x": "x" };
const long = (count: number) => "n".repeat(count);

const refusedNames: [string, Source, RegExp][] = [
  ["another root", { "data/ops.db": "" }, /entry 2 \(data\/ops\.db\): only ops\.conf, workspace\/ and/],
  ["logs", { "logs/ops.log": "" }, /only ops\.conf/],
  ["secrets", { "secrets/kv.key": "" }, /only ops\.conf/],
  ["ssh state", { ".ssh/id": "" }, /only ops\.conf/],
  ["revisions", { ".ops/revisions.json": "" }, /only ops\.conf/],
  ["the bucket's record", { "bucket.json": "" }, /only ops\.conf/],
  ["a root in other case", { "Workspace/y": "" }, /only ops\.conf/],
  ["an absolute path", { "/etc/passwd": "" }, /absolute path/],
  ["a way up", { "workspace/../data/ops.db": "" }, /"\.\." in its path/],
  ["a way up as root", { "../x": "" }, /"\.\." in its path/],
  ["a way up as last part", { "workspace/..": "" }, /"\.\." in its path/],
  ["a dot", { "workspace/./y": "" }, /"\." in its path/],
  ["an empty part", { "workspace//y": "" }, /an empty part/],
  ["an empty name", { "": "" }, /it has no name/],
  ["a newline", { "workspace/a\nb": "" }, /entry 2 \(workspace\/a\\nb\): its name has a control character/],
  ["an escape", { "workspace/\u009b2J": "" }, /control character/],
  ["a zero byte", { [`workspace/${long(100)}\0.txt`]: "" }, /control character/],
  ["a long part", { [`workspace/${long(256)}`]: "" }, /more than 255 bytes/],
  ["a long part in UTF-8", { [`workspace/${"ä".repeat(128)}`]: "" }, /more than 255 bytes/],
  ["a long path", { [`workspace${`/${long(200)}`.repeat(5)}/${long(10)}`]: "" }, /more than 1024 bytes/],
  ["a folder for ops.conf", { "ops.conf/": "" }, /ops\.conf must be a file/],
  ["a file below ops.conf", { "ops.conf/x": "" }, /ops\.conf must be a file/],
  ["a file for templates/", { templates: "" }, /templates must be a directory/],
  ["names that differ in case", { "workspace/X": "" }, /differs from workspace\/x only in case/],
  ["folders that differ in case", { "workspace/a/b": "", "workspace/A/c": "" }, /differs from workspace\/a only/],
  ["names that differ in case folding", { "workspace/ß": "", "workspace/SS": "" }, /differs from workspace\/ß/],
  ["names that differ in composing", { "workspace/\u00e9": "", "workspace/e\u0301": "" }, /composed/],
  ["a file where a folder is needed", { "workspace/x/y": "" }, /workspace\/x is both a file and a directory/],
  ["a file where a folder is", { "workspace/d/y": "", "workspace/d": "" }, /d is both a file and/],
  ["a folder where a file is", { "workspace/x/": "" }, /x is both a file and/],
];

for (const [what, source, message] of refusedNames)
  test(`CP-219 CP-220 an upload with ${what} is refused and changes nothing`, async (t) => {
    await assertRefused(t, [writeTar(entriesOf({ ...X, ...source }))], message);
  });

/** Pushes EXAMPLE, then what must be refused, and checks that nothing has changed and nothing was left behind. */
async function assertRefused(
  t: TestContext,
  [body, gzip = false]: [AsyncIterable<Uint8Array>, boolean?],
  message: RegExp,
): Promise<void> {
  const layout = bucket(t);
  writeTree(layout.root, EXAMPLE);
  writeTree(layout.root, { "tmp/staged": "kept" });
  const before = readTree(layout.root);
  await assert.rejects(receiveSource(layout, body, gzip, never), (error) => {
    assert.ok(error instanceof Failure && error.code === "invalid_source", String(error));
    assert.match(error.message, message);
    return true;
  });
  assert.deepEqual(readTree(layout.root), before);
  assert.deepEqual(await listRevisions(layout), []);
  assert.deepEqual(readdirSync(layout.uploads), []);
  assert.deepEqual(readdirSync(layout.tmp), ["staged"]);
}

test("the details of a refusal name the entry", async (t) => {
  const body = writeTar(entriesOf({ ...X, "data/x": "" }));
  const details = [{ path: "data/x", message: "only ops.conf, workspace/ and templates/ can be pushed" }];
  await assert.rejects(receiveSource(bucket(t), body, false, never), { details });
});

for (const [letter, kind] of [
  ["1", "hard link"],
  ["2", "symbolic link"],
  ["3", "character device"],
  ["4", "block device"],
  ["6", "FIFO"],
])
  test(`CP-219 a ${kind} in an upload is refused`, async (t) => {
    const bytes = await archiveBytes({ "workspace/x": "" });
    bytes.write(letter as string, FIELDS.type[0]);
    bytes.write("/etc/passwd", FIELDS.linkName[0]);
    const sum = checksumOf(bytes.subarray(0, 512)).toString(8).padStart(6, "0");
    fieldOf(bytes, "checksum").write(sum);
    await assertRefused(t, [streamOf(bytes)], new RegExp(`\\(workspace/x\\): a ${kind} is not allowed`));
  });

test("CP-219 an entry that is there twice is refused, a folder after its files is not", async (t) => {
  const entries = entriesOf(X);
  await assertRefused(t, [writeTar([...entries, ...entries])], /entry 2 .*: it is in the archive twice/);
  const layout = bucket(t);
  await receiveSource(layout, writeTar(entriesOf({ ...X, "workspace/": "" })), false, never);
});

test("CP-219 an upload without workspace/ is refused", async (t) => {
  await assertRefused(t, [writeTar(entriesOf({ "ops.conf": "" }))], /the archive has no workspace\//);
});

test("CP-219 T-84 a truncated or damaged upload is refused", async (t) => {
  const bytes = await archiveBytes(EXAMPLE);
  const packed = gzipSync(bytes);
  await assertRefused(t, [streamOf(bytes.subarray(0, 3000))], /cut off/);
  await assertRefused(t, [streamOf(packed.subarray(0, 200)), true], /not readable as gzip/);
  await assertRefused(t, [streamOf(bytes), true], /not readable as gzip/);
  await assertRefused(t, [streamOf(packed, Buffer.alloc(512))], /header is damaged/);
  packed[100] = 0xff ^ (packed[100] as number);
  await assertRefused(t, [streamOf(packed), true], /not readable as gzip|damaged/);
});

test("T-88 a size over the limit is refused by its announcement, before the content is sent", async (t) => {
  const entry = { path: "workspace/x", mode: 0o644, size: 256 * 1024 * 1024 + 1, content: [] };
  const { value: header } = await writeTar([entry]).next();
  const body = streamOf(header as Uint8Array, Buffer.alloc(512));
  await assertRefused(t, [body], /entry 1 \(workspace\/x\): all files together may have at most 256 MiB/);
});

test("an upload is stopped by its signal even while the sender is silent, and leaves nothing", async (t) => {
  const layout = bucket(t);
  const stop = new AbortController();
  async function* silent() {
    yield (await archiveBytes(EXAMPLE)).subarray(0, 2000);
    setImmediate(() => stop.abort());
    await new Promise(() => {});
  }
  for (const signal of [stop.signal, AbortSignal.abort()]) {
    await assert.rejects(receiveSource(layout, silent(), false, signal), { code: "cancelled" });
    assert.deepEqual(readdirSync(layout.uploads), []);
  }
});

test("an upload that is cancelled once all of it is there leaves nothing", async (t) => {
  const layout = bucket(t);
  const stop = new AbortController();
  onFaultPoint((point) => point === "push: received" && stop.abort());
  t.after(() => onFaultPoint(() => {}));
  const body = streamOf(await archiveBytes(EXAMPLE));
  await assert.rejects(receiveSource(layout, body, false, stop.signal), { code: "cancelled" });
  assert.deepEqual(readdirSync(layout.uploads), []);
});

test("a connection that breaks during an upload leaves nothing", async (t) => {
  const layout = bucket(t);
  async function* broken() {
    yield (await archiveBytes(EXAMPLE)).subarray(0, 2000);
    throw new Error("aborted");
  }
  for (const gzip of [false, true]) {
    await assert.rejects(receiveSource(layout, broken(), gzip, never), /aborted|not readable as gzip/);
    assert.deepEqual(readdirSync(layout.uploads), []);
  }
});

test("a refused upload is not read any further, and its body is closed", async (t) => {
  const bytes = await archiveBytes({ "data/ops.db": "" });
  for (const gzip of [false, true]) {
    const { promise: closed, resolve } = Promise.withResolvers<void>();
    async function* endless() {
      try {
        yield gzip ? gzipSync(bytes) : bytes;
        for (;;) yield Buffer.alloc(1024);
      } finally {
        resolve();
      }
    }
    const receiving = receiveSource(bucket(t), endless(), gzip, never);
    await assert.rejects(receiving, { code: "invalid_source", message: /only ops\.conf/ });
    await closed;
  }
});

test("CP-168 recovery removes orphan uploads and does nothing in a bucket without pushes", async (t) => {
  const layout = bucket(t);
  await recoverSource(layout);
  assert.deepEqual(readdirSync(layout.root), []);
  await receiveSource(layout, streamOf(await archiveBytes(EXAMPLE)), false, never);
  assert.equal(readdirSync(layout.uploads).length, 1);
  await recoverSource(layout);
  await assertClean(layout);
  assert.deepEqual(readTree(layout.root), {});
});

test("a push that finds the disk full, or fails before it is announced, leaves nothing; a later fault is left to the recovery", async (t) => {
  const layout = bucket(t);
  await push(layout, EXAMPLE);
  const mend = failing(t, fsp, "writeFile", "ENOSPC");
  const message = `Cannot keep the upload in ${layout.uploads}: the disk is full`;
  await assert.rejects(push(layout, OTHER), { code: "failed", message });
  mend();
  await assertClean(layout);
  t.after(() => onFaultPoint(() => {}));
  for (const [point, source] of [
    ["swap: staged", EXAMPLE],
    ["swap: journal", OTHER],
  ] as const) {
    onFaultPoint((reached) => {
      if (reached === point) throw new Error("killed here");
    });
    await assert.rejects(push(layout, OTHER), /killed here/);
    onFaultPoint(() => {});
    if (source === EXAMPLE) await assertClean(layout);
    await recoverSource(layout);
    assert.deepEqual(readTree(layout.root), onDisk(t, source), point);
  }
});

/** Moments at which a process can be killed: what was done by then, and which source must win. */
const moments: [string, "old" | "new", (paths: Moment) => void][] = [
  ["after the revision's files were kept", "old", () => {}],
  ["while staging", "old", ({ staging }) => writeTree(staging, { "new/workspace/half": "x" })],
  ["while the journal was written", "old", ({ layout }) => writeTree(layout.internal, { ".journal.json.0af1.tmp": "{" })],
  ["after the journal, with nothing moved", "new", (paths) => paths.journal()],
  ["with ops.conf moved away", "new", (paths) => paths.journal(["ops.conf"], [])],
  ["with workspace/ moved away", "new", (paths) => paths.journal(["ops.conf", "workspace"], [])],
  ["with workspace/ replaced", "new", (paths) => paths.journal(["ops.conf", "workspace"], ["workspace"])],
  ["with all replaced", "new", (paths) => paths.journal(["ops.conf", "workspace", "templates"], ["workspace"])],
];

interface Moment {
  layout: Layout;
  staging: string;
  /** Writes the journal, then moves names out of the live source and into it. */
  journal(out?: string[], into?: string[]): void;
}

for (const [what, winner, act] of moments)
  test(`CP-169 recovery after a kill ${what} leaves the ${winner} source`, async (t) => {
    const layout = bucket(t);
    const old = await push(layout, EXAMPLE);
    const received = await receiveSource(layout, streamOf(await archiveBytes(OTHER)), false, never);
    const { folder, paths: _, ...summary } = received;
    const id = uuidV7();
    renameSync(path.join(folder, "tree"), path.join(layout.revisions, id));
    const staging = path.join(layout.internal, "staging");
    const journal = (out: string[] = [], into: string[] = []) => {
      const marks = { created_at: old.created_at, run_id: uuidV7(), build_status: "pending" };
      const revision = { id, ...summary, ...marks };
      writeFileSync(layout.journal, JSON.stringify({ tree: `revisions/${id}`, paths: SOURCE_PATHS, revision }));
      writeTree(path.join(staging, "new"), OTHER);
      mkdirSync(path.join(staging, "old"));
      for (const name of out) renameSync(path.join(layout.root, name), path.join(staging, "old", name));
      for (const name of into) renameSync(path.join(staging, "new", name), path.join(layout.root, name));
    };
    act({ layout, staging, journal });
    await recoverSource(layout);
    await assertClean(layout);
    assert.deepEqual(readTree(layout.root), onDisk(t, winner === "old" ? EXAMPLE : OTHER));
    const current = (await listRevisions(layout)).filter((revision) => revision.current);
    assert.deepEqual(
      current.map((revision) => revision.id),
      [winner === "old" ? old.id : id],
    );
  });

test("CP-169 T-85 after kill -9 at any moment the source is wholly one revision, and current says which", async (t) => {
  const layout = bucket(t);
  const locals = [EXAMPLE, OTHER].map((source) => {
    const folder = temporaryFolder(t);
    writeTree(folder, source);
    return folder;
  });
  const program = path.join(import.meta.dirname, "../../fixtures/source-swapper.ts");
  const random = seeded();
  const possible = locals.map((local) => readTree(local));
  for (let round = 0; round < 6; round++) {
    await runUntilKilled([process.execPath, program, layout.root, ...locals], 50 * random());
    await recoverSource(layout);
    const now = readTree(layout.root);
    assert.ok(
      possible.some((tree) => isSame(tree, now)),
      `round ${round}: ${Object.keys(now)}`,
    );
    const revisions = await listRevisions(layout);
    const current = revisions.filter((revision) => revision.current).map(({ id }) => id);
    assert.equal(current.length, 1);
    assert.deepEqual(readTree(path.join(layout.revisions, current[0] as string)), now);
    await assertClean(layout);
  }
});

function isSame(a: Source, b: Source): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

test("a damaged journal stops the recovery with a sentence that names it", async (t) => {
  const layout = bucket(t);
  await push(layout, EXAMPLE);
  for (const text of ["{", '{"revision": {"id": "../../x"}}']) {
    writeFileSync(layout.journal, text);
    await assert.rejects(recoverSource(layout), { code: "failed", message: /Cannot read .*journal\.json: / });
  }
});

test("CP-153 what a local bucket packs is what a push makes of it", async (t) => {
  const local = temporaryFolder(t);
  writeTree(local, { ...EXAMPLE, "data/ops.db": "not sent", "secrets/kv.key": "not sent", "tmp/x": "not sent" });
  const packed = await packSource(local);
  const texts = Object.entries(EXAMPLE).filter(([name]) => !name.endsWith("/"));
  const bytes = texts.reduce((sum, [, text]) => sum + Buffer.byteLength(text), 0);
  assert.deepEqual([packed.files, packed.bytes], [texts.length, bytes]);
  const first = await bytesOf((await packSource(local)).archive);
  assert.deepEqual([first.toString("latin1", 0, 9), first.toString("latin1", 100, 108)], ["ops.conf\0", "0000644\0"]);
  const layout = bucket(t);
  const received = await receiveSource(layout, packed.archive, false, never);
  assert.deepEqual([received.file_count, received.size_bytes], [packed.files, packed.bytes]);
  await acceptSource(layout, received, uuidV7());
  assert.deepEqual(readTree(layout.root), readTree(local));
});

test("T-52 packing skips virtualenvs and the like with the symlinks in them", async (t) => {
  const local = temporaryFolder(t);
  writeTree(local, X);
  for (const name of [".venv", "venv", "node_modules", "__pycache__"]) {
    writeTree(local, { [`workspace/jobs/web/${name}/bin/`]: "" });
    symlinkSync("/usr/bin/python3", path.join(local, "workspace/jobs/web", name, "bin/python3"));
  }
  const layout = bucket(t);
  await receiveSource(layout, (await packSource(local)).archive, false, never);
  const [upload] = readdirSync(layout.uploads);
  const tree = readTree(path.join(layout.uploads, upload as string, "tree"));
  assert.deepEqual(Object.keys(tree), ["workspace/", "workspace/jobs/", "workspace/jobs/web/", "workspace/x"]);
});

const unpackable: [string, Source, (local: string) => void, RegExp][] = [
  ["a symlink", X, (local) => symlinkSync("x", path.join(local, "workspace/s")), /workspace\/s: a symbolic link is/],
  ["a symlink for a root", X, (local) => symlinkSync("x", path.join(local, "templates")), /templates: a symbolic/],
  ["no workspace", { "ops.conf": "" }, () => {}, /it has no workspace\//],
  ["a file for workspace", { workspace: "" }, () => {}, /it has no workspace\//],
];

for (const [what, source, prepare, message] of unpackable)
  test(`T-52 a bucket with ${what} is not packed`, async (t) => {
    const local = temporaryFolder(t);
    writeTree(local, source);
    prepare(local);
    await assert.rejects(packSource(local), { code: "invalid_source", message });
  });

test("a folder that is not there is not packed", async (t) => {
  const missing = path.join(temporaryFolder(t), "missing");
  await assert.rejects(packSource(missing), { code: "invalid_source", message: /there is no such folder/ });
});

test("T-83 a file that goes, or whose folder becomes a symlink while it is packed ends the packing", async (t) => {
  const changes: [(local: string) => void, RegExp][] = [
    [(local) => renameSync(path.join(local, "workspace/d"), path.join(local, "moved")), /Cannot push .*d\/f: ENOENT/],
    [
      (local) => {
        renameSync(path.join(local, "workspace/d"), path.join(local, "moved"));
        symlinkSync("../moved", path.join(local, "workspace/d"));
      },
      /Cannot push .*d\/f: it changed while it was packed/,
    ],
  ];
  for (const [change, message] of changes) {
    const local = temporaryFolder(t);
    writeTree(local, { "workspace/d/f": "text" });
    const { archive } = await packSource(local);
    change(local);
    await assert.rejects(bytesOf(archive), { code: "invalid_source", message });
  }
});

test("a push that cannot be finished says so, and the next recovery finishes it", async (t) => {
  const layout = bucket(t);
  await push(layout, EXAMPLE);
  // A file in the place of the folder tmp/ keeps the last steps from being done.
  writeTree(layout.root, { "in the way": "" });
  renameSync(layout.tmp, path.join(layout.root, "moved"));
  renameSync(path.join(layout.root, "in the way"), layout.tmp);
  await assert.rejects(push(layout, OTHER), { code: "failed", message: /^Cannot finish replacing what is in / });
  renameSync(layout.tmp, path.join(layout.root, "in the way"));
  await recoverSource(layout);
  assert.deepEqual(readTree(layout.root), onDisk(t, OTHER));
  await assertClean(layout);
});
