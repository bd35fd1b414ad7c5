import type { Row } from "../base/database.ts";

/** The words of hook-runtime.md, States. `stop` is what the next deploy does first. Health is in the gate. */
export const ROLLOUTS = ["new", "update", "promoted", "stop", "disabled", "removed"] as const;

/**
 * The outcome of the last action on an allocation. `unknown`: the action began and no end is recorded, because it goes
 * on or its run was killed. `changed`: a deploy did it. `ok`: job control did it, or the gate found the allocation
 * healthy.
 */
export const LAST_OUTCOMES = ["unknown", "changed", "ok", "failed", "unreachable", "cancelled"] as const;
/** The outcomes of what went wrong. */
export const FAILED_OUTCOMES: readonly string[] = ["failed", "unreachable"];
/** All others, with that of what was never touched. */
export const OTHER_OUTCOMES = ["", ...LAST_OUTCOMES].filter((outcome) => !FAILED_OUTCOMES.includes(outcome));

/** The states that allocations can be asked for. `unsettled`: a rollout began there and did not come to its end. */
export const STATES = [...ROLLOUTS, "unsettled"] as const;

const listOf = (words: readonly string[]) => `(${words.map((word) => `'${word}'`).join(", ")})`;

/**
 * The condition for allocations `a` in one of the states, with one of the outcomes; no list stands for any. The words
 * have to be known ones. The condition names all columns before the job in the index `allocations_by_state`, so that
 * SQLite begins in the index at each combination, and meets the jobs in order.
 */
export function inStates(states: readonly string[] = ROLLOUTS, outcomes: readonly string[] = ["", ...LAST_OUTCOMES]): string {
  const rollouts = states.filter((state) => state !== "unsettled");
  const rollout = `a.rollout IN ${listOf(rollouts)}`;
  const outcome = `a.outcome IN ${listOf(outcomes)}`;
  if (rollouts.length === states.length) return `a.unsettled IN (0, 1) AND ${rollout} AND ${outcome}`;
  if (rollouts.length > 0) return `(a.unsettled = 1 OR ${rollout}) AND ${outcome}`;
  return `a.unsettled = 1 AND a.rollout IN ${listOf(ROLLOUTS)} AND ${outcome}`;
}

const PRESENT = "a.removed = 0";
/** What is counted of the allocations of a job. The first four are all that are not removed; the others are some of them. */
const COUNTS = {
  promoted: inStates(["promoted"]),
  new: inStates(["new"]),
  update: inStates(["update"]),
  disabled: `${inStates(["disabled", "stop"])} AND ${PRESENT}`,
  failed: `${inStates(undefined, ["failed"])} AND ${PRESENT}`,
  unreachable: `${inStates(undefined, ["unreachable"])} AND ${PRESENT}`,
  unsettled: `${inStates(["unsettled"])} AND ${PRESENT}`,
  // A failed one is told as failed.
  waiting: inStates(["new", "update"], OTHER_OUTCOMES),
};
/** The order in which the counts are shown. */
const SHOWN = ["promoted", "failed", "unreachable", "unsettled", "waiting", "new", "update", "disabled"] as const;

/** Columns with the counts of the allocations that `whose` is true for. */
export function countColumns(whose: string): string {
  const from = "FROM allocations a INDEXED BY allocations_by_state";
  return SHOWN.map((name) => `(SELECT COUNT(*) ${from} WHERE ${whose} AND ${COUNTS[name]}) AS "${name}"`).join(", ");
}

/** The number of all allocations that are not removed, from a row with {@link countColumns}. */
export function allocationsIn({ promoted, new: begun, update, disabled }: Row): number {
  return [promoted, begun, update, disabled].reduce<number>((sum, one) => sum + Number(one), 0);
}
