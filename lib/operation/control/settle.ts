import type { CatalogJob } from "../../bucket/base/model.ts";
import { isUnsettled, syncedFiles } from "../../bucket/catalog/promotions.ts";
import { mapAll } from "../../core/async.ts";
import { throwIfCancelled } from "../../core/errors.ts";
import type { FileDigests } from "../../plan/changes.ts";
import { troubleOf } from "../base/outcome.ts";
import { noteBegun, noteOutcomes, outcomeOf } from "../plan/last-outcomes.ts";
import { promotedTree, putFilesBack } from "../reach/promoted-tree.ts";
import { type Control, type ControlState, hostsOf, noteControl } from "./control-state.ts";

const AT_ONCE = 32;
/** The targets that make a service run with the files on the worker. */
const TARGETS: readonly string[] = ["start", "restart", "reload"];

/**
 * Before job control starts, restarts or reloads a job: puts the promoted files back where a deploy began a change and
 * did not finish it, so that no command starts a release that no deploy has finished. Where nothing is promoted, or the
 * files cannot be put back, the allocation is `failed`. The unfinished change stays for the next deploy. Throws only
 * `cancelled`.
 */
export async function settle(control: Control, job: CatalogJob, states: readonly ControlState[]): Promise<void> {
  if (!TARGETS.includes(control.target)) return;
  const { log, signal } = control.context;
  const unsettled = states.filter(({ outcome, promoted }) => outcome === "not_started" && isUnsettled(promoted));
  const [older, never] = [
    unsettled.filter(({ promoted }) => promoted.hash !== ""),
    unsettled.filter(({ promoted }) => promoted.hash === ""),
  ];
  for (const state of never) fail(control, state, "nothing is promoted there: run `ops deploy` first");
  noteControl(control, never);
  if (older.length === 0) return;
  log.info(`${job.name}: a deploy did not finish on ${hostsOf(older)}: the promoted files are put back`);
  const ids = older.map(({ allocation }) => allocation.id);
  noteBegun(control.context, ids, "restore");
  await mapAll(older, AT_ONCE, (state) => putBack(control, state), signal);
}

async function putBack(control: Control, state: ControlState): Promise<void> {
  const { context, effects } = control;
  const { allocation, promoted } = state;
  try {
    const back = { allocation, promoted, tree: promotedTree(context, promoted) };
    await putFilesBack(context, effects, back, filesLeft(control, state));
    state.put_back = true;
    noteOutcomes(context, [{ id: allocation.id, action: "restore", outcome: "changed" }]);
  } catch (error) {
    noteOutcomes(context, [{ id: allocation.id, action: "restore", ...outcomeOf(error) }]);
    throwIfCancelled(context.signal);
    const { grade, message } = troubleOf(error);
    fail(control, state, `the promoted files could not be put back: ${message}`, grade);
  }
}

/** The files that may be on the worker. Where no sync has ended since the change began, each file may have any mode. */
function filesLeft({ context: { db } }: Control, { allocation, promoted }: ControlState): FileDigests {
  const { job, id } = allocation;
  if (promoted.synced !== "") return syncedFiles(db, job, id);
  return Object.fromEntries(Object.keys(promoted.files).map((path) => [path, ""]));
}

function fail(
  { context }: Control,
  state: ControlState,
  error: string,
  outcome: ControlState["outcome"] = "failed",
): void {
  const { job, worker } = state.allocation;
  context.log.error(`${job}@${worker}: ${error}`);
  Object.assign(state, { outcome, error });
}
