import assert from "node:assert/strict";
import {
  chmodSync,
  chownSync,
  existsSync,
  fstatSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
} from "node:fs";
import { open } from "node:fs/promises";
import net from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import {
  APPEND,
  createExclusive,
  emptyFolder,
  exists,
  flushFolder,
  makePrivateFolder,
  namesIn,
  openContained,
  openRegular,
  openRegularSync,
  readBounded,
  readRegularSync,
  realPlace,
  remove,
  setFolders,
  temporaryName,
  writeAtomic,
} from "../../lib/core/files.ts";
import { type Files, fifo, link, temporaryFolder, writeFiles } from "../helpers/temporary.ts";

const base = temporaryFolder();

let folders = 0;

/** A new folder with these files. */
const folder = (files: Files = {}) => writeFiles(path.join(base, String(++folders)), files);

const mode = (file: string) => statSync(file).mode & 0o777;

for (const umask of [0o000, 0o077, 0o777])
  test(`rights of files and folders hold under umask ${umask.toString(8).padStart(3, "0")}`, async () => {
    const root = folder();
    const before = process.umask(umask);
    try {
      await writeAtomic(path.join(root, "private"), "x");
      await writeAtomic(path.join(root, "program"), "x", 0o755);
      await createExclusive(path.join(root, "exclusive"), "x");
      if (umask !== 0o777) await makePrivateFolder(path.join(root, "a", "b"));
    } finally {
      process.umask(before);
    }
    assert.deepEqual(
      ["private", "program", "exclusive"].map((name) => mode(path.join(root, name))),
      [0o600, 0o755, 0o600],
    );
    if (umask !== 0o777) assert.equal(mode(path.join(root, "a")) & 0o077, 0);
  });

test("a file is replaced as a whole, text or bytes, and nothing stays beside it", async () => {
  const root = folder({ file: "old and longer" });
  const file = path.join(root, "file");
  await writeAtomic(file, "new");
  assert.equal(readFileSync(file, "utf8"), "new");
  await writeAtomic(file, Buffer.from([0, 255]));
  assert.deepEqual([...readFileSync(file)], [0, 255]);
  assert.deepEqual(readdirSync(root), ["file"]);
});

test("a reader always sees one of the contents whole while they are replaced", async () => {
  const file = path.join(folder({ file: "0".repeat(100_000) }), "file");
  let done = false;
  const writing = (async () => {
    for (let round = 1; round < 40; round++) await writeAtomic(file, String(round % 10).repeat(100_000));
    done = true;
  })();
  while (!done) {
    const content = await readBounded(file, 200_000);
    assert.equal(content?.length, 100_000);
    assert.equal(content?.at(0), content?.at(-1));
  }
  await writing;
});

test("a symlink is replaced, not followed", async () => {
  const root = folder({ target: "target", file: link("target") });
  await writeAtomic(path.join(root, "file"), "new");
  assert.equal(readFileSync(path.join(root, "target"), "utf8"), "target");
  assert.equal(lstatSync(path.join(root, "file")).isFile(), true);
});

test("a write that fails leaves the old content and no temporary file", async () => {
  const root = folder({ "taken/inside": "x" });
  await assert.rejects(writeAtomic(path.join(root, "taken"), "new"), { code: /EISDIR|ENOTEMPTY|EEXIST/ });
  assert.deepEqual(readdirSync(root), ["taken"]);
  await assert.rejects(writeAtomic(path.join(root, "missing", "file"), "new"), { code: "ENOENT" });
  await assert.rejects(writeAtomic(path.join(root, "taken", "inside", "file"), "new"), { code: "ENOTDIR" });
});

test("only one of many creates a file, and its content is whole", async () => {
  const file = path.join(folder(), "lock");
  const created = await Promise.all(Array.from({ length: 20 }, (_, index) => createExclusive(file, `${index}`)));
  assert.equal(created.filter(Boolean).length, 1);
  assert.equal(readFileSync(file, "utf8"), String(created.indexOf(true)));
  assert.deepEqual(readdirSync(path.dirname(file)), ["lock"]);
  await assert.rejects(createExclusive(path.join(base, "missing", "lock"), ""), { code: "ENOENT" });
});

test("temporary names are beside the file, hidden and never the same", () => {
  const [one, two] = [temporaryName("/a/b.json"), temporaryName("/a/b.json")];
  assert.match(one, /^\/a\/\.b\.json\.[0-9a-f]{12}\.tmp$/);
  assert.notEqual(one, two);
});

test("a folder can be flushed; one that is missing is an error", async () => {
  await flushFolder(folder());
  await assert.rejects(flushFolder(path.join(base, "missing")), { code: "ENOENT" });
});

test("a file system that cannot flush a folder is none the worse, any other trouble is told", async (t) => {
  await using handle = await open(folder(), "r");
  const fails = (code: string) => () => Promise.reject(Object.assign(new Error(code), { code }));
  for (const code of ["EINVAL", "EPERM", "ENOTSUP", "EIO"]) {
    const sync = t.mock.method(Object.getPrototypeOf(handle), "sync", fails(code));
    if (code === "EIO") await assert.rejects(flushFolder(folder()), { code });
    else await flushFolder(folder());
    sync.mock.restore();
  }
});

test("a file is read up to its limit, a missing one is undefined", async () => {
  const root = folder({ four: "1234", empty: "" });
  assert.equal((await readBounded(path.join(root, "four"), 4))?.toString(), "1234");
  assert.equal((await readBounded(path.join(root, "empty"), 0))?.length, 0);
  assert.equal(await readBounded(path.join(root, "missing"), 4), undefined);
  await assert.rejects(readBounded(path.join(root, "four"), 3), { code: "failed", message: /more than 3 bytes/ });
});

const notRegular: [string, (file: string) => void][] = [
  ["a symlink to a file beside it", link("beside")],
  ["a symlink to a file elsewhere", link("/etc/passwd")],
  ["a symlink to nothing", link("nothing")],
  ["a FIFO, without waiting for a writer", fifo],
  ["a folder", (file) => mkdirSync(file)],
  ["a device", link("/dev/null")],
];

for (const [what, make] of notRegular)
  test(`${what} is not opened`, async () => {
    const root = folder({ beside: "x", it: make });
    await assert.rejects(openRegular(path.join(root, "it")), {
      code: "file_not_found",
      message: `Cannot read ${path.join(root, "it")}: it is not a regular file`,
    });
    await assert.rejects(readBounded(path.join(root, "it"), 9), { code: "file_not_found" });
  });

test("a socket and a device are not opened", async () => {
  const socket = path.join(folder(), "socket");
  const server = net.createServer().listen(socket);
  await new Promise((resolve) => server.once("listening", resolve));
  await assert.rejects(openRegular(socket), { code: "file_not_found" });
  server.close();
  await assert.rejects(openRegular("/dev/null"), { code: "file_not_found" });
});

test("a contained file is opened through no symlink, wherever on the way it stands", async () => {
  const root = folder({ "in/file": "x", "in/deep/file": "y", "in/up": link(".."), "in/link": link("file"), "in2/file": "x" });
  const at = (...parts: string[]) => path.join(root, ...parts);
  symlinkSync(at("in"), at("alias"));
  const read = async (base: string, below: string) => {
    const handle = await openContained(at(base), below);
    const text = await handle.readFile("utf8");
    await handle.close();
    return text;
  };
  assert.equal(await read("in", "deep/file"), "y");
  assert.equal(await read("alias", "file"), "x", "the folder itself may be reached through one");
  for (const below of ["link", "up/in2/file", "up/in/file", "../in2/file", "deep", "none", "file/x", "x".repeat(300), ""])
    await assert.rejects(openContained(at("in"), below), { code: "file_not_found" }, below);
});

test("remove() removes whatever has the name, never what a symlink leads to", async () => {
  const root = folder({ "kept/file": "x", "gone/link": link("../kept"), "gone/deep/file": "x", file: "x" });
  await remove(path.join(root, "gone"));
  await remove(path.join(root, "file"));
  await remove(path.join(root, "missing"));
  assert.deepEqual(readdirSync(root), ["kept"]);
  assert.equal(existsSync(path.join(root, "kept", "file")), true);
});

test("emptyFolder() keeps the folder with its rights, and makes a missing one", async () => {
  const root = folder({ "a/b/c": "x", d: "x" });
  chmodSync(root, 0o750);
  await emptyFolder(root);
  assert.deepEqual([readdirSync(root), mode(root)], [[], 0o750]);
  await emptyFolder(path.join(root, "new"));
  assert.equal(mode(path.join(root, "new")), 0o700);
});

test("exists() is about the name, not about what it leads to", async () => {
  const root = folder({ file: "x", link: link("nothing") });
  assert.equal(await exists(path.join(root, "link")), true);
  assert.equal(await exists(path.join(root, "missing")), false);
  assert.equal(await exists(path.join(root, "file", "below")), false);
  await assert.rejects(exists("a\0b"));
});

test("nothing is read, written, made, listed or removed behind a link in the place of a folder", async () => {
  const root = folder({ "elsewhere/file": "its own", "elsewhere/sub/file": "x", logs: link("elsewhere") });
  const elsewhere = path.join(root, "elsewhere");
  const before = readdirSync(elsewhere, { recursive: true }).sort();
  const [file, more] = [path.join(root, "logs/file"), path.join(root, "logs/more")];
  const refused = { message: /(it is not a regular file|a symbolic link is on the way to it)/ };
  for (const attempt of [
    () => writeAtomic(file, "new"),
    () => createExclusive(more, "new"),
    () => readBounded(file, 100),
    () => openRegular(file),
    () => makePrivateFolder(path.join(root, "logs")),
    () => makePrivateFolder(path.join(root, "logs/new/er")),
    () => emptyFolder(path.join(root, "logs")),
    () => emptyFolder(path.join(root, "logs/sub")),
    () => namesIn(path.join(root, "logs")),
    () => remove(file),
    () => remove(path.join(root, "logs/sub")),
  ])
    await assert.rejects(attempt, refused, String(attempt));
  for (const attempt of [
    () => readRegularSync(file),
    () => openRegularSync(file),
    () => openRegularSync(file, APPEND),
    () => openRegularSync(more, APPEND),
  ])
    assert.throws(attempt, refused, String(attempt));
  assert.deepEqual(readdirSync(elsewhere, { recursive: true }).sort(), before);
  assert.equal(readFileSync(path.join(elsewhere, "file"), "utf8"), "its own");
  await remove(path.join(root, "logs"));
  assert.deepEqual(readdirSync(elsewhere, { recursive: true }).sort(), before, "only the link went");
});

test("a link in the place of a file that is appended to is refused, and so is a FIFO", () => {
  const root = folder({ target: "its own", log: link("target"), none: link("missing"), fifo });
  for (const name of ["log", "none"])
    assert.throws(() => openRegularSync(path.join(root, name), APPEND), { code: "file_not_found" });
  assert.throws(() => openRegularSync(path.join(root, "fifo"), APPEND), { code: "file_not_found" });
  assert.deepEqual(readdirSync(root).sort(), ["fifo", "log", "none", "target"]);
});

test("a file that is removed while it is opened was in its place all the same, also where it has another name", async (t) => {
  for (const others of [[], ["other"]]) {
    const root = folder({ file: "old" });
    const file = path.join(root, "file");
    for (const name of others) linkSync(file, path.join(root, name));
    await using before = await open(file);
    const stat = t.mock.method(Object.getPrototypeOf(before), "stat", async () => {
      rmSync(file);
      return fstatSync(before.fd);
    });
    await using handle = await openRegular(file);
    stat.mock.restore();
    assert.equal((await handle.readFile()).toString(), "old");
    assert.deepEqual(readdirSync(root), others);
  }
});

test("a link to a folder that is named as a removed one is shown is refused", async () => {
  const root = folder({ "logs (deleted)/file": "its own", logs: link("logs (deleted)") });
  await assert.rejects(namesIn(path.join(root, "logs")), /a symbolic link is on the way/);
  await assert.rejects(writeAtomic(path.join(root, "logs/file"), "x"), /a symbolic link is on the way/);
  assert.equal(readFileSync(path.join(root, "logs (deleted)/file"), "utf8"), "its own");
});

test("where no descriptor tells its place, as on macOS, a link on the way is refused all the same", async (t) => {
  const root = folder({ "real/file": "x", way: link("real") });
  Object.defineProperty(process, "platform", { value: "darwin" });
  t.after(() => Object.defineProperty(process, "platform", { value: "linux" }));
  await writeAtomic(path.join(root, "real/file"), "y");
  assert.equal(String(await readBounded(path.join(root, "real/file"), 10)), "y");
  await assert.rejects(readBounded(path.join(root, "way/file"), 10), { code: "file_not_found" });
  await assert.rejects(writeAtomic(path.join(root, "way/file"), "z"), /a symbolic link is on the way/);
  assert.equal(readFileSync(path.join(root, "real/file"), "utf8"), "y");
});

test("realPlace() resolves the links in the part of a path that exists", () => {
  const root = folder({ "real/file": "x", way: link("real") });
  const at = (name: string) => realPlace(path.join(root, name));
  assert.deepEqual(
    ["way", "way/file", "way/none/more", "real"].map(at),
    ["real", "real/file", "real/none/more", "real"].map((name) => path.join(root, name)),
  );
});

/** Works in a new folder as a user who is not root: root may write into read-only folders. */
async function asUser(t: TestContext, work: (root: string) => Promise<void>): Promise<void> {
  const root = temporaryFolder(t);
  const isRoot = process.getuid?.() === 0;
  if (isRoot) {
    chownSync(root, 65_534, 65_534);
    process.seteuid?.(65_534);
  }
  try {
    await work(root);
  } finally {
    if (isRoot) process.seteuid?.(0);
  }
}

test("read-only folders are removed with what is in them, by a user who is not root too", async (t) => {
  await asUser(t, async (root) => {
    const tree = writeFiles(path.join(root, "tree"), { "a/b/file": "x", "c/file": "y" });
    chmodSync(path.join(tree, "a/b/file"), 0o444);
    await setFolders(tree, 0o555);
    assert.deepEqual(
      ["", "a", "a/b", "c", "a/b/file"].map((name) => mode(path.join(tree, name))),
      [0o555, 0o555, 0o555, 0o555, 0o444],
    );
    await remove(tree);
    assert.deepEqual(readdirSync(root), []);
  });
});

test("a removal that has met a read-only folder goes on beside its second try", async (t) => {
  await asUser(t, async (root) => {
    const others = Array.from({ length: 400 }, (_, index) => [`w${index}/below/file`, "x"]);
    for (let round = 0; round < 5; round++) {
      const tree = writeFiles(path.join(root, "tree"), { "a/file": "x", ...Object.fromEntries(others) });
      chmodSync(path.join(tree, "a"), 0o555);
      await remove(tree);
      assert.deepEqual(readdirSync(root), []);
    }
  });
});
