// What a plan shows: each difference once with the workers it is on, by job or by worker.
import { el } from "../base/dom.js";
import { count, joined, listed, said } from "../base/text.js";
import { choiceBar } from "../parts/form.js";
import { fold, rest } from "../parts/region.js";
import { badge, byName, mark, rowAbout, tag } from "../parts/state.js";
import { fileFold } from "./files.js";
import { ACTIONS, byHand, planOf, versionsOf } from "./plan.js";
import { namesOfJobs } from "./progress.js";
import { inShort, onWorkers, tallied, workersOf } from "./words.js";

/** With more files in a job all differences are folded. */
const MANY_FILES = 50;

const LOOKS = { job: "By job", worker: "By worker", differences: "Only differences" };

/** @param {import("../views/run.js").RunPage} view */
export function planBody(view) {
  const { look = "job" } = view;
  const choose = (name) => {
    view.look = name;
    view.draw();
  };
  const body = { job: byJob, worker: byWorker, differences: onlyDifferences }[look](view, planOf(view.run));
  return [
    view.run.error && el("p.error.says", { key: "error" }, said(view.run.error)),
    choiceBar("How it is shown", Object.entries(LOOKS), look, choose),
    el("section.panel.plan", { key: look }, body),
  ];
}

/** Whether a job is among the chosen chips; without any all are. */
function isChosen({ chosen }, job) {
  if (chosen.size === 0) return true;
  const words = [
    job.changing.length > 0 ? "changed" : "skipped",
    ...job.changing.map(({ action }) => action),
    byHand([job]).length > 0 && "hand",
  ];
  return words.some((word) => chosen.has(word));
}

function byJob(view, { jobs, reconcile, unreachable }) {
  const { chosen } = view;
  const isFull = ({ changing, outcome }) =>
    changing.length > 0 || /^(failed|not_started)$/.test(outcome) || chosen.has("skipped") || chosen.has("hand");
  const wanted = jobs.filter((job) => isChosen(view, job));
  const { full = [], skipped = [] } = Object.groupBy(wanted, (job) => (isFull(job) ? "full" : "skipped"));
  const names = namesOfJobs(skipped);
  const summary = rowAbout("skipped", `${count(names.length, "job")} skipped`, `nothing to do: ${listed(names, 6)}`);
  const isShown = (word) => chosen.size === 0 || chosen.has(word);
  return [
    full.map((job, index) => plannedFold(view, job, index === 0)),
    isShown("stop") && reconcile.map(stopRow),
    names.length > 0 && rest(view, { key: "skipped", summary }, names),
    isShown("unreachable") && unreachable.map(unreadRow),
  ];
}

function stopRow({ job, worker, action, hooks }) {
  const then = el("span.meta", hooks.length > 0 && `then ${hooks.join(", ")}`);
  return el("p.row-line", { key: `stop ${job}@${worker}` }, mark("stopped"), el("b", job), ` on ${worker}`, tag(action), then);
}

function unreadRow({ worker, error }) {
  const why = [said(error), " What is there is planned from what was promoted."];
  return el("p.row-line.unreachable", { key: worker }, rowAbout("unreachable", `${worker} gave no answer`, why));
}

function plannedFold(view, job, open) {
  const { allocations, changing, phases, outcome, reason, wave, hooks } = job;
  const hand = byHand([job]);
  const files = variantsOf(job);
  const paths = new Set(files.map(({ file }) => file.path)).size;
  const batches = phases.map(({ action, batches: own }) =>
    tag(`${action}, ${count(own.length, "batch")}${own.length > 1 ? ` of ${own[0].length}` : ""}`),
  );
  const isBad = outcome === "failed" || outcome === "not_started";
  const kinds = files.length > paths ? `${files.length} variants` : changing.length > 1 && files.length > 0 && "all the same";
  const told = joined(changing.length > 0 && `on ${count(changing.length, "worker")}`, paths > 0 && count(paths, "file"), kinds);
  const summary = [
    isBad && mark(outcome, { label: outcome.replaceAll("_", " ") }),
    el("b", job.job),
    el("span", said(versionsOf(job))),
    tag(`wave ${wave}`),
    batches,
    isBad && el("span.error", said(reason)),
    outcome === "roll_out" && reason !== "needs work" && el("span.meta", said(reason)),
    hand.length > 0 && badge("hand", `changed by hand ${onWorkers(hand)}`),
    el("span.end", told),
  ];
  const gates = changing.filter(({ is_gate_open: isOpen }) => isOpen);
  const more = allocations.reduce((sum, one) => sum + (one.more_files ?? 0), 0);
  const body = () => [
    hooks.length > 0 && el("p.meta.row-line", hooks.map(({ event, names }) => `${event}: ${names.join(", ")}`).join("; ")),
    gates.length > 0 && el("p.meta.row-line", `An open health gate comes first ${onWorkers(gates)}.`),
    files.map((one) => variantFold(view, job, one, files.length > MANY_FILES)),
    byHandFiles(view, job, hand),
    more > 0 && el("p.meta.row-line", `${count(more, "more file")}: plan.json of the run names all.`),
  ];
  return fold(view, { key: `job ${job.job}`, summary, open, kind: isBad && "bad" }, body);
}

function byHandFiles(view, { job }, hand) {
  return hand.flatMap(({ worker, drift }) => {
    const about = { where: ["by hand on ", worker], open: true };
    return drift.files.map((file) => fileFold(view, `${job} ${worker} ${file.path}`, file, about));
  });
}

/** Each file of a job once for each way in which it changes, most frequent first: `{ file, rows, first, of }`. */
function variantsOf({ changing }) {
  const files = changing.flatMap(({ worker, files: own }) => own.map((file) => ({ worker, file })));
  /** @param {any} one */
  const kindOf = ({ file }) => `${file.change} ${changedLines(file).join("\n") || (file.note ?? "")}`;
  return [...Map.groupBy(files, ({ file }) => file.path).values()].flatMap((own) => {
    const kinds = [...Map.groupBy(own, kindOf).values()].sort((one, other) => other.length - one.length);
    const [[{ file: first }]] = kinds;
    return kinds.map((rows) => ({ file: rows[0].file, rows, first, of: own.length }));
  });
}

/** What a difference adds and removes, whatever stands around it. */
function changedLines({ diff = "" }) {
  return diff.split("\n").filter((line) => /^[+-]/.test(line));
}

function variantFold(view, { job }, one, isMany) {
  const { file, rows, first, of } = one;
  const isSame = file === first;
  const isRare = rows.length < of / 10;
  const names = isSame || rows.length === 1 ? "" : `: ${inShort(workersOf(rows))}`;
  const where = `${rows.length === of && of > 1 ? "same " : ""}${onWorkers(rows)}${names}`;
  return variantFile(view, job, one, { where, open: !isMany && (isRare || isSame) });
}

/** A difference without the hunks that the first variant has too. */
function besides(file, first) {
  const known = new Set(changedLines(first));
  const own = changedLines(file);
  const isMore = own.length > known.size && [...known].every((line) => own.includes(line));
  if (!isMore) return { diff: file.diff };
  const hunks = file.diff.split(/^(?=@@)/m).filter((hunk) => changedLines({ diff: hunk }).some((line) => !known.has(line)));
  return { diff: hunks.join(""), before: `As above, and in ${count(own.length - known.size, "more line")}` };
}

function byWorker(view, { jobs, unreachable }) {
  const rows = jobs.flatMap((job) => (isChosen(view, job) ? job.changing.map((one) => ({ ...one, job })) : []));
  const lost = new Map(unreachable.map(({ worker, error }) => [worker, error]));
  const workers = [...Map.groupBy(rows, ({ worker }) => worker)].sort(([one], [other]) => byName(one, other));
  return workers.map(([worker, own]) => {
    const told = lost.get(worker) ?? tallied(own, ({ action }) => ACTIONS[action] ?? action);
    const summary = [
      lost.has(worker) && mark("unreachable", { label: "unreachable" }),
      el("b", worker),
      el("span.meta", said(told)),
      el("span.end", count(own.length, "job")),
    ];
    const row = ({ job, action, reason, files }) => {
      const paths = files.map(({ path }) => path);
      const why = el("span.meta", ` ${reason}; ${listed(paths, 5)}`);
      return el("li", el("b", job.job), ` ${versionsOf(job)} `, tag(ACTIONS[action] ?? action), why);
    };
    return rest(view, { key: `worker ${worker}`, summary }, own, row);
  });
}

function onlyDifferences(view, { jobs }) {
  const rows = jobs.filter((job) => isChosen(view, job)).flatMap((job) => variantsOf(job).map((one) => ({ job, one })));
  if (rows.length === 0) return el("p.notice", "No file differs.");
  return rows.map(({ job: { job }, one }) => {
    const where = [el("b", job), ` ${onWorkers(one.rows)}`];
    return variantFile(view, `difference ${job}`, one, { where, open: rows.length <= MANY_FILES });
  });
}

/** A file as one variant has it: of a later one only what the first has not. */
function variantFile(view, key, { file, rows, first }, options) {
  const { diff, before } = file === first ? file : besides(file, first);
  return fileFold(view, `${key} ${file.path} ${rows[0].worker}`, { ...file, diff }, { ...options, before });
}
