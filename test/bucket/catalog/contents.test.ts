import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import {
  beginChange,
  dropUnusedContents,
  forgetPromotion,
  keepContents,
  keptContent,
  promote,
  promotionsOf,
  recordSynced,
} from "../../../lib/bucket/catalog/promotions.ts";
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
