import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { noteHealth } from "../../../lib/bucket/health/health-history.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { Receiver, storeNotify } from "../../helpers/receiver.ts";
import { TestServer } from "../../helpers/server.ts";
import { until } from "../../helpers/temporary.ts";

const HOSTS = ["10.0.0.1", "10.0.0.2"];
const SECRET = "the-secret-of-the-signature";

/** A server with a bucket of one job on two workers, and a receiver that the bucket tells everything. */
async function told(t: TestContext, more: object = {}) {
  const receiver = await Receiver.start(t);
  const server = await TestServer.start(t);
  const bucket = await server.createBucket({ project: "shop", name: "live" });
  {
    using db = openDatabase(layoutOf(bucket.folder).database);
    for (const host of HOSTS) {
      db.run(
        "INSERT INTO worker (worker_ip, worker_id, position, connection, root, available_memory_mb, available_cpu_mhz) VALUES (?, ?, 0, 'local', '/x', 0, 0)",
        ...[host, host],
      );
      db.run(
        "INSERT INTO allocations (alloc_id, worker_ip, job, disabled, removed, deployment_seq, new_version) VALUES (?, ?, 'web', 0, 0, 0, '1')",
        ...[host, host],
      );
    }
  }
  const put = (key: string, value: string) => server.call("PUT", `${bucket.path}/secrets/notify/${key}`, { body: { value } });
  await put("sign", `${SECRET}\n`);
  const hook = { webhook: `${receiver.url}/hook`, private: true, sign: { secret: "sign" } };
  const file = { targets: { hook }, send: [{ to: ["hook"] }], ...more };
  storeNotify(bucket.folder, file);
  const get = async (target: string) => (await server.call("GET", `${bucket.path}${target}`)).body;
  const post = (target: string, body: object = {}) => server.call("POST", `${bucket.path}${target}`, { body });
  /** What a health check would have noted. */
  const found = (state: string, reason = "", hosts = HOSTS) => {
    using db = openDatabase(layoutOf(bucket.folder).database);
    const all = hosts.map((worker) => ({ job: "web", worker, aspect: "health" as const, state, reason }));
    noteHealth(db, uuidV7(), all);
  };
  return { receiver, server, bucket, file, get, post, put, found };
}

test("CP-861 an incident is told once with its hosts folded, and once when it is over; the API shows both", async (t) => {
  const { receiver, get, found } = await told(t);
  found("unhealthy", "no answer");
  await until("the first message", () => receiver.received.length === 1);
  const [first] = receiver.bodies;
  const { id, event, incident, bucket, subject, reason, places, place_count, job } = first;
  assert.equal(event, "allocation_unhealthy");
  assert.equal(subject, "shop/live: Unhealthy: web@10.0.0.[1-2]");
  assert.deepEqual([places, place_count, job], [HOSTS.map((host) => `web@${host}`), 2, "web"]);
  assert.equal(reason, "web@10.0.0.1: no answer\nweb@10.0.0.2: no answer");
  assert.deepEqual(bucket.project, "shop");
  assert.equal(incident.status, "open");
  const [open] = (await get("/incidents")).items;
  assert.deepEqual([open.event, open.over_at, open.place_count, open.told], ["allocation_unhealthy", null, 2, ["hook"]]);
  found("unhealthy", "still no answer");
  found("healthy", "", HOSTS.slice(0, 1));
  await until("a host is well again", async () => (await get("/incidents")).items[0].left_count === 1);
  found("healthy");
  await until("the end", async () => (await get("/messages?state=sent")).items.length === 2);
  const [, last] = receiver.bodies;
  assert.deepEqual([last.event, last.subject], ["recovered", "shop/live: Over: Unhealthy: web@10.0.0.[1-2]"]);
  assert.equal(last.incident.id, incident.id);
  assert.notEqual(last.id, id);
  const { items } = await get("/messages");
  assert.deepEqual(
    items.map((one: Record<string, unknown>) => [one.event, one.state, one.attempts, one.error]),
    [
      ["recovered", "sent", 1, null],
      ["allocation_unhealthy", "sent", 1, null],
    ],
  );
  assert.equal(items[1].id, id);
});

test("CP-863 CP-866 the signature is an HMAC-SHA256 over time and body; the id is in the header and in the body", async (t) => {
  const { receiver, found } = await told(t);
  found("unhealthy", "no answer");
  await until("the message", () => receiver.received.length === 1);
  const [{ method, path: place, headers, body } = assert.fail()] = receiver.received;
  assert.deepEqual([method, place, headers["content-type"]], ["POST", "/hook", "application/json"]);
  assert.equal(headers["ops-message-id"], JSON.parse(body).id);
  const [, seconds = "", given] = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(String(headers["ops-signature"])) ?? [];
  assert.equal(given, createHmac("sha256", SECRET).update(`${seconds}.${body}`).digest("hex"));
  assert.ok(Math.abs(Number(seconds) - Date.now() / 1000) < 3600);
});

test("CP-872 a test is sent at once; a retry sends what has failed; both need the role deploy", async (t) => {
  const { receiver, server, bucket, get, post } = await told(t);
  const { body: good } = await post("/messages/test", { target: "Hook" });
  assert.equal(good.error, null);
  assert.equal(receiver.bodies[0]?.id, good.id);
  receiver.behaviour = (response) => void response.writeHead(500).end("details");
  assert.equal((await post("/messages/test", { target: "hook" })).body.error, "the answer is 500");
  assert.equal((await post("/messages/test", { target: "nope" })).body.error, "not_found");
  const { authorization } = await server.makeToken({ name: "ada", role: "read" });
  const call = (method: string, target: string, body?: object) =>
    server.call(method, `${bucket.path}${target}`, { authorization, ...(body && { body }) });
  assert.equal((await call("POST", "/messages/test", { target: "hook" })).status, 403);
  assert.equal((await call("POST", `/messages/${uuidV7()}/retry`, {})).status, 403);
  for (const target of ["/messages", "/incidents", "/messages/targets"]) assert.equal((await call("GET", target)).status, 200);
  const [shown] = (await get("/messages/targets")).items;
  assert.deepEqual([shown.name, shown.kind, shown.address], ["hook", "webhook", receiver.url]);
  assert.equal((await post(`/messages/${uuidV7()}/retry`)).body.error, "not_found");
});

test("CP-862 CP-436 a run that fails is told, by the summaries too, and a success ends it", async (t) => {
  const { receiver, server, bucket, file, get, post } = await told(t);
  const inShort = async () => (await server.call("GET", "/api/summary")).body.items[0].incident_count;
  const workspace = (name: string, value: unknown) =>
    writeFileSync(path.join(bucket.folder, "workspace", name), JSON.stringify(value));
  mkdirSync(path.join(bucket.folder, "workspace"));
  workspace("notify.json", file);
  workspace("workers.json", [{ host: "not a host" }]);
  const { run_id } = (await post("/build")).body;
  assert.equal((await server.ended(bucket.path, run_id)).status, "failed");
  await until("the failure is told", () => receiver.received.length === 1);
  assert.deepEqual([receiver.bodies[0]?.event, receiver.bodies[0]?.run_id], ["run_failed", run_id]);
  assert.match(String(receiver.bodies[0]?.subject), /^shop\/live: Run failed: build$/);
  assert.match(String(receiver.bodies[0]?.reason), /workers\.json/);
  const [open] = (await get("/summary")).incidents.items;
  assert.deepEqual([open.subject, open.run_id, await inShort()], ["Run failed: build", run_id, 1]);
  workspace("workers.json", []);
  const again = (await post("/build")).body.run_id;
  assert.equal((await server.ended(bucket.path, again)).status, "succeeded");
  await until("the end is told", () => receiver.received.length === 2);
  assert.equal(receiver.bodies[1]?.subject, "shop/live: Over: Run failed: build");
  assert.deepEqual([(await get("/summary")).incidents, await inShort()], [{ items: [], total: 0, cut: 0 }, 0]);
});
