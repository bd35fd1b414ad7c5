import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { bucketSummary } from "../../../lib/bucket/catalog/summary.ts";
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
