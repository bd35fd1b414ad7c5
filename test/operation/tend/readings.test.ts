import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { knownFacts } from "../../../lib/bucket/catalog/info.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { Graded } from "../../../lib/operation/base/outcome.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { facts, sysstat, uptime } from "../../../lib/operation/tend/readings.ts";
import type { Readings } from "../../../lib/transport/ask/readings.ts";
import { SshFleet } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

type Read = { workers: (Graded & Partial<Readings>)[] };

const local = (root: string, ...hosts: string[]) =>
  hosts.map((host) => ({ host, connection: "local", root: path.join(root, host), labels: [`on-${host.at(-1)}`] }));

async function bucketWith(t: TestContext, workers: Record<string, unknown>[], opsConf = "") {
  const bucket = await makeBucket(t, { workers, files: { "ops.conf": opsConf } });
  await build(bucket.context("build"), {});
  return bucket;
}

/** A bucket with the workers of a fleet, on one of which nothing listens. */
async function sshBucket(t: TestContext, fleet: SshFleet, away = "") {
  const workers = fleet.workers.map(({ host, root, sshUser, sshPort }) => ({
    host,
    root,
    ssh_user: sshUser,
    ssh_port: host === away ? 1 : sshPort,
  }));
  const bucket = await bucketWith(t, workers);
  mkdirSync(path.dirname(bucket.layout.knownHosts), { recursive: true });
  writeFileSync(bucket.layout.knownHosts, readFileSync(fleet.knownHostsFile));
  writeFileSync(path.join(bucket.layout.secrets, "worker.key"), readFileSync(fleet.sshd.clientKey), { mode: 0o600 });
  return bucket;
}

async function failureOf(promise: Promise<unknown>): Promise<Failure> {
  const error = await promise.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof Failure, String(error));
  return error;
}

const grades = ({ workers }: Read) => workers.map(({ worker, outcome }) => `${worker} ${outcome}`);

test("CP-253 T-87 facts of all workers are the result and are kept in the database; no source file changes", async (t) => {
  const bucket = await bucketWith(t, local(temporaryFolder(t), "127.0.0.1", "127.0.0.2"));
  const source = readFileSync(bucket.layout.workersJson, "utf8");
  const result = (await facts(bucket.context("worker_facts"), {})) as Read;
  assert.deepEqual(grades(result), ["127.0.0.1 ok", "127.0.0.2 ok"]);
  const known = knownFacts(bucket.db, { limit: 10 }).items;
  assert.deepEqual(
    known.map(({ worker, facts }) => [worker, facts]),
    result.workers.map(({ worker, facts }) => [worker, facts]),
  );
  assert.equal(readFileSync(bucket.layout.workersJson, "utf8"), source);
  assert.match(bucket.activity.join(""), /^2 of 2 workers are ok$/m);
});

test("facts of a worker that has left are forgotten with it", async (t) => {
  const root = temporaryFolder(t);
  const bucket = await bucketWith(t, local(root, "127.0.0.1", "127.0.0.2"));
  await facts(bucket.context("worker_facts"), {});
  makeWorkspace(bucket.dir, { workers: local(root, "127.0.0.2") });
  await build(bucket.context("build"), {});
  assert.deepEqual(
    knownFacts(bucket.db, { limit: 10 }).items.map(({ worker }) => worker),
    ["127.0.0.2"],
  );
});

test("CP-254 CP-255 uptime and sysstat are asked for over ssh; an unreachable worker is graded so and the others are asked", async (t) => {
  const fleet = await SshFleet.start(t);
  const bucket = await sshBucket(t, fleet, "127.0.0.2");
  for (const [operation, what] of [
    [uptime, "uptime"],
    [sysstat, "sysstat"],
  ] as const) {
    const failure = await failureOf(operation(bucket.context(`worker_${what}`), {}));
    assert.equal(failure.message, "1 of 3 workers are not ok: 127.0.0.2 (unreachable)");
    const result = failure.details as Read;
    assert.deepEqual(grades(result), ["127.0.0.1 ok", "127.0.0.2 unreachable", "127.0.0.3 ok"]);
    assert.match(result.workers[1]?.error ?? "", /nothing listens on port 1 there/);
    assert.ok(result.workers[0]?.[what]);
    assert.equal(result.workers[1]?.[what], null);
  }
});

test("labels and names choose who is asked; unknown ones and both together are errors before anybody is", async (t) => {
  const bucket = await bucketWith(t, local(temporaryFolder(t), "127.0.0.1", "127.0.0.2"));
  const ask = (params: Record<string, unknown>) => uptime(bucket.context("worker_uptime"), params) as Promise<Read>;
  assert.deepEqual(grades(await ask({ labels: ["on-2"] })), ["127.0.0.2 ok"]);
  assert.deepEqual(grades(await ask({ workers: ["127.0.0.1"] })), ["127.0.0.1 ok"]);
  assert.match((await failureOf(ask({ labels: ["on-3"] }))).message, /there is no label "on-3"; did you mean/);
  assert.match((await failureOf(ask({ workers: ["$(id)"] }))).message, /there is no worker "\$\(id\)"/);
  for (const params of [{ workers: ["127.0.0.1"], labels: ["on-1"] }, { generate_workers: true }, { concurrency: 0 }])
    assert.equal((await failureOf(ask(params))).code, "invalid_request");
});

test("CP-132 after a cancel no further worker is asked", async (t) => {
  const root = temporaryFolder(t);
  const bucket = await bucketWith(t, local(root, "127.0.0.1", "127.0.0.2", "127.0.0.3"));
  const stop = new AbortController();
  const context = bucket.context("worker_sysstat", stop.signal);
  context.progress.report = ({ done }) => {
    if (done === 1) stop.abort();
  };
  const failure = await failureOf(sysstat(context, { concurrency: 1 }));
  assert.equal(failure.code, "cancelled");
  assert.deepEqual(grades(failure.details as Read), [...["127.0.0.1 ok", "127.0.0.2 not_started", "127.0.0.3 not_started"]]);
});

test("a worker whose programs say what they like is told apart from the others by one sentence", async (t) => {
  const bin = temporaryFolder(t);
  const program = (name: string, text: string) => writeFileSync(path.join(bin, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  const fleet = await SshFleet.start(t, { hosts: ["127.0.0.1"], env: { PATH: `${bin}:${process.env.PATH}` } });
  const bucket = await sshBucket(t, fleet);
  const ask = () => facts(bucket.context("worker_facts"), {});
  program("uname", "printf '\\033[31mred\\033]0;t\\007 \\377\\000\\n'");
  const told = (await ask()) as Read;
  assert.deepEqual([told.workers[0]?.outcome, told.workers[0]?.facts?.arch], ["ok", null]);
  program("nproc", "head -c 10000000 /dev/zero | tr '\\0' x");
  const { workers } = (await failureOf(ask())).details as Read;
  assert.deepEqual([workers[0]?.outcome, workers[0]?.facts], ["failed", null]);
  assert.equal(workers[0]?.error, "Cannot understand the worker's answer: it is not complete");
});
