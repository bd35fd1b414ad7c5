import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { bytesOf, digestOf, piecesOf } from "../../../lib/bucket/base/contents.ts";
import { largeContents, lostContents } from "../../../lib/bucket/base/database.ts";
import {
  dropUnusedContents,
  keepContents,
  keptContent,
  removeUnnamedContents,
  storeLargeContents,
} from "../../../lib/bucket/catalog/contents.ts";
import { beginChange, forgetPromotion, promote, promotionsOf, recordSynced } from "../../../lib/bucket/catalog/promotions.ts";
import { loadKvKey, sealedValues } from "../../../lib/bucket/kv/kv-access.ts";
import { type FoundFile, foundPieces, walk } from "../../../lib/core/walk.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const file = (text: string, isSecret = false) => {
  const content = Buffer.from(text);
  const sha256 = createHash("sha256").update(content).digest("hex");
  return { path: "f", mode: 0o644, sha256, content, isSecret, ...(isSecret && { secrets: ["s 1", text] }) };
};

test("of each allocation the contents of the last two trees are kept, once each, secrets sealed; the rest can be dropped", async (t) => {
  const bucket = await makeBucket(t);
  const { db } = bucket;
  const kv = bucket.kv();
  const put = (id: string, text: string, isSecret = false) => {
    const one = file(text, isSecret);
    beginChange(db, "web", [id]);
    recordSynced(db, "web", [{ id: id, hash: text, files: { f: `644:${one.sha256}` }, updateSeq: 1 }]);
    keepContents(db, kv, [one]);
    promote(db, { job: "web", id }, text, "");
    return one.sha256;
  };
  const [first, second, third] = [put("one", "1"), put("one", "very secret", true), put("one", "3")];
  put("two", "3");
  const kept = () =>
    db
      .all<{ sha256: string }>("SELECT sha256 FROM contents")
      .map((row) => row.sha256)
      .sort();
  assert.deepEqual(kept(), [first, second, third].sort());
  assert.deepEqual(keptContent(db, bucket.kv(), second), {
    content: Buffer.from("very secret"),
    isSecret: true,
    secrets: ["s 1", "very secret"],
  });
  assert.deepEqual(keptContent(db, kv, third), { content: Buffer.from("3"), isSecret: false });
  assert.ok(!JSON.stringify(db.all("SELECT CAST(content AS TEXT) AS text FROM contents")).includes("very secret"));
  const { before } = promotionsOf(db, "web")("one");
  assert.deepEqual(before, { hash: "very secret", version: "very secret", files: { f: `644:${second}` } });
  assert.equal(dropUnusedContents(db), 1);
  assert.throws(() => keptContent(db, kv, first), { code: "failed", message: /is not kept any more/ });
  forgetPromotion(db, "web", "one");
  assert.equal(dropUnusedContents(db), 1);
  assert.deepEqual(kept(), [third], "what another allocation has stays");
});

const never = new AbortController().signal;
const MIB = 1024 * 1024;

test("CP-352 a large content lies beside the database, for its owner alone, sealed where it is secret, and goes when nothing names it", async (t) => {
  const bucket = await makeBucket(t);
  const { db, layout } = bucket;
  const text = (seed: string) => seed.repeat(Math.ceil((MIB + 1) / seed.length));
  const [plain, secret, small] = [file(text("plain ")), file(text("very secret "), true), file("x".repeat(MIB))];
  const files = { plain: `644:${plain.sha256}`, secret: `600:${secret.sha256}`, small: `644:${small.sha256}` };
  beginChange(db, "web", ["one"]);
  recordSynced(db, "web", [{ id: "one", hash: "h", files, updateSeq: 1 }]);
  keepContents(db, bucket.kv(), [plain, secret, small]);
  promote(db, { job: "web", id: "one" }, "1", "");
  const folder = path.join(layout.data, "contents");
  assert.deepEqual(readdirSync(folder).sort(), [plain.sha256, `${secret.sha256}.sealed`].sort());
  assert.equal(statSync(folder).mode & 0o777, 0o700);
  for (const name of readdirSync(folder)) assert.equal(statSync(path.join(folder, name)).mode & 0o777, 0o600);
  assert.ok(!readFileSync(path.join(folder, `${secret.sha256}.sealed`)).includes("secret"));
  for (const [one, isSecret] of [
    [plain, false],
    [secret, true],
    [small, false],
  ] as const) {
    const kept = keptContent(db, bucket.kv(), one.sha256);
    assert.deepEqual([kept.isSecret, kept.content.length], [isSecret, one.content.length]);
    assert.ok(bytesOf(kept.content).equals(one.content));
    assert.equal(
      digestOf(() => piecesOf(kept.content)),
      one.sha256,
    );
  }
  const key = await loadKvKey(layout);
  assert.deepEqual(sealedValues(db, key), { sealed: 1, unreadable: [] });
  assert.deepEqual(sealedValues(db, randomBytes(32)).unreadable, [`contents ${secret.sha256}`]);
  writeFileSync(path.join(folder, ".left.tmp"), "");
  await removeUnnamedContents(db);
  assert.equal(readdirSync(folder).length, 2, "what no row names goes, the rest stays");
  assert.deepEqual([largeContents(db).size, lostContents(db)], [2, []]);
  forgetPromotion(db, "web", "one");
  assert.equal(dropUnusedContents(db), 3);
  assert.equal(readdirSync(folder).length, 2, "files go after their rows");
  await removeUnnamedContents(db);
  assert.deepEqual(readdirSync(folder), []);
});

test("a large content that is lost or cut is told with what to do, and no byte of it is used", async (t) => {
  const bucket = await makeBucket(t);
  const { db } = bucket;
  const one = file("x".repeat(MIB + 1));
  keepContents(db, bucket.kv(), [one]);
  const place = path.join(db.contents, one.sha256);
  const read = () => bytesOf(keptContent(db, bucket.kv(), one.sha256).content);
  assert.equal(read().length, MIB + 1);
  for (const harm of [() => writeFileSync(place, "cut"), () => rmSync(place)]) {
    harm();
    const why = `it is not there with ${MIB + 1} bytes; build again, or restore a snapshot`;
    assert.throws(read, { code: "failed", message: `Cannot read ${place}: ${why}` });
  }
  assert.deepEqual(lostContents(db), [one.sha256]);
});

test("a large file that changes before it is stored fails the build by its name, and nothing of it stays; a cancel is heard", async (t) => {
  const { db, dir } = await makeBucket(t, { files: { "workspace/large": "x".repeat(2 * MIB) } });
  const workspace = path.join(dir, "workspace");
  const [found] = walk(workspace).filter((one) => one.path === "large") as [FoundFile];
  const pieces = (buffer?: Buffer) => foundPieces(workspace, found, buffer);
  const sha256 = digestOf(pieces);
  const jobs = [{ name: "web", files: [{ path: "large", mode: 0o644, sha256, content: { length: found.sizeBytes, pieces } }] }];
  await assert.rejects(storeLargeContents(db, jobs, AbortSignal.abort()), { code: "cancelled" });
  writeFileSync(path.join(workspace, "large"), "y".repeat(2 * MIB - 1));
  await assert.rejects(storeLargeContents(db, jobs, never), {
    code: "failed",
    message: "Cannot store large of job web: it was changed while it was read",
  });
  assert.deepEqual(readdirSync(db.contents), []);
});

test("a symbolic link in the place of the folder or of a content is not followed", async (t) => {
  const bucket = await makeBucket(t);
  const { db } = bucket;
  const elsewhere = temporaryFolder(t);
  const one = file("x".repeat(MIB + 1));
  symlinkSync(elsewhere, db.contents);
  assert.throws(() => keepContents(db, bucket.kv(), [one]), { code: "file_not_found" });
  assert.deepEqual(readdirSync(elsewhere), []);
  rmSync(db.contents);
  keepContents(db, bucket.kv(), [one]);
  renameSync(path.join(db.contents, one.sha256), path.join(elsewhere, one.sha256));
  symlinkSync(path.join(elsewhere, one.sha256), path.join(db.contents, one.sha256));
  assert.throws(() => bytesOf(keptContent(db, bucket.kv(), one.sha256).content), { code: "failed" });
});
