import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { ops } from "../../scripts/local-server.ts";
import { TestServer } from "../helpers/server.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

async function built(t: Parameters<typeof TestServer.start>[0]) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  makeWorkspace(bucket.folder, {
    workers: ["10.0.0.1", "10.0.0.2"],
    jobs: { web: { version: "1.0.0", selectors: ["worker"] }, db: { version: "1.0.0", selectors: ["worker"] } },
    files: { "ops.conf": "\n" },
  });
  const { body } = await server.call("POST", `${bucket.path}/build`);
  assert.equal((await server.ended(bucket.path, body.run_id)).status, "succeeded");
  const runs = () => readdirSync(path.join(bucket.folder, "logs", "runs"));
  return { server, bucket, runs };
}

/** A request with its parameters, the command for the same, and the place and the words of the refusal. */
const ASKED = [
  ["deploy", { jobs: ["web", "wep"] }, ["deploy", "--jobs", "web,wep"], "jobs/1", 'no job "wep"; did you mean "web"?'],
  ["deploy", { force_only: ["db@10.0.0.9"] }, ["deploy", "--force-only", "db@10.0.0.9"], "force_only/0", "no allocation"],
  ["health_check", { jobs: ["x"] }, ["health_check", "--jobs", "x"], "jobs/0", 'no job "x"'],
  ["drift", { jobs: ["x"] }, ["drift", "--jobs", "x"], "jobs/0", 'no job "x"'],
  ["drift", { workers: ["10.0.0.3"] }, ["drift", "--workers", "10.0.0.3"], "workers/0", 'worker "10.0.0.3"'],
  ["hooks", { hook: "up", job: "x" }, ["hooks", "up", "x"], "job", 'no job "x"'],
  ["hooks", { hook: "up", job: "web" }, ["hooks", "up", "web"], "hook", "job web has no such hook"],
  ["hooks", { hook: "up" }, ["hooks", "up"], "hook", "no job has such a hook"],
  ["run_command", { command: "id", workers: ["10.0.0.3"] }, ["run_command", "id", "-w", "10.0.0.3"], "workers/0", "no worker"],
  ["run_command", { command: "id", labels: ["lost"] }, ["run_command", "id", "-l", "lost"], "labels/0", 'no label "lost"'],
  ["workers/trust", { workers: ["x"] }, ["worker", "trust", "-w", "x"], "workers/0", 'no worker "x"'],
  ["workers/facts", { labels: ["x"] }, ["worker", "facts", "-l", "x"], "labels/0", 'no label "x"'],
  ["workers/uptime", { workers: ["x"] }, ["worker", "uptime", "-w", "x"], "workers/0", 'no worker "x"'],
  ["workers/sysstat", { workers: ["x"] }, ["worker", "sysstat", "-w", "x"], "workers/0", 'no worker "x"'],
  [
    "jobs/web/start",
    { allocations: ["10.0.0.9"] },
    ["job", "start", "web", "--allocations", "10.0.0.9"],
    "allocations/0",
    "no allocation",
  ],
  [
    "jobs/web/restart",
    { allocations: ["db@10.0.0.1"] },
    ["job", "restart", "web", "--allocations", "db@10.0.0.1"],
    "allocations/0",
    "no allocation",
  ],
] as const;

test("a name that the catalog does not have is 400 with its place, on the command line exit code 1: there is no run", async (t) => {
  const { server, bucket, runs } = await built(t);
  const before = runs();
  for (const [target, params, command, place, told] of ASKED) {
    const { status, body } = await server.call("POST", `${bucket.path}/${target}`, { body: params });
    assert.deepEqual([status, body.error, body.details?.[0].path], [400, "unknown_name", place], target);
    assert.ok(body.message.includes(told), body.message);
    const typed = await ops([...command, "--bucket-dir", bucket.folder]);
    assert.deepEqual([typed.code, typed.stdout, typed.stderr], [1, "", `ops: ${body.message}\n`]);
  }
  assert.deepEqual(runs(), before);
  // A refused request leaves no lock behind.
  assert.equal((await server.call("POST", `${bucket.path}/build`)).status, 202);
});

test("a job of the path that the catalog does not have is 404; there is no run", async (t) => {
  const { server, bucket, runs } = await built(t);
  const before = runs();
  const { status, body } = await server.call("POST", `${bucket.path}/jobs/wep/start`);
  assert.deepEqual([status, body.error], [404, "not_found"]);
  const typed = await ops(["job", "start", "wep", "--bucket-dir", bucket.folder]);
  assert.deepEqual([typed.code, typed.stderr], [1, `ops: ${body.message}\n`]);
  assert.equal(body.message, 'in the catalog there is no job "wep"; did you mean "web"?');
  assert.deepEqual(runs(), before);
});

test("with build the names are looked for in what was built: the run fails", async (t) => {
  const { server, bucket } = await built(t);
  const { status, body } = await server.call("POST", `${bucket.path}/deploy`, {
    body: { jobs: ["wep"], build: true, dry_run: true },
  });
  assert.equal(status, 202);
  const run = await server.ended(bucket.path, body.run_id);
  assert.deepEqual([run.status, run.error], ["failed", 'in the catalog there is no job "wep"; did you mean "web"?']);
});

test("of many unknown names the first ten are told, and how many there are", async (t) => {
  const { server, bucket } = await built(t);
  const jobs = Array.from({ length: 500 }, (_, index) => `x${index}`);
  const { body } = await server.call("POST", `${bucket.path}/deploy`, { body: { jobs } });
  assert.deepEqual([body.details.length, body.message], [10, 'in the catalog there is no job "x0" (and 499 more)']);
});

test("before the first build every name is unknown, and the answer asks whether the bucket has been built", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const { status, body } = await server.call("POST", `${bucket.path}/workers/trust`, { body: { workers: ["10.0.0.1"] } });
  assert.equal(status, 400);
  assert.equal(body.message, 'in the catalog there is no worker "10.0.0.1", nor any other worker: has the bucket been built?');
});
