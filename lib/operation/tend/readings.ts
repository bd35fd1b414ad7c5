import { catalogWorkers } from "../../bucket/catalog/catalog.ts";
import { knownFacts, storeFacts } from "../../bucket/catalog/info.ts";
import type { Observation } from "../../bucket/health/health-history.ts";
import { loadOpsConf } from "../../bucket/workspace/settings.ts";
import { runAll } from "../../core/async.ts";
import { parametersOf } from "../../run/protocol.ts";
import { type Readings, takeReading } from "../../transport/ask/readings.ts";
import type { Operation, OperationContext } from "../base/context.ts";
import { Fleet } from "../base/fleet.ts";
import { concludeWorkers, type Graded, gradeOf } from "../base/outcome.ts";
import { chooseWorkers } from "../base/workers.ts";
import { keepHealth, reachOf } from "../health/history.ts";

/** What can be read. */
export type ReadingKind = keyof Readings;
/** What was read of one worker. */
export type Reading<K extends ReadingKind> = Readings[K];
/** The result for a worker: its grade and, where that is `ok`, the reading. */
export type WorkerReading<K extends ReadingKind> = Graded & Record<K, Reading<K> | null>;

/**
 * Reads the facts of workers (CPU, memory, disks, …) and stores them in the database, never in the workspace. Throws
 * `failed` after all were asked, where one did not answer, or `cancelled`, with the whole result in the details.
 */
export const facts: Operation = (context, params) =>
  read(context, "facts", params, (worker, found) => storeFacts(context.db, worker, found));

/** Asks workers for load and uptime. Throws like {@link facts}. */
export const uptime: Operation = (context, params) => read(context, "uptime", params);

/** Asks workers how busy they are. Throws like {@link facts}. */
export const sysstat: Operation = (context, params) => read(context, "sysstat", params);

async function read<K extends ReadingKind>(
  context: OperationContext,
  what: K,
  params: Record<string, unknown>,
  onReading: (worker: string, reading: Reading<K>) => void = () => {},
): Promise<{ workers: Graded[] }> {
  const { concurrency, ...selection } = parametersOf(`worker_${what}`, params);
  const unasked = (worker: string): Graded => ({ worker, outcome: "not_started", error: null });
  const workers = chooseWorkers(context, selection).map(({ host }) => unasked(host));
  const found = new Map<string, Reading<K>>();
  const { settings } = await loadOpsConf(context.layout);
  await using fleet = new Fleet(context, catalogWorkers(context.db));
  const countOne = context.progress.counting(what, workers.length);
  const ask = async (one: Graded) => {
    try {
      const reading = await takeReading(await fleet.open(one.worker), what, context.signal);
      onReading(one.worker, reading);
      found.set(one.worker, reading);
      one.outcome = "ok";
    } catch (error) {
      Object.assign(one, gradeOf(error));
    }
    countOne();
  };
  await runAll(workers, concurrency ?? settings.sshConcurrency, ask, context.signal);
  keepHealth(context, [
    ...reachOf(workers),
    ...(what === "uptime" ? loadsOf(context, found as Map<string, Reading<"uptime">>) : []),
  ]);
  const read = workers.map((one) => ({ ...one, [what]: found.get(one.worker) ?? null }));
  return concludeWorkers(context, fleet, { workers: read });
}

/** A worker whose load of five minutes is twice its processors, or more, is under high load. Facts tell the processors. */
const HIGH_LOAD = 2;

function loadsOf({ db }: OperationContext, found: ReadonlyMap<string, Reading<"uptime">>): Observation[] {
  const { items } = knownFacts(db, { limit: Number.MAX_SAFE_INTEGER });
  const factsOf = new Map(items.map(({ worker, facts }) => [worker, facts as { cpu_count?: number }]));
  return [...found].flatMap(([worker, { load5 }]): Observation[] => {
    const count = Number(factsOf.get(worker)?.cpu_count);
    if (!count) return [];
    const isHigh = load5 >= HIGH_LOAD * count;
    const reason = isHigh ? `load ${load5} on ${count} processors` : "";
    return [{ job: "", worker, aspect: "load", state: isHigh ? "high" : "normal", reason }];
  });
}
