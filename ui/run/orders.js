// Orders about runs and deploys, and what their questions say.
import { el } from "../base/dom.js";
import { count, listed, localTime, nameOf, number, plain, said } from "../base/text.js";
import { letterOf, tally } from "../parts/map/model.js";
import { jobMap } from "../parts/map.js";
import { curlItem, orderButton, orderItem, startPathOf } from "../parts/order.js";
import { byTrouble } from "../parts/state.js";
import { outcomesOf, tallied } from "./words.js";

const ELSEWHERE = /^(push|rollback|snapshot_\w+|unknown)$/;
const REPEATED = /^(run_command|worker_\w+|health_check|deploy|job_\w+)$/;
const HARMLESS = /^(build|drift|health_check|worker_\w+|job_status)$/;
const NOT_DONE = /^(failed|unreachable|cancelled|not_started)$/;
/** What is deployed along, by the letters of the map. */
const ALONG = { f: "failed", u: "unreachable", w: "not started", x: "cancelled" };

/** How a run is done again, or null where its order is given elsewhere. */
export function againOrder(run) {
  const { kind, params } = run;
  const { retry_of: _, ...body } = params;
  const ofJob = kind.startsWith("job_");
  const { jobs: [job, ...more] = [] } = body;
  if (ELSEWHERE.test(kind) || (ofJob && more.length > 0)) return null;
  const path = ofJob ? `/jobs/${encodeURIComponent(job)}/${kind.slice(4)}` : startPathOf(kind);
  if (ofJob) delete body.jobs;
  const isHarmless = params.dry_run || (HARMLESS.test(kind) && !params.force);
  const danger = !isHarmless && (ofJob ? job : (params.job ?? true));
  const says = [`Starts ${nameOf(run)} again, with ${JSON.stringify(params)}.`];
  return { path, body, danger, title: `${nameOf(run)} again?`, action: "Run again", says };
}

/** Whether what failed in a run can be repeated by itself. */
export function canRetry({ kind, status, params }) {
  return REPEATED.test(kind) && !params.dry_run && (status === "failed" || status === "cancelled");
}

/** Repeats a run where it is not done. */
function retryOrder(run) {
  const rows = outcomesOf(run).sort((one, other) => byTrouble(one.outcome, other.outcome));
  const bad = rows.filter(({ outcome }) => NOT_DONE.test(outcome));
  const many = `${number(bad.length)} of ${number(rows.length)}`;
  const jobs = [...Map.groupBy(bad, ({ job }) => job ?? "workers")].map(([job, own]) => [job, tallied(own)]);
  return {
    ...{ ...againOrder(run), body: { retry_of: run.id }, title: "Retry what failed?", action: "Retry what failed" },
    says: [`Repeats ${nameOf(run)} where it is not done: ${many}. What is done stays as it is.`],
    fields: changesTable(jobs),
  };
}

/** What a question says of each job: at most ten rows. */
export function changesTable(rows) {
  if (rows.length === 0) return [];
  const shown = rows.slice(0, 10).map((cells) => el("tr", ...cells.map((cell, index) => el(index === 0 ? "th" : "td", cell))));
  const more = rows.length - shown.length;
  return el("div.panel.table", el("table", el("tbody", shown)), more > 0 && el("p.pad.meta", `and ${count(more, "more job")}`));
}

/** Deploys jobs, or all. @param {{ jobs?: string[], build?: boolean, force?: boolean, sync_only?: boolean }} body */
export function deployOrder(body) {
  const { jobs, build, sync_only, force } = body;
  const says = [
    `${build ? "Builds first, then brings" : "Brings"} ${jobs ? listed(jobs) : "all jobs"} to the state of the catalog, in health-gated waves.`,
    force && "Jobs whose deploy is complete are rolled out again, too.",
    sync_only ? "Only files are written; nothing is started." : "Services are started, reloaded or restarted.",
  ];
  return { path: "/deploy", body, says, danger: true };
}

/**
 * Deploys jobs again, and says what goes along.
 * @param {string[]} jobs
 * @param {{ countsOf: (job: string) => Record<string, number>, workersOf: (job: string, letters: string) => string[] }} map by
 *   the letters of the map
 */
export function redeployOrder(jobs, map) {
  const failed = jobs.flatMap((job) => map.workersOf(job, "f").map((worker) => `${job}@${worker}`));
  return {
    path: "/deploy",
    body: { jobs, ...(failed.length > 0 && { force_only: failed }) },
    title: jobs.length === 1 ? `Deploy ${plain(jobs[0])} again?` : `Deploy ${jobs.length} jobs again?`,
    action: "Retry",
    says: ["What is as it should be stays as it is."],
    fields: changesTable(jobs.map((job) => [said(job), alongOf(map.countsOf(job))])),
  };
}

function alongOf(counts) {
  const told = Object.entries(ALONG).filter(([letter]) => counts[letter] > 0);
  const sum = told.reduce((all, [letter]) => all + counts[letter], 0);
  return `${count(sum, "worker")}: ${told.map(([letter, text]) => `${number(counts[letter])} ${text}`).join(", ") || "as the catalog says"}`;
}

/** The allocations of one job as {@link redeployOrder} asks for them. @param {{ worker: string, state: string }[]} rows */
export function placesOfRows(rows) {
  return {
    countsOf: () => tally(rows.map(({ state }) => letterOf(state)).join("")),
    workersOf: (_job, letters) => rows.filter(({ state }) => letters.includes(letterOf(state))).map(({ worker }) => worker),
  };
}

/** The map of jobs and workers, where a failed job can be deployed again. */
export function deployedMap(page, sinceOf = (_job, _worker) => "") {
  const retry = (job) => orderButton(page, "Retry …", () => redeployOrder([job], map), { style: "small" });
  const map = jobMap(page, { sinceOf, retry });
  return map;
}

/** Goes back to a revision of the source. */
export function rollbackOrder(page, { id, created_at: at }) {
  const says = `The source goes back to revision …${id.slice(-8)} of ${localTime(at)}, and is built. Workers stay as they are until the next deploy.`;
  const order = { path: "/source/rollback", body: { revision_id: id }, action: "Roll back", danger: true };
  return { ...order, title: `Roll back ${page.nameOfBucket()}?`, says: [says] };
}

/** The button that repeats what failed; `r` presses it. */
export function retryButton(page, run, style = "primary") {
  return orderButton(page, "Retry what failed …", () => retryOrder(run), { style, again: true });
}

/** Entries of a run's menu. */
export function runItems(page, run) {
  const again = againOrder(run);
  return again ? [orderItem(page, "Run again …", again), curlItem(page, again)] : [];
}
