import { count, listed, plain } from "../base/text.js";
import { copying } from "../parts/dialog.js";
import { orderButton } from "../parts/order.js";
import { badge } from "../parts/state.js";
import { againOrder, changesTable } from "./orders.js";
import { onWorkers, workersOf } from "./words.js";

/** What is done to an allocation, in words. */
export const ACTIONS = {
  restart: "restart",
  reload: "reload",
  start: "first start",
  sync: "files only",
  promote: "version only",
  adopt: "adopted",
  leave: "left alone",
  unknown: "not known yet",
};

/** Whether a run is a plan that can be read. */
export function isPlan({ params, result }) {
  return params.dry_run && Array.isArray(result?.waves);
}

/** The parts of a plan that all of the page uses. */
export function planOf({ result }) {
  const isChange = ({ action, is_gate_open: isOpen }) => action !== "skip" || isOpen;
  const jobs = result.waves.flatMap(({ seq, jobs: own }) =>
    own.map((job) => ({ ...job, wave: seq, changing: job.allocations.filter(isChange) })),
  );
  const changing = jobs.flatMap((job) => job.changing).filter(({ action }) => action !== "leave");
  const { reconcile, unreachable } = result;
  const names = workersOf([...changing, ...reconcile]);
  return { jobs, changes: names.length, workers: new Set(names).size, reconcile, unreachable };
}

/** The title of a plan. */
export function planTitle(run) {
  return planOf(run).changes === 0 ? "Nothing to deploy" : `Plan: ${planInShort(run)}`;
}

/** Whether a plan still holds. */
export function planBadge({ run, validity }) {
  if (run.status !== "succeeded") return badge("failed", "a deploy would not be complete");
  if (!validity) return null;
  if (validity.valid) return badge("ok", "still valid");
  const stale = badge("soon", `out of date: ${staleBy(validity)}`);
  stale.title = plain(validity.reason);
  return stale;
}

/** What has changed since a plan was made: the first thing. */
export function staleBy({ reason }) {
  return plain(reason)
    .replace(/^.*? does not hold any more: /, "")
    .split("; ")[0];
}

/** What is done with a plan. */
export function planControls({ page, run, validity }) {
  const isGood = run.status === "succeeded" && validity?.valid !== false && planOf(run).changes > 0;
  const deploy = () => orderButton(page, "Deploy this plan …", () => planOrder(run), { style: "primary" });
  const again = () => orderButton(page, "Plan again", { ...againOrder(run), says: undefined }, { style: "primary" });
  return [isGood ? deploy() : again(), copying("Copy link", () => location.href)];
}

/** Carries out a plan; the question repeats what it is about. */
export function planOrder(run) {
  const { jobs, changes, workers, reconcile } = planOf(run);
  const rows = jobs.filter(({ changing }) => changing.length > 0).map((job) => [job.job, versionsOf(job), actionsOf(job)]);
  return {
    path: "/deploy",
    body: { plan: run.id },
    danger: true,
    title: "Deploy this plan?",
    says: [
      `${count(changes, "change")} on ${count(workers, "worker")}: what the plan shows, or nothing where anything has changed since.`,
      reconcile.length > 0 && `${count(reconcile.length, "allocation")} will be stopped.`,
    ],
    fields: changesTable(rows),
  };
}

function actionsOf({ changing }) {
  const groups = [...Map.groupBy(changing, ({ action }) => action)];
  return groups.map(([action, own]) => `${ACTIONS[action] ?? action} ${onWorkers(own)}`).join(", ");
}

/** The versions of a job: those that change, and what they become. */
export function versionsOf({ version, changing }) {
  const before = [...new Set(changing.filter(({ from }) => from.hash !== "").map(({ from }) => from.version))];
  return before.length === 0 || (before.length === 1 && before[0] === version) ? version : `${listed(before)} → ${version}`;
}

/** The chips of a plan. */
export function planChips(run) {
  const { jobs, reconcile, unreachable } = planOf(run);
  const changing = jobs.flatMap((job) => job.changing);
  const { roll = [], skipped = [] } = Object.groupBy(jobs, (job) => (job.changing.length > 0 ? "roll" : "skipped"));
  const withAction = (word) => changing.filter(({ action }) => action === word);
  const actions = Object.entries(ACTIONS).map(([word, text]) => ({ word, text, sign: false, of: withAction(word) }));
  const items = [
    { word: "changed", text: "jobs roll out", of: roll },
    ...actions,
    { word: "stop", text: "stopped", of: reconcile },
    { word: "skipped", text: "jobs skipped", of: skipped },
    { word: "hand", text: "changed by hand", of: byHand(jobs) },
    { word: "unreachable", text: "gave no answer", of: unreachable },
  ];
  return items.filter(({ of }) => of.length > 0).map(({ of, ...chip }) => ({ ...chip, count: of.length }));
}

/** Allocations whose files were changed by hand. */
export function byHand(jobs) {
  const all = jobs.flatMap(({ allocations }) => allocations);
  return all.filter(({ drift }) => drift?.outcome === "drifted" && !drift.is_unfinished);
}

/** What a list says of a plan: `156 changes on 39 workers`. */
export function planInShort(run) {
  const { changes, workers } = planOf(run);
  return changes === 0 ? "nothing to deploy" : `${count(changes, "change")} on ${count(workers, "worker")}`;
}
