import type { RootBucket } from "../bucket/source/root.ts";
import { Failure } from "../core/errors.ts";
import { type Answer, type HttpRequest, json } from "../http/message.ts";
import type { RunKind } from "../run/protocol.ts";
import type { Context } from "./context.ts";

/**
 * Starts a run in a bucket and answers 202 with exactly `run_id` (control-plane.md, What the service does 4).
 * `prepare` works in the reserved bucket and answers what the run is to do; if it fails, nothing was started.
 * Throws `bucket_not_initialized` and `bucket_busy` before `prepare` is called.
 */
export async function startRun(
  { layout, id }: RootBucket,
  kind: RunKind,
  request: HttpRequest,
  { supervisor, readers, identity }: Context,
  prepare: (runId: string) => Promise<Record<string, unknown>>,
): Promise<Answer> {
  // To open the database is enough to know that runs can use it. A restore must start with a damaged database too.
  const isDamaged = (error: unknown) => error instanceof Failure && error.code === "database_damaged";
  await Promise.try(() => readers.read(layout, () => undefined)).catch((error: unknown) => {
    if (kind !== "snapshot_restore" || !isDamaged(error)) throw error;
  });
  const reservation = await supervisor.reserve(layout, id, kind);
  try {
    const params = await prepare(reservation.runId);
    const { address, via } = identity;
    await reservation.start(params, { address, via }, request.id);
  } catch (error) {
    await reservation.release();
    throw error;
  }
  return json(202, { run_id: reservation.runId });
}
