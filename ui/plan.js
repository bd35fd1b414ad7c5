import { el } from "./dom.js";
import { count, status } from "./format.js";
import { fileDiff } from "./results.js";

/** What a deploy would do, wave by wave: the actions on each worker, why, and what differs in each file. */
export function planOf({ waves, reconcile, update_seq, unreachable }) {
  const jobs = waves.flatMap((wave) => wave.jobs);
  const working = jobs.filter(({ outcome }) => outcome === "roll_out");
  const leaving = reconcile.map(({ job, worker, action }) => el("li", {}, `${action} ${job} on ${worker}`));
  const lost = unreachable.map(({ worker, error }) => el("li", {}, `${worker} gave no answer: ${error}`));
  const sum = `${working.length} of ${count(jobs.length, "job")} would be rolled out; nothing was touched. `;
  return el(
    "div",
    { class: "plan" },
    el("p", {}, el("b", {}, "PLAN "), sum, `The update sequence is ${update_seq}.`),
    el("ul", {}, ...lost, ...leaving),
    ...waves.flatMap((wave) => wave.jobs.map((job) => jobPlan(wave.seq, job))),
  );
}

function jobPlan(wave, { job, version, outcome, reason, hooks, allocations }) {
  const scripts = hooks.map(({ event, names }) => `; ${event}: ${names.join(", ")}`).join("");
  return el(
    "details",
    { open: outcome !== "skip" },
    el(
      "summary",
      {},
      el("b", {}, job),
      ` ${version} `,
      status(outcome),
      ` ${words(reason)}, wave ${wave}${scripts}`,
    ),
    el("ul", { class: "plain" }, ...allocations.map(allocationPlan)),
  );
}

function allocationPlan({ worker, action, reason, is_gate_open, from, to, files, drift }) {
  const versions = from.version === to.version ? "" : ` ${from.version || "nothing"} → ${to.version}`;
  const gate = is_gate_open ? "; the health gate of an earlier deploy comes first" : "";
  return el(
    "li",
    {},
    el("p", {}, `${worker}: `, el("b", {}, action), `${versions}, ${words(reason)}${gate}`),
    ...files.map((file) => fileDiff(file)),
    ...(drift?.files ?? []).map((file) => fileDiff({ ...file, change: file.state, note: "by hand" })),
  );
}

function words(reason) {
  return reason.replaceAll("_", " ");
}
