import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import {
  bytesOf,
  createFile,
  digestOf,
  isSetAside,
  LARGEST_ROW_BYTES,
  type LargeContent,
  piecesOf,
  sealedName,
  sealedPieces,
  setAside,
  setAsidePieces,
} from "../../../lib/bucket/base/contents.ts";
import { onFaultPoint } from "../../../lib/core/self.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const PIECES = ["one ", "two ", "three"].map((text) => Buffer.from(text));
const LARGE: LargeContent = { length: 13, pieces: () => PIECES };
const TEXT = "one two three";

test("a content is read whole or in pieces, and its sum is that of its bytes, wherever it is", async (t) => {
  assert.equal(LARGEST_ROW_BYTES, 1_048_576);
  const small = Buffer.from(TEXT);
  assert.deepEqual([bytesOf(small), String(bytesOf(LARGE))], [small, TEXT]);
  assert.deepEqual([...piecesOf(small)], [small]);
  assert.deepEqual([...piecesOf(LARGE)], PIECES);
  assert.equal(digestOf(LARGE.pieces), createHash("sha256").update(TEXT).digest("hex"));
  const file = path.join(temporaryFolder(t), "file");
  for (const [index, content] of [small, LARGE].entries()) {
    await createFile(`${file}${index}`, content, 0o640);
    assert.equal(readFileSync(`${file}${index}`, "utf8"), TEXT);
    await assert.rejects(createFile(`${file}${index}`, content, 0o640), {
      code: "EEXIST",
      message: new RegExp(`${file}${index}`),
    });
  }
});

test("a content that is set aside appears whole in a private folder, in the place of one of its name", (t) => {
  const folder = path.join(temporaryFolder(t), "contents");
  assert.equal(isSetAside(folder, "a", 13), false);
  assert.equal(setAside(folder, "a", LARGE.pieces), 13);
  assert.deepEqual([statSync(folder).mode & 0o777, statSync(path.join(folder, "a")).mode & 0o777], [0o700, 0o600]);
  assert.deepEqual([isSetAside(folder, "a", 13), isSetAside(folder, "a", 12), isSetAside(folder, "b", 13)], [true, false, false]);
  const read = (length: number) => String(Buffer.concat([...setAsidePieces(folder, "a", length)]));
  assert.equal(read(13), TEXT);
  assert.equal(
    setAside(folder, "a", () => [Buffer.from("next")]),
    4,
  );
  assert.equal(read(4), "next");
  const message = `Cannot read ${path.join(folder, "a")}: it is not there with 13 bytes; build again, or restore a snapshot`;
  assert.throws(() => read(13), { code: "failed", message });
  setAside(folder, sealedName("b"), () => [Buffer.from("sealed")]);
  assert.deepEqual(readdirSync(folder).sort(), ["a", "b.sealed"]);
  assert.equal(String(Buffer.concat([...sealedPieces(folder, "b", 6)])), "sealed");
});

test("a content that cannot be written whole leaves nothing, and the one before stays", (t) => {
  const folder = path.join(temporaryFolder(t), "contents");
  setAside(folder, "a", () => [Buffer.from("before")]);
  function* failing() {
    yield Buffer.from("half");
    throw new Error("it was changed");
  }
  assert.throws(() => setAside(folder, "a", failing), /it was changed/);
  onFaultPoint((reached) => {
    if (reached === "content: written") throw new Error("killed here");
  });
  t.after(() => onFaultPoint(() => {}));
  assert.throws(() => setAside(folder, "a", LARGE.pieces), /killed here/);
  onFaultPoint(() => {});
  assert.deepEqual([readdirSync(folder), readFileSync(path.join(folder, "a"), "utf8")], [["a"], "before"]);
  mkdirSync(path.join(folder, "taken/x"), { recursive: true });
  assert.throws(() => setAside(folder, "taken", LARGE.pieces), new RegExp(path.join(folder, "taken")));
  assert.deepEqual(readdirSync(folder).sort(), ["a", "taken"]);
  writeFileSync(path.join(folder, "target"), "x".repeat(13));
  symlinkSync("target", path.join(folder, "link"));
  assert.throws(() => [...setAsidePieces(folder, "link", 13)], { code: "failed" });
});
