import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { runLayout } from "../../../lib/bucket/base/layout.ts";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import {
  bucketInfo,
  bucketNames,
  countFailed,
  knownFacts,
  planBasis,
  setLastOutcome,
  storeFacts,
  validPlan,
} from "../../../lib/bucket/catalog/info.ts";
import { changeJobSecret, ownerOfSecret, SECRET_KEY } from "../../../lib/bucket/catalog/job-secret.ts";
import { beginChange, promote, recordSynced } from "../../../lib/bucket/catalog/promotions.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const RUN = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";

async function built(t: TestContext, workers = ["b", "a", "c"]) {
  const jobs = { web: { selectors: ["worker"], version: "1.2.3", resources: { ports: { web_http: 80 } } } };
  const bucket = await makeBucket(t, { workers, jobs });
  await build(bucket.context(), {});
  return bucket;
}

test("a bucket tells how much is in it, and counts allocations whose last action failed", async (t) => {
  const { db, bucketId } = await built(t);
  const { built_at, schema_version, ...info } = bucketInfo(db);
  assert.match(String(built_at), /^\d{4}-/);
  assert.ok(schema_version > 0);
  assert.deepEqual(info, { bucket_id: bucketId, update_seq: 0, workers: 3, jobs: 1, allocations: 3 });
  const [first, second, third] = catalogAllocations(db).map(({ id }) => id) as [string, string, string];
  const note = (id: string, outcome: "failed" | "unreachable" | "ok") =>
    setLastOutcome(db, id, RUN, { action: "start", outcome, reason: "why" });
  assert.equal(countFailed(db), 0);
  note(first, "failed");
  note(second, "unreachable");
  note(third, "ok");
  assert.equal(countFailed(db), 2);
  note(first, "ok");
  db.run("UPDATE allocations SET removed = 1 WHERE alloc_id = ?", second);
  assert.equal(countFailed(db), 0);
  assert.deepEqual(
    { ...db.get<object>("SELECT * FROM last_outcome WHERE alloc_id = ?", first) },
    { ...{ alloc_id: first, action: "start", outcome: "ok", run_id: RUN, reason: "why" } },
  );
});

test("all names of a bucket are told, and nothing for what has none", async (t) => {
  const { db, bucketId } = await built(t);
  const names = new Set(bucketNames(db));
  for (const name of [bucketId, "a", "b", "web", "1.2.3", "web_http", "worker", "Makefile", "manifest.json", "ops/bucket"])
    assert.ok(names.has(name), name);
  assert.ok(!names.has("") && [...names].every((name) => typeof name === "string"));
});

test("facts of workers are listed by position, page by page, the newest of each", async (t) => {
  const { db } = await built(t);
  for (const [worker, facts] of [
    ["c", { n: 1 }],
    ["b", { n: 2 }],
    ["c", [3]],
  ] as const)
    storeFacts(db, worker, facts);
  const page = (limit: number, after?: (string | number)[]) => {
    const { items, next } = knownFacts(db, { limit, after });
    return [items.map(({ worker, facts, taken_at }) => [worker, facts, Number.isNaN(Date.parse(taken_at))]), next];
  };
  const [b, c] = [
    ["b", { n: 2 }, false],
    ["c", [3], false],
  ];
  assert.deepEqual(page(5), [[b, c], null]);
  assert.deepEqual(page(1), [[b], [0, "b"]]);
  assert.deepEqual(page(1, [0, "b"]), [[c], null]);
});

test("CP-441 a plan holds until the bucket is built, deployed or written to, and tells what has moved", async (t) => {
  const bucket = await built(
    t,
    Array.from({ length: 11 }, (_, index) => `w${String(index).padStart(2, "0")}`),
  );
  const { db, layout } = bucket;
  const files = runLayout(layout, RUN);
  const none = { code: "run_not_found", message: `run ${RUN} left no plan: name a dry run of deploy in this bucket` };
  assert.throws(() => validPlan(layout, db, RUN), none);
  assert.throws(() => validPlan(layout, db, "../x"), { code: "run_not_found" });
  mkdirSync(files.folder, { recursive: true });
  writeFileSync(files.plan, "{");
  assert.throws(() => validPlan(layout, db, RUN), { name: "SyntaxError" });
  const keep = () => {
    const plan = { basis: planBasis(db), more: 1 };
    writeFileSync(files.plan, JSON.stringify(plan));
    return plan;
  };
  const plan = keep();
  assert.deepEqual(validPlan(layout, db, RUN), plan);
  const moved = (work: () => void) => {
    keep();
    work();
    try {
      validPlan(layout, db, RUN);
    } catch (error) {
      const { code, message, details } = error as Error & { code: string; details: { moved: string[] } };
      const says = `the plan of run ${RUN} does not hold any more: ${details.moved.join("; ")}; plan again with a dry run`;
      assert.deepEqual([code, message], ["plan_stale", says]);
      return details.moved;
    }
    return [];
  };
  assert.deepEqual(
    moved(() => {}),
    [],
  );
  const [built_, deployed, written] = ["the bucket was built again", "another deploy had work to do", "keys were written"];
  assert.deepEqual(
    moved(() => db.run("UPDATE bucket SET build_seq = build_seq + 1")),
    [built_],
  );
  assert.deepEqual(
    moved(() => db.run("UPDATE bucket SET update_seq = update_seq + 1")),
    [deployed],
  );
  const put = () => {
    const kv = bucket.kv();
    kv.put("vars/job/web", "k", "v");
    kv.flush();
  };
  assert.deepEqual(moved(put), [written]);
  const promoteOn = (count: number) => () => {
    for (const { id } of catalogAllocations(db).slice(0, count)) {
      beginChange(db, "web", [id]);
      recordSynced(db, "web", [{ id, hash: `h${count}`, files: {}, updateSeq: count }]);
      promote(db, { job: "web", id }, "1");
    }
  };
  assert.deepEqual(moved(promoteOn(1)), ["what is promoted has changed on web@w00"]);
  const [many] = moved(promoteOn(11));
  assert.match(String(many), /^what is promoted has changed on web@w00, .*web@w09 and 1 more$/);
  assert.deepEqual(
    moved(() => {
      put();
      db.run("UPDATE bucket SET build_seq = build_seq + 1, update_seq = update_seq + 1");
    }),
    [built_, deployed],
    "an equal value is no new key",
  );
  db.run("DELETE FROM allocations WHERE worker_ip = 'w10'");
  assert.throws(() => validPlan(layout, db, RUN), /what is promoted has changed on web@w10/);
});

test("a secret of a job is stored, changed and removed; one that is not there, or of no job, is told", async (t) => {
  const { layout, kv } = await built(t);
  const read = (key: string, namespace = "secrets/job/web") => kv().get(namespace, key);
  await changeJobSecret(layout, { job: "WEB", key: "k", value: "v", ttlSeconds: 60 });
  assert.deepEqual([read("k"), kv().entry("secrets/job/web", "k")?.ttl], ["v", 60]);
  await changeJobSecret(layout, { job: "web", key: "k", value: "w" });
  assert.deepEqual([read("k"), kv().entry("secrets/job/web", "k")?.ttl], ["w", 0]);
  await changeJobSecret(layout, { job: null, key: "n", value: "x" });
  assert.deepEqual([read("n", "secrets/notify"), read("n")], ["x", undefined]);
  await changeJobSecret(layout, { job: "web", key: "k" });
  assert.equal(read("k"), undefined);
  const gone = { code: "not_found", message: 'job "web" has no secret "k"' };
  await assert.rejects(changeJobSecret(layout, { job: "web", key: "k" }), gone);
  await assert.rejects(changeJobSecret(layout, { job: null, key: "k" }), { message: 'notify.json has no secret "k"' });
  const unknown = { code: "unknown_name", message: 'there is no job "wbe"; did you mean "web"?' };
  await assert.rejects(changeJobSecret(layout, { job: "wbe", key: "k", value: "v" }), unknown);
  assert.deepEqual([ownerOfSecret("web"), ownerOfSecret(null)], ['job "web"', "notify.json"]);
  const keys = ["a", "ü b", "x".repeat(253), "", "x".repeat(254), "a\nb", "\u200ba", "a\u0000"];
  assert.deepEqual(
    keys.filter((key) => SECRET_KEY.test(key)),
    keys.slice(0, 3),
  );
});
