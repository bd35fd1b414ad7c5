import assert from "node:assert/strict";
import fs, { chmodSync, closeSync, lstatSync, openSync, readdirSync, readFileSync, statSync, writeSync } from "node:fs";
import { open } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { type TestContext, test } from "node:test";
import {
  APPEND,
  CREATE,
  createExclusive,
  exists,
  flushFolderSync,
  isUnchanged,
  makePrivateFolder,
  namesIn,
  openContained,
  openRegular,
  openRegularSync,
  PIECE_BYTES,
  readBounded,
  readGuarded,
  readPieces,
  readRegularSync,
  refuseLink,
  remove,
  setFolders,
  unlessMissing,
  writeAtomic,
} from "../../lib/core/files.ts";
import { diskSteps, linesOf } from "../helpers/disk-record.ts";
import { link, openFiles, temporaryFolder, writeFiles } from "../helpers/temporary.ts";

const failing = (code: string) => Object.assign(new Error(code), { code });

/** Replaces a function of `node:fs` for one test. */
function replaced(
  t: TestContext,
  name: "fsyncSync" | "readSync" | "readlinkSync" | "realpathSync",
  by: (...args: never[]) => unknown,
) {
  const mock = t.mock.method(fs, name, by as never);
  syncBuiltinESMExports();
  t.after(() => {
    mock.mock.restore();
    syncBuiltinESMExports();
  });
  return mock;
}

test("what replaces a file is on the disk before it has the name, and then the name is; of a new one the content is", async (t) => {
  const root = writeFiles(temporaryFolder(t), { file: "old" });
  const [file, other] = ["file", "new"].map((name) => path.join(root, name)) as [string, string];
  assert.deepEqual(linesOf(await diskSteps(root, () => writeAtomic(file, "x"))), [
    "flush .file.tmp",
    "rename .file.tmp -> file",
    "flush .",
  ]);
  const created = ["flush .new.tmp", "link .new.tmp -> new", "remove .new.tmp"];
  assert.deepEqual(linesOf(await diskSteps(root, () => createExclusive(other, "x"))), created);
  assert.deepEqual(readdirSync(root).sort(), ["file", "new"]);
});

test("a write for which there is no room names the file that was to be written", async (t) => {
  const root = temporaryFolder(t);
  await using handle = await open(root);
  t.mock.method(Object.getPrototypeOf(handle), "writeFile", () => Promise.reject(failing("ENOSPC")));
  const file = path.join(root, "file");
  for (const write of [writeAtomic, createExclusive]) await assert.rejects(write(file, "x"), { code: "ENOSPC", path: file });
  assert.deepEqual(readdirSync(root), []);
});

test("a folder is flushed at once, too: where that cannot be done it is none the worse, any other trouble is told", (t) => {
  const root = temporaryFolder(t);
  let code = "EINVAL";
  const sync = replaced(t, "fsyncSync", () => {
    throw failing(code);
  });
  for (code of ["EINVAL", "EPERM", "ENOTSUP"]) flushFolderSync(root);
  code = "EIO";
  assert.throws(() => flushFolderSync(root), { code: "EIO" });
  assert.equal(sync.mock.callCount(), 4);
  assert.ok(!openFiles().includes(root), "nothing is left open");
});

test("private folders are made with all above them, and a link in their place is refused", async (t) => {
  const root = temporaryFolder(t);
  const before = process.umask(0);
  t.after(() => process.umask(before));
  await makePrivateFolder(path.join(root, "a/b"));
  for (const name of ["a", "a/b"]) assert.equal(statSync(path.join(root, name)).mode & 0o777, 0o700, name);
  await Promise.all(Array.from({ length: 9 }, () => makePrivateFolder(path.join(root, "by/many"))));
  writeFiles(root, { way: link("a"), file: "" });
  for (const name of ["way", "way/c"])
    await assert.rejects(makePrivateFolder(path.join(root, name)), {
      code: "failed",
      message: `Cannot use ${path.join(root, "way")}: a symbolic link is on the way to it; put a folder there`,
    });
  await assert.rejects(makePrivateFolder(path.join(root, "file")), { code: "ENOTDIR" });
});

test("a database that is a link, or behind one, is refused; one that is not there yet is not", (t) => {
  const root = writeFiles(temporaryFolder(t), { "in/db": "", link: link("in/db"), way: link("in"), none: link("nothing") });
  for (const name of ["in/db", "in/new"]) refuseLink(path.join(root, name));
  for (const name of ["link", "none", "way/db", "way/new"])
    assert.throws(() => refuseLink(path.join(root, name)), {
      code: "failed",
      message: `Cannot use ${path.join(root, name)}: a symbolic link is on the way to it; put the database there`,
    });
});

test("the place of an open file is told by its descriptor, not by a path that may be changed back", async (t) => {
  const root = writeFiles(temporaryFolder(t), { "in/file": "", way: link("in") });
  replaced(t, "realpathSync", (place: string) => place);
  await assert.rejects(namesIn(path.join(root, "way")), { code: "failed" });
  await assert.rejects(readBounded(path.join(root, "way/file"), 9), { code: "file_not_found" });
  assert.deepEqual(await namesIn(path.join(root, "in")), ["file"]);
});

test("where no descriptor tells its place, as on macOS, the path does", async (t) => {
  const root = writeFiles(temporaryFolder(t), { "in/file": "", way: link("in") });
  replaced(t, "readlinkSync", () => {
    throw failing("ENOENT");
  });
  Object.defineProperty(process, "platform", { value: "darwin" });
  t.after(() => Object.defineProperty(process, "platform", { value: "linux" }));
  assert.deepEqual(await namesIn(path.join(root, "in")), ["file"]);
  await assert.rejects(namesIn(path.join(root, "way")), { code: "failed" });
});

test("a file with a secret is read only where its mode keeps others away, and the command that mends it is told", async (t) => {
  const file = path.join(writeFiles(temporaryFolder(t), { secret: "größe" }), "secret");
  for (const [mode, refused, right] of [
    [0o600, undefined, ""],
    [0o700, undefined, ""],
    [0o644, 0o022, ""],
    [0o644, undefined, "600"],
    [0o640, undefined, "600"],
    [0o604, undefined, "600"],
    [0o755, undefined, "700"],
    [0o666, 0o022, "644"],
    [0o777, 0o022, "755"],
    [0o4644, undefined, "600"],
  ] as const) {
    chmodSync(file, mode);
    const rights = (mode & 0o777).toString(8);
    const message = `its mode ${rights} lets others use it: chmod ${right} ${file}`;
    if (right === "") assert.equal(await readGuarded(file, refused), "größe");
    else await assert.rejects(readGuarded(file, refused), { code: "usage", message });
    if (right !== "") await assert.rejects(readBounded(file, 99, refused ?? 0o077), { code: "usage", message });
    assert.equal(String(await readBounded(file, 99)), "größe");
  }
  await assert.rejects(readBounded(file, 6), { code: "failed", message: `Cannot read ${file}: it has more than 6 bytes` });
  assert.equal((await readBounded(file, 7))?.length, 7);
});

test("the first bytes of a file are read, all of them or fewer where the file has fewer", (t) => {
  const file = path.join(writeFiles(temporaryFolder(t), { file: "äbc" }), "file");
  assert.deepEqual(
    [undefined, 0, 2, 3, 4, 99].map((most) => readRegularSync(file, most)),
    ["äbc", "", "ä", "äb", "äbc", "äbc"],
  );
});

test("pieces of a file are full but the last one, whatever a read brings, and end with the file", (t) => {
  const content = Buffer.from(Array.from({ length: 2 * PIECE_BYTES + 5 }, (_, at) => at % 251));
  const file = path.join(writeFiles(temporaryFolder(t), { file: (at) => fs.writeFileSync(at, content) }), "file");
  const lengths = (bytes: number, buffer?: Buffer) => {
    const descriptor = openSync(file, "r");
    const pieces = readPieces(descriptor, bytes, buffer).map((piece) => Buffer.from(piece));
    const all = [...pieces];
    closeSync(descriptor);
    assert.deepEqual(Buffer.concat(all), content.subarray(0, bytes));
    return all.map(({ length }) => length);
  };
  const check = () => {
    assert.deepEqual(lengths(content.length), [PIECE_BYTES, PIECE_BYTES, 5]);
    assert.deepEqual(lengths(content.length + 9), [PIECE_BYTES, PIECE_BYTES, 5]);
    assert.deepEqual(lengths(2 * PIECE_BYTES), [PIECE_BYTES, PIECE_BYTES]);
    assert.deepEqual([lengths(1), lengths(0)], [[1], []]);
    assert.deepEqual(lengths(2500, Buffer.alloc(1000)), [1000, 1000, 500]);
  };
  check();
  const { readSync } = fs;
  replaced(t, "readSync", (fd: number, buffer: Buffer, at: number, length: number) =>
    readSync(fd, buffer, at, Math.min(length, 777), null),
  );
  check();
});

test("a file is appended to, or made where there is none; one that must be new is refused where the name is taken", async (t) => {
  const root = temporaryFolder(t);
  const before = process.umask(0);
  t.after(() => process.umask(before));
  const write = (name: string, flags: number, text: string) => {
    const descriptor = openRegularSync(path.join(root, name), flags);
    writeSync(descriptor, text);
    closeSync(descriptor);
  };
  for (const text of ["a", "b"]) write("log", APPEND, text);
  write("new", CREATE, "c");
  assert.throws(() => write("new", CREATE, "d"), { code: "EEXIST" });
  assert.deepEqual(
    ["log", "new"].map((name) => [readFileSync(path.join(root, name), "utf8"), statSync(path.join(root, name)).mode & 0o777]),
    [
      ["ab", 0o600],
      ["c", 0o600],
    ],
  );
  assert.throws(() => write("missing/log", APPEND, "a"), { code: "ENOENT" });
  assert.throws(() => openRegularSync(root), { code: "file_not_found" });
  await assert.rejects(openRegular(root), { code: "file_not_found" });
  assert.ok(!openFiles().includes(root), "what is refused is not left open");
});

test("a file below a folder that may not be read is no missing file", async (t) => {
  const root = writeFiles(temporaryFolder(t), { "in/file": "x" });
  chmodSync(root, 0o755);
  const isRoot = process.geteuid?.() === 0;
  chmodSync(path.join(root, "in/file"), 0);
  if (isRoot) process.seteuid?.(65_534);
  try {
    await assert.rejects(openContained(root, "in/file"), { code: "EACCES" });
    await assert.rejects(openContained(root, "in/none"), {
      code: "file_not_found",
      message: "Cannot read in/none: it is not a regular file",
    });
  } finally {
    if (isRoot) process.seteuid?.(0);
  }
  await assert.rejects(openContained(path.join(root, "none"), "file"), { code: "ENOENT" });
});

test("what cannot be removed for another reason is told, and nothing where there is no folder is removed", async (t) => {
  const root = writeFiles(temporaryFolder(t), { file: "" });
  await remove(path.join(root, "none/below"));
  await remove(path.join(root, "file/below"));
  await assert.rejects(remove(path.join(root, "n".repeat(300))), { code: "ENAMETOOLONG" });
  assert.deepEqual(readdirSync(root), ["file"]);
  chmodSync(root, 0o750);
  const rm = t.mock.method(fs.promises, "rm", () => Promise.reject(failing("EBUSY")));
  syncBuiltinESMExports();
  await assert.rejects(remove(root), { code: "EBUSY" });
  rm.mock.restore();
  syncBuiltinESMExports();
  assert.deepEqual([rm.mock.callCount(), statSync(root).mode & 0o777], [1, 0o750], "it is not tried with other modes");
});

test("modes are set on folders alone, on all below one, and not through a link", async (t) => {
  const root = writeFiles(temporaryFolder(t), { "a/b/file": "", "a/way": link("../other"), "other/file": "" });
  for (const name of ["a", "a/b", "other"]) chmodSync(path.join(root, name), 0o700);
  await setFolders(path.join(root, "a"), 0o750);
  await setFolders(path.join(root, "a/b/file"), 0o750);
  await setFolders(path.join(root, "none"), 0o750);
  const modes = ["a", "a/b", "other", "a/b/file"].map((name) => lstatSync(path.join(root, name)).mode & 0o777);
  assert.deepEqual(modes.slice(0, 3), [0o750, 0o750, 0o700]);
  assert.notEqual(modes[3], 0o750);
});

test("names are listed where there is a folder, none where there is none, and a file is no folder", async (t) => {
  const root = writeFiles(temporaryFolder(t), { "in/b": "", "in/a": "" });
  assert.deepEqual((await namesIn(path.join(root, "in"))).sort(), ["a", "b"]);
  assert.deepEqual(await namesIn(path.join(root, "none")), []);
  await assert.rejects(namesIn(path.join(root, "in/a")), { code: "ENOTDIR" });
  assert.equal(await exists(path.join(root, "in/a")), true);
});

test("a file is unchanged where nothing that tells it apart has changed", (t) => {
  const found = statSync(temporaryFolder(t));
  assert.equal(isUnchanged(found, { ...found } as typeof found), true);
  for (const field of ["ino", "dev", "size", "mode", "mtimeMs", "ctimeMs"] as const)
    assert.equal(isUnchanged(found, { ...found, [field]: found[field] + 1 } as typeof found), false, field);
  assert.equal(isUnchanged(found, { ...found, atimeMs: 0 } as typeof found), true);
});

test("a read of what is missing answers nothing, by the codes that mean so; every other failure is told", async () => {
  assert.equal(await unlessMissing(Promise.resolve(1)), 1);
  assert.equal(await unlessMissing(Promise.reject(failing("ENOENT"))), undefined);
  await assert.rejects(unlessMissing(Promise.reject(failing("ENOTDIR"))), { code: "ENOTDIR" });
  assert.equal(await unlessMissing(Promise.reject(failing("ENOTDIR")), "ENOTDIR"), undefined);
  await assert.rejects(unlessMissing(Promise.reject(failing("ENOENT")), "ENOTDIR"), { code: "ENOENT" });
});
