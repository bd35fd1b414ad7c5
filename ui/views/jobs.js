import { listOf, unless } from "../base/api.js";
import { el, patch } from "../base/dom.js";
import { count, number, said } from "../base/text.js";
import { curlItem, moreMenu, orderButton } from "../parts/order.js";
import { head } from "../parts/region.js";
import { byTrouble, mark } from "../parts/state.js";
import { listing } from "../parts/table.js";
import { troublesOf } from "../parts/trouble.js";

/** What is counted of a job, the worst first, and how each is said. */
const COUNTS = [
  ["failed", "failed"],
  ["unreachable", "unreachable"],
  ["unsettled", "half-way"],
  ["waiting", "waiting"],
  ["disabled", "disabled"],
];

/**
 * The counts of a job as they are said: `waiting` for a deploy, and how many are `due` to be up to date.
 * @param {Record<string, number>} row
 * @returns {Record<string, number>}
 */
function saidCounts({ new: fresh, update, disabled, allocations, ...counts }) {
  return { ...counts, waiting: fresh + update, disabled, due: allocations - disabled };
}

/** The state of a job by the counts of its allocations: the worst of them. */
export function stateOfJob(row) {
  const counts = saidCounts(row);
  const [word] = COUNTS.find(([name]) => counts[name] > 0) ?? [];
  if (word && word !== "disabled") return word;
  if (counts.promoted > 0) return "ok";
  return word ?? "not_placed";
}

/** The trouble of a job in words, each with its mark. */
export function troubleOfJob(row) {
  const counts = saidCounts(row);
  return COUNTS.filter(([name]) => counts[name] > 0).map(([name, text]) =>
    el("span.state.told", mark(name), `${number(counts[name])} ${text}`),
  );
}

/** `38 of 39`: how many allocations are up to date. */
export function doneOfJob(row) {
  const { promoted, due } = saidCounts(row);
  return due > 0 ? `${number(promoted)} of ${number(due)}` : "none";
}

/** The jobs of the catalog with their states, and how much of each is `due` for a deploy. */
export async function readJobs(page) {
  const jobs = await unless(listOf(page.path("/cat/jobs?limit=500")), []);
  const unwell = new Map(troublesOf(page.bucket()?.summary).items.map((one) => [one.aspect && one.job, one.action]));
  const stateIn = (one) => [unwell.get(one.job), stateOfJob(one)].filter(Boolean).sort(byTrouble)[0];
  const rows = jobs.map((one) => ({ ...one, state: stateIn(one), due: one.update + one.new }));
  return Object.assign(rows, { cut: jobs.cut });
}

/** The jobs of the catalog: those with trouble first, with the counts that the server has of each. */
export function jobsView(page) {
  const list = listing(() => readJobs(page), {
    caption: "Jobs",
    stateColumn: "state",
    columns: ["job", "state", "promoted", "counts", "deployment_seq", "version", "cpu_mhz", "memory_mb", "selectors"],
    labels: { promoted: "Up to date", counts: "Others", cpu_mhz: "CPU MHz" },
    cells: { promoted: doneOfJob, counts: troubleOfJob, selectors: ({ selectors }) => said(selectors?.replaceAll(",", ", ")) },
    keyOf: ({ job }) => job,
    none: "No job is in the catalog. Add one to workspace/jobs, then push.",
  });
  const top = el("div", el("h1", "Jobs"));
  const refresh = async () => {
    await list.refresh();
    if (list.data) patch(top, headOf(page, list.data));
  };
  return { title: "Jobs", element: el("div", top, list.element), refresh };
}

function headOf(page, rows) {
  const of = (word) => rows.filter(({ state }) => state === word).length;
  const total = page.bucket()?.summary?.jobs ?? rows.length;
  const isBroken = of("failed") > 0;
  const placed = total - of("not_placed");
  const waiting = of("waiting");
  const title = isBroken ? `${number(of("failed"))} of ${count(total, "job")} failed` : count(total, "job");
  const told = [
    of("unhealthy") > 0 && `${number(of("unhealthy"))} unhealthy`,
    of("unreachable") > 0 && `${number(of("unreachable"))} with unreachable workers`,
    waiting > 0 && `${number(waiting)} wait for a deploy`,
    placed < total && `${number(total - placed)} on no worker`,
  ].filter(Boolean);
  const check = { path: "/health_check" };
  const controls = [orderButton(page, "Health check", check), moreMenu(() => [curlItem(page, check)])];
  return head({ title, mark: isBroken && mark("failed", { large: true }), line: told.join(" · "), controls });
}
