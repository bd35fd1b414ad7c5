import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { bucketSummary, certificatesEndingBy, fitting } from "../../../lib/bucket/catalog/summary.ts";
import { KvStore } from "../../../lib/bucket/kv/kv.ts";
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
