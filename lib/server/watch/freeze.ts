import { Failure } from "../../core/errors.ts";
import { described, list, object, string } from "../../core/shape.ts";
import { type FreezeRule, openFreeze } from "../../plan/calendar.ts";
import { TIME } from "../../run/progress.ts";
import type { RunKind, RunParams } from "../../run/protocol.ts";

/** What a freeze holds back: what brings something else to the workers, or runs what somebody wrote there. */
const HELD_BACK: readonly RunKind[] = ["deploy", "rollback", "snapshot_restore", "run_command", "hooks", "job_run"];

/** The windows that an overview shows. */
export const FREEZES = described(
  list(object({ from: TIME, to: TIME, reason: string() })),
  "The freezes that are on, or begin within seven days, by their beginning",
);

/** True for a kind of runs that a freeze holds back. */
export function isHeldBack(kind: RunKind): boolean {
  return HELD_BACK.includes(kind);
}

/** Throws `frozen` where a freeze holds such a run back now; its details are the window. */
export function requireThawed(
  rules: readonly FreezeRule[],
  { kind, params }: { kind: RunKind; params: RunParams },
  now: number,
): void {
  if (!isHeldBack(kind) || (kind === "deploy" && params.dry_run === true)) return;
  const open = openFreeze(rules, now);
  if (!open) return;
  const details = shownFreeze(open);
  const message = `Cannot start ${kind}: the bucket is frozen until ${details.to}: ${open.reason}; in an emergency an admin gives --break-glass`;
  throw new Failure("frozen", message, { details });
}

/** What is shown of a freeze. */
export function shownFreeze({ fromMs, toMs, reason }: { fromMs: number; toMs: number; reason: string }) {
  return { from: new Date(fromMs).toISOString(), to: new Date(toMs).toISOString(), reason };
}
