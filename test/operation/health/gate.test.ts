import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { CatalogJob, Probe } from "../../../lib/bucket/base/model.ts";
import { catalogJobs, catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { passGate } from "../../../lib/operation/health/gate.ts";
import { HookSession } from "../../../lib/operation/hooks/hooks.ts";
import { effectsOf } from "../../../lib/operation/reach/effects.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const [A, B, C] = HOSTS;

interface Options {
  attempts?: number;
  intervalSeconds?: number;
  width?: number;
}

async function setUp(t: TestContext, checks: Probe[], options: Options = {}) {
  const deploys = await Deploys.make(t);
  await deploys.build({ web: {} });
  const { attempts = 1, intervalSeconds = 0.01, width = 1 } = options;
  const job: CatalogJob = {
    ...(catalogJobs(deploys.bucket.db)[0] as CatalogJob),
    maxConcurrentUpgrades: width,
    healthCheck: { checks, timeoutSeconds: 5, wait: { attempts, intervalSeconds } },
  };
  const pauses: (number | null)[] = [];
  const gate = async (workers: readonly string[], signal = new AbortController().signal) => {
    const context = deploys.bucket.context("deploy", signal);
    const { mock } = t.mock.method(context.progress, "during");
    const fleet = new Fleet(context, catalogWorkers(deploys.bucket.db));
    const hooks = new HookSession(context, fleet);
    try {
      await passGate(context, effectsOf(context, fleet, hooks, []), job, { probed: workers, hooked: workers });
    } finally {
      await hooks[Symbol.asyncDispose]();
      await fleet[Symbol.asyncDispose]();
      context.log.close();
      for (const {
        arguments: [{ detail }, limitMs],
      } of mock.calls)
        if (detail.startsWith("to become healthy")) pauses.push(limitMs);
    }
  };
  return { deploys, job, gate, pauses };
}

/** Accepts connections on every loopback address and notes to which, in order. */
async function listen(t: TestContext) {
  const seen: string[] = [];
  const server = createServer((socket) => {
    seen.push(socket.localAddress as string);
    socket.destroy();
  });
  t.after(() => server.close());
  await new Promise<void>((resolve) => server.listen(0, "0.0.0.0", resolve));
  return { seen, port: (server.address() as AddressInfo).port };
}

const command = (text: string): Probe => ({ type: "ssh", command: text, timeoutSeconds: 5 });

test("probes go in rollout order, max_concurrent_upgrades workers at a time", async (t) => {
  const { seen, port } = await listen(t);
  const { deploys, job, gate } = await setUp(t, [{ type: "tcp", port: "web_tcp", timeoutSeconds: 5 }]);
  job.ports = { web_tcp: port };
  await gate([A, B, C]);
  assert.deepEqual(seen, [A, B, C]);
  const kv = deploys.bucket.kv();
  kv.put("ops/job/web", "rollout_order", `${C},${B},${A}`);
  kv.flush();
  await gate([A, B, C]);
  assert.deepEqual(seen.slice(3), [C, B, A]);
});

test("without checks or without workers there is nothing to pass", async (t) => {
  const { job, gate } = await setUp(t, [command("exit 1")]);
  await gate([]);
  job.healthCheck = null;
  await gate([A]);
});

test("each worker has as many attempts as the manifest says; the last evidence of all that fail is told", async (t) => {
  const count = 'echo x >> tries; [ "$(wc -l < tries)" -ge 3 ]';
  const { deploys, gate } = await setUp(t, [command(count)], { attempts: 3, width: 3 });
  await gate([A]);
  const { deploys: others, gate: fails } = await setUp(t, [command("echo bad; exit 3"), command("true")], {
    attempts: 2,
    width: 2,
  });
  await assert.rejects(fails([A, B, C]), {
    code: "ErrHealthCheckFailed",
    message:
      `the health check of job web failed: ${A} after 2 attempts: command on ${A}: exit code 3: bad; ` +
      `${B} after 2 attempts: command on ${B}: exit code 3: bad`,
  });
  assert.match(others.bucket.activity.join(""), /web@127\.0\.0\.1: waiting to become healthy: command on/);
  assert.doesNotMatch(others.bucket.activity.join(""), /127\.0\.0\.3/, "the next batch is not probed");
  assert.equal(readFileSync(path.join(deploys.folder(A), "tries"), "utf8").split("\n").length, 4);
});

/** Fails up to this time. */
const nth = (count: number) => `echo x >> tries; [ "$(wc -l < tries)" -ge ${count} ]`;
const FOURTH = nth(4);

test("HR-336 a worker that is soon healthy does not cost a whole interval", async (t) => {
  const { gate } = await setUp(t, [command(FOURTH)], { attempts: 2, intervalSeconds: 86_400 });
  await gate([A]);
});

test("HR-336 an early pause has 50 ms, or a quarter of all before it where that is more", async (t) => {
  const { gate, pauses } = await setUp(t, [command(nth(8))], { attempts: 2, intervalSeconds: 86_400 });
  await gate([A]);
  assert.deepEqual(pauses, [50, 50, 50, 50, 50, 62.5, 78.125]);
});

test("HR-336 early probes are no attempts: a gate fails after the attempts of the manifest, and only then", async (t) => {
  const { deploys, gate } = await setUp(t, [command("echo x >> tries; false")], { attempts: 3, intervalSeconds: 0.3 });
  await assert.rejects(gate([A]), { message: new RegExp(`: ${A} after 3 attempts: `) });
  const tries = readFileSync(path.join(deploys.folder(A), "tries"), "utf8").split("\n").length - 1;
  assert.ok(tries > 3, `${tries} probes`);
  const { gate: once } = await setUp(t, [command(FOURTH)], { attempts: 1, intervalSeconds: 60 });
  await assert.rejects(once([A]), { message: new RegExp(`: ${A} after 1 attempt: `) });
});

test("a worker that cannot be reached fails the gate with that reason", async (t) => {
  const { deploys, gate } = await setUp(t, [command("true")]);
  const reach = await deploys.cutOff(B);
  await assert.rejects(gate([A, B]), { message: /^the health check of job web failed: Cannot connect to worker 127\.0\.0\.2/ });
  reach();
});

test("CP-133 a cancel ends the waiting, and what a check runs has ended before the gate has", async (t) => {
  const { gate } = await setUp(t, [command("false")], { attempts: 1_000_000 });
  const cancel = new AbortController();
  setTimeout(() => cancel.abort(), 100);
  await assert.rejects(gate([A], cancel.signal), { code: "cancelled" });

  const ended = path.join(temporaryFolder(t), "ended");
  const { port } = await listen(t);
  const slow = `trap 'sleep 0.3; touch ${ended}; exit 1' TERM; touch ${ended}.begun; while :; do sleep 0.05; done`;
  const silent: Probe = { type: "http", scheme: "http", port: "web_tcp", path: "/", expectStatus: 200, timeoutSeconds: 60 };
  const { job, gate: both } = await setUp(t, [command(slow), silent]);
  job.ports = { web_tcp: port };
  const again = new AbortController();
  const passing = both([A], again.signal);
  passing.catch(() => {});
  await until("the command to run", () => existsSync(`${ended}.begun`));
  again.abort();
  await assert.rejects(passing, { code: "cancelled" });
  assert.ok(existsSync(ended));
});
