import type { Identity } from "../auth/guard.ts";
import type { Sessions } from "../auth/session.ts";
import type { TotpCodes } from "../auth/totp.ts";
import { findBucket, type RootBucket } from "../bucket/source/root.ts";
import { Failure } from "../core/errors.ts";
import type { Launcher } from "../core/spawn.ts";
import { type Answer, json } from "../http/message.ts";
import type { Call, QueryFields, Route } from "../http/router.ts";
import type { RunKind, RunParams } from "../run/protocol.ts";
import type { Supervisor } from "../run/supervisor.ts";
import type { ReadThread } from "./beside.ts";
import type { Readers } from "./reading.ts";
import type { RunList } from "./run-list.ts";

/** The services that the handlers of routes use. */
export interface Services {
  /** The folder of the buckets. */
  root: string;
  supervisor: Supervisor;
  sessions: Sessions;
  totpSessions: Sessions;
  /** Undefined where TOTP is off. */
  totp: TotpCodes | undefined;
  launcher: Launcher;
  /** For reads of a few rows. */
  readers: Readers;
  /** For all others. */
  beside: ReadThread;
  runList: RunList;
}

/** The services, and the identity behind the request. */
interface Context extends Services {
  identity: Identity;
}

/** An entry of the server's route table. */
export type ServerRoute = Route<Context>;

/** Lets the types of a route's query and body follow from its shapes. */
export function route<Q extends QueryFields, B>(definition: Route<Context, Q, B>): ServerRoute {
  return definition as unknown as ServerRoute;
}

/** A request about a bucket. */
interface BucketCall<Q extends QueryFields = QueryFields, B = unknown> extends Call<Q, B> {
  bucket: RootBucket;
}

/** A {@link route} whose path goes on behind the id of a bucket, which the handler gets. May fail with `bucket_not_found`. */
export function bucketRoute<Q extends QueryFields, B>(
  definition: Omit<Route<Context, Q, B>, "handle"> & { handle(call: BucketCall<Q, B>, context: Context): Promise<Answer> },
): ServerRoute {
  return route({
    ...definition,
    path: `/api/buckets/{bucket_id}${definition.path}`,
    failures: ["bucket_not_found", ...(definition.failures ?? [])],
    async handle(call, context) {
      const bucket = findBucket(context.root, call.params.bucket_id ?? "");
      return definition.handle({ ...call, bucket }, context);
    },
  });
}

/**
 * Starts a run in a bucket and answers 202 with exactly `run_id` (control-plane.md, What the service does 4).
 * `prepare` works in the reserved bucket and answers the parameters of the run; if it fails, nothing was started.
 * Throws `bucket_not_initialized` and `bucket_busy` before `prepare` is called.
 */
export async function startRun(
  { bucket: { layout, id }, request }: Pick<BucketCall, "bucket" | "request">,
  kind: RunKind,
  { supervisor, readers, identity }: Context,
  prepare: (runId: string) => Promise<RunParams>,
): Promise<Answer> {
  // A database that can be opened can be used by runs. A restore must start with a damaged database too.
  await readers
    .read(layout, () => undefined)
    .catch((error: unknown) => {
      const isDamaged = error instanceof Failure && error.code === "database_damaged";
      if (kind !== "snapshot_restore" || !isDamaged) throw error;
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
