import type { CatalogAllocation } from "../../bucket/base/model.ts";
import { type Promotion, setStopped, startAnew } from "../../bucket/catalog/promotions.ts";
import type { OperationContext } from "../base/context.ts";
import type { Evidence } from "../base/evidence.ts";
import type { Fleet } from "../base/fleet.ts";
import type { Grade } from "../base/outcome.ts";
import { type Noted, noteOutcomes } from "../plan/last-outcomes.ts";
import type { Effects } from "../reach/effects.ts";

/** What a job says about itself on a worker. */
export interface JobStatus {
  exit_code: number | null;
  /** The last lines of what it says. */
  lines: string[];
}

/** How it went for one allocation; filled in as the run goes on. */
export interface ControlState {
  readonly allocation: CatalogAllocation;
  readonly promoted: Promotion;
  outcome: Grade;
  /** Why it is neither ok nor still to come. */
  error: string | null;
  duration_ms: number;
  /** The promoted files were put back on the worker before the target ran. */
  put_back?: true;
  /** What its status is, where that was asked for. */
  status?: JobStatus;
  /** What was found there, where the health check after its batch failed. */
  evidence?: Evidence | null;
}

/** What a run of job control is about. */
export interface Control {
  readonly context: OperationContext;
  readonly fleet: Fleet;
  readonly effects: Effects;
  /** All that are not removed. */
  readonly present: readonly CatalogAllocation[];
  readonly target: string;
  /** After each batch. */
  readonly healthCheck: boolean;
  /** A stopped allocation is started as a new one by the next deploy. */
  readonly forget: boolean;
}

/** The workers of some allocations, for people. */
export function hostsOf(states: readonly ControlState[]): string {
  return states.map(({ allocation }) => allocation.worker).join(", ");
}

/**
 * Records the outcome of the target for allocations where it began or could not begin. A status is not recorded,
 * because it changes nothing.
 */
export function noteControl({ context, target }: Control, states: readonly ControlState[]): void {
  if (target === "status") return;
  noteOutcomes(
    context,
    states.flatMap(({ allocation: { id }, outcome, error }): Noted[] =>
      outcome === "not_started" || outcome === "skipped" ? [] : [{ id, action: target, outcome, reason: error }],
    ),
  );
}

/** Notes what a target that has succeeded means for the next deploy. */
export function noteTarget({ context, target, forget }: Control, { id, job }: CatalogAllocation): void {
  const { db } = context;
  if (target === "stop" && forget) startAnew(db, [{ job, id }]);
  if (target === "start" || target === "restart") setStopped(db, job, id, "no");
}

/** For a target it is the version that runs, and no other: what was built since is not there yet. */
export function versionsOf({ promoted: { version } }: ControlState): Record<string, string> {
  return { CURRENT_VERSION: version, NEW_VERSION: version };
}
