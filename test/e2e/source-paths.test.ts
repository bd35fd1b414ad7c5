import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { makeKey } from "../../scripts/private-sshd.ts";
import { TestServer } from "../helpers/server.ts";
import { writeServices } from "../helpers/service.ts";
import { readTree } from "../helpers/sources.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const BUCKET = "/api/buckets/{bucket_id}";
/** The two that are meant to change the source, and the one that takes it away. */
const CHANGES_SOURCE = ["POST /push", "POST /source/rollback", "DELETE "];

test("CP-092 T-87 of all requests of the API only push and rollback touch the source", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  writeServices(bucket.folder, temporaryFolder(t), { version: "1.0.0" });
  const makefile = "start stop restart reload status:\n\t@true\n";
  writeFileSync(path.join(bucket.folder, "workspace/jobs/base/Makefile"), makefile);
  const nightly = { schedules: [{ name: "nightly", every: "24h", kind: "build" }] };
  writeFileSync(path.join(bucket.folder, "workspace/schedules.json"), JSON.stringify(nightly));
  const notify = { targets: { here: { command: ["/bin/true"] } } };
  writeFileSync(path.join(bucket.folder, "workspace/notify.json"), JSON.stringify(notify));
  const key = makeKey(temporaryFolder(t), "key", "-t", "ed25519");
  const before = readTree(bucket.folder);
  assert.ok(Object.keys(before).length > 10);

  /** What a request needs beside its path. */
  const bodies: Record<string, unknown> = {
    "PUT ": { name: "other" },
    "PUT /secrets/ssh_key": { private_key: readFileSync(key, "utf8") },
    "PUT /secrets/jobs/{job}/{key}": { value: "a secret of base" },
    "PUT /secrets/notify/{key}": { value: "a secret of messages" },
    "POST /messages/test": { target: "here" },
    "POST /hooks": { hook: "check", job: "base" },
    "POST /run_command": { command: "touch here", workers: ["127.0.0.1"] },
    "POST /jobs/{job}/run": { target: "status" },
    "POST /deploy": { build: true },
    "POST /proposals": { kind: "hooks", params: { hook: "check", job: "base" } },
    "POST /proposals/{proposal_id}/reject": { reason: "not now" },
  };
  const waiting = { "Idempotency-Key": "a-start-in-line", "Ops-Wait": "0" };
  const names: Record<string, string> = { job: "base", schedule: "nightly", start_key: waiting["Idempotency-Key"] };
  // A secret is for a job of the catalog.
  await server.ended(bucket.path, (await server.call("POST", `${bucket.path}/build`)).body.run_id);
  // Nobody approves what they propose.
  const { token } = (await server.call("POST", "/api/tokens", { body: { name: "ann", role: "deploy" } })).body;
  // A key is rotated while it is there.
  const rotate = `${BUCKET}/secrets/ssh_key/rotate`;
  const routes = ROUTES.filter(({ path: pattern }) => pattern !== rotate);
  const uploaded = routes.findIndex((one) => one.method === "PUT" && one.path === path.posix.dirname(rotate));
  routes.splice(uploaded + 1, 0, ...ROUTES.filter(({ path: pattern }) => pattern === rotate));
  for (const { method, path: pattern } of routes) {
    if (method === "GET" || !pattern.startsWith(BUCKET)) continue;
    const route = `${method} ${pattern.slice(BUCKET.length)}`;
    if (CHANGES_SOURCE.includes(route)) continue;
    const isOfLine = route.startsWith("DELETE /queue/");
    if (isOfLine || route.endsWith("/cancel")) {
      server.hold();
      names.run_id = (await server.call("POST", `${bucket.path}/build`)).body.run_id;
    }
    if (isOfLine) await server.call("POST", `${bucket.path}/build`, { headers: waiting });
    const snapshots = (await server.call("GET", `${bucket.path}/snapshots`)).body.items;
    names.name = snapshots.at(-1)?.name;
    if (route.includes("{proposal_id}")) {
      const proposed = { body: bodies["POST /proposals"], authorization: `Bearer ${token}` };
      names.proposal_id = (await server.call("POST", `${bucket.path}/proposals`, proposed)).body.id;
    }
    const below = pattern.slice(BUCKET.length).replace(/\{(\w+)\}/g, (_, name: string) => names[name] ?? name);
    const { status, text, body } = await server.call(method, bucket.path + below, { body: bodies[route] });
    server.release();
    // No message was ever sent.
    assert.ok(status < 300 || (status === 404 && route.endsWith("/{message_id}/retry")), `${route}: ${text}`);
    if (isOfLine) await server.ended(bucket.path, String(names.run_id));
    const runId = body?.run_id ?? body?.id;
    if (status === 202) {
      const run = await server.ended(bucket.path, runId);
      const isMeant = route.endsWith("/cancel") ? "cancelled" : "succeeded";
      assert.equal(run.status, isMeant, `${route}: ${run.error}\n${activity(bucket.folder, runId)}`);
    }
    assert.deepEqual(readTree(bucket.folder), before, route);
  }
});

function activity(folder: string, runId: string): string {
  return readFileSync(path.join(folder, "logs/runs", runId, "activity.log"), "utf8");
}
