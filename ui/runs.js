import { call, keepQuery, runsOf } from "./api.js";
import { cancelRun, choice, copyButton, runLink } from "./controls.js";
import { button, el } from "./dom.js";
import { ago, count, duration, status, words } from "./format.js";
import { dataOf, listPart, part, progressOf, tableOf, textBox } from "./parts.js";

const PAGE = 50;
const MOST = 500;
const LOOKED_AT = 20;
const SIGNS = { "+": "added", "-": "removed", "@": "place" };
const STATUSES = "running succeeded failed cancelled".split(" ");
const KINDS = (
  "push rollback build deploy drift health_check gc run_command hooks worker_trust worker_facts worker_uptime " +
  "worker_sysstat job_start job_stop job_restart job_reload job_status job_run snapshot_create snapshot_restore"
).split(" ");
// Kinds that begin elsewhere; of which the server can repeat what failed; that change no worker.
const ELSEWHERE = /^(push|rollback|snapshot_\w+)$/;
const REPEATED = /^(run_command|worker_\w+|health_check|deploy|job_\w+)$/;
const HARMLESS = /^(build|drift|health_check|worker_\w+|job_status)$/;

/** The history of a bucket, filtered by the server. */
export function runsView(page) {
  let most = PAGE;
  const narrow = (name, names) => {
    const options = ["", ...names].map((one) => [one, one === "" ? "all" : words(one)]);
    return choice(words(name), options, page.query.get(name) ?? "", ({ target }) => {
      keepQuery({ [name]: target.value });
      most = PAGE;
      runs.refresh();
    });
  };
  const filters = { kind: narrow("kind", KINDS), status: narrow("status", STATUSES) };
  const older = button("Older runs", () => {
    most = Math.min(most + PAGE, MOST);
    runs.refresh();
  });
  const runs = runsPart(page, "", async () => {
    const wanted = Object.entries(filters).map(([name, { control }]) => [name, control.value]);
    const query = new URLSearchParams([["limit", most], ...wanted.filter(([, value]) => value !== "")]);
    const { items, next_cursor } = await call("GET", page.path(`/runs?${query}`));
    older.hidden = next_cursor === null || most === MOST;
    return items;
  });
  const parts = [runs, { element: older, refresh() {} }];
  return { title: "Runs", above: [el("div.filters", Object.values(filters))], parts };
}

/** A part with a table of runs and a way to cancel those that run. */
export function runsPart(page, title, read, options) {
  return listPart(title, async () => (await read()).map(rowOf), {
    ...{
      caption: "Runs, newest first",
      columns: ["status", "run", "about", "by", "created_at", "took", "why"],
    },
    ...{ keys: ["id"], counted: /^$/, none: "Nothing has run here yet, or nothing of the kind." },
    cells: {
      run: ({ id, run }) => runLink(page.bucketId, id, words(run)),
      took: ({ id, run, took }) => took || cancelButton(page, id, run),
      why: ({ why }) => el("span.why", why),
    },
    ...options,
  });
}

function rowOf(run) {
  const { id, kind, status: state, created_at, duration_ms, origin, audit, error: why } = run;
  const by = origin === "cli" ? "command line" : audit[0]?.actor.via;
  const took = state === "running" ? "" : duration(duration_ms);
  return { id, status: state, run: kind, about: aboutOf(run), by, created_at, took, why };
}

function cancelButton({ bucketId }, id, kind) {
  return button("Cancel run …", () => cancelRun(bucketId, { id, kind }), { class: "danger" });
}

function aboutOf({ params: { command, hook, snapshot, revision, jobs, workers, dry_run } }) {
  const about = command ?? hook ?? snapshot ?? revision ?? (jobs ?? workers ?? []).join(", ");
  return dry_run ? `dry run ${about}`.trim() : about;
}

/** One run; its log is in Activity. */
export function runView(page) {
  const { bucketId, path } = page;
  const [runId] = page.rest;
  const heading = el("h1", "Run");
  const read = async () => {
    const run = await call("GET", path(`/runs/${runId}`));
    const others = run.status === "running" ? await runsOf(bucketId, run.kind, LOOKED_AT, "succeeded") : [];
    const sum = others.reduce((ms, one) => ms + one.duration_ms, 0);
    return { ...run, usual: others.length > 0 && sum / others.length };
  };
  const section = (title, content) => el("section.part", el("h2", title), content);
  const run = part("", read, (one) => {
    const { id, kind, params, origin, status: state, created_at, started_at, finished_at, duration_ms } = one;
    heading.textContent = words(kind);
    const isActive = state === "running";
    const took = isActive ? " " : ` after ${duration(duration_ms)} `;
    const history = one.audit.map(({ at, action, actor }) => ({ at, action, ...actor }));
    return [
      el("p.headline", status(state), took, el("code", aboutOf(one))),
      el("p.hint", `by ${rowOf(one).by}, `, ago(created_at)),
      one.error && el("p.error", one.error),
      progressOf(one.progress),
      one.usual && usuallyTakes(one.usual, duration_ms),
      el("div.controls", isActive ? cancelButton(page, id, kind) : againButtons(page, one)),
      one.result && section("Result", resultOf(one)),
      section("Asked for", dataOf({ kind, ...params, origin, id, started_at, finished_at })),
      section("History", dataOf(history, "History")),
    ];
  });
  page.showRun(runId);
  return { title: "Run", heading, back: "runs", parts: [run] };
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
  const retry = {
    path,
    body: { retry_of: id },
    danger,
    says: [`Repeats ${asked} where it is not done yet.`],
  };
  const canRetry = state !== "succeeded" && REPEATED.test(kind);
  return [
    page.action("Run again …", () => again),
    canRetry && page.action("Retry what failed …", () => retry),
    copyButton(page, again),
  ];
}

/** The newest run of a kind that is `wanted`, with its result and what `controlsOf(run)` offers. */
export function lastRunPart({ bucketId, path }, title, kind, none, options = {}) {
  const { wanted, controlsOf = () => null, tools } = options;
  const read = async () => {
    const newest = await runsOf(bucketId, kind, wanted ? LOOKED_AT : 1);
    const run = newest.find(wanted ?? Boolean);
    if (run?.status !== "running") return run ?? null;
    return { ...(await call("GET", path(`/runs/${run.id}`))), duration_ms: 0, log_size_bytes: 0 };
  };
  const draw = (run) => [
    el(
      "p",
      status(run.status),
      " ",
      runLink(bucketId, run.id, aboutOf(run) || words(kind)),
      ", ",
      ago(run.created_at),
    ),
    run.error && el("p.error", run.error),
    progressOf(run.progress),
    controlsOf(run),
    run.result && resultOf(run),
  ];
  return part(title, read, draw, { tools, none });
}

function resultOf({ kind, params, result }) {
  if (params.dry_run) return planOf(result);
  const { jobs, workers, ...rest } = result;
  if (kind === "drift") return gradedOf(workers.flatMap(driftRows));
  if (kind === "run_command") return outputsOf(workers);
  if (Array.isArray(jobs)) return gradedOf(jobs.flatMap(jobRows), rest);
  if (!kind.startsWith("worker_")) return dataOf(result);
  const flat = workers.map(({ facts, uptime, sysstat, fingerprints, previous, ...one }) => ({
    ...one,
    ...(facts ?? uptime ?? sysstat ?? { shows: keysOf(fingerprints), was: keysOf(previous) }),
  }));
  return dataOf({ ...rest, workers: flat });
}

/** Fingerprints of host keys with their types. */
export function keysOf(fingerprints = []) {
  return fingerprints.map(({ type, fingerprint }) => `${type} ${fingerprint}`).join(", ");
}

function jobRows({ job, outcome, reason, allocations }) {
  if (allocations.length === 0) return [{ job, outcome, why: reason }];
  return allocations.map((one) => ({ ...one, job, why: one.error ?? (outcome === "failed" ? reason : "") }));
}

function driftRows({ worker, outcome, error, allocations }) {
  if (allocations.length === 0) return [{ worker, outcome, why: error }];
  return allocations.map((one) => {
    const unfinished = one.is_unfinished ? "a change of it has not ended" : "";
    return { ...one, worker, why: one.files.length > 0 ? count(one.files.length, "file") : unfinished };
  });
}

function gradedOf(rows, rest = {}) {
  const columns = ["job", "worker", "action", "outcome", "why"].filter((key) => rows.some((row) => row[key]));
  return el(
    "div.data",
    tableOf("Outcomes", rows, { columns, keys: ["job", "worker"] }),
    rows.map(foundOf),
    Object.keys(rest).length > 0 && el("details", el("summary", "More"), dataOf(rest)),
  );
}

function foundOf({ job, worker, files = [], evidence, status: said }) {
  const answers = [evidence?.status, said].filter((one) => one?.lines);
  const makes = answers.map(({ exit_code, lines }) => ({
    file: `make status: exit code ${exit_code}`,
    lines,
  }));
  const found = [...(evidence?.logs ?? []), ...makes];
  if (files.length + found.length === 0) return null;
  const texts = found.map(({ file, lines }) => [
    el("p", file),
    textBox(`${file} of ${job} on ${worker}`, lines.join("\n")),
  ]);
  const diffs = files.map(({ path, state, diff }) => fileDiff({ path, change: state, diff }));
  return el("details", { open: true }, el("summary", el("b", job), ` on ${worker}`), texts.flat(), diffs);
}

// The same answers folded into one: first those that failed, then the rarest.
function outputsOf(workers) {
  const groups = Map.groupBy(workers, ({ outcome, exit_code: code, output, error }) =>
    JSON.stringify([
      code ? `${outcome} (exit code ${code})` : outcome,
      [output, error].filter(Boolean).join("\n"),
    ]),
  );
  const isGood = (key) => Number(key.startsWith('["ok"'));
  const sorted = [...groups].sort(
    ([a, own], [b, others]) => isGood(a) - isGood(b) || own.length - others.length,
  );
  const boxes = sorted.map(([key, group], index) => {
    const [state, output] = JSON.parse(key);
    const names = group.map(({ worker }) => worker).join(", ");
    const summary = el("summary", status(state), " ", el("b", count(group.length, "worker")), " ", names);
    return el(
      "details",
      { open: index === 0 || group.length <= 3 },
      summary,
      textBox(`Output of ${names}`, output),
    );
  });
  return el("div.outputs", boxes);
}

/** What a deploy would do, wave by wave. */
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

function allocationPlan({ worker, action, reason, is_gate_open, from, to, files, more_files, drift }) {
  const versions = from.version === to.version ? "" : ` ${from.version || "nothing"} → ${to.version}`;
  const gate = is_gate_open ? "; the health gate of an earlier deploy comes first" : "";
  const found = (drift?.files ?? []).map((file) => ({ ...file, change: file.state, note: "by hand" }));
  return el(
    "li",
    el("p", `${worker}: `, el("b", action), `${versions}, ${spaced(reason)}${gate}`),
    [...files, ...found].map(fileDiff),
    more_files && el("p", `and ${count(more_files, "more file")}`),
  );
}

function spaced(reason) {
  return reason.replaceAll("_", " ");
}

/** A file that differs, with its unified diff where there is one. */
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
