import { type LastOutcome, setLastOutcome } from "../../bucket/catalog/info.ts";
import type { OperationContext } from "../base/context.ts";
import { troubleOf } from "../base/outcome.ts";
import type { AllocationState } from "./rollout-state.ts";

/** The length at which a reason is cut. */
const REASON_LENGTH = 2_048;

/** The record of the last action on one allocation. */
export interface Noted extends Omit<LastOutcome, "reason"> {
  id: string;
  reason?: string | null;
}

/** Records actions on allocations in one transaction; reasons are masked, and cut at 2,048 characters. */
export function noteOutcomes({ db, log, run }: OperationContext, all: readonly Noted[]): void {
  if (all.length === 0) return;
  db.transaction(() => {
    for (const { id, action, outcome, reason } of all) {
      const masked = log.redactor.sentence(reason ?? "");
      const cut = masked.length > REASON_LENGTH ? `${masked.slice(0, REASON_LENGTH)}…`.toWellFormed() : masked;
      setLastOutcome(db, id, run.id, { action, outcome, reason: cut });
    }
  });
}

/** Records that an action begins on allocations, so that it is known even if the run is killed before its end. */
export function noteBegun(context: OperationContext, ids: readonly string[], action: string): void {
  const begun = ids.map((id): Noted => ({ id, action, outcome: "unknown" }));
  noteOutcomes(context, begun);
}

/** The outcome and reason of an action that ended with an error. */
export function outcomeOf(error: unknown): Pick<Noted, "outcome" | "reason"> {
  const { grade, message } = troubleOf(error);
  return { outcome: grade, reason: message };
}

/**
 * {@link noteBegun} for allocations of a rollout. Without `action`, each begins the action that the plan decided.
 */
export function noteStep(context: OperationContext, states: readonly AllocationState[], action?: string): void {
  noteStates(context, states, ({ plan }) => ({ action: action ?? plan.decision.action, outcome: "unknown", reason: "" }));
}

/** Records the outcomes of allocations of a rollout that have changed since the last record. */
export function noteEnds(context: OperationContext, states: readonly AllocationState[]): void {
  noteStates(context, states, (state) => {
    const last = lastEnd(state);
    const isCancelled = last?.outcome === "unknown" && context.signal.aborted;
    return isCancelled ? { ...last, outcome: "cancelled" } : last;
  });
}

function noteStates(
  context: OperationContext,
  states: readonly AllocationState[],
  lastOf: (state: AllocationState) => LastOutcome | undefined,
): void {
  const noted: Noted[] = [];
  for (const state of states) {
    const last = lastOf(state);
    if (last === undefined || JSON.stringify(last) === JSON.stringify(state.last)) continue;
    state.last = last;
    noted.push({ id: state.plan.allocation.id, ...last });
  }
  noteOutcomes(context, noted);
}

function lastEnd(state: AllocationState): LastOutcome | undefined {
  const { plan, trouble, last, isSynced, isBack, done, passedGate } = state;
  const { action } = plan.decision;
  const reason = trouble?.message ?? "";
  // What has failed stays failed until a deploy succeeds there, also when the release before is back.
  if (isBack)
    return trouble ? { action: "restored", outcome: trouble.grade, reason } : { action: "restore", outcome: "changed", reason };
  const begun = last?.action ?? (action === "skip" ? "gate" : action);
  if (trouble) return { action: begun, outcome: trouble.grade, reason };
  if (done) return { action, outcome: "changed", reason };
  if (passedGate) return { action: "gate", outcome: "ok", reason };
  return isSynced && last?.action === "sync" ? { ...last, outcome: "changed" } : last;
}
