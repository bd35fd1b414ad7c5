import type { Database } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import type { RunLog } from "../../bucket/base/logs.ts";
import type { KvStore } from "../../bucket/kv/kv.ts";
import type { Launcher } from "../../core/spawn.ts";
import type { RunKind } from "../../run/protocol.ts";
import type { ProgressBoard } from "./progress.ts";

/** The run that an operation is carried out for. */
export interface RunIdentity {
  id: string;
  kind: RunKind;
  bucketId: string;
}

/** All that an operation may use; handed down only where it is needed, never to plan, codec or transport. */
export interface OperationContext {
  layout: Layout;
  db: Database;
  kv: KvStore;
  log: RunLog;
  signal: AbortSignal;
  launcher: Launcher;
  run: RunIdentity;
  /** Where the run tells how far it is and what it waits for. */
  progress: ProgressBoard;
}

/** What carries out a run: checks its parameters itself, throws a Failure or answers the run's result. */
export type Operation = (context: OperationContext, params: Record<string, unknown>) => Promise<unknown>;
