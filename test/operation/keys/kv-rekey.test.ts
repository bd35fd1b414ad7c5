import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { openDatabase, openForReading } from "../../../lib/bucket/base/database.ts";
import { begunKeyChanges, keyChanges } from "../../../lib/bucket/keys/key-changes.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../../lib/bucket/kv/kv-access.ts";
import { verifySnapshot } from "../../../lib/bucket/snapshots/restore.ts";
import { createSnapshot, findSnapshot } from "../../../lib/bucket/snapshots/snapshots.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { onFaultPoint } from "../../../lib/core/self.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { rekey } from "../../../lib/operation/keys/kv-rekey.ts";
import { examineBucket } from "../../../lib/operation/tend/doctor-bucket.ts";
import { carryOut } from "../../helpers/operations.ts";
import { SEED } from "../../helpers/random.ts";
import { assertRekeyed, openedAll, rekeyKillRounds, sealedBucket } from "../../helpers/rekeys.ts";
import { BELIEVING } from "../../helpers/snapshots.ts";
import { makeBucket, makeWorkspace, type TestBucket, testBucketIn } from "../../helpers/workspace.ts";

const never = new AbortController().signal;
const SECRETS = 200;

async function filledBucket(t: Parameters<typeof sealedBucket>[0]): Promise<TestBucket> {
  return await testBucketIn(t, await sealedBucket(t, SECRETS, SEED));
}

/** How the doctor grades kv.key and a change of it. */
async function judgement({ layout, db, context }: TestBucket): Promise<string> {
  const { launcher } = context();
  const found = await examineBucket({ layout, launcher, signal: never }, [], db);
  const own = found.filter(({ check }) => ["kv.key", "key change"].includes(check));
  return own.map(({ grade, message }) => `${grade}: ${message}`).join("; ");
}

test("CP-560 a rekey makes a new kv.key and seals everything anew: all versions, deleted ones, private keys, kept contents", async (t) => {
  const bucket = await filledBucket(t);
  const [before, content] = [readFileSync(bucket.layout.kvKey), await openedAll(bucket.layout)];
  const { error, result, text } = await carryOut(bucket, "kv_rekey", rekey);
  assert.equal(error, undefined);
  // Two versions of each value, and the deletion of one.
  assert.deepEqual(result, { values: 4 * SECRETS + 1, contents: 7, unreadable: [], resumed: false });
  assert.match(text, /^sealed anew: 801 values, older versions included, and 7 contents of files$/m);
  assert.match(text, /everything opens with the new kv.key alone: the one before is removed/);
  await assertRekeyed(bucket.layout, before, content);
  assert.match(await judgement(bucket), /^ok: it opens all \d+ sealed values$/);
});

test("CP-560 a dry run changes nothing and says how much would be sealed anew", async (t) => {
  const bucket = await filledBucket(t);
  const [before, content] = [readFileSync(bucket.layout.kvKey), await openedAll(bucket.layout)];
  const { result, text } = await carryOut(bucket, "kv_rekey", rekey, { dry_run: true });
  assert.deepEqual(result, { values: 4 * SECRETS + 1, contents: 7, unreadable: [], resumed: false });
  assert.match(text, /kv.key would be new; to be sealed anew: 801 values, older versions included, and 7 contents of files/);
  assert.deepEqual(readFileSync(bucket.layout.kvKey), before);
  assert.deepEqual(await openedAll(bucket.layout, before), content);
});

const POINTS = ["key made", "key kept", "key switched", "values sealed", "contents sealed", "compacted"];

for (const point of POINTS)
  test(`CP-561 CP-568 a rekey that is killed at "${point}" leaves everything readable, a snapshot whole, and the next one ends it with the same key`, async (t) => {
    const bucket = await filledBucket(t);
    const { layout, db } = bucket;
    const [before, content] = [readFileSync(layout.kvKey), await openedAll(layout)];
    onFaultPoint((reached) => {
      if (reached === `rekey: ${point}`) throw new Failure("failed", "killed here");
    });
    const cut = await carryOut(bucket, "kv_rekey", rekey).finally(() => onFaultPoint(() => {}));
    assert.match(cut.error?.message ?? "", /killed here/);
    assert.deepEqual(await openedAll(layout), content);
    const left = existsSync(layout.kvKeyNew) ? "the new kv.key is not in use yet" : "not everything is sealed anew.*";
    assert.match(await judgement(bucket), new RegExp(`^ok: .*; warning: ${left}, since 2.*Z$`));
    assert.deepEqual(
      keyChanges(db, await begunKeyChanges(layout)).map(({ kind, next }) => `${kind}: ${next}`),
      ["kv_rekey: ops kv rekey"],
    );
    const next = readFileSync(existsSync(layout.kvKeyNew) ? layout.kvKeyNew : layout.kvKey);
    const snapshot = await createSnapshot(layout, db, {}, never);
    assert.equal((await verifySnapshot(await findSnapshot(layout, snapshot.name), BELIEVING)).sealed_values, 2 * SECRETS + 6);
    const planned = await carryOut(bucket, "kv_rekey", rekey, { dry_run: true });
    const { error, result } = await carryOut(bucket, "kv_rekey", rekey);
    assert.equal(error, undefined);
    assert.deepEqual(result, planned.result);
    assert.equal(result.resumed, true);
    assert.deepEqual(readFileSync(layout.kvKey), next);
    await assertRekeyed(layout, before, content);
  });

test("CP-560 the key before stays while a reader keeps what it has sealed in the log of the database", async (t) => {
  const bucket = await filledBucket(t);
  const { layout } = bucket;
  const before = readFileSync(layout.kvKey);
  const reader = openForReading(layout.database);
  reader.script("BEGIN");
  reader.get("SELECT COUNT(*) FROM kv_version");
  const { error } = await carryOut(bucket, "kv_rekey", rekey).finally(() => reader.close());
  assert.match(error?.message ?? "", /Cannot drop the kv.key before: the database is being read/);
  assert.deepEqual(readFileSync(layout.kvKeyOld), before);
  assert.equal((await carryOut(bucket, "kv_rekey", rekey)).error, undefined);
  assert.equal(existsSync(layout.kvKeyOld), false);
});

test("CP-561 a cancelled rekey is one that was cut off", async (t) => {
  const bucket = await filledBucket(t);
  const [before, content] = [readFileSync(bucket.layout.kvKey), await openedAll(bucket.layout)];
  const stop = new AbortController();
  onFaultPoint((reached) => {
    if (reached === "rekey: values sealed") stop.abort();
  });
  const cut = await carryOut(bucket, "kv_rekey", rekey, {}, { signal: stop.signal }).finally(() => onFaultPoint(() => {}));
  assert.equal(cut.error?.code, "cancelled");
  assert.deepEqual(await openedAll(bucket.layout), content);
  const { result } = await carryOut(bucket, "kv_rekey", rekey);
  assert.ok(result.values < 4 * SECRETS && result.values > 0, `${result.values}`);
  await assertRekeyed(bucket.layout, before, content);
});

test("CP-560 what no key opens stays as it is, is named, and keeps nothing from its end", async (t) => {
  const bucket = await filledBucket(t);
  const strange = new KvStore(bucket.db, Buffer.alloc(32, 7));
  strange.put("secrets/job/other", "lost", "sealed with a key that is gone");
  strange.flush();
  const { error, result, text } = await carryOut(bucket, "kv_rekey", rekey);
  assert.equal(error, undefined);
  assert.deepEqual(result.unreadable, ["secrets/job/other lost"]);
  assert.match(text, /neither key opens secrets\/job\/other lost: it stays as it is; store the value anew/);
  assert.equal(existsSync(bucket.layout.kvKeyOld), false);
});

test("CP-560 the key before stays while something is there that it alone opens", async (t) => {
  const bucket = await filledBucket(t);
  const late = new KvStore(bucket.db, readFileSync(bucket.layout.kvKey));
  onFaultPoint((reached) => {
    if (reached !== "rekey: contents sealed") return;
    late.put("secrets/job/other", "late", "sealed with the key before");
    late.flush();
  });
  const { error } = await carryOut(bucket, "kv_rekey", rekey).finally(() => onFaultPoint(() => {}));
  assert.equal(error?.message, "Cannot drop the kv.key before: not everything opens with the new one; run it again");
  assert.ok(existsSync(bucket.layout.kvKeyOld));
  assert.equal((await carryOut(bucket, "kv_rekey", rekey)).error, undefined);
  assert.equal(existsSync(bucket.layout.kvKeyOld), false);
});

test("CP-560 a build after a rekey issues no certificate anew; before it, rows of an earlier version want a build", async (t) => {
  const bucket = await makeBucket(t);
  makeWorkspace(bucket.dir, { workers: ["10.0.0.1"], jobs: { web: { selectors: ["worker"], certs: { server: {} } } } });
  await carryOut(bucket, "build", build);
  const certificate = async () =>
    new KvStore(bucket.db, await loadKvKey(bucket.layout)).get("ops/job/web/worker/10.0.0.1", "certs/server.crt");
  const issued = await certificate();
  bucket.db.run("UPDATE job_certs SET request = ? WHERE job = 'web'", "0".repeat(64));
  const refused = await carryOut(bucket, "kv_rekey", rekey);
  assert.match(
    refused.error?.message ?? "",
    /an earlier version of ops has recorded certificates by it.*; run `ops build` first$/,
  );
  bucket.db.run("UPDATE job_certs SET request = 'sha256:' || request WHERE job = 'web'");
  await carryOut(bucket, "build", build);
  const anew = await certificate();
  assert.notEqual(anew, issued);
  await carryOut(bucket, "kv_rekey", rekey);
  const after = await testBucketIn(t, bucket.layout);
  const { text } = await carryOut(after, "build", build);
  assert.equal(await certificate(), anew);
  assert.doesNotMatch(text, /issuing/);
});

test("CP-561 rekeys that are killed at 6 random moments leave everything readable, and end", async (t) => {
  const { hits, rekeyed } = await rekeyKillRounds(t, 6, SEED);
  t.diagnostic(`seed ${SEED}: ${hits} kills, ${rekeyed} changes of the key`);
});

test("CP-560 secrets stored after a rekey open with the new key alone", async (t) => {
  const { layout } = await filledBucket(t);
  const bucket = await testBucketIn(t, layout);
  await carryOut(bucket, "kv_rekey", rekey);
  using db = openDatabase(layout.database);
  const kv = new KvStore(db, await loadKvKey(layout));
  kv.put("secrets/job/web", "later", "later");
  kv.flush();
  assert.equal(new KvStore(db, readFileSync(layout.kvKey)).get("secrets/job/web", "later"), "later");
});
