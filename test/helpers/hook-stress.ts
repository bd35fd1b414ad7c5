import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { setTimeout as delay } from "node:timers/promises";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import type { RunningScript } from "../../lib/hook/routes.ts";
import { type HookRuntime, startHookRuntime } from "../../lib/hook/runtime.ts";
import { seeded } from "./random.ts";

const CLIENT = new URL("../fixtures/hook-client.ts", import.meta.url).pathname;
const WORKERS = 8;

/** How much stress: one script per allocation, each with this many rounds of two writes and two hand-overs. */
export interface Stress {
  allocations: number;
  rounds: number;
  kills: number;
}

interface Client {
  script: RunningScript;
  /** The process that runs it now. */
  child?: ChildProcess;
}

/**
 * Real scripts share the semaphores and the KV store of one session while some of them are killed with SIGKILL and
 * started again. Throws unless all of them get to their end, no more than the capacity ever hold a slot, no
 * acknowledged write is missing after a flush, and none got lost between two scripts.
 */
export async function stressHooks(
  folder: string,
  { allocations, rounds, kills }: Stress,
): Promise<{ writes: number; killed: number; flushes: number }> {
  const layout = layoutOf(folder);
  await initBucket(layout.root, { source: false });
  using db = openDatabase(layout.database);
  const key = await loadKvKey(layout);
  const kv = new KvStore(db, key);
  const scripts = Array.from({ length: allocations }, (_, index) => scriptOf(index));
  const jobs = [...new Set(scripts.map(({ job }) => job))];
  for (const job of jobs) kv.put(`vars/job/${job}`, "shared", "0");
  const runtime = await startHookRuntime({
    kv,
    signal: new AbortController().signal,
    onSecret() {},
    warn() {},
    allocation: (id) => scripts.map((one) => ({ ...one, id })).find((one) => one.allocationId === id),
    upstreams: () => new Set<string>(),
    hasHook: () => false,
    workers: () => [],
    dependents: () => [],
    command: async () => undefined,
    waiting: (_on, _limitMs, work) => work,
  });
  const clients = scripts.map((script): Client => ({ script }));
  const handles = scripts.map((script) => runtime.begin(script));
  let flushes = 0;
  const random = seeded();
  let killed = 0;
  /** What was acknowledged before a flush is in the database after it. */
  const flush = (job: string) => {
    const before = scripts.filter((one) => one.job === job).map((one) => ({ id: one.allocationId, own: ownOf(folder, one) }));
    kv.flush(job);
    flushes++;
    const stored = new KvStore(db, key);
    for (const { id, own } of before)
      if (Number(stored.get(`vars/job/${job}`, `own-${id}`) ?? 0) < own) throw new Error(`a write of ${id} is lost`);
  };
  try {
    const all = Promise.all(clients.map((client) => runToEnd(client, runtime, folder, rounds)));
    let isOver = false;
    all.then(
      () => (isOver = true),
      () => (isOver = true),
    );
    while (!isOver) {
      await delay(5 + random() * 20);
      flush(jobs[Math.floor(random() * jobs.length)] as string);
      const atWork = clients.filter(({ child, script }) => isAlive(child) && ownOf(folder, script) > 0);
      const victim = atWork[Math.floor(random() * atWork.length)];
      if (killed < kills && victim?.child?.kill("SIGKILL")) killed++;
    }
    await all;
    for (const job of jobs) flush(job);
    checkEnd(new KvStore(db, key), scripts, folder, rounds, killed);
  } finally {
    for (const { child } of clients) child?.kill("SIGKILL");
    for (const handle of handles) handle.end();
    await runtime.close();
  }
  return { writes: 2 * allocations * rounds, killed, flushes };
}

function isAlive(child: ChildProcess | undefined): boolean {
  return child?.exitCode === null && child.signalCode === null;
}

function scriptOf(index: number): RunningScript {
  const id = `00000000-0000-5000-8000-${String(index).padStart(12, "0")}`;
  return {
    allocationId: id,
    job: `job${Math.floor(index / WORKERS)}`,
    worker: `10.0.0.${index % WORKERS}`,
    event: "pre_deploy",
    hook: "stress",
  };
}

/** Starts the script again as often as it is killed; any other end but success is an error. */
async function runToEnd(client: Client, runtime: HookRuntime, folder: string, rounds: number): Promise<void> {
  const { allocationId, job, event, hook } = client.script;
  const env = {
    HOOK_API_HOST: runtime.host,
    HOOK_API_PORT: String(runtime.port),
    PATH: process.env.PATH,
    ALLOCATION_ID: allocationId,
    JOB: job,
    EVENT: event,
    COMMAND: hook,
  };
  for (;;) {
    const child = spawn(process.execPath, [CLIENT, folder, String(rounds)], { env, stdio: ["ignore", "ignore", "pipe"] });
    client.child = child;
    const said = child.stderr.toArray();
    const [code, signal] = await once(child, "exit");
    if (code === 0) return;
    if (signal !== "SIGKILL") throw new Error(`${allocationId} ended with ${code ?? signal}: ${(await said).join("")}`);
  }
}

/** The last number that the script knows to be written, or 0. */
function ownOf(folder: string, { allocationId }: RunningScript): number {
  return Number(
    journalOf(folder, allocationId)
      .filter((line) => line.startsWith("own-"))
      .at(-1)
      ?.split(" ")[1] ?? 0,
  );
}

function journalOf(folder: string, allocationId: string): string[] {
  const file = `${folder}/${allocationId}`;
  return existsSync(file) ? readFileSync(file, "utf8").split("\n") : [];
}

/** A killed script may have written without learning of it: so each kill may add one to what is acknowledged. */
function checkEnd(stored: KvStore, scripts: readonly RunningScript[], folder: string, rounds: number, killed: number): void {
  const shared = new Map<string, number>();
  for (const script of scripts) {
    const { allocationId: id, job } = script;
    const own = stored.get(`vars/job/${job}`, `own-${id}`);
    if (own !== String(rounds)) throw new Error(`${id} wrote ${rounds} at last, but ${own} is stored`);
    const acknowledged = journalOf(folder, id).filter((line) => line.startsWith("shared ")).length;
    shared.set(job, (shared.get(job) ?? 0) + acknowledged);
  }
  let unknown = 0;
  for (const [job, acknowledged] of shared) {
    const extra = Number(stored.get(`vars/job/${job}`, "shared")) - acknowledged;
    if (extra < 0) throw new Error(`${-extra} of ${acknowledged} counted writes of ${job} are lost`);
    unknown += extra;
  }
  if (unknown > killed) throw new Error(`${unknown} writes without an answer, but only ${killed} scripts were killed`);
}
