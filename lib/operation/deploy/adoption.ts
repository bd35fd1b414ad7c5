import { saveCert } from "../../bucket/base/certificates.ts";
import { bytesOf } from "../../bucket/base/contents.ts";
import type { StagedFile } from "../../bucket/catalog/staging.ts";
import { textOfFile, unifiedDiff } from "../../codec/diff.ts";
import { mapAll } from "../../core/async.ts";
import { throwIfCancelled } from "../../core/errors.ts";
import type { PlannedFile } from "../../plan/deploy-plan.ts";
import type { FileDrift } from "../../transport/files/compare.ts";
import type { OperationContext } from "../base/context.ts";
import { WORKERS_AT_ONCE } from "../base/fleet.ts";
import { type Trouble, troubleOf } from "../base/outcome.ts";
import type { AllocationPlan, JobPlan } from "../plan/plan-job.ts";
import { DIFF_BYTES, type DriftEffects, isOfOps, MOST_EDITS } from "../reach/tree-drift.ts";
import { certificatesIn, type FoundPair, foundPair, putPairs } from "./found-pairs.ts";

/** How the files of allocations that may be adopted lie on their workers. */
export interface Looked {
  /** By allocation id: the files that differ from the rendered ones; empty where all are equal. */
  differs: Map<string, PlannedFile[]>;
  /** By worker: why there was no answer. */
  troubles: Map<string, Trouble>;
  /** Pairs that differ from those that the build issued and are as good. */
  pairs: FoundPair[];
}

/** The bytes of diffs of one look. */
const ALL_DIFF_BYTES = 256 * 1024;
const LINKED = "a symbolic link, or no folder, is in the place of a folder";
const AUTHORITY = "import the authority of the earlier bucket first (`ops ca import`), or every certificate differs";

/** Looks at the files of all allocations that may be adopted, once on each worker; nothing is written. Throws `cancelled`. */
export async function lookAtWorkers(
  context: OperationContext,
  effects: DriftEffects,
  plans: readonly JobPlan[],
): Promise<Looked> {
  const candidates = plans.flatMap(({ allocations }) => allocations).filter(({ decision }) => decision.action === "adopt");
  const byWorker = [...Map.groupBy(candidates, ({ allocation }) => allocation.worker)];
  const looked: Looked = { differs: new Map(), troubles: new Map(), pairs: [] };
  const room = { bytes: ALL_DIFF_BYTES };
  let done = 0;
  const look = async ([worker, own]: [string, AllocationPlan[]]) => {
    try {
      const trees = new Map(own.map(({ allocation, tree }) => [allocation.job, tree.digests]));
      const found = await effects.drift(worker, trees, "optional");
      for (const plan of own) {
        // A file beside the rendered ones is the job's, or left over: it stays.
        const isInTheWay = ({ path, state }: FileDrift) => state !== "extra" && (state === "link" || !isOfOps(path));
        const files = (found.get(plan.allocation.job)?.files ?? []).filter(isInTheWay);
        const { pairs, differs } = await lookAtFiles(context, effects, { plan, files, room });
        looked.pairs.push(...pairs);
        looked.differs.set(plan.allocation.id, differs);
      }
    } catch (error) {
      throwIfCancelled(context.signal);
      looked.troubles.set(worker, troubleOf(error));
    }
    context.progress.report({ phase: "look at files", done: ++done, total: byWorker.length });
  };
  await mapAll(byWorker, WORKERS_AT_ONCE, look, context.signal);
  return looked;
}

/** Stores pairs from workers as those of the bucket, all of a job or none. */
export function takePairs({ db, kv }: OperationContext, pairs: readonly FoundPair[]): void {
  for (const [job, own] of Map.groupBy(pairs, (pair) => pair.job)) {
    const rows = putPairs({ db, kv }, own);
    try {
      db.transaction(() => {
        for (const row of rows) saveCert(db, row);
        kv.flush(job);
      });
    } catch (error) {
      kv.discard(job);
      throw error;
    }
  }
}

/** The files of one allocation that differ on its worker, and what there is still room for. */
interface Differing {
  plan: AllocationPlan;
  files: readonly FileDrift[];
  room: { bytes: number };
}

async function lookAtFiles(context: OperationContext, effects: DriftEffects, { plan, files, room }: Differing) {
  const { allocation, tree } = plan;
  const names = certificatesIn(context, allocation, files);
  const certificates = new Map<string, FoundPair | string>();
  for (const name of names) certificates.set(name, await foundPair(context, effects, allocation, name));
  const pairs = [...certificates.values()].filter((one) => typeof one !== "string");
  // A key must not stand in a log before it is known as a secret.
  for (const { key } of pairs) context.log.redactor.add(key);
  context.log.redactor.keep(files.map(({ path }) => path));
  const wanted = new Map(tree.files.map((file) => [file.path, file]));
  const differs: PlannedFile[] = [];
  for (const found of files) {
    const file = wanted.get(found.path);
    const refusal = certificates.get(found.path.replace(/^certs\/(.+)\.(crt|key)$/, "$1"));
    const notes = notesOn(found, file, typeof refusal === "string" ? refusal : undefined);
    const diff = await diffTo(context, effects, { plan, found, file, room });
    if (typeof diff !== "string") notes.push(...diff.notes);
    const note = notes.length > 0 ? { note: notes.join("; ") } : {};
    differs.push({ ...sidesOf(found, tree.digests), ...(typeof diff === "string" && { diff }), ...note });
  }
  return { pairs, differs };
}

function sidesOf({ path, state, mode, sha256 }: FileDrift, digests: Readonly<Record<string, string>>) {
  const from = sha256 === null ? null : `${(mode ?? 0).toString(8)}:${sha256}`;
  return { path, change: state === "missing" ? "added" : "changed", from, to: digests[path] ?? null } as const;
}

/** What people should know about a file that differs, beside the difference. */
function notesOn({ path, state, hasOtherContent, sha256 }: FileDrift, file: StagedFile | undefined, refusal?: string): string[] {
  if (!file) return [LINKED];
  const { own = [] } = file;
  return [
    ...(own.length > 0 ? [`it shows ${own.join(", ")}, which no other bucket has: it never equals`] : []),
    ...(path === "certs/ca.crt" && state !== "missing" ? [AUTHORITY] : []),
    ...(refusal === undefined ? [] : [`the certificate there is not taken over: ${refusal}`]),
    ...(sha256 !== null && !hasOtherContent ? ["it is not executable there"] : []),
  ];
}

/** A diff from the text on the worker to the rendered one, or why there is none. */
async function diffTo(
  { log }: OperationContext,
  effects: DriftEffects,
  of: Omit<Differing, "files"> & { found: FileDrift; file: StagedFile | undefined },
): Promise<string | { notes: string[] }> {
  const { plan, found, file, room } = of;
  const none = (...notes: string[]) => ({ notes });
  if (!file || !found.hasOtherContent || room.bytes <= 0) return none();
  if (file.isSecret) return none(found.path.startsWith("certs/") ? "a private key" : "a secret is rendered in it");
  const rendered = file.content.length > DIFF_BYTES ? undefined : textOfFile(bytesOf(file.content));
  const there = rendered === undefined ? undefined : await effects.text(plan.allocation, found.path);
  if (rendered === undefined || there === undefined) return none(`no text, or longer than ${DIFF_BYTES / 1024} KiB`);
  const diff = unifiedDiff(log.redactor.apply(there), log.redactor.apply(rendered), MOST_EDITS);
  room.bytes -= Buffer.byteLength(diff);
  return room.bytes < 0 ? none("the plan is too long") : diff;
}
