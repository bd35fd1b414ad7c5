import type { FileProblems, Problems } from "../../bucket/base/problems.ts";
import { unknownName } from "../../bucket/base/problems.ts";
import type { SCHEDULED_KINDS } from "../../bucket/workspace/schedules.ts";
import type { Workspace } from "../../bucket/workspace/workspace.ts";
import { check, type Shape } from "../../core/shape.ts";
import { RUNS, type RunKind } from "../../run/protocol.ts";

/** What the parameters of a run may name, by field. */
type Known = Record<"jobs" | "workers" | "labels", { kind: string; names: ReadonlySet<string> }>;

/** Checks the parameters of each schedule as a start of the run would: their shapes, and the names in them. */
export function checkSchedules({ schedules, jobs, broken, workers }: Workspace, problems: Problems): void {
  const found = problems.in("workspace/schedules.json", "ErrInvalidSchedules");
  const known: Known = {
    jobs: { kind: "job", names: new Set([...jobs.map(({ name }) => name), ...broken]) },
    workers: { kind: "worker", names: new Set(workers.map(({ host }) => host.toLowerCase())) },
    labels: { kind: "label", names: new Set(workers.flatMap(({ labels }) => labels)) },
  };
  for (const [index, { kind, parameters }] of schedules.schedules.entries()) {
    const path = `schedules/${index}/parameters`;
    const shape: Shape<unknown> = RUNS[kind satisfies (typeof SCHEDULED_KINDS)[number] & RunKind].parameters;
    const checked = check(shape, parameters);
    if (!checked.ok) for (const one of checked.problems) found.error(`${path}/${one.path}`.replace(/\/$/, ""), one.message);
    else checkNames(parameters, path, known, found);
  }
}

function checkNames(parameters: Record<string, unknown>, path: string, known: Known, found: FileProblems): void {
  for (const [field, { kind, names }] of Object.entries(known))
    for (const [index, name] of ((parameters[field] ?? []) as string[]).entries())
      if (!names.has(name.trim().toLowerCase())) found.error(`${path}/${field}/${index}`, unknownName(kind, name, names));
}
