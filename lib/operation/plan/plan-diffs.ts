import { keptContent } from "../../bucket/catalog/promotions.ts";
import type { StagedFile } from "../../bucket/catalog/staging.ts";
import { textOf, unifiedDiff } from "../../codec/diff.ts";
import { Failure } from "../../core/errors.ts";
import { Redactor } from "../../core/redact.ts";
import type { PlannedFile } from "../../plan/deploy-plan.ts";
import type { OperationContext } from "../base/context.ts";
import { MOST_EDITS } from "../reach/tree-drift.ts";
import type { AllocationPlan } from "./plan-job.ts";

/** Of longer files no diff is shown. */
const FILE_BYTES = 64 * 1024;
/** So much of diffs is shown in all; of it half is for those that no other worker of the plan has. */
const ALL_BYTES = 256 * 1024;

type Content = Pick<StagedFile, "content" | "isSecret" | "secrets">;
/** A diff, or why there is none. */
type Shown = Pick<PlannedFile, "diff" | "note">;

/**
 * The diffs of a plan, from what was promoted to what is wanted. Secrets are masked as they are in the log; a file that
 * one was read for is not shown where that could not be done: the secret is too short for it, or has another form there.
 */
export class PlanDiffs {
  readonly #context: Pick<OperationContext, "db" | "kv" | "log">;
  /** By job, path and both sides: the first worker that has it. */
  readonly #known = new Map<string, { worker: string; shown: Shown }>();
  #left = ALL_BYTES;

  constructor(context: Pick<OperationContext, "db" | "kv" | "log">) {
    this.#context = context;
  }

  /** Adds to each file its diff, or a note that says why there is none. */
  show({ allocation: { job, worker }, tree }: AllocationPlan, files: readonly PlannedFile[]): void {
    const wanted = new Map(tree.files.map((file) => [file.path, file]));
    for (const file of files) {
      const key = JSON.stringify([job, file.path, file.from, file.to]);
      const known = this.#known.get(key);
      const { shown } = known ?? { shown: this.#shown(file, wanted.get(file.path)) };
      if (!known) this.#known.set(key, { worker, shown });
      Object.assign(file, this.#fitting(shown, known?.worker));
    }
  }

  #fitting(shown: Shown, sameAs: string | undefined): Shown {
    const bytes = Buffer.byteLength(shown.diff ?? "");
    const room = sameAs === undefined ? this.#left : this.#left - ALL_BYTES / 2;
    if (bytes > room) return { note: sameAs === undefined ? "the plan is too long" : `as on ${sameAs}` };
    this.#left -= bytes;
    return shown;
  }

  #shown({ from, to }: PlannedFile, after: Content | undefined): Shown {
    try {
      const [mode, sha256] = from?.split(":") ?? [];
      const [newMode, newSha256] = to?.split(":") ?? [];
      if (sha256 === newSha256) return { note: `its mode changes from ${mode} to ${newMode}` };
      const before = sha256 === undefined ? undefined : this.#kept(sha256);
      return this.#compared(before, after);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      return { note: error.message };
    }
  }

  #kept(sha256: string): Content {
    return keptContent(this.#context.db, this.#context.kv, sha256);
  }

  #compared(before: Content | undefined, after: Content | undefined): Shown {
    const sides = [before, after];
    if (sides.some((side) => (side?.content.length ?? 0) > FILE_BYTES))
      return { note: `longer than ${FILE_BYTES / 1024} KiB` };
    const texts = sides.map((side) => side && textOf(side.content));
    if (sides.some((side, index) => side && texts[index] === undefined)) return { note: "binary" };
    if (!sides.every((side, index) => isMaskable(side, texts[index] ?? "")))
      return { note: "a secret was read for it that cannot be masked" };
    const { redactor } = this.#context.log;
    // A secret that was replaced since is one still.
    for (const secret of sides.flatMap((side) => side?.secrets ?? [])) redactor.add(secret);
    const [old, now] = texts.map((text) => text && redactor.apply(text));
    const diff = unifiedDiff(old, now, MOST_EDITS);
    if (diff !== "") return { diff };
    return { note: before && after ? "only secrets in it change" : "empty" };
  }
}

/** Whether every secret that a text was rendered with stands in it in a form that the log would mask. */
function isMaskable(side: Content | undefined, text: string): boolean {
  if (!side?.isSecret) return true;
  const { secrets = [] } = side;
  return secrets.length > 0 && secrets.every((secret) => isMasked(secret, text));
}

function isMasked(secret: string, text: string): boolean {
  const redactor = new Redactor();
  redactor.add(secret);
  return redactor.apply(text) !== text;
}
