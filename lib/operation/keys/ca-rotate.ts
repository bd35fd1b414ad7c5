import {
  beginRotation,
  dropOldAuthority,
  issueFromNext,
  type Rotation,
  readRotation,
} from "../../bucket/base/authority-change.ts";
import { loadAuthority, makePair } from "../../bucket/base/certificates.ts";
import { authorityUse, whatWaits } from "../../bucket/keys/key-changes.ts";
import { Failure, throwIfCancelled } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import { parametersOf } from "../../run/protocol.ts";
import type { Operation, OperationContext } from "../base/context.ts";

/** The steps of a rotation, in their order; a deploy comes after each. */
const STEPS = {
  begin: "make the next CA, for jobs to trust beside the present one",
  issue: "let the next CA sign: the next build issues all certificates anew, and jobs trust the CA before beside it",
  drop: "drop the CA before, which no certificate in use is of",
} as const;
type RotationStep = keyof typeof STEPS;

/** How far a rotation is: none without one. */
type Phase = Rotation["phase"] | "none";

/** The step that a rotation in this phase takes next. */
const NEXT: Record<Phase, RotationStep> = { none: "begin", trust: "issue", issue: "drop" };

const DEPLOY = "build and deploy (`ops deploy --build`)";

/**
 * Takes the next step of a rotation of the CA (docs/keys.md): begin, issue, drop. The last two are taken only when every
 * running allocation has been deployed with what the step before has changed. Throws `failed` before that, with the result in
 * the details: nothing has changed then.
 */
export const rotateAuthority: Operation = async (context, params) => {
  const { dry_run } = parametersOf("ca_rotate", params);
  const { db, layout, log, progress, signal } = context;
  const rotation = await readRotation(layout);
  const phase: Phase = rotation?.phase ?? "none";
  const step = NEXT[phase];
  const use = authorityUse(db, (await loadAuthority(layout)).pem);
  const { running, waiting } = use;
  progress.report({ phase: step, done: running - waiting.length, total: running });
  const waits = step === "begin" ? undefined : whatWaits(use);
  const result = {
    step,
    taken: false,
    phase,
    /** What the step waits for: the allocations, as `<job>@<worker>`, that are not deployed with what the step before needs. */
    waiting: step === "begin" ? [] : waiting,
    /** One sentence: what is to be done next. */
    next: waits === undefined ? "`ops ca rotate`" : DEPLOY,
  };
  if (dry_run) {
    tellPlan(context, step, { running, waits });
    return result;
  }
  if (waits !== undefined) throw new Failure("failed", `Cannot ${STEPS[step]}: ${waits}; ${DEPLOY}`, { details: result });
  throwIfCancelled(signal);
  const after = await TAKE[step](context, rotation as Rotation);
  log.info(`done: ${STEPS[step]}; next: ${after.next}`);
  return { ...result, taken: true, waiting: [], ...after };
};

const TAKE: Record<RotationStep, (context: OperationContext, rotation: Rotation) => Promise<{ phase: Phase; next: string }>> = {
  async begin({ layout, run }) {
    const { phase } = await beginRotation(layout, await makePair(run.bucketId));
    return { phase, next: `${DEPLOY}, then \`ops ca rotate\`` };
  },
  async issue({ layout }, rotation) {
    const { phase } = await issueFromNext(layout, rotation);
    return { phase, next: `${DEPLOY}, then \`ops ca rotate\`` };
  },
  async drop({ layout }, rotation) {
    await dropOldAuthority(layout, rotation);
    return { phase: "none", next: DEPLOY };
  },
};

/** All steps, with what is done and what the next one waits for. */
function tellPlan(
  { log }: OperationContext,
  next: RotationStep,
  { running, waits }: { running: number; waits: string | undefined },
): void {
  const steps = Object.keys(STEPS) as RotationStep[];
  for (const step of steps) {
    const at = steps.indexOf(step) - steps.indexOf(next);
    const now = waits === undefined ? "next" : `waits: ${waits}; ${DEPLOY}`;
    const state = at < 0 ? "done" : at > 0 ? "later" : now;
    log.info(`${step}: ${STEPS[step]} (${state})`);
  }
  log.info(`after each step a build and a deploy; ${counted(running, "running allocation")}`);
}
