import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { TestServer } from "../helpers/server.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

async function setUp(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const root = temporaryFolder(t);
  makeWorkspace(bucket.folder, {
    workers: ["127.0.0.1", "127.0.0.2"].map((host) => ({ host, connection: "local", root: path.join(root, host) })),
  });
  const start = async (what: string, body: unknown = {}) => {
    const reply = await server.call("POST", `${bucket.path}/${what}`, { body });
    assert.deepEqual([reply.status, Object.keys(reply.body)], [202, ["run_id"]]);
    return server.ended(bucket.path, reply.body.run_id);
  };
  assert.equal((await start("build")).status, "succeeded");
  return { server, bucket, start };
}

test("retry_of starts the same kind of run on the workers that were not ok", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const first = await start("run_command", { command: "[ $WORKER_IP = 127.0.0.1 ]", ignore_failure: true });
  assert.equal(first.status, "succeeded");
  const again = await start("run_command", { retry_of: first.id });
  assert.deepEqual(again.params.workers, ["127.0.0.2"]);
  assert.deepEqual(
    again.result.workers.map(({ worker }: { worker: string }) => worker),
    ["127.0.0.2"],
  );
  const refused = async (what: string, body: unknown) => {
    const { status, body: answer } = await server.call("POST", `${bucket.path}/${what}`, { body });
    return [status, answer.error];
  };
  assert.deepEqual(await refused("deploy", { retry_of: first.id }), [409, "retry_impossible"]);
  assert.deepEqual(await refused("build", { retry_of: first.id }), [400, "invalid_request"]);
  const unknown = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
  assert.deepEqual(await refused("deploy", { retry_of: unknown }), [404, "run_not_found"]);
  assert.deepEqual(await refused("deploy", { retry_of: first.id, force: true }), [400, "invalid_request"]);
});

test("CP-023 CP-253 CP-254 CP-255 facts, uptime and sysstat are runs whose result tells each worker", async (t) => {
  const { server, bucket, start } = await setUp(t);
  const facts = `${bucket.path}/workers/facts`;
  assert.deepEqual((await server.call("GET", facts)).body, { items: [], next_cursor: null });
  const source = readFileSync(path.join(bucket.folder, "workspace/workers.json"), "utf8");
  for (const what of ["facts", "uptime", "sysstat"]) {
    const run = await start(`workers/${what}`);
    assert.deepEqual([run.kind, run.status], [`worker_${what}`, "succeeded"]);
    assert.deepEqual(
      run.result.workers.map((one: Record<string, unknown>) => [one.worker, one.outcome, typeof one[what]]),
      [
        ["127.0.0.1", "ok", "object"],
        ["127.0.0.2", "ok", "object"],
      ],
    );
  }
  assert.equal(readFileSync(path.join(bucket.folder, "workspace/workers.json"), "utf8"), source);
  const first = (await server.call("GET", `${facts}?limit=1`)).body;
  assert.equal(first.items[0].worker, "127.0.0.1");
  const second = (await server.call("GET", `${facts}?limit=1&cursor=${first.next_cursor}`)).body;
  assert.deepEqual([second.items[0].worker, second.next_cursor], ["127.0.0.2", null]);
});

test("CP-261 run_command is a run; its result has code and output of each worker, also where it fails", async (t) => {
  const { start } = await setUp(t);
  const body = { command: "echo $WORKER_IP; [ $WORKER_IP = 127.0.0.1 ]", concurrency: 2 };
  const run = await start("run_command", body);
  assert.deepEqual([run.kind, run.status], ["run_command", "failed"]);
  assert.equal(run.error, "1 of 2 workers are not ok: 127.0.0.2 (failed)");
  assert.deepEqual(
    run.result.workers.map((one: Record<string, unknown>) => [one.outcome, one.exit_code, one.output]),
    [
      ["ok", 0, "127.0.0.1\n"],
      ["failed", 1, "127.0.0.2\n"],
    ],
  );
  assert.deepEqual(run.params, { ...body, health_check: false, ignore_failure: false, timeout_seconds: 300 });
});

for (const [what, body, message] of [
  ["workers/facts", { generate_workers: true }, /^generate_workers: is not a known field/],
  ["workers/facts", { dry_run: true }, /^dry_run: is not a known field/],
  ["workers/uptime", { workers: ["a"], labels: ["b"] }, /labels: excludes workers/],
  ["workers/sysstat", { concurrency: 0 }, /^concurrency: /],
  ["run_command", {}, /^command: is missing/],
  ["run_command", { command: " " }, /^command: expected a command/],
  ["run_command", { command: "true", fold: true }, /^fold: is not a known field/],
] as const)
  test(`CP-108 T-51 ${what} with ${JSON.stringify(body)} is refused and starts nothing`, async (t) => {
    const server = await TestServer.start(t);
    const bucket = await server.createBucket();
    const reply = await server.call("POST", `${bucket.path}/${what}`, { body });
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_request"]);
    assert.match(reply.body.message, message);
    assert.deepEqual((await server.call("GET", `${bucket.path}/runs`)).body.items, []);
  });
