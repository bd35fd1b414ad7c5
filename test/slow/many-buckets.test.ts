import assert from "node:assert/strict";
import { availableParallelism } from "node:os";
import { test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { isAlive } from "../../lib/core/process.ts";
import { TestServer } from "../helpers/server.ts";

const BUCKETS = 12;
const ROUNDS = 4;

test("CP-116 CP-370 48 starts over 12 buckets all end, with no more processes at a time than there are slots", async (t) => {
  const server = await TestServer.start(t);
  const buckets: Awaited<ReturnType<typeof server.createBucket>>[] = [];
  for (let index = 0; index < BUCKETS; index++) buckets.push(await server.createBucket());
  let most = 0;
  const working = async () => {
    const locks = await Promise.all(buckets.map(({ folder }) => readLock(layoutOf(folder))));
    const runs = locks.flatMap((lock) => (lock === undefined || lock === "unreadable" ? [] : lock.holders.slice(1)));
    // Looked at in one step, so that no process can end and another begin meanwhile.
    return runs.filter(isAlive).length;
  };
  const ended = await Promise.all(
    buckets.map(async ({ path }) => {
      const statuses: string[] = [];
      for (let round = 0; round < ROUNDS; round++) {
        const { status, body } = await server.call("POST", `${path}/health_check`, { body: {} });
        assert.equal(status, 202);
        most = Math.max(most, await working());
        statuses.push((await server.ended(path, body.run_id)).status);
      }
      return statuses;
    }),
  );
  assert.deepEqual(
    ended.flat(),
    Array.from({ length: BUCKETS * ROUNDS }, () => "succeeded"),
  );
  assert.ok(most <= 2 * availableParallelism(), `${most} processes at a time`);
});
