// What runs other than deploys came to, each kind in the words of its own.
import { el } from "../base/dom.js";
import { count, firstLine, prose, said } from "../base/text.js";
import { fold } from "../parts/region.js";
import { badge, byTrouble, mark, rowAbout } from "../parts/state.js";
import { dataOf } from "../parts/table.js";
import { evidenceOf } from "./evidence.js";
import { fileFold } from "./files.js";
import { reportOf } from "./report.js";
import { inShort, outcomesOf, workersOf } from "./words.js";

/** @param {import("../views/run.js").RunPage} view */
export function summaryOf(view) {
  const { run } = view;
  const { kind, result, error } = run;
  const sentence = error && el("p.error.says", { key: "error" }, prose(error));
  if (!result) return [sentence, el("p.notice", error ? "It left no result: its log tells more." : "It left no result.")];
  if (Array.isArray(result.problems)) return problemsOf(result.problems);
  const body = result.summary ? reportOf(view) : [sentence, formOf(kind, result)(view)];
  return [body, cancelledOf(result.cancelled)];
}

function formOf(kind, { jobs }) {
  if (KINDS[kind]) return KINDS[kind];
  if (kind.startsWith("worker_")) return readingsOf;
  return Array.isArray(jobs) ? jobsOf : ({ run }) => el("section.panel.pad", dataOf(run.result));
}

const KINDS = { run_command: answersOf, drift: driftOf, hooks: scriptsOf };

/** The sentences of a build that failed, each with its file. */
function problemsOf(problems) {
  const rows = problems.map(({ code, file, path, message }) => {
    const [, line] = /\(line (\d+)/.exec(message) ?? [];
    const place = el("p", el("code", el("b", said(file)), line && `:${line}`, path && [" ", said(path)]));
    return el("li", mark("failed"), el("div", place, el("p.error", said(message)), el("p.small", said(code))));
  });
  return el("section.panel.problems", el("h2", count(problems.length, "problem")), el("ul", rows));
}

/** What became of the commands of a cancelled run. */
function cancelledOf(cancelled) {
  if (!cancelled || cancelled.workers.length === 0) return null;
  const { workers, unconfirmed } = cancelled;
  const groups = [...Map.groupBy(workers, ({ receipt }) => receipt)];
  const words = groups.map(([receipt, own]) => `${receipt} on ${inShort(workersOf(own))}`);
  const rest = unconfirmed > 0 && el("b.error", ` On ${count(unconfirmed, "worker")} something may still run.`);
  return el("p.says", { key: "receipts" }, `What ran when it was cancelled: ${words.join("; ")}.`, rest);
}

/** Answers of a command, equal ones as one: failed first, then the rarest. */
export function answersOf(view) {
  const { workers, health_checks: checks = [] } = view.run.result;
  const answerIn = ({ outcome, exit_code, output_sha256: sum, output, error }) =>
    JSON.stringify([outcome, exit_code, sum ?? output, error]);
  const byRarity = ([, one], [, other]) => byTrouble(one[0].outcome, other[0].outcome) || one.length - other.length;
  const sorted = [...Map.groupBy(workers, answerIn)].sort(byRarity);
  const bad = checks.filter(({ error }) => error);
  return [
    el("section.panel.answers", { key: "answers" }, ...sorted.map(([key, own], index) => answerFold(view, key, own, index))),
    bad.map(({ batch, job, error }) => el("p.error.says", `Health check of ${job} after batch ${batch}: `, said(error))),
  ];
}

function answerFold(view, key, own, index) {
  const [{ outcome, exit_code: code, output, error }] = own;
  const names = workersOf(own);
  const text = [output?.trimEnd(), error].filter(Boolean).join("\n");
  const summary = [
    badge(outcome),
    code > 0 && el("span", `exit code ${code}`),
    el("b", count(names.length, "worker")),
    el("span.meta", { title: names.join(", ") }, inShort(names, 4)),
    el("code.peek", said(firstLine(text))),
  ];
  const body = () => [
    names.length > 4 && el("p.small.all", names.join(", ")),
    el("pre.answer", { tabindex: 0 }, said(text || "nothing was written")),
  ];
  return fold(view, { key, summary, open: index === 0 && outcome !== "not_started" }, body);
}

/** How files were found: workers with differences first. */
function driftOf(view) {
  const { workers } = view.run.result;
  const all = workers.flatMap(({ worker, allocations }) => allocations.map((one) => ({ ...one, worker })));
  const found = all.filter(({ files }) => files.length > 0);
  const lost = workers.filter(({ error }) => error);
  const well = workers.length - lost.length - new Set(workersOf(found)).size;
  const folds = found.map((one, index) => driftFold(view, one, index < 3));
  return el("section.panel.drifts", { key: "drift" }, lost.map(silentRow), folds, wellRow(well, "as promoted"));
}

/** A worker that gave no answer. */
function silentRow({ worker, outcome, error }) {
  return el("p.row-line", { key: worker }, rowAbout(outcome, worker, said(error)));
}

function wellRow(workers, text) {
  return el("p.row-line", { key: "well" }, mark("ok"), el("b", count(workers, "worker")), ` ${text}`);
}

function driftFold(view, { job, worker, files, is_unfinished: isUnfinished }, open) {
  const key = `${job}@${worker}`;
  const told = isUnfinished && "a change of it has not ended";
  const summary = rowAbout("hand", [job, el("span", ` on ${worker}`)], told, el("span.end", count(files.length, "file")));
  const body = () => files.map((file) => fileFold(view, `${key} ${file.path}`, file, { open: true }));
  return fold(view, { key, summary, open }, body);
}

/** Jobs of job control and of health checks. */
function jobsOf(view) {
  const { jobs, workers = [] } = view.run.result;
  const bad = workers.filter(({ error }) => error);
  const groups = jobs.toSorted((one, other) => byTrouble(one.outcome, other.outcome));
  return el(
    "section.panel.report",
    { key: "jobs" },
    bad.map(silentRow),
    workers.length > 0 && wellRow(workers.length - bad.length, "answered"),
    groups.map(({ job, outcome, reason, allocations }, index) => {
      const told = reason ? said(reason) : outcome.replaceAll("_", " ");
      const summary = rowAbout(outcome, job, told, el("span.end", count(allocations.length, "worker")));
      const open = jobs.length === 1 || (index === 0 && outcome === "failed");
      return fold(view, { key: job, summary, open }, () => allocations.map((one) => allocationOf(view, job, one)));
    }),
  );
}

function allocationOf(view, job, { worker, version, outcome, error, evidence, status, put_back: isBack }) {
  const told = [version, isBack && ", the promoted files were put back"];
  return el(
    "section.one",
    { key: worker },
    el("p.row-line", rowAbout(outcome, worker, told, el("span", said(firstLine(error ?? ""))))),
    error && evidenceOf(view, { job, worker, error, evidence }),
    status && el("pre.answer", { tabindex: 0 }, `make status: exit code ${status.exit_code}\n`, said(status.lines.join("\n"))),
  );
}

/** Scripts of a hook. */
function scriptsOf({ run: { result } }) {
  const rows = result.scripts.map(({ hook, worker, error, duration_ms }) => {
    return { outcome: error === null ? "ok" : "failed", worker, hook, duration_ms, error };
  });
  return dataOf(rows, "Scripts");
}

/** What was read of workers. */
function readingsOf({ run }) {
  const { workers: _, ...others } = run.result;
  const keysOf = (list) => (list ?? []).map(({ type, fingerprint }) => `${type} ${fingerprint}`).join(", ");
  const rows = outcomesOf(run).map(({ facts, uptime, sysstat, fingerprints, previous, why: _, ...one }) => ({
    ...one,
    ...(facts ?? uptime ?? sysstat ?? { shows: keysOf(fingerprints), was: keysOf(previous) }),
  }));
  return dataOf({ ...others, workers: rows });
}
