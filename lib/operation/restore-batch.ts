import type { CatalogJob } from "../bucket/catalog.ts";
import { keptContent } from "../bucket/contents.ts";
import { beginChange, promote, recordSynced, setGate } from "../bucket/promotions.ts";
import type { StagedFile, StagedTree } from "../bucket/staging.ts";
import { mapAll } from "../core/async.ts";
import { Failure, messageOf, throwIfCancelled } from "../core/errors.ts";
import { rolloutBatches } from "../plan/rollout.ts";
import { type AllocationState, hostsOf, idsOf, workersOf } from "./allocation-state.ts";
import type { OperationContext } from "./context.ts";
import type { Effects } from "./effects.ts";
import { passGate } from "./gate.ts";
import { hooksOn } from "./hooks.ts";
import type { AllocationPlan } from "./plan-job.ts";
import { targetHash } from "./target.ts";

/**
 * Puts the tree and the version that were promoted before a batch back on its workers only, all of them at once as the
 * batch was, and runs their gate (workspace.md, `on_failure`). First starts have nothing before them and stay as they
 * are, as do workers that are unreachable. Answers the failure that the job ends with: that of the batch's own gate, and
 * what has become of its workers. Throws only `cancelled`.
 */
export async function restoreBatch(
  context: OperationContext,
  effects: Effects,
  job: CatalogJob,
  batch: readonly AllocationState[],
  failure: unknown,
): Promise<Failure> {
  const states = batch.filter(
    ({ plan, trouble }) => plan.promoted.hash !== "" && trouble?.grade !== "unreachable",
  );
  const told = (outcome: string) =>
    new Failure("ErrHealthCheckFailed", `${messageOf(failure)}; ${outcome}`, { cause: failure });
  if (states.length === 0) return told("nothing was promoted there before that could be put back");
  const hosts = hostsOf(states);
  let isBack = false;
  try {
    context.log.info(`${job.name}: puts back on ${hosts} what was promoted before`);
    await putBack(context, effects, job, states);
    isBack = true;
    await passGate(context, effects, job, { probed: activeOf(states), hooked: workersOf(states) });
    setGate(context.db, job.name, idsOf(states), "passed");
    return told(`what was promoted before was put back on ${hosts} and is healthy there`);
  } catch (error) {
    throwIfCancelled(context.signal);
    setGate(context.db, job.name, idsOf(states), "failed");
    const end = isBack
      ? `was put back on ${hosts}, but is not healthy there`
      : `could not be put back on ${hosts}`;
    return told(`what was promoted before ${end}: ${messageOf(error)}`);
  } finally {
    for (const state of states)
      state.trouble ??= { grade: "failed", message: "put back: its batch was not healthy" };
  }
}

async function putBack(
  context: OperationContext,
  effects: Effects,
  job: CatalogJob,
  states: readonly AllocationState[],
): Promise<void> {
  const { db, kv, signal } = context;
  const trees = new Map(states.map(({ plan }) => [plan, treeBefore(context, plan)]));
  beginChange(db, job.name, idsOf(states));
  const hasOwnControl = hooksOn(job, "job_control").length > 0;
  const work = async ([plan, tree]: [AllocationPlan, StagedTree]) => {
    await effects.stage(plan.allocation, tree);
    await effects.sync(plan.allocation, tree, plan.tree.digests);
    const { updateSeq } = plan.promoted;
    recordSynced(db, job.name, plan.allocation.id, { hash: tree.hash, files: tree.digests, updateSeq });
    if (!hasOwnControl) await runAgain(effects, job, plan, tree);
  };
  await mapAll([...trees], states.length, work, signal);
  const workers = workersOf(states);
  if (hasOwnControl) {
    const variables = { NEW_ALLOCATIONS: "", UPDATED_ALLOCATIONS: workers.join(",") };
    const versions = new Map(states.map(({ plan }) => [plan.allocation.worker, plan.promoted.version]));
    const order = kv.get(`ops/job/${job.name}`, "rollout_order");
    for (const batch of rolloutBatches(order, workers, workers.length))
      await effects.hooks({ kind: "deploy_control", job, batch, variables, versions });
  }
  db.transaction(() => {
    for (const { plan } of states) {
      const { version } = plan.promoted;
      promote(db, job.name, plan.allocation.id, version, "pending");
      kv.put(`ops/job/${job.name}/worker/${plan.allocation.worker}`, "version", version);
    }
    kv.flush(job.name);
  });
}

async function runAgain(
  effects: Effects,
  job: CatalogJob,
  { allocation, decision, promoted }: AllocationPlan,
  tree: StagedTree,
): Promise<void> {
  const hash = targetHash(tree.hash, promoted.version);
  await effects.run({
    ...{ job: job.name, worker: allocation.worker, phase: "rollout", hash },
    target: decision.action === "reload" ? "reload" : "restart",
    limitSeconds: job.lifecycleTimeoutSeconds,
    env: { CURRENT_VERSION: allocation.newVersion, NEW_VERSION: promoted.version },
  });
}

/** What was promoted when the deploy was planned. Throws `failed` where a content of it is not kept any more. */
function treeBefore({ db, kv }: OperationContext, { promoted }: AllocationPlan): StagedTree {
  const files = Object.entries(promoted.files).map(([path, digest]): StagedFile => {
    const [mode = "", sha256 = ""] = digest.split(":");
    return { path, mode: Number.parseInt(mode, 8), sha256, ...keptContent(db, kv, sha256) };
  });
  return { hash: promoted.hash, files, digests: promoted.files };
}

function activeOf(states: readonly AllocationState[]): string[] {
  return workersOf(states.filter(({ plan }) => !plan.allocation.disabled));
}
