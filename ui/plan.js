import { fileDiff } from "./diff.js";
import { el } from "./dom.js";
import { count, status } from "./format.js";

/** What a deploy would do, job by job: actions on each worker and the diff of each file. */
export function planOf({ jobs = [], reconciled = [] }) {
  const working = jobs.filter(({ allocations = [] }) => allocations.some(({ action }) => action !== "skip"));
  const leaving = reconciled.map(({ job, worker, action }) => el("li", {}, `${action} ${job} on ${worker}`));
  return el(
    "div",
    { class: "plan" },
    el(
      "p",
      {},
      el("b", {}, "PLAN "),
      `${count(working.length, "job")} of ${jobs.length} would change; nothing was touched.`,
    ),
    leaving.length === 0 ? null : el("ul", {}, ...leaving),
    ...jobs.map(jobPlan),
  );
}

function jobPlan({ job, outcome, reason, allocations = [], files = [] }) {
  const active = allocations.filter(({ action }) => action !== "skip");
  return el(
    "details",
    { open: active.length > 0 },
    el(
      "summary",
      {},
      el("b", {}, job),
      " ",
      status(active.length > 0 ? "changes" : (outcome ?? "unchanged")),
      " ",
      reason ?? "",
    ),
    el(
      "ul",
      { class: "plain" },
      ...allocations.map(({ worker, action, reason: why, files: own = [] }) =>
        el("li", {}, `${worker}: `, el("b", {}, action), why ? `, ${why}` : "", ...own.map(planFile)),
      ),
    ),
    ...files.map(planFile),
  );
}

function planFile({ path, change, diff, ...others }) {
  return fileDiff({ path, change: change ?? others.action ?? "changed", diff, note: others.note ?? "" });
}
