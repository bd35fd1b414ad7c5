import assert from "node:assert/strict";
import fs, {
  appendFileSync,
  chmodSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type FoundFile, readFound, walk } from "../../lib/core/walk.ts";
import { type Files, fifo, link, temporaryFolder, writeFiles } from "../helpers/temporary.ts";

/** A new folder with these files. */
const folder = (t: TestContext, files: Files = {}) => writeFiles(temporaryFolder(t), files);

test("walk() finds regular files with size and right to execute, sorted by path, and skips names everywhere", (t) => {
  const root = folder(t, {
    "b.txt": (file) => {
      writeFileSync(file, "12");
      // Only others may execute it.
      chmodSync(file, 0o611);
    },
    "a/z": "1",
    "a-b": "",
    "a/run": (file) => writeFileSync(file, "#!", { mode: 0o700 }),
    ".hidden": "h",
    "skipped/x": "x",
    "a/skipped/x": "x",
    "a/skipped-not": "x",
  });
  mkdirSync(path.join(root, "empty"));
  const found = walk(root, new Set(["skipped"])).map(({ state: _, ...file }) => file);
  assert.deepEqual(found, [
    { path: ".hidden", sizeBytes: 1, executable: false },
    { path: "a-b", sizeBytes: 0, executable: false },
    { path: "a/run", sizeBytes: 2, executable: true },
    { path: "a/skipped-not", sizeBytes: 1, executable: false },
    { path: "a/z", sizeBytes: 1, executable: false },
    { path: "b.txt", sizeBytes: 2, executable: false },
  ]);
});

test("walk() of a folder that is not there finds nothing", (t) => {
  assert.deepEqual(walk(path.join(folder(t), "missing")), []);
});

const refusedSources: [string, Files, RegExp][] = [
  ["a symlink to a file", { "a/l": link("/etc/passwd") }, /a\/l: a symbolic link is not allowed$/],
  ["a symlink to a folder", { "a/l": link("..") }, /a\/l: a symbolic link is not allowed$/],
  ["a symlink to nothing", { l: link("nothing") }, /l: a symbolic link is not allowed$/],
  ["a FIFO", { "a/f": fifo }, /a\/f: a special file is not allowed$/],
];

for (const [what, files, message] of refusedSources)
  test(`walk() refuses ${what} and names it`, (t) => {
    assert.throws(() => walk(folder(t, { ok: "x", ...files })), { code: "invalid_source", message });
  });

test("walk() refuses a name that is not UTF-8", (t) => {
  const root = folder(t);
  writeFileSync(Buffer.concat([Buffer.from(`${root}/a`), Buffer.from([0xff])]), "x");
  assert.throws(() => walk(root), { code: "invalid_source", message: /its name is not UTF-8$/ });
});

test("walk() refuses a root that is a symlink or a file", (t) => {
  const root = folder(t, { "real/x": "x", link: link("real") });
  for (const name of ["link", "real/x"])
    assert.throws(() => walk(path.join(root, name)), {
      code: "invalid_source",
      message: `Cannot take ${path.join(root, name)}: it is not a folder`,
    });
});

test("walk() passes over a skipped name whatever it is", (t) => {
  const root = folder(t, { x: "x", ".venv/bin/python3": link("/usr/bin/python3"), venv: link("..") });
  assert.deepEqual(
    walk(root, new Set([".venv", "venv"])).map((file) => file.path),
    ["x"],
  );
});

test("every refusal is told to whoever asks, and the rest is found", (t) => {
  const root = folder(t, { "a/l": link(".."), b: fifo, "c/ok": "x" });
  const refused: string[] = [];
  const found = walk(root, new Set(), (below, why) => refused.push(`${below}: ${why}`));
  assert.deepEqual(
    found.map((file) => file.path),
    ["c/ok"],
  );
  assert.deepEqual(refused.sort(), ["a/l: a symbolic link is not allowed", "b: a special file is not allowed"]);
});

test("what may not be read is refused by its name", (t) => {
  const root = folder(t, { "open/file": "x", "closed/file": "x", secret: "x" });
  chmodSync(path.join(root, "closed"), 0);
  chmodSync(path.join(root, "secret"), 0);
  chmodSync(root, 0o755);
  const isRoot = process.geteuid?.() === 0;
  if (isRoot) process.seteuid?.(65_534);
  try {
    const refused: string[] = [];
    const found = walk(root, new Set(), (below, why) => refused.push(`${below}: ${why}`));
    assert.equal(refused.length, 1);
    assert.match(refused[0] as string, /^closed: permission denied/);
    const secret = found.find((file) => file.path === "secret") as FoundFile;
    assert.throws(() => readFound(root, secret), { code: "EACCES" });
  } finally {
    if (isRoot) process.seteuid?.(0);
    chmodSync(path.join(root, "closed"), 0o700);
  }
});

test("a file is read whole, an empty one too", (t) => {
  const root = folder(t, { a: "ä".repeat(100_000), b: "" });
  const [a, b] = walk(root) as [FoundFile, FoundFile];
  assert.equal(readFound(root, a).toString(), "ä".repeat(100_000));
  assert.equal(readFound(root, b).length, 0);
});

const moved = (then: (file: string) => void) => (file: string) => {
  renameSync(file, `${file}.old`);
  then(file);
};
const CHANGES: [what: string, change: (file: string) => void][] = [
  ["grew", (file) => appendFileSync(file, "more")],
  ["was cut", (file) => truncateSync(file, 1)],
  ["was removed", (file) => rmSync(file)],
  ["was written again with as many bytes", (file) => writeFileSync(file, "other")],
  ["may be executed now", (file) => chmodSync(file, 0o755)],
  ["is another file", moved((file) => writeFileSync(file, "12345"))],
  ["is a link now", moved((file) => symlinkSync(`${file}.old`, file))],
  ["is a FIFO now", moved(fifo)],
  ["is a folder now", moved((file) => mkdirSync(file))],
  ["lies below a file now", (file) => moved((below) => writeFileSync(below, ""))(path.dirname(file))],
];

for (const [what, change] of CHANGES)
  test(`a file that ${what} since it was found is not read`, async (t) => {
    const root = folder(t, { "in/file": "12345" });
    const [file] = walk(root) as [FoundFile];
    // The clock of the file system ticks every few milliseconds.
    await new Promise((resolve) => setTimeout(resolve, 20));
    change(path.join(root, "in/file"));
    assert.throws(() => readFound(root, file), { code: "failed", message: "it was changed while it was read" });
  });

test("what goes while the folder is walked is refused, not passed over", (t) => {
  const root = folder(t, { a: "1", b: "2" });
  const { lstatSync } = fs;
  const look = t.mock.method(fs, "lstatSync", (...args: Parameters<typeof lstatSync>) => {
    if (String(args[0]).endsWith("/b")) unlinkSync(String(args[0]));
    return lstatSync(...args);
  });
  syncBuiltinESMExports();
  t.after(() => {
    look.mock.restore();
    syncBuiltinESMExports();
  });
  assert.throws(() => walk(root), { code: "invalid_source", message: /\/b: it was changed while it was read$/ });
});
