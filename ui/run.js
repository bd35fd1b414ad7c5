import { showLog } from "./activity.js";
import { address, call, keepQuery, runsOf } from "./api.js";
import { choice, copyButton, runLink } from "./controls.js";
import { button, el, textBox } from "./dom.js";
import { ago, duration, status, words } from "./format.js";
import { dataOf, part, progressOf, shown, tableOf } from "./parts.js";
import { prefer, preference } from "./preferences.js";
import { aboutOf, cancelButton, outcomesOf, resultOf, rowOf } from "./runs.js";

const LOOKED_AT = 20;
const GRADES = "skipped ok in_sync changed drifted not_started cancelled unreachable failed".split(" ");
const SIDES = ["other_run", "this_run"];
const TABS = {
  summary: summaryPart,
  hosts: hostsPart,
  definition: definitionPart,
  audit: auditPart,
  compare: comparePart,
};
// Kinds that begin elsewhere; of which the server can repeat what failed; that change no worker.
const ELSEWHERE = /^(push|rollback|snapshot_\w+)$/;
const REPEATED = /^(run_command|worker_\w+|health_check|deploy|job_\w+)$/;
const HARMLESS = /^(build|drift|health_check|worker_\w+|job_status)$/;

/** One run: how it stands, and more in tabs. Its log is in Activity. */
export function runView(page) {
  const [runId, wanted] = page.rest;
  const tab = [wanted, preference("tab", "")].find((name) => Object.hasOwn(TABS, name ?? "")) ?? "summary";
  if (tab === wanted && tab !== "compare") prefer("tab", tab);
  const heading = el("h1", "Run");
  let reading = null;
  const read = () => {
    reading ??= call("GET", page.path(`/runs/${runId}`)).finally(() => {
      reading = null;
    });
    return reading;
  };
  const draw = (run) => {
    heading.textContent = words(run.kind);
    return headOf(page, run);
  };
  // That it cannot be read is told once.
  const again = () => read().catch(() => Promise.reject(new Error("")));
  const head = part("", () => standing(page, read), draw);
  const above = [head.element, page.tabs("runs", Object.keys(TABS), tab, [runId])];
  page.showRun(runId);
  return { title: "Run", heading, back: "runs", above, readers: [head], parts: [TABS[tab](page, again)] };
}

async function standing({ bucketId }, read) {
  const { result: _, ...run } = await read();
  const others = run.status === "running" ? await runsOf(bucketId, run.kind, LOOKED_AT, "succeeded") : [];
  const sum = others.reduce((ms, one) => ms + one.duration_ms, 0);
  return { ...run, usual: others.length > 0 && sum / others.length };
}

function headOf(page, run) {
  const { id, kind, params, status: state, created_at, duration_ms, error, progress, usual } = run;
  const isActive = state === "running";
  const isCancelled = isActive && run.audit.some(({ action }) => action === "cancel");
  const from = params.plan ?? params.retry_of;
  return [
    el(
      "p.headline",
      status(state),
      isActive ? " " : ` after ${duration(duration_ms)} `,
      el("code", aboutOf(run)),
    ),
    el("p.hint", `by ${rowOf(run).by}, `, ago(created_at)),
    from && el("p", runLink(page.bucketId, from, params.plan ? "The plan it follows" : "The run it repeats")),
    error && el("p.error", error),
    isCancelled && el("p.status.changed", "Cancelling; after 10 seconds by force"),
    progressOf(progress),
    usual && usuallyTakes(usual, duration_ms),
    el(
      "div.controls",
      isActive ? !isCancelled && cancelButton(page, id, kind) : againButtons(page, run),
      button("Log", showLog),
    ),
  ];
}

function usuallyTakes(usual, now) {
  const text = `The last that succeeded took ${duration(usual)} on average`;
  return now > usual ? el("p.status.changed", `${text}; this one takes longer`) : el("p.hint", text);
}

function againButtons(page, { id, kind, status: state, params }) {
  const { retry_of: _, ...body } = params;
  const ofJob = kind.startsWith("job_");
  const { jobs: [job, ...more] = [] } = body;
  if (ELSEWHERE.test(kind) || (ofJob && more.length > 0)) return [];
  const path = ofJob
    ? `/jobs/${encodeURIComponent(job)}/${kind.slice(4)}`
    : `/${kind.replace("worker_", "workers/")}`;
  if (ofJob) delete body.jobs;
  const isHarmless = params.dry_run || (HARMLESS.test(kind) && !params.force);
  const danger = !isHarmless && (ofJob ? job : (params.job ?? true));
  const asked = `${kind} with ${JSON.stringify(params)}`;
  const again = { path, body, danger, says: [`Starts ${asked}.`] };
  const left = [`Repeats ${asked} where it is not done yet.`];
  const retry = { path, body: { retry_of: id }, danger, says: left };
  const canRetry = state !== "succeeded" && REPEATED.test(kind);
  return [
    page.action("Run again …", () => again),
    canRetry && page.action("Retry what failed …", () => retry),
    copyButton(page, again),
  ];
}

function summaryPart(_, read) {
  const ended = async () => {
    const run = await read();
    return run.result && run;
  };
  return part("Result", ended, resultOf, { none: "No result, or none yet: see the log." });
}

function hostsPart(page, read) {
  const found = async () => {
    const run = await read();
    const rows = outcomesOf(run).filter(({ worker }) => worker);
    return rows.length > 0 ? rows : (run.progress?.rollouts ?? []);
  };
  const draw = (rows) => {
    if (!rows[0].worker) return tableOf("Jobs", rows);
    const jobs = [...new Set(rows.map(({ job }) => job))].filter(Boolean).sort();
    const columns = ["worker", "outcome", ...jobs.map((job) => `@${job}`)];
    const cellOf = (one) => hostCell(page, one);
    const cells = Object.fromEntries(
      jobs.map((job) => [`@${job}`, ({ own }) => own.filter((one) => one.job === job).map(cellOf)]),
    );
    if (jobs.length === 0) cells.outcome = ({ own }) => own.map(cellOf);
    const hosts = [...Map.groupBy(rows, ({ worker }) => worker)].map(hostOf);
    return tableOf("Hosts", hosts, { columns, cells, keys: ["worker"] });
  };
  return part("Hosts", found, draw, { none: "It does not tell of each worker how it went, or not yet." });
}

function hostOf([worker, own]) {
  const rank = ({ outcome }) => GRADES.indexOf(outcome);
  const [{ outcome }] = own.toSorted((a, b) => rank(b) - rank(a));
  return { worker, outcome, ...Object.fromEntries(own.map((one) => [`@${one.job}`, one.outcome])), own };
}

function hostCell(
  { link, rest: [id] },
  { job, worker, outcome, action, duration_ms: ms, exit_code: code, why },
) {
  const about = [action !== outcome && action, ms && duration(ms), code && `exit code ${code}`];
  const title = why || "Its lines in the log";
  const href = link("runs", [id, "hosts"], { job, worker });
  return [el("a", { href, title }, status(outcome)), el("small", about.filter(Boolean).join(", "))];
}

function definitionPart(_, read) {
  const draw = ({ id, kind, params: { command, ...params }, origin, started_at, finished_at }) => [
    command && textBox("Command", command),
    dataOf({ kind, ...params, origin, id, started_at, finished_at }),
  ];
  return part("Asked for", read, draw);
}

function auditPart(_, read) {
  const draw = ({ audit }) => {
    const history = audit.map(({ at, action, actor, request_id }) => ({ at, action, ...actor, request_id }));
    return dataOf(history, "History");
  };
  return part("History", read, draw);
}

function comparePart(page, read) {
  const cellOf = (side) => (row) => shown(row.what.split(" ")[0], row[side]);
  const cells = Object.fromEntries(SIDES.map((side) => [side, cellOf(side)]));
  const tools = el("div");
  const both = async () => {
    const run = await read();
    if (run.status === "running") return null;
    const ended = (await runsOf(page.bucketId, run.kind, LOOKED_AT)).filter(
      (one) => one.status !== "running",
    );
    const others = ended.filter(({ id }) => id !== run.id);
    const before = others.find(({ created_at }) => created_at < run.created_at) ?? others[0];
    const id = address().query.get("with") ?? before?.id;
    if (!id) return null;
    if (!tools.firstChild) tools.append(chooser(others, id));
    return differencesOf(
      others.find((one) => one.id === id) ?? (await call("GET", page.path(`/runs/${id}`))),
      run,
    );
  };
  const chooser = (runs, id) => {
    const labelOf = (run) => `${new Date(run.created_at).toLocaleString()}, ${run.status} ${aboutOf(run)}`;
    const options = runs.map((run) => [run.id, labelOf(run)]);
    return choice("With", options, id, ({ target }) => {
      keepQuery({ with: target.value });
      compared.refresh();
    });
  };
  const draw = (rows) => tableOf("Differences", rows, { columns: ["what", ...SIDES], keys: ["what"], cells });
  const none = "It has not ended, or there is no other that has.";
  const compared = part("What differs", both, draw, { tools, none });
  return compared;
}

function differencesOf(...runs) {
  const [other, own] = runs.map((run) => {
    const { status: state, by, took, why } = rowOf(run);
    const params = Object.entries(run.params).map(([name, value]) => [
      `parameter ${name}`,
      JSON.stringify(value),
    ]);
    const outcomes = outcomesOf(run).map((one) => [
      `outcome ${[one.job, one.worker].filter(Boolean).join("@")}`,
      one.outcome,
    ]);
    return { status: state, by, took, why, ...Object.fromEntries([...params, ...outcomes]) };
  });
  const names = Object.keys({ ...other, ...own }).filter((name) => other[name] !== own[name]);
  return names.map((what) => ({ what, other_run: other[what], this_run: own[what] }));
}
