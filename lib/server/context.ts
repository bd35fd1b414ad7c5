import type { AuditLog } from "../audit/log.ts";
import type { AccessStore } from "../auth/access-store.ts";
import type { Identity } from "../auth/guard.ts";
import type { Sessions } from "../auth/session.ts";
import type { LabelFile } from "../bucket/base/layout.ts";
import { findBucket, type RootBucket } from "../bucket/source/root.ts";
import type { Launcher } from "../core/spawn.ts";
import type { Listener } from "../http/listen.ts";
import type { Answer } from "../http/message.ts";
import type { Call, QueryFields, Route } from "../http/router.ts";
import type { Supervisor } from "../run/supervisor.ts";
import type { Approvals } from "./approval/approvals.ts";
import type { ReadThread } from "./beside.ts";
import type { Lines } from "./line.ts";
import type { LogReadings } from "./log-readings.ts";
import type { Messenger } from "./messages/messenger.ts";
import { type Needs, requireExactly } from "./people/permission.ts";
import type { Readers } from "./reading.ts";
import type { RunList } from "./run-list.ts";
import type { Scheduler } from "./watch/scheduler.ts";

/** The services that the handlers of routes use. */
export interface Services {
  /** The folder of the buckets. */
  root: string;
  /** What makes a folder in it a bucket. */
  labels: LabelFile;
  supervisor: Supervisor;
  /** The starts that wait for their bucket. */
  lines: Lines;
  /** What is proposed in the buckets. */
  approvals: Approvals;
  /** The tokens beside the server's own. */
  access: AccessStore;
  sessions: Sessions;
  totpSessions: Sessions;
  launcher: Launcher;
  audit: AuditLog;
  /** For reads of a few rows. */
  readers: Readers;
  /** For all others. */
  beside: ReadThread;
  runList: RunList;
  /** What goes on in the HTTP server now. */
  load: Listener["load"];
  /** For logs, which processes of their own read. */
  logReadings: LogReadings;
  scheduler: Scheduler;
  messenger: Messenger;
}

/** The services, and the identity behind the request. */
export interface Context extends Services {
  identity: Identity;
}

/** An entry of the server's route table. */
export type ServerRoute = Route<Context> & { role: Needs<never, Context> };

/** What a route says besides its address and the role that it needs. */
type Definition<Q extends QueryFields, B, A> = Omit<Route<Context, Q, B>, "method" | "path" | "handle"> & {
  handle(call: A, context: Context): Promise<Answer>;
};

type Method = Route<Context>["method"];
/** A method and a path, such as `GET /api/buckets`. */
type Address = `${Method} /${string}`;

/** A route table in groups. */
export type RouteGroups = Readonly<Record<string, readonly ServerRoute[]>>;

/** A route for clients with a role ({@link RoleRule}). The types of its query and body follow from its shapes. */
export function route<Q extends QueryFields, B>(
  address: Address,
  role: Needs<NoInfer<Call<Q, B>>, Context>,
  definition: Definition<Q, B, Call<Q, B>>,
): ServerRoute {
  const [method, path] = address.split(" ");
  return { ...definition, method, role, path, handle: permitted(role, definition.handle) } as unknown as ServerRoute;
}

/** A request about a bucket. */
export interface BucketCall<Q extends QueryFields = QueryFields, B = unknown> extends Call<Q, B> {
  bucket: RootBucket;
}

/**
 * A {@link route} whose path goes on behind the id of a bucket, which the handler gets; the address of the bucket itself is
 * the method alone. May fail with `bucket_not_found`.
 */
export function bucketRoute<Q extends QueryFields, B>(
  address: Address | Method,
  role: Needs<NoInfer<BucketCall<Q, B>>, Context>,
  definition: Definition<Q, B, BucketCall<Q, B>>,
): ServerRoute {
  const [method, path = ""] = address.split(" ");
  const handle = permitted(role, definition.handle);
  return {
    ...definition,
    method,
    role,
    path: `/api/buckets/{bucket_id}${path}`,
    failures: ["bucket_not_found", ...(definition.failures ?? [])],
    async handle(call: Call<Q, B>, context: Context) {
      const bucket = findBucket(context.root, call.params.bucket_id ?? "", context.labels);
      return handle({ ...call, bucket }, context);
    },
  } as unknown as ServerRoute;
}

/** The handler behind what remains to be checked once the body is read. */
function permitted<A>(role: Needs<A, Context>, handle: (call: A, context: Context) => Promise<Answer>): typeof handle {
  return async (call, context) => {
    requireExactly(role, call, context);
    return handle(call, context);
  };
}
