import { sleep } from "../core/async.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { Launcher } from "../core/spawn.ts";
import {
  CANCEL_WAIT_MS,
  type FromWorker,
  type Orders,
  type OutcomeMessage,
  type ToWorker,
} from "../run/protocol.ts";

/**
 * The process of one run (decisions: Runs). It gets its orders over the IPC channel, reports every process group it
 * opens and closes, and stops when it is told to or when the channel is gone, because then the server is gone too.
 * Its stdout and stderr are the run's activity.log.
 */
export async function runWorker(): Promise<number> {
  if (process.send === undefined)
    throw new Failure("usage", "ops worker run is started by the server, with a channel to it");
  const stop = new AbortController();
  const launcher = new Launcher(process.env, (change, group) =>
    report({ type: change === "open" ? "group_open" : "group_close", group }),
  );
  process.on("SIGTERM", () => stop.abort());
  // Ctrl-C in the server's terminal is the server's business.
  process.on("SIGINT", () => {});
  process.on("disconnect", () => void serverIsGone(stop, launcher));
  const outcome = await carryOut(await firstMessage(stop), launcher, stop);
  await new Promise<void>((resolve) => {
    if (process.connected) process.send?.(outcome, () => resolve());
    else resolve();
  });
  // What is left open must not keep the bucket busy: the outcome is delivered, so this process may go.
  process.exit(outcome.ok ? 0 : 1);
}

async function carryOut(
  message: Exclude<ToWorker, { type: "cancel" }>,
  launcher: Launcher,
  stop: AbortController,
): Promise<OutcomeMessage> {
  try {
    if (message.type === "init") return await initialise(message);
    const { perform } = await import("../operation/index.ts");
    return await perform(message satisfies Orders, {
      launcher,
      signal: stop.signal,
      activity: (text) => process.stdout.write(text),
      progress: (progress) => report({ type: "progress", progress }),
    });
  } catch (error) {
    const code = error instanceof Failure ? error.code : "internal";
    return { type: "outcome", ok: false, error: { code, message: messageOf(error) }, result: null };
  }
}

async function initialise(order: { bucketDir: string; bucketId: string }): Promise<OutcomeMessage> {
  const { initBucket } = await import("../bucket/init.ts");
  const result = await initBucket(order.bucketDir, { bucketId: order.bucketId, source: false });
  return { type: "outcome", ok: true, error: null, result };
}

function firstMessage(stop: AbortController): Promise<Exclude<ToWorker, { type: "cancel" }>> {
  return new Promise((resolve) => {
    process.on("message", (message: ToWorker) => {
      if (message.type === "cancel") stop.abort();
      else resolve(message);
    });
  });
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
