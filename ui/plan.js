import { el } from "./dom.js";
import { count, status } from "./format.js";

const SIGNS = { "+": "added", "-": "removed", "@": "place" };

/** What a deploy would do, wave by wave: the actions on each worker, why, and what differs in each file. */
export function planOf({ waves, reconcile, update_seq, unreachable }) {
  const jobs = waves.flatMap((wave) => wave.jobs);
  const working = jobs.filter(({ outcome }) => outcome === "roll_out");
  const sum = `${working.length} of ${count(jobs.length, "job")} would be rolled out; nothing was touched. `;
  const lost = unreachable.map(({ worker, error }) => el("li", `${worker} gave no answer: ${error}`));
  const leaving = reconcile.map(({ job, worker, action }) => el("li", `${action} ${job} on ${worker}`));
  return el(
    "div.plan",
    el("p", el("b", "PLAN "), sum, `The update sequence is ${update_seq}.`),
    el("ul", lost, leaving),
    waves.flatMap((wave) => wave.jobs.map((job) => jobPlan(wave.seq, job))),
  );
}

function jobPlan(wave, { job, version, outcome, reason, hooks, allocations }) {
  const scripts = hooks.map(({ event, names }) => `; ${event}: ${names.join(", ")}`).join("");
  const why = ` ${spaced(reason)}, wave ${wave}${scripts}`;
  const summary = el("summary", el("b", job), ` ${version} `, status(outcome), why);
  return el(
    "details",
    { open: outcome !== "skip" },
    summary,
    el("ul.plain", allocations.map(allocationPlan)),
  );
}

function allocationPlan({ worker, action, reason, is_gate_open, from, to, files, drift }) {
  const versions = from.version === to.version ? "" : ` ${from.version || "nothing"} → ${to.version}`;
  const gate = is_gate_open ? "; the health gate of an earlier deploy comes first" : "";
  const found = (drift?.files ?? []).map((file) => ({ ...file, change: file.state, note: "by hand" }));
  return el(
    "li",
    el("p", `${worker}: `, el("b", action), `${versions}, ${spaced(reason)}${gate}`),
    [...files, ...found].map(fileDiff),
  );
}

function spaced(reason) {
  return reason.replaceAll("_", " ");
}

/** A file that differs: what became of it, and its unified diff where there is one. */
export function fileDiff({ path, change, diff, note }) {
  const title = [el(`span.status.${change}`, change), " ", el("code", path), note && ` ${note}`];
  if (!diff) return el("p.file-change", title);
  // The sign at the front of a line stays, so that colour is never all there is.
  const lines = diff.replace(/\n$/, "").split("\n");
  const classOf = (line) => (/^(\+\+\+|---) /.test(line) ? "file" : SIGNS[line[0]]);
  const text = lines.map((line) => el("span", { class: classOf(line) }, `${line}\n`));
  const box = el("pre.diff", { tabindex: 0, role: "group", "aria-label": `Changes of ${path}` }, text);
  return el("details.file-change", { open: true }, el("summary", title), box);
}
