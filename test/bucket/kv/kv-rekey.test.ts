import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { keepContents, keptContent } from "../../../lib/bucket/catalog/contents.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { loadKvKey, SEALED_CONTENTS, sealedValues } from "../../../lib/bucket/kv/kv-access.ts";
import { countSealed, dropOldKvKey, rekeyingSince, switchKvKey, walkSealed } from "../../../lib/bucket/kv/kv-rekey.ts";
import { seal } from "../../../lib/codec/crypto/seal.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const never = new AbortController().signal;
const LARGE = Buffer.alloc(1024 * 1024 + 1, "x");

const file = (content: Buffer) => {
  const sha256 = createHash("sha256").update(content).digest("hex");
  return { path: "f", mode: 0o600, sha256, content, isSecret: true, secrets: ["s"] };
};

/** A bucket with five sealed versions of values, a small and a large sealed content, and what is not sealed. */
async function sealed(t: TestContext) {
  const bucket = await makeBucket(t);
  const { db, layout } = bucket;
  const kv = bucket.kv();
  const put = (value: string) => {
    kv.put("secrets/job/web", "a", value);
    kv.put("vars/job/web", "a", value);
    kv.flush();
  };
  put("1");
  put("2");
  kv.put("ops/job/web/worker/w", "certs/x.key", "k");
  kv.put("secrets/job/web", "gone", "x");
  kv.put("ops/job/web", "peers", { hosts: "a,b", without: "a" });
  kv.flush();
  kv.delete("secrets/job/web", "gone");
  kv.flush();
  const [small, large] = [file(Buffer.from("small")), file(LARGE)];
  keepContents(db, kv, [small, large, { ...file(Buffer.from("plain")), isSecret: false }]);
  return { ...bucket, small, large, before: readFileSync(layout.kvKey) };
}

test("CP-560 a change of the key goes from a next key over both to the new one alone, and can be begun again anywhere", async (t) => {
  const { layout, before } = await sealed(t);
  assert.equal(await rekeyingSince(layout), undefined);
  writeFileSync(layout.kvKeyNew, randomBytes(32), { mode: 0o600 });
  const made = (await rekeyingSince(layout)) ?? assert.fail();
  assert.deepEqual([made.isNext, made.since], [true, statSync(layout.kvKeyNew).mtime]);
  const next = readFileSync(layout.kvKeyNew);
  await switchKvKey(layout);
  assert.deepEqual(
    [readFileSync(layout.kvKey), readFileSync(layout.kvKeyOld), existsSync(layout.kvKeyNew)],
    [next, before, false],
  );
  const switched = (await rekeyingSince(layout)) ?? assert.fail();
  assert.deepEqual([switched.isNext, switched.since], [false, statSync(layout.kvKeyOld).mtime]);
  await switchKvKey(layout);
  assert.deepEqual([readFileSync(layout.kvKey), existsSync(layout.kvKeyNew)], [next, false], "no third key is made");
  for (const name of [layout.kvKey, layout.kvKeyOld]) assert.equal(statSync(name).mode & 0o777, 0o600);
  await dropOldKvKey(layout);
  assert.deepEqual([existsSync(layout.kvKeyOld), await rekeyingSince(layout)], [false, undefined]);
});

test("CP-560 everything that is sealed is counted, and sealed anew once: all versions of values, and contents of any size", async (t) => {
  const { db, layout, small, large } = await sealed(t);
  assert.equal(countSealed(db), 7);
  await switchKvKey(layout);
  const key = await loadKvKey(layout);
  const alone = readFileSync(layout.kvKey);
  const walk = async (isReseal: boolean, more: object = {}) => {
    const looked: number[] = [];
    const counts = await walkSealed({ db, key, signal: never, isReseal, onProgress: (count) => looked.push(count), ...more });
    return [counts, looked];
  };
  const due = { values: 5, contents: 2, unreadable: [] };
  assert.deepEqual(await walk(false), [due, [5, 7]]);
  assert.deepEqual(await walk(false), [due, [5, 7]], "to count changes nothing");
  assert.deepEqual(sealedValues(db, alone).unreadable.length, 4);
  await assert.rejects(walk(true, { signal: AbortSignal.abort() }), { code: "cancelled" });
  assert.deepEqual(await walk(true), [due, [5, 7]]);
  assert.deepEqual(await walk(true), [{ ...due, values: 0, contents: 0 }, [5, 7]]);
  assert.deepEqual(sealedValues(db, alone), { sealed: 4, unreadable: [] });
  const store = new KvStore(db, alone);
  assert.equal(store.get("secrets/job/web", "a"), "2");
  assert.equal(String(keptContent(db, store, small.sha256).content), "small");
  const kept = keptContent(db, store, large.sha256).content;
  assert.ok(Buffer.isBuffer(kept) === false && Buffer.concat([...kept.pieces()]).equals(LARGE));
});

test("CP-560 what no key opens is named and stays as it is, and the rest is sealed anew", async (t) => {
  const { db, layout, small, large } = await sealed(t);
  await switchKvKey(layout);
  const key = await loadKvKey(layout);
  const foreign = Buffer.alloc(32, 1);
  db.run("UPDATE kv_version SET value = ? WHERE key = 'certs/x.key'", seal(foreign, "ops/job/web/worker/w", "certs/x.key", "k"));
  const row = Buffer.from(seal(foreign, SEALED_CONTENTS, small.sha256, "x"));
  db.run("UPDATE contents SET content = ?, size_bytes = ? WHERE sha256 = ?", row, row.length, small.sha256);
  const content = `${db.contents}/${large.sha256}.sealed`;
  const whole = readFileSync(content);
  rmSync(content);
  const counts = await walkSealed({ db, key, signal: never, isReseal: true });
  assert.deepEqual([counts.values, counts.contents], [4, 0]);
  const named = ["ops/job/web/worker/w certs/x.key", `contents ${small.sha256}`, `contents ${large.sha256}`];
  assert.deepEqual(counts.unreadable.sort(), named.sort());
  assert.deepEqual(
    Buffer.from(db.get<{ content: Uint8Array }>("SELECT content FROM contents WHERE sha256 = ?", small.sha256)?.content ?? []),
    row,
  );
  // Of the last one the first piece can be opened, and the last cannot.
  for (const damaged of [
    Buffer.alloc(row.length, "x"),
    Buffer.alloc(0),
    Buffer.concat([whole.subarray(0, -1), Buffer.of((whole.at(-1) ?? 0) ^ 1)]),
  ]) {
    writeFileSync(content, damaged);
    for (const isReseal of damaged.length < whole.length ? [false, true] : [true]) {
      const later = await walkSealed({ db, key, signal: never, isReseal });
      assert.deepEqual([later.values, later.contents, later.unreadable.sort()], [0, 0, named]);
    }
    assert.deepEqual(readFileSync(content), damaged);
  }
});
