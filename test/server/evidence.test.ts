import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { recordRun } from "../helpers/log-runs.ts";
import { TestServer } from "../helpers/server.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const HOSTS = ["127.0.0.1", "127.0.0.2"];
const restart = (...lines: string[]) =>
  `start stop reload status:\n\t@true\nrestart:\n${lines.map((line) => `\t@${line}\n`).join("")}`;

/** The second version is sick. */
const health_check = {
  checks: [{ type: "ssh", command: "! grep -q sick jobs/web/Makefile" }],
  wait: { attempts: 1, interval_seconds: 1 },
};

/** A server with a bucket of one job on two workers, which are folders of this machine. */
async function setUp(t: TestContext) {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const workers = HOSTS.map((host) => ({ host, connection: "local", root: path.join(bucket.folder, host) }));
  const release = (version: string, makefile: string) =>
    makeWorkspace(bucket.folder, {
      workers,
      jobs: { web: { version, selectors: ["worker"], on_failure: "restore", max_concurrent_upgrades: 2, health_check } },
      files: { "workspace/jobs/web/Makefile": makefile },
    });
  const run = async (rest: string) => {
    const { body } = await server.call("POST", `${bucket.path}/${rest}`, { body: {} });
    return await server.ended(bucket.path, body.run_id);
  };
  const get = (rest: string) => server.call("GET", `${bucket.path}/runs/${rest}`);
  return { server, bucket, release, run, get };
}

test("why a deploy failed on a worker: the last lines of the program there, and the line that tells", async (t) => {
  const { release, run, get } = await setUp(t);
  release("1.0.0", restart("true"));
  assert.equal((await run("build")).status, "succeeded");
  assert.equal((await run("deploy")).status, "succeeded");
  const count = "for n in $$(seq 30); do echo step $$n; done";
  release(
    "2.0.0",
    restart(count, "sleep 0.2; echo web@127.0.0.1 ! fatal: no space left >&2", "sleep 0.2; echo the end", "exit 3"),
  );
  assert.equal((await run("build")).status, "succeeded");
  const { id, status } = await run("deploy");
  assert.equal(status, "failed");
  const whole = (await get(`${id}/logs/lines?job=web&limit=1000`)).body.lines as { line: number; worker: string; text: string }[];
  for (const worker of HOSTS) {
    const { body } = await get(`${id}/evidence?job=web&worker=${worker}`);
    const texts = body.lines.map(({ text }: { text: string }) => text);
    const steps = Array.from({ length: 18 }, (_, index) => `step ${index + 13}`);
    assert.deepEqual(texts.toSorted(), [...steps, "the end", "web@127.0.0.1 ! fatal: no space left"].toSorted());
    for (const { line, text } of body.lines) {
      const there = whole.find((one) => one.line === line);
      assert.deepEqual([there?.worker, there?.text], [worker, text], "with their true numbers");
    }
    const reason = body.lines.find(({ line }: { line: number }) => line === body.reason_line);
    assert.equal(reason.text, "web@127.0.0.1 ! fatal: no space left");
    assert.deepEqual([body.left_out, body.first_line], [1, body.lines[0].line]);
  }
  const { items, total } = (await get(`${id}/evidence`)).body;
  assert.equal(total, 1, JSON.stringify(items));
  const [{ line, reason, ...item }] = items;
  assert.deepEqual(item, { job: "web", worker: HOSTS[0], workers: HOSTS, worker_count: 2, action: "restart", outcome: "failed" });
  assert.match(reason, /^`make restart` of job web on 127\.0\.0\.1 .*no space left/);
  assert.equal(whole.find((one) => one.line === line)?.text, "web@127.0.0.1 ! fatal: no space left");
});

test("what a job says while it is put back is no evidence of why its gate failed", async (t) => {
  const { release, run, get } = await setUp(t);
  release("1.0.0", restart("echo fatal: the old one is back >&2"));
  await run("build");
  assert.equal((await run("deploy")).status, "succeeded");
  release("2.0.0", restart("echo the new one, sick"));
  await run("build");
  const { id, status } = await run("deploy");
  assert.equal(status, "failed");
  const back = (await get(`${id}/logs/lines?job=web&q=the+old+one+is+back`)).body.lines;
  assert.equal(back.length, 2, "both were put back");
  for (const worker of HOSTS) {
    const { lines } = (await get(`${id}/evidence?job=web&worker=${worker}`)).body;
    assert.equal(lines[0].text, "the new one, sick");
    assert.ok(lines.every(({ line }: { line: number }) => line < back[0].line));
  }
});

test("evidence of what has none is empty, and is asked for with a job and a worker or with neither", async (t) => {
  const { server, bucket, get } = await setUp(t);
  const id = recordRun(server.root, bucket.id, "nothing\n");
  const nothing = { lines: [], reason_line: null, left_out: 0, first_line: null };
  assert.deepEqual((await get(`${id}/evidence?job=web&worker=127.0.0.1`)).body, nothing);
  assert.deepEqual((await get(`${id}/evidence`)).body, { items: [], total: 0 });
  assert.equal((await get(`${id}/evidence?job=web`)).status, 400);
  assert.equal((await get(`${id}/evidence?worker=web`)).status, 400);
  assert.equal((await get(`0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10/evidence`)).body.error, "run_not_found");
});
