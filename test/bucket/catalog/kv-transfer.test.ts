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
  const live = (one: typeof from, jobs?: string[]) => liveEntries(one.db, one.store(), jobs, one.clock.now).entries;
  const found = live(from);
  assert.deepEqual(found, [ENTRIES[0], { ...ENTRIES[1], ttl: 40 }, ENTRIES[2]]);
  assert.deepEqual(live(from, ["DB"]), [{ ...ENTRIES[1], ttl: 40 }]);
  for (const passphrase of [PASSPHRASE, undefined]) {
    const lines = await linesOfEntries(found, passphrase);
    assert.equal(lines.includes("correct horse"), passphrase === undefined);
    const read = await entriesOfLines(lines, passphrase);
    storeEntries(to.db, to.store(), read);
    assert.deepEqual(live(to), found);
  }
  assert.equal(to.store().entry("secrets/job/web", "password")?.version, 1, "an equal value adds no version");
  storeEntries(to.db, to.store(), [{ namespace: "secrets/job/web", key: "password", value: "other" }]);
  assert.equal(to.store().get("secrets/job/web", "password"), "other", "another value replaces it");
  assert.throws(() => live(from, ["db", "nope"]), { code: "unknown_name", message: /there is no job "nope"/ });
});

test("an import stores all or nothing, and only for jobs of the catalog", async (t) => {
  const { db, clock, store } = await built(t);
  const lost = { namespace: "vars/job/lost", key: "k", value: "v" };
  assert.throws(() => storeEntries(db, store(), [...ENTRIES, lost]), { code: "unknown_name", message: /"lost".*\(key "k"\)/ });
  assert.deepEqual(liveEntries(db, store(), undefined, clock.now), { entries: [], gone: [] });
});

test("all that a store may hold is taken back; what is left of a job that is gone is named and not exported", async (t) => {
  const { db, clock, store } = await built(t);
  const odd = [
    { namespace: "secrets/job/web", key: "", value: "" },
    { namespace: "secrets/job/web", key: `soft\u00adhyphen\n${"x".repeat(900)}`, value: "x".repeat(1024 * 1024 + 1) },
    { namespace: "vars/job/web", key: "empty", value: "" },
    { namespace: "vars/job/web", key: "long", value: "v", ttl: 100 * 366 * 86_400 },
  ];
  const kv = store();
  for (const { namespace, key, value, ttl } of odd) kv.put(namespace, key, value, ttl);
  kv.put("vars/job/lost", "k", "v");
  kv.flush();
  const { entries, gone } = liveEntries(db, store(), undefined, clock.now);
  assert.deepEqual({ entries, gone }, { entries: odd, gone: ["lost"] });
  for (const passphrase of [PASSPHRASE, undefined]) {
    const read = await entriesOfLines(await linesOfEntries(entries, passphrase), passphrase);
    storeEntries(db, store(), read);
    assert.deepEqual(liveEntries(db, store(), undefined, clock.now).entries, odd);
  }
});

test("lines may be written by hand; what is wrong is told with its line and without a value", async () => {
  const line = (more: object) => JSON.stringify({ namespace: "secrets/job/web", key: "k", value: "correct horse", ...more });
  assert.equal((await entriesOfLines(`\n${line({})}\n\n${line({ key: "l" })}`, undefined)).length, 2);
  const widest = { namespace: `vars/job/a${"-_0z".repeat(24)}zzz`, ttl: 1, value: "" };
  assert.deepEqual(await entriesOfLines(line(widest), undefined), [{ key: "k", ...widest }]);
  assert.deepEqual(await entriesOfLines("", undefined), []);
  assert.deepEqual(await entriesOfLines('{"ops_kv":1,"entries":0}\n', undefined), []);
  const WRONG: [text: string, message: RegExp][] = [
    [`${line({})}\n{`, /stdin, line 2: expected an object in JSON/],
    [line({ namespace: "ops/job/web" }), /line 1: namespace: expected vars\/job\/<job> or secrets\/job\/<job>/],
    ...["vars/job/Web", "xvars/job/web", "vars/job/web/x", "vars/job/", `vars/job/${"a".repeat(101)}`, "secrets/notify"].map(
      (namespace): [string, RegExp] => [line({ namespace }), /line 1: namespace: expected vars/],
    ),
    [line({ sealed: "x" }), /line 1: .*excludes/],
    [line({ value: undefined, sealed: "" }), /line 1: sealed/],
    [`{"ops_kv":1,"entries":0,"more":1}`, /line 1: more/],
    [`{"ops_kv":1}`, /line 1: entries: is missing/],
    ["[]", /line 1: expected an object/],
    [line({ key: "\ud800" }), /line 1: key: expected well-formed text/],
    [line({ value: undefined }), /line 1: value is missing/],
    [line({ value: "correct horse\ud800" }), /line 1: value: expected well-formed text/],
    [line({ ttl: 0 }), /line 1: ttl/],
    [line({ ttl: 100 * 366 * 86_400 + 1 }), /line 1: ttl/],
    [line({ value: undefined, sealed: "x" }), /line 1: the value is sealed, and the first line has no salt/],
    [line({ more: 1 }), /line 1: more/],
    [`{"ops_kv":2,"entries":0}`, /line 1: ops_kv/],
    [`{"ops_kv":0,"entries":0}`, /line 1: ops_kv/],
    [`{"ops_kv":1,"entries":-1}`, /line 1: entries/],
    [`{"ops_kv":1,"entries":0,"salt":"${"s".repeat(101)}"}`, /line 1: salt/],
    [`{"ops_kv":1,"entries":2}\n${line({})}`, /tells of 2 entries, and there are 1/],
  ];
  for (const [text, message] of WRONG) await assert.rejects(entriesOfLines(text, undefined), usage(message), text.slice(0, 80));
});

test("a sealed export opens with its passphrase alone, and only as a whole", async () => {
  const lines = await linesOfEntries(ENTRIES, PASSPHRASE);
  assert.deepEqual((await entriesOfLines(lines, PASSPHRASE)).length, 3);
  await assert.rejects(entriesOfLines(lines, undefined), usage(/the export is sealed: name the file of its passphrase/));
  await assert.rejects(entriesOfLines(lines, `${PASSPHRASE}!`), usage(/line 2: the passphrase does not open the value/));
  const altered = (from: string | RegExp, to: string) => {
    const text = lines.replace(from, to);
    assert.notEqual(text, lines);
    return entriesOfLines(text, PASSPHRASE);
  };
  const notExported = usage(/the lines are not those that were exported/);
  await assert.rejects(altered('"key":"password"', '"key":"other"'), usage(/line 2: the passphrase does not open/));
  await assert.rejects(altered('"value":"1"', '"value":"2"'), notExported);
  await assert.rejects(altered(/"entries":3(.*\n).*\n/, '"entries":2$1'), notExported, "a line is dropped");
  await assert.rejects(altered(/"sealed":"[^"]*"/, '"value":"mine"'), usage(/line 2: the secret of a sealed export is in clear/));
  await assert.rejects(altered(/.*\n$/, ""), usage(/tells of 3 entries, and there are 2/), "the last line is dropped");
  await assert.rejects(
    altered(/"sealed_sha256":"[^"]*"/, '"sealed_sha256":"x"'),
    usage(/line 5: the passphrase does not open the export/),
  );
  await assert.rejects(altered(/,"salt":"[^"]*"/, ""), usage(/tells of 3 entries, and there are 4/), "the salt is dropped");
  const clear = await linesOfEntries(ENTRIES, undefined);
  await assert.rejects(entriesOfLines(clear, PASSPHRASE), usage(/stdin is no sealed export: leave --passphrase-file out/));
});
