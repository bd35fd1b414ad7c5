import assert from "node:assert/strict";
import fs, { chmodSync, chownSync, mkdirSync, readFileSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { isSame, place, share } from "../../../lib/bucket/source/place.ts";
import { failing } from "../../helpers/faults.ts";
import { fifo, openFiles, temporaryFolder } from "../../helpers/temporary.ts";

const TEXT = Buffer.from("text");
/** More than is compared in one piece. */
const LONG = Buffer.alloc(200_000, "long");

/** A folder with the file `like`, and what `place` makes of a content beside it. */
function setUp(t: TestContext, like: Uint8Array = TEXT, likeMode = 0o644) {
  const folder = temporaryFolder(t);
  const at = (name: string) => path.join(folder, name);
  writeFileSync(at("like"), like);
  chmodSync(at("like"), likeMode);
  const placed = (content: Uint8Array | string, mode = 0o644) => {
    place({ target: at("target"), mode, content, like: at("like") });
    return statSync(at("target"));
  };
  const isShared = (name = "like") => statSync(at("target")).ino === statSync(at(name)).ino;
  return { at, placed, isShared };
}

test("CP-374 a file that is there already, with its mode, gets a second name", (t) => {
  for (const content of [TEXT, LONG, Buffer.alloc(0)]) {
    const { placed, isShared } = setUp(t, content);
    assert.equal(placed(content).nlink, 2);
    assert.ok(isShared());
  }
});

test("CP-374 a file that differs in a byte, its length or its mode is a new one, whatever the umask is", (t) => {
  const old = process.umask(0o077);
  t.after(() => process.umask(old));
  const other = Buffer.from(LONG);
  other[150_000] = 0;
  for (const [content, like, likeMode] of [
    [Buffer.from("next"), TEXT, 0o644],
    [Buffer.from("text and more"), TEXT, 0o644],
    [Buffer.alloc(0), TEXT, 0o644],
    [LONG.subarray(0, 65_536), LONG, 0o644],
    [other, LONG, 0o644],
    [TEXT, TEXT, 0o600],
  ] as const) {
    const { at, placed, isShared } = setUp(t, like, likeMode);
    const { nlink, mode } = placed(content);
    assert.deepEqual([nlink, mode & 0o777, isShared()], [1, 0o644, false]);
    assert.deepEqual(readFileSync(at("target")), content);
    assert.deepEqual(readFileSync(at("like")), like);
  }
});

test("CP-374 a link and a folder are never shared", (t) => {
  const { at } = setUp(t);
  mkdirSync(at("folder"));
  symlinkSync(at("like"), at("link"));
  for (const [index, like] of ["link", "folder", "none", "like/below"].entries()) {
    place({ target: at(`${index}`), mode: 0o644, content: TEXT, like: at(like) });
    assert.equal(statSync(at(`${index}`)).nlink, 1, like);
  }
});

test("CP-374 a read-only file gets a second name, or one like it where there is one; a file that can be written is copied", (t) => {
  const { at, placed, isShared } = setUp(t, LONG);
  writeFileSync(at("source"), LONG, { mode: 0o444 });
  placed(at("source"));
  assert.ok(isShared("like"));
  const other = setUp(t, TEXT);
  writeFileSync(other.at("source"), LONG, { mode: 0o444 });
  other.placed(other.at("source"), 0o444);
  assert.ok(other.isShared("source"));
  writeFileSync(other.at("live"), LONG, { mode: 0o644 });
  place({ target: other.at("own"), mode: 0o644, content: other.at("live"), like: undefined });
  assert.equal(statSync(other.at("own")).nlink, 1);
  place({ target: other.at("copy"), mode: 0o755, content: other.at("source"), like: other.at("like") });
  const { nlink, mode } = statSync(other.at("copy"));
  assert.deepEqual([nlink, mode & 0o777, readFileSync(other.at("copy"))], [1, 0o755, LONG]);
});

test("CP-374 where a file can have no further name, or cannot be read, the new one is a file of its own", (t) => {
  for (const code of ["EMLINK", "EPERM", "EXDEV"]) {
    const { placed } = setUp(t);
    const mend = failing(t, fs, "linkSync", code);
    assert.equal(placed(TEXT).nlink, 1);
    mend();
  }
  const { placed } = setUp(t);
  const mend = failing(t, fs, "readSync", "EIO");
  assert.equal(placed(TEXT).nlink, 1);
  mend();
});

test("CP-374 a file of a revision gets a second name, unless it was changed later, has another mode, is no file or is gone", (t) => {
  const { at, isShared } = setUp(t, TEXT, 0o444);
  const until = statSync(at("like")).mtimeMs + 1_000;
  assert.ok(share(at("like"), at("target"), 0o444, until));
  assert.ok(isShared());
  symlinkSync(at("like"), at("link"));
  mkdirSync(at("folder"), { mode: 0o444 });
  for (const name of ["link", "folder", "none"]) assert.equal(share(at(name), at("other"), 0o444, until), false, name);
  assert.equal(share(at("like"), at("other"), 0o555, until), false);
  utimesSync(at("like"), 0, until / 1000 + 1);
  assert.equal(share(at("like"), at("other"), 0o444, until), false);
});

test("a file that cannot be linked or written for another reason is an error", (t) => {
  const { placed } = setUp(t);
  const mend = failing(t, fs, "linkSync", "ENOSPC");
  assert.throws(() => placed(TEXT), { code: "ENOSPC" });
  mend();
  writeFileSync(setUp(t).at("target"), "");
  const second = setUp(t, TEXT, 0o600);
  writeFileSync(second.at("target"), "there");
  assert.throws(() => second.placed(TEXT), { code: "EEXIST" });
  assert.equal(readFileSync(second.at("target"), "utf8"), "there");
});

test("CP-374 files of one tree have their modes whatever the umask is, one after the other", (t) => {
  const old = process.umask();
  t.after(() => process.umask(old));
  for (const mask of [0, 0o022, 0o077, 0o777]) {
    const { at } = setUp(t);
    process.umask(mask);
    const given = new Set<number>();
    for (const [index, mode] of [0o644, 0o755, 0o644, 0o444, 0o444].entries()) {
      place({ target: at(`${index}`), mode, content: TEXT, given });
      assert.deepEqual([statSync(at(`${index}`)).mode & 0o7777, readFileSync(at(`${index}`))], [mode, TEXT], `${mask}`);
    }
    assert.deepEqual([...given], mask === 0 ? [0o644, 0o755, 0o444] : mask === 0o022 ? [0o644, 0o755, 0o444] : []);
    place({ target: at("copy"), mode: 0o700, content: at("0") });
    assert.equal(statSync(at("copy")).mode & 0o7777, 0o700);
  }
});

test("CP-374 a file is the same where owner, mode, size and every byte are, compared with bytes or another file", (t) => {
  const { at } = setUp(t, LONG, 0o644);
  const before = openFiles().length;
  const late = Buffer.from(LONG);
  late[LONG.length - 1] = 0;
  writeFileSync(at("equal"), LONG);
  writeFileSync(at("late"), late);
  writeFileSync(at("longer"), Buffer.concat([LONG, TEXT]));
  writeFileSync(at("empty"), "");
  const same = (content: Uint8Array | string, mode = 0o644, name = "like") => isSame(at(name), mode, content);
  assert.deepEqual([same(LONG), same(at("equal")), same(at("like"))], [true, true, true]);
  assert.deepEqual(
    [same(late), same(at("late")), same(at("longer")), same(LONG.subarray(1)), same(at("none"))],
    Array(5).fill(false),
  );
  assert.deepEqual(
    [same(LONG, 0o600), same(LONG, 0o1644), same(Buffer.of(), 0o644, "empty"), same(LONG, 0o644, "none")],
    [false, false, true, false],
  );
  fifo(at("pipe"));
  symlinkSync("like", at("link"));
  mkdirSync(at("folder"));
  for (const name of ["pipe", "link", "folder"]) assert.equal(same(LONG, 0o644, name), false, name);
  assert.equal(same(at("link")), false, "nor is a link followed to what it is compared with");
  assert.equal(openFiles().length, before, "every file is closed again");
  if (process.geteuid?.() !== 0) return;
  chownSync(at("like"), 1, 1);
  assert.equal(same(LONG), false, "of another owner");
  assert.equal(share(at("like"), at("shared"), 0o644, Date.now() + 60_000), false);
});

test("CP-374 what is put into a tree closes its files, also where it cannot be put there", (t) => {
  const { at } = setUp(t);
  const before = openFiles().length;
  writeFileSync(at("taken"), "");
  for (const content of [TEXT, at("like")])
    assert.throws(() => place({ target: at("taken"), mode: 0o644, content }), { code: "EEXIST" });
  assert.throws(() => place({ target: at("x"), mode: 0o644, content: at("none") }));
  assert.equal(openFiles().length, before);
});
