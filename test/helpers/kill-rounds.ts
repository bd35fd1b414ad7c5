import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { sleep } from "../../lib/core/async.ts";
import { signalProcess } from "../../lib/core/process.ts";
import { LocalServer, type Run } from "../../scripts/local-server.ts";
import { seeded } from "./random.ts";
import { runningConfiguration, WORKERS, writeServices } from "./service.ts";
import { until } from "./temporary.ts";
import { processesIn } from "./worker.ts";

interface DeployResult {
  jobs: { job: string; outcome: string }[];
}

const ACTIONS = ["push", "build", "deploy"] as const;
type Action = (typeof ACTIONS)[number];
/** When an action took the bucket's lock and when it gave it back, in milliseconds from its start. */
interface Times {
  taken: number;
  released: number;
}
/** A kill that comes before the lock is taken or after it is given back hits nothing and does not count. */
const MISSES_PER_HIT = 4;

/**
 * Kills the server or the process of a run with SIGKILL at a random moment of a push, a build or a deploy, lets the
 * next start recover, checks what must never break, and then wants a clean push and deploy; again and again on the
 * same bucket, until `hits` kills have met work that was still going on, half of them each. Answers how many met which.
 */
export async function killRounds(folder: string, hits: number, seed: number): Promise<Record<"server" | "run", number>> {
  const random = seeded(seed);
  const root = path.join(folder, "root");
  const server = await LocalServer.start(root);
  const rig = { folder, root, workers: path.join(folder, "workers"), server, bucket: "" };
  const met = { server: 0, run: 0 };
  try {
    rig.bucket = await rig.server.createBucket();
    await pushVersion(rig, "0.0.1");
    const times = { push: await timed(rig, "push"), build: await timed(rig, "build"), deploy: await timed(rig, "deploy") };
    for (let round = 1; met.server + met.run < hits; round++) {
      assert.ok(round <= hits * MISSES_PER_HIT, `seed ${seed}: only ${met.server + met.run} hits in ${round} rounds`);
      const action = ACTIONS[Math.floor(random() * ACTIONS.length)] as Action;
      const victim = met.server < met.run ? "server" : "run";
      const { taken, released } = times[action];
      const afterMs = taken / 2 + random() * (released - taken / 2);
      try {
        const isHit = await interrupt(rig, action, victim, `1.0.${round}`, afterMs);
        await checkRecovered(rig);
        if (!isHit) continue;
        met[victim]++;
        await checkCleanDeploy(rig, `2.0.${round}`);
      } catch (error) {
        const what = `seed ${seed}, round ${round}: ${victim} killed ${afterMs.toFixed(0)} ms into a ${action}`;
        const log = `server: ${rig.server.log.slice(-2000)}`;
        throw new Error(`${what}: ${(error as Error).message}\n${log}`, { cause: error });
      }
    }
  } finally {
    await rig.server.stop("SIGKILL");
  }
  return met;
}

interface Rig {
  folder: string;
  root: string;
  workers: string;
  server: LocalServer;
  bucket: string;
}

function layoutIn(rig: Rig): Layout {
  return layoutOf(path.join(rig.root, rig.bucket));
}

async function pushVersion(rig: Rig, version: string) {
  const source = path.join(rig.folder, `source-${version}`);
  writeServices(source, rig.workers, { version });
  return await rig.server.push(rig.bucket, source);
}

function start(rig: Rig, action: Action, version: string): Promise<unknown> {
  if (action === "push") return pushVersion(rig, version);
  return rig.server.startRun(rig.bucket, action, action === "deploy" ? { force: true } : {});
}

/** Carries an action out without a kill. The times differ between machines by more than a fixed number can allow for. */
async function timed(rig: Rig, action: Action): Promise<Times> {
  const begun = performance.now();
  const isHeld = async () => (await readLock(layoutIn(rig))) !== undefined;
  const done = start(rig, action, "0.0.2");
  await until(`the lock of a ${action}`, isHeld);
  const taken = performance.now() - begun;
  await done;
  await until(`the lock free after a ${action}`, async () => !(await isHeld()));
  return { taken, released: performance.now() - begun };
}

/** True when the victim was hit while the action was still going on. */
async function interrupt(rig: Rig, action: Action, victim: "server" | "run", version: string, afterMs: number): Promise<boolean> {
  const before = (await rig.server.call<{ items: Run[] }>("GET", `/api/buckets/${rig.bucket}/runs`)).body.items.length;
  const ended = start(rig, action, version).catch(() => {});
  await sleep(afterMs);
  const lock = await readLock(layoutIn(rig));
  const process = lock === undefined || lock === "unreadable" ? undefined : lock.holders[1]?.pid;
  if (victim === "server") {
    await rig.server.stop("SIGKILL");
    await ended;
    rig.server = await LocalServer.start(rig.root);
    return lock !== undefined;
  }
  const hit = process !== undefined && signalProcess(process, "SIGKILL");
  await ended;
  const runs = async () => (await rig.server.call<{ items: Run[] }>("GET", `/api/buckets/${rig.bucket}/runs`)).body.items;
  await until("the run to end", async () => (await runs()).every((run) => run.status !== "running"));
  assert.ok((await runs()).length >= before);
  return hit;
}

/** What must hold right after a recovery. */
async function checkRecovered(rig: Rig): Promise<void> {
  const layout = layoutIn(rig);
  const { items } = (await rig.server.call<{ items: Run[] }>("GET", `/api/buckets/${rig.bucket}/runs?limit=500`)).body;
  assert.deepEqual(
    items.filter((run) => run.status === "running"),
    [],
    "no run is left running",
  );
  assert.equal(await readLock(layout), undefined, "the lock is free");
  assert.deepEqual(readdirSync(layout.uploads, { withFileTypes: true }).map(String), [], "no upload is left");
  const revisions = (
    await rig.server.call<{ items: { id: string; current: boolean }[] }>("GET", `/api/buckets/${rig.bucket}/source/revisions`)
  ).body.items;
  const current = revisions.filter((revision) => revision.current);
  assert.equal(current.length, 1, "one revision is current");
  assert.deepEqual(
    treeOf(layout.workspace),
    treeOf(path.join(layout.revisions, current[0]?.id as string, "workspace")),
    "the source is that revision",
  );
}

async function checkCleanDeploy(rig: Rig, version: string): Promise<void> {
  const pushed = await pushVersion(rig, version);
  assert.equal(pushed.code, 0, `push: ${pushed.stdout}${pushed.stderr}`);
  const deployed = await rig.server.run(rig.bucket, "deploy");
  assert.equal(deployed.status, "succeeded", `deploy: ${deployed.error}`);
  for (const host of WORKERS)
    for (const job of ["base", "app"])
      assert.equal(runningConfiguration(rig.workers, host, rig.bucket, job), `${job} ${version} on ${host}\n`);
  const again = await rig.server.run(rig.bucket, "deploy");
  assert.deepEqual(
    (again.result as DeployResult).jobs.map((job) => job.outcome),
    ["skipped", "skipped"],
  );
  assert.deepEqual(processesIn(rig.workers), [], "no process of a run is left");
}

function treeOf(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return Object.fromEntries(
    names
      .map((entry) => path.join(entry.parentPath, entry.name))
      .map((file) => [path.relative(folder, file), readFileSync(file, "utf8")])
      .sort(),
  );
}
