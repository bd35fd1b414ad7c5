import { el } from "./dom.js";
import { count, status } from "./format.js";
import { fileDiff } from "./results.js";

/** What a deploy would do, wave by wave: the actions on each worker, why, and what differs in each file. */
export function planOf({ waves, reconcile, update_seq }) {
  const jobs = waves.flatMap((wave) => wave.jobs);
  const working = jobs.filter(({ outcome }) => outcome === "roll_out");
  const leaving = reconcile.map(({ job, worker, action }) => el("li", {}, `${action} ${job} on ${worker}`));
  const sum = `${working.length} of ${count(jobs.length, "job")} would be rolled out; nothing was touched. `;
  return el(
    "div",
    { class: "plan" },
    el("p", {}, el("b", {}, "PLAN "), sum, `The update sequence is ${update_seq}.`),
    leaving.length === 0 ? null : el("ul", {}, ...leaving),
    ...waves.flatMap((wave) => wave.jobs.map((job) => jobPlan(wave.seq, job))),
  );
}

function jobPlan(wave, { job, version, outcome, reason, pre_deploy, allocations }) {
  const hooks = pre_deploy.length === 0 ? "" : `; first its hooks ${pre_deploy.join(", ")}`;
  return el(
    "details",
    { open: outcome !== "skip" },
    el(
      "summary",
      {},
      el("b", {}, job),
      ` ${version} `,
      status(outcome),
      ` ${words(reason)}, wave ${wave}${hooks}`,
    ),
    el("ul", { class: "plain" }, ...allocations.map(allocationPlan)),
  );
}

function allocationPlan({ worker, action, reason, is_gate_open, from, to, files }) {
  const versions = from.version === to.version ? "" : ` ${from.version || "nothing"} → ${to.version}`;
  const gate = is_gate_open ? "; the health gate of an earlier deploy comes first" : "";
  return el(
    "li",
    {},
    el("p", {}, `${worker}: `, el("b", {}, action), `${versions}, ${words(reason)}${gate}`),
    ...files.map((file) => fileDiff(file)),
  );
}

function words(reason) {
  return reason.replaceAll("_", " ");
}
