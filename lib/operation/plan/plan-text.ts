import { bytesOf } from "../../bucket/base/contents.ts";
import { keptContent } from "../../bucket/catalog/contents.ts";
import type { StagedFile } from "../../bucket/catalog/staging.ts";
import { textOfFile, unifiedDiff } from "../../codec/diff.ts";
import { Failure } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { Redactor } from "../../core/redact.ts";
import type { ChangeOptions } from "../../plan/changes.ts";
import type { DeployPlan, PlannedAllocation, PlannedFile, PlannedJob } from "../../plan/deploy-plan.ts";
import type { OperationContext } from "../base/context.ts";
import { describeDrift, isForceable, MOST_EDITS } from "../reach/tree-drift.ts";
import { type AllocationPlan, type JobPlan, plannedFrom } from "./plan-job.ts";

/** The most files of an allocation that are named, and the most workers of a file. */
const MOST_LISTED = 20;
/** The most lines of diffs in Activity; plan.json has more. */
const MOST_DIFF_LINES = 2_000;
/** The longest file that a diff is shown of. */
const FILE_BYTES = 64 * 1024;
/** The bytes of diffs in a plan; half of them are for diffs that no other worker of the plan has. */
const ALL_BYTES = 256 * 1024;
const MARKS = { added: "+", changed: "~", removed: "-" };
const OUTCOMES = { roll_out: "deploy required", skip: "skip", failed: "would fail", not_started: "would not start" };

/**
 * A plan in lines for people: what would be done to which allocation and why, what was changed by hand there, and the
 * changes of files as `diff -u` shows them.
 */
export function describePlan({ options: { adopt = false }, reconcile, waves }: DeployPlan): string[] {
  const jobs = waves.flatMap((wave) => wave.jobs);
  const working = jobs.filter(({ outcome }) => outcome === "roll_out").length;
  const room = { lines: MOST_DIFF_LINES, isCut: false, adopt };
  return [
    ...reconcile.map(({ job, worker, action, hooks }) => {
      return `reconcile: ${action} ${job} on ${worker}${hooks.length > 0 ? `, then ${hooks.join(", ")}` : ""}`;
    }),
    ...waves.flatMap((wave) => [
      `wave ${wave.seq}`,
      ...wave.jobs.flatMap((job) => [...describeJob(job, adopt), ...describeFiles(job, room)]),
    ]),
    ...(room.isCut ? ["more diffs are in plan.json"] : []),
    adopt ? adoptable(jobs) : `${working} of ${counted(jobs.length, "job")} ${jobs.length === 1 ? "needs" : "need"} work`,
  ];
}

function adoptable(jobs: readonly PlannedJob[]): string {
  const all = jobs.flatMap(({ allocations }) => allocations);
  const count = all.filter(({ action }) => action === "adopt").length;
  return `${count} of ${counted(all.length, "allocation")} can be adopted`;
}

/** What an adoption does to the allocations of a job and why, and the differences of the files that are in its way. */
export function describeAdoption(plan: JobPlan): string[] {
  const { name: job, version } = plan.job;
  const outcome = plan.needsWork ? "roll_out" : "skip";
  const reason = reasonFor(plan, { adopt: true });
  const allocations = plan.allocations.map(plannedFrom);
  const planned: PlannedJob = { job, version, outcome, reason, hooks: [], phases: [], allocations };
  return [...describeJob(planned, true), ...describeFiles(planned, { lines: MOST_DIFF_LINES, adopt: true })];
}

/** Why a job rolls out or is skipped, in a few words. */
export function reasonFor({ allocations, needsWork }: JobPlan, { adopt = false }: Pick<ChangeOptions, "adopt">): string {
  if (allocations.length === 0) return "no allocations";
  const adopted = allocations.filter(({ decision }) => decision.action === "adopt").length;
  if (adopt) return needsWork ? `${adopted} of ${counted(allocations.length, "allocation")}` : "nothing to adopt";
  return needsWork ? "needs work" : "already promoted";
}

function describeJob(job: PlannedJob, adopt: boolean): string[] {
  const outcome = adopt && job.outcome === "roll_out" ? "adopt" : OUTCOMES[job.outcome];
  const hooks = job.hooks.map(({ event, names }) => `  ${job.job}: hooks for ${event}: ${names.join(", ")}`);
  const batches = job.phases.flatMap(({ action, batches }) =>
    batches.map((workers, index) => `  ${job.job}: ${action}, batch ${index + 1} of ${batches.length}: ${workers.join(", ")}`),
  );
  return [
    `  ${job.job} ${job.version}: ${outcome}, ${job.reason}`,
    ...(job.outcome === "roll_out" ? [...hooks, ...batches] : []),
    ...job.allocations.flatMap(describeAllocation),
  ];
}

function describeAllocation(one: PlannedAllocation): string[] {
  const { worker, action, reason, is_gate_open, files, drift } = one;
  const gate = is_gate_open ? ", its health check comes first" : "";
  const names = action === "leave" ? [] : files.map(({ path, change }) => `${MARKS[change]}${path}`);
  const list = names.length === 0 ? "" : `: ${named(names, " ")}`;
  const changes = action === "skip" && !is_gate_open ? [] : [`    ${worker}: ${action}, ${reason}${gate}${list}`];
  const isLeft = action === "skip" && drift?.outcome === "drifted";
  const force = drift?.files.every(isForceable) ? ": only --force puts it back" : "";
  const kept = isLeft ? `, and stays so${force}` : "";
  const found = drift?.files.length ? [`    ${worker}: changed by hand${kept}`, ...describeDrift(drift)] : [];
  return [...changes, ...found.map((line, index) => (index === 0 ? line : `    ${line}`))];
}

/** Each change of a file once, with all its workers. */
function describeFiles({ job, allocations }: PlannedJob, room: { lines: number; isCut?: boolean; adopt: boolean }): string[] {
  const changes = allocations.flatMap(({ worker, files }) => files.map((file) => ({ worker, file })));
  const same = Map.groupBy(changes, ({ file: { path, from, to } }) => JSON.stringify([path, from, to]));
  return [...same.values()].flatMap((all) => {
    const { file } = all[0] as { file: PlannedFile };
    const workers = all.map(({ worker }) => worker);
    const lines = fileLines(job, file, { workers: named(workers, ", "), before: room.adopt ? "there" : "promoted" });
    if (room.lines > 0) {
      room.lines -= lines.length;
      return lines;
    }
    room.isCut ||= lines.length > 0;
    return [];
  });
}

function fileLines(
  job: string,
  { path, from, to, diff, note }: PlannedFile,
  { workers, before }: { workers: string; before: string },
): string[] {
  const about = `    ${job}/${path} on ${workers}:`;
  if (diff === undefined) return note === undefined ? [] : [`${about} ${note}`];
  const side = (digest: string | null, which: string) => (digest === null ? "/dev/null" : `jobs/${job}/${path}\t${which}`);
  return [
    ...[note === undefined ? about : `${about} ${note}`, `--- ${side(from, before)}`, `+++ ${side(to, "planned")}`],
    ...diff.replace(/\n$/, "").split("\n"),
  ];
}

function named(names: readonly string[], separator: string): string {
  const more = names.length > MOST_LISTED ? [`and ${names.length - MOST_LISTED} more`] : [];
  return [...names.slice(0, MOST_LISTED), ...more].join(separator);
}

type Content = Pick<StagedFile, "content" | "isSecret" | "secrets">;
/** A diff, or why there is none. */
type Shown = Pick<PlannedFile, "diff" | "note">;
type DiffContext = Pick<OperationContext, "db" | "kv" | "log">;

/**
 * Answers what adds diffs, from the promoted to the planned content, to the files of an allocation in a plan, or a note
 * why a file has no diff. Secrets are masked as they are in the log. A file that a secret was read for is not shown where
 * masking is impossible: the secret is too short, or has another form in the file.
 */
export function planDiffs(context: DiffContext): (plan: AllocationPlan, files: readonly PlannedFile[]) => void {
  /** By job, path and both sides: the first worker that has the diff. */
  const known = new Map<string, { worker: string; shown: Shown }>();
  let left = ALL_BYTES;
  const fitting = (shown: Shown, sameAs: string | undefined): Shown => {
    const bytes = Buffer.byteLength(shown.diff ?? "");
    const room = sameAs === undefined ? left : left - ALL_BYTES / 2;
    if (bytes > room) return { note: sameAs === undefined ? "the plan is too long" : `as on ${sameAs}` };
    left -= bytes;
    return shown;
  };
  return ({ allocation: { job, worker }, tree }, files) => {
    const wanted = new Map(tree.files.map((file) => [file.path, file]));
    for (const file of files) {
      const key = JSON.stringify([job, file.path, file.from, file.to]);
      const before = known.get(key);
      const shown = before?.shown ?? planDiff(context, file, wanted.get(file.path));
      if (!before) known.set(key, { worker, shown });
      Object.assign(file, fitting(shown, before?.worker));
    }
  };
}

function planDiff({ db, kv, log }: DiffContext, { from, to }: PlannedFile, after: Content | undefined): Shown {
  const [mode, sha256] = from?.split(":") ?? [];
  const [newMode, newSha256] = to?.split(":") ?? [];
  if (sha256 === newSha256) return { note: `its mode changes from ${mode} to ${newMode}` };
  try {
    return diffOf(log.redactor, sha256 === undefined ? undefined : keptContent(db, kv, sha256), after);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return { note: error.message };
  }
}

function diffOf(redactor: Redactor, before: Content | undefined, after: Content | undefined): Shown {
  const sides = [before, after];
  if (sides.some((side) => side !== undefined && side.content.length > FILE_BYTES))
    return { note: `longer than ${FILE_BYTES / 1024} KiB` };
  const texts = sides.map((side) => side && textOfFile(bytesOf(side.content)));
  if (sides.some((side, index) => side && texts[index] === undefined)) return { note: "binary" };
  if (!sides.every((side, index) => isMaskable(side, texts[index] ?? "")))
    return { note: "a secret was read for it that cannot be masked" };
  // A value that was replaced since is still a secret.
  for (const secret of sides.flatMap((side) => side?.secrets ?? [])) redactor.add(secret);
  const [old, now] = texts.map((text) => text && redactor.apply(text));
  const diff = unifiedDiff(old, now, MOST_EDITS);
  if (diff !== "") return { diff };
  return { note: before && after ? "only secrets in it change" : "empty" };
}

/** True where every secret that a text was rendered with stands in the text in a form that the log would mask. */
function isMaskable(side: Content | undefined, text: string): boolean {
  if (!side?.isSecret) return true;
  const { secrets = [] } = side;
  const isMasked = (secret: string) => {
    const redactor = new Redactor();
    redactor.add(secret);
    return redactor.apply(text) !== text;
  };
  return secrets.length > 0 && secrets.every(isMasked);
}
