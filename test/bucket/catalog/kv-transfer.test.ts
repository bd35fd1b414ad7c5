import assert from "node:assert/strict";
import { test } from "node:test";
import { entriesOfLines, linesOfEntries, liveEntries, storeEntries } from "../../../lib/bucket/catalog/kv-transfer.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../../lib/bucket/kv/kv-access.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const PASSPHRASE = "a long enough phrase";
const ENTRIES = [
  { namespace: "secrets/job/web", key: "password", value: "correct horse\n" },
  { namespace: "vars/job/db", key: "size", value: "1", ttl: 60 },
  { namespace: "vars/job/web", key: "größe", value: '"2"' },
];
const usage = (message: RegExp) => (error: unknown) => {
  assert.equal((error as { code?: string }).code, "usage");
  assert.match(String(error), message);
  assert.doesNotMatch(String(error), /correct horse/);
  return true;
};

async function built(t: Parameters<typeof makeBucket>[0]) {
  const bucket = await makeBucket(t, { workers: [{ host: "10.0.0.1" }], jobs: { web: {}, db: {} } });
  await build(bucket.context(), {});
  const clock = { now: 1_000_000_000_000 };
  const key = await loadKvKey(bucket.layout);
  return { db: bucket.db, clock, store: () => new KvStore(bucket.db, key, () => clock.now) };
}

test("the keys of jobs that no build writes go from one bucket to another, with what is left of a ttl", async (t) => {
  const [from, to] = [await built(t), await built(t)];
  storeEntries(from.db, from.store(), ENTRIES);
  from.clock.now += 20_500;
  const found = liveEntries(from.store(), undefined, from.clock.now);
  assert.deepEqual(found, [ENTRIES[0], { ...ENTRIES[1], ttl: 40 }, ENTRIES[2]]);
  assert.deepEqual(liveEntries(from.store(), ["db"], from.clock.now), [{ ...ENTRIES[1], ttl: 40 }]);
  for (const passphrase of [PASSPHRASE, undefined]) {
    const lines = await linesOfEntries(found, passphrase);
    assert.equal(lines.includes("correct horse"), passphrase === undefined);
    const read = await entriesOfLines(lines, passphrase);
    storeEntries(to.db, to.store(), read);
    assert.deepEqual(liveEntries(to.store(), undefined, to.clock.now), found);
  }
  assert.equal(to.store().entry("secrets/job/web", "password")?.version, 1, "a value that is there stays");
});

test("an import stores all or nothing, and only for jobs of the catalog", async (t) => {
  const { db, clock, store } = await built(t);
  const lost = { namespace: "vars/job/lost", key: "k", value: "v" };
  assert.throws(() => storeEntries(db, store(), [...ENTRIES, lost]), { code: "unknown_name", message: /"lost".*\(key "k"\)/ });
  assert.deepEqual(liveEntries(store(), undefined, clock.now), []);
});

test("lines may be written by hand; what is wrong is told with its line and without a value", async () => {
  const line = (more: object) => JSON.stringify({ namespace: "secrets/job/web", key: "k", value: "correct horse", ...more });
  assert.equal((await entriesOfLines(`\n${line({})}\n\n${line({ key: "l" })}`, undefined)).length, 2);
  const WRONG: [text: string, message: RegExp][] = [
    [`${line({})}\n{`, /stdin, line 2: expected an object/],
    [line({ namespace: "ops/job/web" }), /line 1: namespace: expected vars\/job\/<job> or secrets\/job\/<job>/],
    [line({ namespace: "vars/job/Web" }), /line 1: namespace/],
    [line({ key: "a\nb" }), /line 1: key: expected one line/],
    [line({ value: undefined }), /line 1: value is missing/],
    [line({ value: "" }), /line 1: value: must not be empty/],
    [line({ value: "x".repeat(1024 * 1024 + 1) }), /line 1: value: must have at most/],
    [line({ ttl: 0 }), /line 1: ttl/],
    [line({ more: 1 }), /line 1: more/],
    [`{"ops_kv":2,"entries":0}`, /line 1: ops_kv/],
    [`{"ops_kv":1,"entries":2}\n${line({})}`, /tells of 2 entries, and there are 1/],
  ];
  for (const [text, message] of WRONG) await assert.rejects(entriesOfLines(text, undefined), usage(message), text.slice(0, 80));
});

test("sealed secrets open with their passphrase at their place alone", async () => {
  const lines = await linesOfEntries(ENTRIES, PASSPHRASE);
  await assert.rejects(entriesOfLines(lines, undefined), usage(/line 2: the value is sealed: name the file of its passphrase/));
  await assert.rejects(entriesOfLines(lines, `${PASSPHRASE}!`), usage(/line 2: the passphrase does not open the value/));
  const moved = lines.replace('"key":"password"', '"key":"other"');
  await assert.rejects(entriesOfLines(moved, PASSPHRASE), usage(/line 2: the passphrase does not open/));
});
