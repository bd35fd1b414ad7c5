import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { catalogAllocations } from "../../../lib/bucket/catalog/catalog.ts";
import { setLastOutcome } from "../../../lib/bucket/catalog/info.ts";
import { beginChange } from "../../../lib/bucket/catalog/promotions.ts";
import { bucketNumbers, bucketSummary, certificatesEndingBy, fitting } from "../../../lib/bucket/catalog/summary.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket } from "../../helpers/workspace.ts";

test("the number of keys is right after every change of the store", async (t) => {
  const { db } = await makeBucket(t);
  const kv = new KvStore(db, randomBytes(32));
  const keys = () => bucketSummary(db, null).totals.kv;
  const seen = [keys()];
  const changes = [
    () => kv.put("n", "a", "1"),
    () => kv.put("n", "b", "1"),
    () => kv.put("n", "a", "2"),
    () => kv.delete("n", "b"),
    () => kv.put("n", "b", "2"),
  ];
  for (const change of changes) {
    change();
    kv.flush();
    seen.push(keys(), keys());
  }
  assert.deepEqual(seen, [0, 1, 1, 2, 2, 2, 2, 1, 1, 2, 2]);
});

test("a list is cut where its items do not fit any more, and tells how many are left out", () => {
  // In JSON each of these has 10 bytes.
  const items = ["aaaaaaaa", "bbbbbbbb", "cccc\u00fc\u00fc"];
  assert.deepEqual(fitting(items, 7, 30), { items, total: 7, cut: 4 });
  assert.deepEqual(fitting(items, 3, 29), { items: items.slice(0, 2), total: 3, cut: 1 });
  assert.deepEqual(fitting(["x".repeat(40), "a"], 2, 39), { items: [], total: 2, cut: 2 }, "nor is a later one that would");
  assert.deepEqual(fitting([], 0), { items: [], total: 0, cut: 0 });
});

test("certificates that end by a time come in the order of their ends", async (t) => {
  const { db } = await makeBucket(t);
  const add = (job: string, name: string, notAfter: number) =>
    db.run(
      `INSERT INTO job_certs (job, worker_ip, name, common_name, request, not_after, expiring_from, position)
       VALUES (?, 'w', ?, 'cn', '', ?, 0, 0)`,
      ...[job, name, notAfter],
    );
  add("web", "b", 2_000);
  add("web", "a", 2_000);
  add("", "ca", 1_000);
  add("web", "late", 2_001);
  const found = certificatesEndingBy(db, 2_000_000).map((one) => ({ ...one }));
  assert.deepEqual(found, [
    { job: "", worker: "w", cert: "ca", ends: 1_000_000 },
    { job: "web", worker: "w", cert: "a", ends: 2_000_000 },
    { job: "web", worker: "w", cert: "b", ends: 2_000_000 },
  ]);
  const { certs, next_cert, totals } = bucketSummary(db, null);
  assert.deepEqual([certs.total, certs.cut, certs.items.map(({ cert }) => cert)], [4, 0, ["ca", "a", "b", "late"]]);
  assert.deepEqual(next_cert, { job: "", worker: "w", cert: "ca", not_after: "1970-01-01T00:16:40.000Z", status: "expired" });
  assert.deepEqual(totals, { jobs: 0, workers: 0, certs: 4, hooks: 0, kv: 0 });
});

test("a summary tells the allocations that failed, were unreachable or are half done, by job and position", async (t) => {
  const job = { selectors: ["worker"], version: "1.0.0", certs: { x: {} } };
  const bucket = await makeBucket(t, { workers: ["b", "a", "c", "d"], jobs: { web: job } });
  const { db } = bucket;
  await build(bucket.context(), {});
  const ids = new Map(catalogAllocations(db).map(({ worker, id }) => [worker, id]));
  const idOf = (worker: string) => ids.get(worker) ?? assert.fail(worker);
  const note = (worker: string, outcome: "failed" | "unreachable", reason: string) =>
    setLastOutcome(db, idOf(worker), `run of ${worker}`, { action: "start", outcome, reason });
  note("b", "failed", "x".repeat(300));
  note("a", "unreachable", `${"x".repeat(299)}\u{1f600}`);
  beginChange(db, "web", [idOf("c"), idOf("d")]);
  db.run("UPDATE allocations SET removed = 1, rollout = 'removed' WHERE worker_ip = 'd'");
  const { built_at, update_seq, workers, jobs, counts, failed, unsettled, certs, problems } = bucketSummary(db, null);
  assert.match(String(built_at), /^\d{4}-/);
  assert.deepEqual([update_seq, workers, jobs, certs], [0, 4, 1, { items: [], total: 0, cut: 0 }]);
  const none = { promoted: 0, update: 0, disabled: 0 };
  assert.deepEqual({ ...counts }, { ...none, allocations: 3, failed: 1, unreachable: 1, unsettled: 1, waiting: 1, new: 3 });
  const row = (worker: string, outcome: string, reason: string) => {
    const run_id = outcome === "" ? "" : `run of ${worker}`;
    return {
      job: "web",
      worker,
      allocation_id: idOf(worker),
      rollout: "new",
      outcome,
      action: outcome && "start",
      run_id,
      reason,
    };
  };
  const items = [row("b", "failed", "x".repeat(300)), row("a", "unreachable", `${"x".repeat(299)}\ufffd…`)];
  assert.deepEqual(failed, { items, total: 2, cut: 0 });
  assert.deepEqual(unsettled, { items: [row("c", "", "")], total: 1, cut: 0 });
  assert.deepEqual([problems.total, problems.items.length, problems.cut], [3, 3, 0]);
  const numbers = bucketNumbers(db);
  assert.deepEqual(numbers.outcomes, { failed: 1, unreachable: 1 });
  assert.deepEqual({ ...numbers.states }, { ...none, new: 3, unsettled: 1 });
  const [ca, first] = numbers.certs;
  assert.deepEqual([ca?.scope, ca?.job, numbers.certs.length], ["ca", "", 5]);
  const { not_after, ...cert } = first ?? assert.fail();
  assert.deepEqual(cert, { scope: "job", job: "web", worker: "b", cert: "x", common_name: "web", status: "ok" });
  assert.ok(Date.parse(not_after) > Date.now());
});

test("the lists of a summary have at most so many bytes, and its problems are those that fit", async (t) => {
  const hosts = Array.from({ length: 120 }, (_, index) => `w${String(index).padStart(3, "0")}`);
  const bucket = await makeBucket(t, { workers: hosts, jobs: { web: { selectors: ["worker"], version: "1.0.0" } } });
  const { db } = bucket;
  await build(bucket.context(), {});
  for (const { id, worker } of catalogAllocations(db))
    setLastOutcome(db, id, worker, { action: "start", outcome: "failed", reason: `${worker}: ${"reason ".repeat(30)}` });
  const { failed } = bucketSummary(db, null);
  const size = (items: readonly object[]) => items.reduce((sum, item) => sum + Buffer.byteLength(JSON.stringify(item)), 0);
  const one = size(failed.items.slice(0, 1));
  assert.deepEqual([failed.total, failed.items.length + failed.cut], [120, 120]);
  assert.ok(size(failed.items) <= 10 * 1024 && size(failed.items) + one > 10 * 1024, String(size(failed.items)));
  assert.deepEqual(
    failed.items.map(({ worker }) => worker),
    hosts.slice(0, failed.items.length),
  );
});
