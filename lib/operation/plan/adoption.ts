import { counted, firstOf } from "../../core/plain-text.ts";
import type { PlannedFile } from "../../plan/deploy-plan.ts";
import type { Trouble } from "../base/outcome.ts";
import { isOfOps } from "../reach/tree-drift.ts";
import type { AllocationPlan, JobPlan } from "./plan-job.ts";

const MOST_DIFFERING = 5;

/** The plan of a job once its workers were looked at: what differs there is left alone. */
export function afterLook(
  plan: JobPlan,
  { differs, troubles }: { differs: ReadonlyMap<string, PlannedFile[]>; troubles: ReadonlyMap<string, Trouble> },
): JobPlan {
  const allocations = plan.allocations.map((one): AllocationPlan => {
    const { id, worker } = one.allocation;
    if (one.decision.action !== "adopt") return { ...one, differs: [] };
    if (troubles.has(worker)) return one;
    const files = differs.get(id) ?? [];
    if (files.length === 0) return { ...one, differs: [] };
    return { ...one, differs: files, decision: { action: "skip", reason: reasonOf(files, one.tree.files) } };
  });
  return { ...plan, allocations, needsWork: allocations.some(({ decision }) => decision.action === "adopt") };
}

/** Why an allocation is left alone. */
function reasonOf(files: readonly PlannedFile[], all: readonly { path: string }[]): string {
  const compared = all.filter(({ path }) => !isOfOps(path)).length;
  if (files.filter(({ change }) => change === "added").length === compared) return "nothing of it is there";
  const names = files.map(({ path }) => path);
  const differ = files.length === 1 ? "differs" : "differ";
  return `${counted(files.length, "file")} ${differ}: ${firstOf(names, MOST_DIFFERING)}`;
}
