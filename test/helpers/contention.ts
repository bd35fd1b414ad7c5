import { type ChildProcess, fork } from "node:child_process";
import { mkdirSync } from "node:fs";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { acquireLock, readLock } from "../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { Failure } from "../../lib/core/errors.ts";
import { SEED } from "./random.ts";
import { until } from "./temporary.ts";

const PROGRAM = new URL("../fixtures/lock-contender.ts", import.meta.url);

/**
 * Lets `count` processes contend for the lock of one bucket. In each round somebody who holds the lock is killed with
 * SIGKILL and replaced, and the others have to go on. Answers how many turns were taken and how many holders killed.
 */
export async function contend(folder: string, count: number, rounds: number): Promise<{ turns: number; killed: number }> {
  const layout = layoutOf(folder);
  mkdirSync(layout.data, { recursive: true });
  const seen = { turns: 0, violations: [] as string[] };
  const processes = new Map<number, ChildProcess>();
  for (let index = 0; index < count; index++) start(folder, processes, seen);
  let killed = 0;
  try {
    while (killed < rounds && seen.violations.length === 0) {
      const before = seen.turns;
      await until("a holder to kill", async () => {
        const lock = await readLock(layout);
        const holder = lock === undefined || lock === "unreadable" ? undefined : lock.holders[0]?.pid;
        return holder !== undefined && (processes.get(holder)?.kill("SIGKILL") ?? false);
      });
      killed++;
      await until("a replacement", () => {
        for (const [pid, child] of processes) if (child.signalCode !== null) processes.delete(pid);
        if (processes.size < count) start(folder, processes, seen);
        return processes.size === count;
      });
      await until("the others to go on", () => seen.turns > before || seen.violations.length > 0);
    }
  } finally {
    for (const child of processes.values()) child.kill("SIGKILL");
  }
  if (seen.violations.length > 0) throw new Error(seen.violations.join("\n"));
  await until("the lock to be free in the end", () => canTake(folder));
  return { turns: seen.turns, killed };
}

async function canTake(folder: string): Promise<boolean> {
  try {
    await (await acquireLock(layoutOf(folder), uuidV7(), "check")).release();
    return true;
  } catch (error) {
    if (error instanceof Failure && error.code === "bucket_busy") return false;
    throw error;
  }
}

/** How many contenders this process has started: each draws numbers from a seed of its own. */
let started = 0;

function start(folder: string, processes: Map<number, ChildProcess>, seen: { turns: number; violations: string[] }): void {
  const child = fork(PROGRAM, [folder, String(SEED + started++)], { stdio: "ignore" });
  processes.set(child.pid as number, child);
  child.on("message", (message: string) => {
    if (message === "turn") seen.turns++;
    else seen.violations.push(message);
  });
}
