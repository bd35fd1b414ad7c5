import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { isAlive } from "../../lib/core/process.ts";
import { TestServer } from "./server.ts";

/**
 * Starts runs over many buckets at once, in each bucket one after the other, and checks that each of them succeeds.
 * Answers the most processes of runs that were there at a time.
 */
export async function startsOverBuckets(t: Pick<TestContext, "after">, count: number, rounds: number): Promise<number> {
  const server = await TestServer.start(t);
  const buckets: Awaited<ReturnType<typeof server.createBucket>>[] = [];
  for (let index = 0; index < count; index++) buckets.push(await server.createBucket());
  let most = 0;
  const working = async () => {
    const locks = await Promise.all(buckets.map(({ folder }) => readLock(layoutOf(folder))));
    const runs = locks.flatMap((lock) => (lock === undefined || lock === "unreadable" ? [] : lock.holders.slice(1)));
    // Looked at in one step, so that no process can end and another begin meanwhile.
    return runs.filter(isAlive).length;
  };
  const inBucket = async ({ path }: (typeof buckets)[number]) => {
    for (let round = 0; round < rounds; round++) {
      const { status, body } = await server.call("POST", `${path}/health_check`, { body: {} });
      assert.equal(status, 202);
      most = Math.max(most, await working());
      assert.equal((await server.ended(path, body.run_id)).status, "succeeded");
    }
  };
  await Promise.all(buckets.map(inBucket));
  assert.ok(most > 0, "no process of a run was seen");
  return most;
}
