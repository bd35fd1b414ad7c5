import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { TestServer } from "../helpers/server.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

/** A server with a bucket whose job `web` is built, on this machine, and never deployed. */
async function built(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  makeWorkspace(bucket.folder, {
    workers: [{ host: "127.0.0.1", connection: "local", root: path.join(bucket.folder, "worker") }],
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
  });
  const run = async (rest: string, body: object = {}) => {
    const { status, body: reply } = await server.call("POST", `${bucket.path}/${rest}`, { body });
    assert.deepEqual([status, Object.keys(reply)], [202, ["run_id"]], JSON.stringify(reply));
    return server.ended(bucket.path, reply.run_id);
  };
  assert.equal((await run("build")).status, "succeeded");
  return { server, bucket, run };
}

test("CP-023 CP-280 CP-281 CP-282 CP-283 CP-284 CP-285 T-19 T-50 job control over HTTP is a run of its kind", async (t) => {
  const { run } = await built(t);
  for (const [rest, body, kind, params] of [
    ["jobs/web/start", {}, "job_start", { health_check: false }],
    ["jobs/web/stop", {}, "job_stop", { health_check: false, forget: false }],
    ["jobs/web/stop?forget=true", {}, "job_stop", { health_check: false, forget: true }],
    ["jobs/web/stop?forget=true", { forget: false }, "job_stop", { health_check: false, forget: true }],
    ["jobs/web/stop?forget=false", { forget: true }, "job_stop", { health_check: false, forget: true }],
    ["jobs/WEB/restart", { health_check: true }, "job_restart", { health_check: true }],
    ["jobs/web/reload", { allocations: ["127.0.0.1"] }, "job_reload", { health_check: false, allocations: ["127.0.0.1"] }],
    ["jobs/web/status", {}, "job_status", { health_check: false }],
    ["jobs/web/run", { target: "dump" }, "job_run", { health_check: false, target: "dump" }],
  ] as const) {
    const ended = await run(rest, body);
    assert.deepEqual([ended.kind, ended.params], [kind, { jobs: ["web"], ...params }], rest);
    assert.equal(ended.status, "failed");
    assert.match(ended.error, /worker 127\.0\.0\.1 is not in sync: nothing was deployed to it yet; run `ops deploy`/);
    assert.equal(ended.result.jobs[0].allocations[0].outcome, "failed");
  }
});

test("retry_of repeats a run of job control on the allocations that were not ok", async (t) => {
  const { server, bucket, run } = await built(t);
  const first = await run("jobs/web/run", { target: "dump", health_check: true });
  const again = await run("jobs/web/run", { retry_of: first.id });
  assert.deepEqual(again.params, {
    retry_of: first.id,
    jobs: ["web"],
    allocations: ["127.0.0.1"],
    target: "dump",
    health_check: true,
  });
  const refused = async (rest: string, body: object) => {
    const { status, body: reply } = await server.call("POST", `${bucket.path}/${rest}`, { body });
    return [status, reply.error];
  };
  assert.deepEqual(await refused("jobs/web/start", { retry_of: first.id }), [409, "retry_impossible"]);
  assert.deepEqual(await refused("jobs/web/run", { retry_of: first.id, target: "x" }), [400, "invalid_request"]);
  assert.deepEqual(await refused("jobs/web/run", {}), [400, "invalid_request"]);
  const unknown = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
  assert.deepEqual(await refused("jobs/web/run", { retry_of: unknown }), [404, "run_not_found"]);
});

test("CP-259 a health check over HTTP is a run with the health of each job as its result", async (t) => {
  const { run } = await built(t);
  const ended = await run("health_check", { jobs: ["web"], wait: true, verbose: true });
  assert.deepEqual([ended.kind, ended.status], ["health_check", "succeeded"]);
  assert.equal(ended.result.workers[0].outcome, "ok");
  assert.equal(ended.result.jobs[0].outcome, "skipped");
});

test("what cannot be meant starts no run", async (t) => {
  const { server, bucket } = await built(t);
  for (const [rest, body, status, error] of [
    ["jobs/wep/start", {}, 404, "not_found"],
    ["jobs/web/explode", {}, 404, "not_found"],
    ["jobs/web/start", { allocations: ["127.0.0.9"] }, 400, "unknown_name"],
    ["jobs/web/start", { allocations: [] }, 400, "invalid_request"],
    ["jobs/web/start", { forget: true }, 400, "invalid_request"],
    ["jobs/web/start?forget=true", {}, 400, "invalid_request"],
    ["jobs/web/stop?forget=yes", {}, 400, "invalid_request"],
    ["jobs/web/start", { jobs: ["web"] }, 400, "invalid_request"],
    ["jobs/web/run", {}, 400, "invalid_request"],
    ["jobs/web/run", { target: "a; reboot" }, 400, "invalid_request"],
    ["jobs/web/run", { target: "$(reboot)" }, 400, "invalid_request"],
    ["jobs/web/run", { target: "-f/etc/passwd" }, 400, "invalid_request"],
    ["health_check", { jobs: ["web", "nobody"] }, 400, "unknown_name"],
    ["health_check", { wait: "yes" }, 400, "invalid_request"],
  ] as const) {
    const reply = await server.call("POST", `${bucket.path}/${rest}`, { body });
    assert.deepEqual([reply.status, reply.body.error], [status, error], `${rest} ${JSON.stringify(body)}`);
  }
  assert.equal((await server.call("GET", `${bucket.path}/runs`)).body.items.length, 1);
});

test("of two operators at once the second is told who is at work", async (t) => {
  const { server, bucket } = await built(t);
  const lock = await acquireLock(layoutOf(bucket.folder), uuidV7(), "job_stop");
  for (const rest of ["jobs/web/start", "health_check"]) {
    const reply = await server.call("POST", `${bucket.path}/${rest}`);
    assert.deepEqual([reply.status, reply.body.error, reply.body.details.command], [409, "bucket_busy", "job_stop"]);
  }
  await lock.release();
});
