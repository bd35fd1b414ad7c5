import type { GroupIdentity } from "../core/process.ts";

/** What a run can be asked to do. The later issues add theirs here. */
export const RUN_KINDS = ["push", "build", "deploy", "worker_trust"] as const;
/** One of {@link RUN_KINDS}. */
export type RunKind = (typeof RUN_KINDS)[number];

/** control-plane.md, Resources: the four values of a run's status. */
export type RunStatus = "running" | "succeeded" | "failed" | "cancelled";

/** How far a run is: shown in `GET …/runs/{id}`. */
export interface Progress {
  phase: string;
  done: number;
  total: number;
  waiting: { on: string; since: string; until: string | null }[];
}

/** The orders a run process gets, over IPC and never in its arguments. */
export interface Orders {
  type: "orders";
  runId: string;
  bucketDir: string;
  bucketId: string;
  kind: RunKind;
  params: Record<string, unknown>;
}

/** Server to run process. A bucket's creation goes to a short process of the same kind. */
export type ToWorker = Orders | { type: "cancel" } | { type: "init"; bucketDir: string; bucketId: string };

/** How the operation ended; the supervisor alone decides the run's status from it. */
export interface OutcomeMessage {
  type: "outcome";
  ok: boolean;
  error: { code: string; message: string } | null;
  result: unknown;
}

/** Run process to server. */
export type FromWorker =
  | { type: "group_open"; group: GroupIdentity }
  | { type: "group_close"; group: GroupIdentity }
  | { type: "progress"; progress: Progress }
  | OutcomeMessage;

/** Between the request to stop and the forced end of everything (decisions: Runs, Cancel). */
export const CANCEL_WAIT_MS = 10_000;
