import { once } from "node:events";
import { writeSync } from "node:fs";
import { layoutOf, runLayout } from "../../bucket/base/layout.ts";
import type { JobSecret } from "../../bucket/catalog/job-secret.ts";
import type { AskedTrust, SnapshotSecret } from "../../bucket/snapshots/envelope.ts";
import { sleep } from "../../core/async.ts";
import { explain, Failure, hasErrno } from "../../core/errors.ts";
import { writeAtomic } from "../../core/files.ts";
import { identify } from "../../core/process.ts";
import { Launcher } from "../../core/spawn.ts";
import type { WantedJobLogs } from "../../operation/tend/job-logs.ts";
import { ActivityWriter } from "../../run/activity-writer.ts";
import {
  CANCEL_WAIT_MS,
  type FromWorker,
  type Orders,
  type OutcomeMessage,
  type ServerMeans,
  type Task,
  type ToWorker,
} from "../../run/protocol.ts";
import type { WantedLogs } from "./run-logs.ts";

/** The orders of a run's process. */
type Order = Exclude<ToWorker, { type: "cancel" }>;

/** The descriptor of activity.log. */
const ACTIVITY = 1;

/**
 * The process of one run (decisions: Runs). The server sends its orders over the IPC channel. The process reports every
 * process group that it opens and closes. It stops on TERM, on a cancel, and when the channel is gone, because then the
 * server is gone too. Its stdout and stderr are the run's activity.log.
 */
export async function runWorker(): Promise<number> {
  if (process.send === undefined) throw new Failure("usage", "ops worker run is started by the server, with a channel to it");
  const order = await firstOrder();
  const stop = new AbortController();
  const launcher = new Launcher(process.env, (change, group) =>
    report({ type: change === "open" ? "group_open" : "group_close", group }),
  );
  process.on("SIGTERM", () => stop.abort());
  process.on("message", (message: ToWorker) => {
    if (message.type === "cancel") stop.abort();
  });
  process.on("disconnect", () => void serverIsGone(stop, launcher));
  const outcome = await carryOut(order, launcher, stop);
  const isTold = await new Promise<boolean>((resolve) => {
    if (process.connected) process.send?.(outcome, (error: Error | null) => resolve(error === null));
    else resolve(false);
  });
  // From the file the next server knows what was done and what was not.
  if (!isTold && order.type === "orders") {
    const { outcome: file } = runLayout(layoutOf(order.bucketDir), order.runId);
    await writeAtomic(file, `${JSON.stringify(outcome)}\n`).catch(() => {});
  }
  // The outcome is delivered: nothing that is still open may keep the bucket busy.
  process.exit(outcome.ok ? 0 : 1);
}

/** Waits for the orders. Nothing has begun until then: TERM, a cancel and the end of the channel end this process. */
async function firstOrder(): Promise<Order> {
  const leave = () => process.exit(1);
  process.once("disconnect", leave);
  const [message] = (await once(process, "message")) as [ToWorker];
  if (message.type === "cancel") return leave();
  process.off("disconnect", leave);
  return message;
}

async function carryOut(order: Order, launcher: Launcher, stop: AbortController): Promise<OutcomeMessage> {
  try {
    if (order.type === "task") return await carryOutTask(order, { launcher, signal: stop.signal, hookUser: order.hookUser });
    const { perform } = await import("../../operation/index.ts");
    const writer = new ActivityWriter(ACTIVITY, runLayout(layoutOf(order.bucketDir), order.runId));
    return await perform(order satisfies Orders, {
      launcher,
      server: identify(process.ppid) ?? null,
      signal: stop.signal,
      activity: (text, place) => writer.append(text, place),
      progress: (progress) => report({ type: "progress", progress }),
    });
  } catch (error) {
    const code = error instanceof Failure ? error.code : "internal";
    return { type: "outcome", ok: false, error: { code, message: explain(error) }, result: null };
  }
}

async function carryOutTask(task: Task, means: TaskMeans): Promise<OutcomeMessage> {
  const result = (await TASKS[task.name](task, means)) ?? null;
  return { type: "outcome", ok: true, error: null, result };
}

/** What a task works with. */
interface TaskMeans extends ServerMeans {
  launcher: Launcher;
  signal: AbortSignal;
}

const TASKS: Record<Task["name"], (task: Task, means: TaskMeans) => Promise<unknown>> = {
  async init({ bucketDir, bucketId }) {
    const { initBucket } = await import("../../bucket/workspace/init.ts");
    return await initBucket(bucketDir, { bucketId, source: false });
  },
  async job_secret({ bucketDir, input }) {
    const { changeJobSecret } = await import("../../bucket/catalog/job-secret.ts");
    await changeJobSecret(layoutOf(bucketDir), input as JobSecret);
  },
  async verify_snapshot({ bucketDir, input }, { signal }) {
    const { verifySnapshot } = await import("../../bucket/snapshots/restore.ts");
    const { trustAt } = await import("../../bucket/snapshots/envelope.ts");
    const { file, signer, unsigned, ...secret } = input as { file: string } & AskedTrust & SnapshotSecret;
    return await verifySnapshot(file, { trust: await trustAt(layoutOf(bucketDir), { signer, unsigned }), secret, signal });
  },
  async run_logs({ bucketDir, input }) {
    const { runLogLines, writeLines } = await import("./run-logs.ts");
    await writeLines(runLogLines(layoutOf(bucketDir), input as WantedLogs), writeWhole);
  },
  async doctor({ bucketDir }, means) {
    const { examine } = await import("../../operation/tend/doctor.ts");
    for (const finding of await examine({ layout: layoutOf(bucketDir), ...means })) writeWhole(`${JSON.stringify(finding)}\n`);
  },
  async job_logs({ bucketDir, input }, means) {
    const { readJobLogs } = await import("../../operation/tend/job-logs.ts");
    const context = { layout: layoutOf(bucketDir), ...means };
    await readJobLogs(context, input as WantedJobLogs, (line) => writeWhole(`${line}\n`));
  },
};

const FULL_PIPE_MS = 10;
const PAUSE = new Int32Array(new SharedArrayBuffer(4));

/**
 * Writes text to stdout as it is before this returns, however slow the reader is: meanwhile this process does nothing else,
 * and keeps nothing. Throws where nobody reads any more.
 */
function writeWhole(text: string): void {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; ) {
    try {
      at += writeSync(process.stdout.fd, bytes, at);
    } catch (error) {
      if (!hasErrno(error, "EAGAIN")) throw error;
      Atomics.wait(PAUSE, 0, 0, FULL_PIPE_MS);
    }
  }
}

function report(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}

async function serverIsGone(stop: AbortController, launcher: Launcher): Promise<void> {
  stop.abort();
  await sleep(CANCEL_WAIT_MS);
  await launcher.endAll(0);
  process.exit(1);
}
