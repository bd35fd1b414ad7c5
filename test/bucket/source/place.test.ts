import assert from "node:assert/strict";
import fs, { chmodSync, mkdirSync, readFileSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { place, share } from "../../../lib/bucket/source/place.ts";
import { failing } from "../../helpers/faults.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

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
