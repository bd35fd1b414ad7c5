import { showLog } from "./activity.js";
import { address, call, keepQuery, runsOf } from "./api.js";
import { choice, copyButton, runLink, short } from "./controls.js";
import { button, el, textBox } from "./dom.js";
import { ago, cancelling, duration, status, words } from "./format.js";
import { dataOf, part, progressOf, shown, tableOf } from "./parts.js";
import { prefer, preference } from "./preferences.js";
import { aboutOf, cancelButton, outcomesOf, resultOf, rowOf } from "./runs.js";

const LOOKED_AT = 20;
const GRADES = "skipped ok in_sync changed drifted not_started cancelled unreachable failed restoring checking running";
const TABS = {
  summary: { of: (run) => run.result && run, draw: resultOf },
  hosts: { of: hostsOf, draw: drawHosts },
  definition: { of: (run) => run, draw: drawDefinition },
  audit: { of: historyOf, draw: (history) => dataOf(history, "History") },
  compare: { of: differencesOf, draw: drawDifferences },
};
const STEP = /^(?:(?<job>\S+)@)?(?<worker>\S+): (?<action>.*)$/;
const ELSEWHERE = /^(push|rollback|snapshot_\w+)$/;
const REPEATED = /^(run_command|worker_\w+|health_check|deploy|job_\w+)$/;
const HARMLESS = /^(build|drift|health_check|worker_\w+|job_status)$/;

/** One run; its log is in Activity. */
export function runView(page) {
  const [runId, wanted] = page.rest;
  const tab = [wanted, preference("tab", "")].find((name) => Object.hasOwn(TABS, name ?? "")) ?? "summary";
  if (tab === wanted && tab !== "compare") prefer("tab", tab);
  const heading = el("h1", "Run");
  let reading = null;
  const read = () => (reading ??= call("GET", page.path(`/runs/${runId}`)).finally(() => (reading = null)));
  const draw = (run) => {
    heading.textContent = words(run.kind);
    return headOf(page, run);
  };
  const head = part("", () => standing(page, read), draw);
  const tools = el("div");
  // That it cannot be read is told once.
  const again = () => read().catch(() => Promise.reject(new Error("")));
  const about = async () => TABS[tab].of(await again(), page, tools);
  const below = part("", about, (data) => TABS[tab].draw(data, page), { tools });
  const above = [head.element, page.tabs("runs", Object.keys(TABS), tab, [runId])];
  page.showRun(runId);
  return { title: "Run", heading, above, readers: [head], parts: [below] };
}

async function standing({ bucketId }, read) {
  const { result: _, ...run } = await read();
  const others = run.status === "running" ? await runsOf(bucketId, run.kind, LOOKED_AT, "succeeded") : [];
  const sum = others.reduce((ms, one) => ms + one.duration_ms, 0);
  return { ...run, usual: others.length > 0 && sum / others.length };
}

function headOf(page, run) {
  const { id, kind, params, revision, status: state, created_at, duration_ms, error, progress, usual } = run;
  const isActive = state === "running";
  const ending = cancelling(run);
  const from = params.plan ?? params.retry_of;
  const took = isActive ? " " : ` after ${duration(duration_ms)} `;
  return [
    el("p.headline", status(state), took, el("code", aboutOf(run))),
    el(
      "p.hint",
      run.audit[0] && `by ${rowOf(run).by} from ${run.audit[0].actor.address}, `,
      ago(created_at),
      revision && [", revision ", short(revision)],
    ),
    from && el("p", runLink(page.bucketId, from, params.plan ? "Its plan" : "What it repeats")),
    error && el("p.error", error),
    ending && el("p.status.changed", ending),
    progressOf(progress),
    usual && el(duration_ms > usual ? "p.status.changed" : "p.hint", `Usually takes ${duration(usual)}`),
    el("div.controls", isActive ? !ending && cancelButton(page, id, kind) : againButtons(page, run), button("Log", showLog)),
  ];
}

/** Buttons to do a run again. */
export function againButtons(page, { id, kind, status: state, params }) {
  const { retry_of: _, ...body } = params;
  const ofJob = kind.startsWith("job_");
  const { jobs: [job, ...more] = [] } = body;
  if (ELSEWHERE.test(kind) || (ofJob && more.length > 0)) return [];
  const path = ofJob ? `/jobs/${encodeURIComponent(job)}/${kind.slice(4)}` : `/${kind.replace("worker_", "workers/")}`;
  if (ofJob) delete body.jobs;
  const isHarmless = params.dry_run || (HARMLESS.test(kind) && !params.force);
  const danger = !isHarmless && (ofJob ? job : (params.job ?? true));
  const asked = `${kind} with ${JSON.stringify(params)}`;
  const again = { path, body, danger, says: [`Starts ${asked}.`] };
  const retry = { path, body: { retry_of: id }, danger, says: [`Repeats ${asked} where it is not done.`] };
  const canRetry = state !== "succeeded" && REPEATED.test(kind);
  return [page.action("Run again …", again), canRetry && page.action("Retry what failed …", retry), copyButton(page, again)];
}

function hostsOf(run) {
  const rows = outcomesOf(run).filter(({ worker }) => worker);
  if (rows.length > 0 || !run.progress) return rows;
  const { rollouts, waiting } = run.progress;
  const steps = waiting.flatMap(({ on }) => STEP.exec(on)?.groups ?? []);
  if (rollouts.length === 0) return steps.map((step) => ({ ...step, outcome: "running" }));
  const at = new Map(steps.map(({ job, worker, action }) => [`${job}@${worker}`, action]));
  return rollouts.flatMap(({ job, hosts }) =>
    hosts.map(({ worker, state }) => ({ job, worker, outcome: state, action: at.get(`${job}@${worker}`) })),
  );
}

function drawHosts(rows, page) {
  const jobs = [...new Set(rows.map(({ job }) => job))].sort();
  const cellsOf = (job) => (host) => host.own.filter((one) => one.job === job).map((one) => hostCell(page, one));
  const cells = Object.fromEntries(jobs.map((job) => [columnOf(job), cellsOf(job)]));
  const columns = [...new Set(["worker", "outcome", ...Object.keys(cells)])];
  const hosts = [...Map.groupBy(rows, ({ worker }) => worker)].map(hostOf);
  return tableOf("Hosts", hosts, { columns, cells });
}

function columnOf(job) {
  return job ? `@${job}` : "outcome";
}

function hostOf([worker, own]) {
  const rank = ({ outcome }) => GRADES.indexOf(outcome);
  const [{ outcome }] = own.toSorted((a, b) => rank(b) - rank(a));
  return { worker, outcome, ...Object.fromEntries(own.map((one) => [columnOf(one.job), one.outcome])), own };
}

function hostCell({ link, rest }, { job, worker, outcome, action, duration_ms: ms, exit_code: code, why }) {
  const about = [action !== outcome && action, ms && duration(ms), code && `exit code ${code}`];
  const href = link("runs", [rest[0], "hosts"], { job, worker });
  const way = el("a", { href, title: why || "Its lines in the log" }, status(outcome));
  return [way, el("small", about.filter(Boolean).join(", "))];
}

function drawDefinition({ id, kind, params: { command, ...params }, origin, started_at, finished_at }) {
  const text = command && textBox("Command", command);
  return [text, dataOf({ kind, ...params, origin, id, started_at, finished_at })];
}

function historyOf({ audit }) {
  return audit.map(({ at, action, actor, request_id }) => ({ at, action, ...actor, request_id }));
}

async function differencesOf(run, page, tools) {
  const found = await runsOf(page.bucketId, run.kind, LOOKED_AT);
  const others = found.filter((one) => one.id !== run.id && one.status !== "running");
  const before = others.find(({ created_at }) => created_at < run.created_at) ?? others[0];
  const id = address().query.get("with") ?? before?.id;
  if (!id || run.status === "running") return null;
  if (!tools.firstChild) tools.append(chooser(page, others, id));
  const [other, own] = [await call("GET", page.path(`/runs/${id}`)), run].map(toldOf);
  const names = Object.keys({ ...other, ...own }).filter((name) => other[name] !== own[name]);
  return names.map((what) => ({ what, other_run: other[what], this_run: own[what] }));
}

function chooser(page, runs, id) {
  const options = runs.map((one) => [one.id, `${one.created_at} ${one.status} ${aboutOf(one)}`]);
  return choice("With", options, id, ({ target }) => {
    keepQuery({ with: target.value });
    page.refresh();
  });
}

function toldOf(run) {
  const { status: state, by, took, why } = rowOf(run);
  const told = { status: state, by, took, why };
  for (const [name, value] of Object.entries(run.params)) told[`parameter ${name}`] = JSON.stringify(value);
  for (const { job, worker, outcome } of outcomesOf(run)) told[`outcome ${[job, worker].filter(Boolean).join("@")}`] = outcome;
  return told;
}

function drawDifferences(rows) {
  const cellOf = (side) => (row) => shown(row.what.split(" ")[0], row[side]);
  const cells = { other_run: cellOf("other_run"), this_run: cellOf("this_run") };
  return tableOf("Differences", rows, { columns: ["what", ...Object.keys(cells)], cells });
}
