import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { serverSigningKey } from "../../lib/core/signing-key.ts";
import type { BucketCall, Context } from "../../lib/server/context.ts";
import { Lines } from "../../lib/server/line.ts";
import { startRun } from "../../lib/server/start.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeBucket } from "../helpers/workspace.ts";

const KEY = "key-of-a-start";
const SINCE = "2026-01-01T00:00:00.000Z";

/** Starts builds in a bucket as ada, with what is done there; `onReserve` comes between. */
async function setUp(t: TestContext) {
  const { layout, bucketId: id } = await makeBucket(t);
  const root = temporaryFolder(t);
  const lines = new Lines();
  const done: string[] = [];
  const ends = new AbortController();
  const own = { lines, done, ends, id, onReserve: () => {} };
  const reserve = async () => {
    own.onReserve();
    return { runId: "run", start: async () => done.push("started"), release: async () => done.push("released") };
  };
  const request = { method: "POST", path: "", signal: t.signal, longPoll() {} };
  const context = {
    lines,
    audit: { key: () => serverSigningKey(root) },
    supervisor: { reserve },
    readers: { read: async () => {} },
    scheduler: { requireThawed: async () => {} },
    approvals: { mustHave: async () => {}, take: async () => undefined },
    identity: { name: "ada", role: "deploy", address: "", via: "bearer", ends: ends.signal },
  } as unknown as Context;
  const start = (headers: object) => {
    const call = { bucket: { id, layout }, request, headers, query: {}, body: {} } as unknown as BucketCall;
    return startRun(call, "build", context, async () => ({}));
  };
  return Object.assign(own, { start });
}

test("CP-449 a start that is given up while it takes its bucket frees the bucket again and does not start", async (t) => {
  const own = await setUp(t);
  own.onReserve = () => assert.ok(own.lines.leave(own.id, KEY));
  const starting = own.start({ "Idempotency-Key": KEY, "Ops-Wait": 0 });
  await assert.rejects(starting, { code: "bucket_busy", details: { position: null } });
  assert.deepEqual(own.done, ["released"]);
});

test("CP-506 a start whose token ends while it takes its bucket frees the bucket again and does not start", async (t) => {
  const own = await setUp(t);
  assert.equal((await own.start({})).status, 202);
  own.done.length = 0;
  own.onReserve = () => own.ends.abort();
  await assert.rejects(own.start({}), { code: "unauthorized" });
  assert.deepEqual(own.done, ["released"]);
});

test("CP-520 only an admin breaks the glass", async (t) => {
  const own = await setUp(t);
  await assert.rejects(own.start({ "Ops-Break-Glass": "urgent" }), { code: "forbidden", details: { role: "admin" } });
  assert.deepEqual(own.done, []);
});

test("CP-447 nobody takes the place of somebody else in line by its key; who waits there comes back to it", async (t) => {
  const own = await setUp(t);
  for (const [name, isRefused] of [
    ["eva", true],
    ["ada", false],
  ] as const) {
    const place = own.lines.enter(own.id, { key: KEY, kind: "build", by: { name, address: "", via: "bearer" }, since: SINCE });
    const starting = own.start({ "Idempotency-Key": KEY, "Ops-Wait": 0 });
    if (isRefused) await assert.rejects(starting, { code: "idempotency_mismatch", message: /^somebody else's start waits/ });
    else assert.equal((await starting).status, 202);
    assert.deepEqual([own.done.length, place.leave()], isRefused ? [0, true] : [1, false]);
  }
});
