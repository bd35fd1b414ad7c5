import { bytesOf } from "../../bucket/base/contents.ts";
import type { Database } from "../../bucket/base/database.ts";
import type { CatalogAllocation } from "../../bucket/base/model.ts";
import { catalogJobs } from "../../bucket/catalog/catalog.ts";
import { keptContent } from "../../bucket/catalog/contents.ts";
import type { Promotion } from "../../bucket/catalog/promotions.ts";
import { textOfFile, unifiedDiff } from "../../codec/diff.ts";
import { matchGlob } from "../../codec/glob.ts";
import type { FileDigests } from "../../plan/changes.ts";
import type { AllocationDrift, DriftedFile } from "../../plan/deploy-plan.ts";
import { compareTrees, type FileDrift, readText, type TreeDrift } from "../../transport/files/compare.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";

/** The longest file, and the most files on a worker, that a diff is shown of. */
export const DIFF_BYTES = 64 * 1024;
const DIFFS = 20;
/** The most edits of a diff; see {@link unifiedDiff}. */
export const MOST_EDITS = 400;

/** A job on a worker. */
export interface Place {
  job: string;
  worker: string;
}

/** How files on workers are looked at; nothing is written there. */
export type DriftEffects = ReturnType<typeof driftEffects>;

/**
 * Looks at files over the connection that a run has to each worker. Files that `drift_ignore` names count as
 * promoted.
 */
export function driftEffects({ db, signal }: OperationContext, fleet: Fleet) {
  const isOwn = driftIgnored(db);
  return {
    /** Compares the files of jobs on a worker with these, in one question; see {@link compareTrees}. */
    async drift(worker: string, wanted: ReadonlyMap<string, FileDigests>, folder?: "needed" | "optional") {
      const found = await compareTrees(await fleet.open(worker), wanted, signal, folder);
      for (const [job, tree] of found)
        tree.files = tree.files.filter(({ path, state }) => (state !== "changed" && state !== "missing") || !isOwn(job, path));
      return found;
    },
    /** The text of a file of a job there, of at most 64 KiB; undefined where it is none. */
    async text({ job, worker }: Place, path: string) {
      return await readText(await fleet.open(worker), { job, path, bytes: DIFF_BYTES }, signal);
    },
  };
}

/** True for a file of a job that no service reads: an adoption brings it, whatever the earlier system put in its place. */
export function isOfOps(path: string): boolean {
  return path === "manifest.json";
}

/** Tells which files of jobs their `drift_ignore` names: the jobs change these themselves. */
export function driftIgnored(db: Database): (job: string, path: string) => boolean {
  let ignored: Map<string, string[]> | undefined;
  return (job, path) => {
    ignored ??= new Map(catalogJobs(db).map(({ name, driftIgnore }) => [name, driftIgnore]));
    return (ignored.get(job) ?? []).some((glob) => matchGlob(glob, path));
  };
}

/** An allocation with its promoted files. */
export interface Promoted {
  allocation: CatalogAllocation;
  promotion: Promotion;
  /** What a deploy is about to put there. Files in the way are told even where nothing was promoted before. */
  wanted?: FileDigests;
}

/** How allocations of one worker were found, in their order. */
type Drifts = (AllocationDrift & { job: string })[];
/** Looks at allocations of one worker. */
export type LookAt = (worker: string, own: readonly Promoted[]) => Promise<Drifts>;

/**
 * What looks at the workers of a run, and shows up to so many bytes of diffs of all workers together. A look throws
 * `unreachable`, `cancelled` or `failed` where the worker gives no whole answer.
 */
export function driftLooks(context: OperationContext, effects: DriftEffects, diffBytes: number): LookAt {
  const room = { bytes: diffBytes };
  return async (worker, own) => {
    const asked = own.filter(({ promotion, wanted }) => promotion.hash !== "" || wanted !== undefined);
    const trees = new Map(asked.map(({ allocation, promotion }) => [allocation.job, promotion.files]));
    const found = await effects.drift(worker, trees);
    const diffOf = differ(context, effects, room);
    const drifts: Drifts = [];
    for (const one of own) {
      const { job } = one.allocation;
      drifts.push({ job, ...(await allocationDrift(context, diffOf, one, found.get(job))) });
    }
    return drifts;
  };
}

async function allocationDrift(
  { log }: OperationContext,
  diffOf: DiffOf,
  { allocation, promotion, wanted }: Promoted,
  found: TreeDrift | undefined,
): Promise<AllocationDrift> {
  const is_unfinished = promotion.unfinished || (found?.isUnsettled ?? false);
  const isNew = promotion.hash === "";
  // After a deploy was cut off, the files on the worker are those of that deploy.
  const isInTheWay = (path: string) => wanted?.[path] !== undefined && !promotion.unfinished;
  // Files that a job itself adds are no drift, either.
  const isTold = ({ path, state }: FileDrift) => (!isNew && state !== "extra") || isInTheWay(path);
  const told = (found?.files ?? []).filter(isTold);
  if (isNew && told.length === 0) return { outcome: "not_promoted", is_unfinished, files: [] };
  // Paths found on the worker are names, too, and are not masked.
  log.redactor.keep(told.map(({ path }) => path));
  const files: AllocationDrift["files"] = [];
  for (const file of told) {
    const { path, state, sha256 } = file;
    files.push({ path, state, sha256, diff: await diffOf(allocation, file, promotion.files[path]) });
  }
  const isSame = files.length === 0 && !found?.isUnsettled;
  return { outcome: isSame ? "in_sync" : "drifted", is_unfinished, files };
}

/** Answers how a file on a worker differs from the promoted one; null where that is not to be shown. */
type DiffOf = (place: Place, file: FileDrift, digest: string | undefined) => Promise<string | null>;

/** Shows how files on one worker differ, as far as there is room. */
function differ({ db, kv, log }: OperationContext, effects: DriftEffects, room: { bytes: number }): DiffOf {
  let left = DIFFS;
  return async (place, file, digest) => {
    const isFull = left === 0 || room.bytes <= 0;
    if (!file.hasOtherContent || digest === undefined || isFull) return null;
    const kept = keptContent(db, kv, digest.slice(digest.indexOf(":") + 1));
    if (kept.isSecret || kept.content.length > DIFF_BYTES) return null;
    const before = textOfFile(bytesOf(kept.content));
    if (before === undefined) return null;
    left--;
    const after = await effects.text(place, file.path);
    if (after === undefined) return null;
    // Secrets are masked before the texts are compared, so that no line of a secret can be told from the diff.
    const diff = unifiedDiff(log.redactor.apply(before), log.redactor.apply(after), MOST_EDITS);
    room.bytes -= Buffer.byteLength(diff);
    return room.bytes < 0 ? null : diff;
  };
}

/** True where a deploy with `force` puts the promoted file back; it does not remove folders and data of a job. */
export function isForceable({ state, path, sha256 }: DriftedFile): boolean {
  return state === "link" ? path !== "." && path !== ".." : state === "missing" || sha256 !== null;
}

/** What was found of an allocation, in lines for people. */
export function describeDrift({ files }: { files: readonly Omit<DriftedFile, "sha256">[] }): string[] {
  return files.flatMap(({ path, state, diff }) => [
    `  ${state} ${path}`,
    ...(diff ?? "")
      .split("\n")
      .filter((line) => line !== "")
      .map((line) => `    ${line}`),
  ]);
}
