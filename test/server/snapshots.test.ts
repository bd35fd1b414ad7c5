import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { findRoute } from "../../lib/http/router.ts";
import type { Context } from "../../lib/server/context.ts";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { requestWith } from "../helpers/http.ts";
import { TestServer } from "../helpers/server.ts";

test("CP-023 CP-105 CP-106 CP-107 CP-400 a snapshot is made, listed, restored and removed over HTTP", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket({ name: "before" });
  const run = async (target: string, body?: unknown) => {
    const started = await server.call("POST", `${bucket}/${target}`, { body });
    assert.deepEqual([started.status, Object.keys(started.body)], [202, ["run_id"]]);
    return server.ended(bucket, started.body.run_id);
  };
  const made = await run("snapshots", { note: "by hand" });
  assert.deepEqual([made.kind, made.status, made.result.note], ["snapshot_create", "succeeded", "by hand"]);
  const list = (await server.call("GET", `${bucket}/snapshots`)).body;
  const { removed, ...snapshot } = made.result;
  assert.deepEqual([list, removed], [{ items: [snapshot], next_cursor: null }, []]);
  const { name } = snapshot;
  const checked = await server.call("POST", `${bucket}/snapshots/${name}/verify`);
  assert.equal(checked.status, 200, checked.text);
  assert.deepEqual([checked.body.error, checked.body.sealed_values], [null, 0]);
  assert.ok(checked.body.files > 0 && checked.body.size_bytes > 0);
  // What comes later and is brought back, and the source, which is not.
  writeFileSync(path.join(folder, "secrets", "later"), "");
  writeFileSync(path.join(folder, "bucket.json"), JSON.stringify({ project: "p", name: "after" }));
  mkdirSync(path.join(folder, "workspace"));
  writeFileSync(path.join(folder, "workspace", "workers.json"), "[]");
  const restored = await run(`snapshots/${name}/restore`);
  assert.deepEqual([restored.kind, restored.status], ["snapshot_restore", "succeeded"]);
  assert.deepEqual(
    { ...restored.result, saved_as: undefined, created_at: undefined },
    {
      snapshot: `${name}.tar.gz`,
      saved_as: undefined,
      created_at: undefined,
      with_source: false,
      source_revision: null,
      current_revision: null,
    },
  );
  assert.ok(!existsSync(path.join(folder, "secrets", "later")));
  assert.equal((await server.call("GET", bucket)).body.name, "before");
  assert.equal(readFileSync(path.join(folder, "workspace", "workers.json"), "utf8"), "[]");
  const both = (await server.call("GET", `${bucket}/snapshots`)).body.items;
  assert.deepEqual(
    [both.length, both[0].name, both[0].note],
    [2, restored.result.saved_as, `before the restore of ${name}.tar.gz`],
  );
  for (const one of both) assert.equal((await server.call("DELETE", `${bucket}/snapshots/${one.name}`)).status, 204);
  assert.deepEqual(readdirSync(path.join(folder, ".ops", "snapshots")), []);
  assert.equal((await run("gc", { retain_days: 3 })).status, "succeeded");
});

test("CP-400 the check of a snapshot that was damaged says why it cannot be restored", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket, folder } = await server.createBucket();
  const run = (await server.call("POST", `${bucket}/snapshots`)).body.run_id;
  const { name } = (await server.ended(bucket, run)).result;
  const file = path.join(folder, ".ops", "snapshots", `${name}.tar.gz`);
  const bytes = readFileSync(file);
  bytes.writeUInt8(bytes.readUInt8(bytes.length - 500) ^ 1, bytes.length - 500);
  writeFileSync(file, bytes);
  const { status, body } = await server.call("POST", `${bucket}/snapshots/${name}/verify`);
  assert.deepEqual([status, body.files], [200, null]);
  assert.match(body.error, /^Cannot restore the snapshot /);
});

test("CP-400 the check of a snapshot takes none of the time for an answer", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket } = await server.createBucket();
  const { name } = (await server.ended(bucket, (await server.call("POST", `${bucket}/snapshots`)).body.run_id)).result;
  const order: string[] = [];
  const task = async () => {
    order.push("checks");
    return { files: 1, size_bytes: 2, sealed_values: 3 };
  };
  const target = `${bucket}/snapshots/${name}/verify`;
  const request = requestWith([], { method: "POST", path: target, longPoll: () => order.push("waits") });
  const { route, params } = findRoute(ROUTES, request);
  const services = { root: server.root, supervisor: { task }, identity: {} } as unknown as Context;
  await route.handle({ request, params, query: {}, headers: {}, body: {} }, services);
  assert.deepEqual(order, ["waits", "checks"]);
});

test("what is no snapshot of the bucket is 404 snapshot_not_found; wrong bodies are 400; a busy bucket is 409", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket } = await server.createBucket();
  const missing = "20260101T000000.000Z-00000000";
  for (const name of [missing, "x", "%2e%2e%2fx", `${missing}.tar.gz`]) {
    const answers = [
      await server.call("POST", `${bucket}/snapshots/${name}/restore`),
      await server.call("POST", `${bucket}/snapshots/${name}/verify`),
      await server.call("DELETE", `${bucket}/snapshots/${name}`),
    ];
    for (const { status } of answers) assert.equal(status, 404, name);
  }
  const { body } = await server.call("DELETE", `${bucket}/snapshots/${missing}`);
  assert.equal(body.error, "snapshot_not_found");
  for (const wrong of [{ note: 1 }, { note: "x".repeat(501) }, { with_source: true }])
    assert.equal((await server.call("POST", `${bucket}/snapshots`, { body: wrong })).status, 400);
  const restore = `${bucket}/snapshots/${missing}/restore`;
  assert.equal((await server.call("POST", restore, { body: { with_source: true } })).status, 400);
  for (const wrong of [{ retain_days: -1 }, { retain_days: "1" }, { days: 1 }])
    assert.equal((await server.call("POST", `${bucket}/gc`, { body: wrong })).status, 400);
  assert.equal((await server.call("GET", `${bucket}/snapshots?cursor=x`)).status, 400);
  assert.equal((await server.call("GET", `/api/buckets/${uuidV7()}/snapshots`)).status, 404);
  server.hold();
  const { run_id } = (await server.call("POST", `${bucket}/snapshots`)).body;
  for (const [method, target] of [
    ["POST", "snapshots"],
    ["POST", "gc"],
    ["DELETE", `snapshots/${missing}`],
  ] as const) {
    const { status, body: refusal } = await server.call(method, `${bucket}/${target}`);
    assert.deepEqual([status, refusal.error, refusal.run_id], [409, "bucket_busy", run_id]);
  }
  server.release();
  assert.equal((await server.ended(bucket, run_id)).status, "succeeded");
});
