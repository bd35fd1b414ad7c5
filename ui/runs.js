import { address, all, call, keepQuery, runsOf } from "./api.js";
import { cancelRun, choice, runLink } from "./controls.js";
import { button, el, scroller, textBox } from "./dom.js";
import { ago, count, duration, status, words } from "./format.js";
import { dataOf, listPart, part, progressOf, tableOf } from "./parts.js";

const PAGE = 50;
const LOOKED_AT = 20;
const MOST_RUNS = 500;
const COLUMNS = ["wave", "job", "worker", "version", "action", "outcome", "hooks", "why"];
const SIGNS = { "+": "added", "-": "removed", "@": "place" };
const FILTERS = {
  kind: (
    "push rollback build deploy drift health_check gc run_command hooks worker_trust worker_facts worker_uptime " +
    "worker_sysstat job_start job_stop job_restart job_reload job_status job_run snapshot_create snapshot_restore"
  ).split(" "),
  status: ["running", "succeeded", "failed", "cancelled"],
};

/** The runs of a bucket. */
export function runsView(page) {
  let most = PAGE;
  const narrow = ([name, names]) => {
    const options = ["", ...names].map((one) => [one, words(one || "all")]);
    return choice(words(name), options, page.query.get(name) ?? "", ({ target }) => {
      keepQuery({ [name]: target.value });
      runs.refresh();
    });
  };
  const older = button("Older runs", () => {
    most += PAGE;
    runs.refresh();
  });
  const runs = runsPart(page, "", async () => {
    const wanted = [...address().query].filter(([name]) => Object.hasOwn(FILTERS, name));
    const items = await all(page.path(`/runs?${new URLSearchParams(wanted)}`), most);
    older.hidden = items.length < most;
    return items;
  });
  const parts = [runs, { element: older, refresh() {} }];
  return { title: "Runs", above: [el("div.filters", Object.entries(FILTERS).map(narrow))], parts };
}

/** Who did what. */
export function auditView({ bucketId, path }) {
  const read = async () => {
    const runs = await all(path(`/runs?limit=${MOST_RUNS}`), MOST_RUNS);
    return runs.flatMap(({ id, kind, audit }) =>
      audit.map(({ at, action, actor: { via, address } }) => ({ at, action, run: kind, via, address, id })),
    );
  };
  const list = listPart("", read, {
    caption: "Audit",
    columns: ["at", "action", "run", "via", "address", "id"],
    counted: /^(action|run|via|address)$/,
    cells: { run: ({ id, run }) => runLink(bucketId, id, words(run)) },
  });
  return { title: "Audit", parts: [list] };
}

/** A part with a table of runs. */
export function runsPart(page, title, read, options) {
  return listPart(title, async () => (await read()).map(rowOf), {
    caption: "Runs, newest first",
    columns: ["status", "run", "about", "by", "created_at", "took", "why"],
    counted: /^$/,
    cells: {
      run: ({ id, run }) => runLink(page.bucketId, id, words(run)),
      took: ({ id, run, took }) => took || cancelButton(page, id, run),
      why: ({ why }) => el("span.why", why),
    },
    ...options,
  });
}

/** A run as lists show it. */
export function rowOf(run) {
  const { id, kind, status: state, created_at, duration_ms, origin, audit, error: why } = run;
  const by = origin === "cli" ? "command line" : audit[0]?.actor.via;
  const took = state === "running" ? "" : duration(duration_ms);
  return { id, status: state, run: kind, about: aboutOf(run), by, created_at, took, why };
}

/** A button that cancels a run. */
export function cancelButton({ bucketId }, id, kind) {
  return button("Cancel run …", () => cancelRun(bucketId, { id, kind }), { class: "danger" });
}

/** What a run is about, in a word. */
export function aboutOf({ params: { command, hook, snapshot, revision, jobs, workers, dry_run } }) {
  const about = command ?? hook ?? snapshot ?? revision ?? (jobs ?? workers ?? []).join(", ");
  return dry_run ? `dry run ${about}`.trim() : about;
}

/** The newest run of a kind that is `wanted`. */
export function lastRunPart({ bucketId, path }, title, kind, options = {}) {
  const { wanted, controlsOf = () => null, tools, none = "It has not run yet." } = options;
  const read = async () => {
    const newest = await runsOf(bucketId, kind, wanted ? LOOKED_AT : 1);
    const run = newest.find(wanted ?? Boolean);
    if (run?.status !== "running") return run ?? null;
    return { ...(await call("GET", path(`/runs/${run.id}`))), duration_ms: 0, log_size_bytes: 0 };
  };
  const linkOf = (run) => runLink(bucketId, run.id, aboutOf(run) || words(kind));
  const draw = (run) => [
    el("p", status(run.status), " ", linkOf(run), ", ", ago(run.created_at)),
    run.error && el("p.error", run.error),
    progressOf(run.progress),
    controlsOf(run),
    run.result && resultOf(run),
  ];
  return part(title, read, draw, { tools, none });
}

/** The result of a run, for people. */
export function resultOf(run) {
  const { kind, params, result } = run;
  if (params.dry_run) return planOf(result, outcomesOf(run));
  const { jobs, workers, reconciled: _, ...rest } = result;
  if (kind === "drift") return gradedOf(outcomesOf(run));
  if (kind === "run_command") return outputsOf(workers);
  if (Array.isArray(jobs)) return gradedOf(outcomesOf(run), rest);
  if (!kind.startsWith("worker_")) return dataOf(result);
  const flat = workers.map(({ facts, uptime, sysstat, fingerprints, previous, ...one }) => ({
    ...one,
    ...(facts ?? uptime ?? sysstat ?? { shows: keysOf(fingerprints), was: keysOf(previous) }),
  }));
  return dataOf({ ...rest, workers: flat });
}

/** Host keys as text. */
export function keysOf(fingerprints = []) {
  return fingerprints.map(({ type, fingerprint }) => `${type} ${fingerprint}`).join(", ");
}

/** How it went or would go on each worker. */
export function outcomesOf({ params, result }) {
  const { job, jobs, workers, waves, reconciled = [], allocations = [], scripts } = result ?? {};
  if (params.dry_run) return waves ? plannedRows(result) : [];
  if (Array.isArray(jobs)) return [...jobs.flatMap(jobRows), ...reconciled];
  if (Array.isArray(workers)) return workers.flatMap(workerRows);
  return scripts?.map((one) => ({ ...one, job, outcome: one.error === null ? "ok" : "failed" })) ?? allocations;
}

function plannedRows({ waves, reconcile, unreachable }) {
  const jobs = waves.flatMap(({ seq: wave, jobs }) => jobs.map((job) => ({ wave, ...job })));
  const leaving = reconcile.map(({ action: outcome, ...one }) => ({ ...one, outcome }));
  const lost = unreachable.map(({ worker, error: why }) => ({ worker, outcome: "unreachable", why }));
  return [...jobs.flatMap(plannedJob), ...leaving, ...lost];
}

function plannedJob({ wave, job, outcome, reason, hooks, allocations }) {
  const scripts = hooks.map(({ event, names }) => `${event}: ${names.join(", ")}`).join("; ");
  if (allocations.length === 0) return [{ wave, job, outcome, why: reason }];
  return allocations.map(({ worker, action, from, to, files, more_files, drift, ...one }) => {
    const byHand = (drift?.files ?? []).map((file) => ({ ...file, note: "by hand" }));
    const more = more_files && count(more_files, "more file");
    const gate = one.is_gate_open && "an open health gate comes first";
    return {
      wave,
      job,
      worker,
      outcome: action,
      hooks: scripts,
      files: [...files, ...byHand],
      version: [...new Set([from.version, to.version])].filter(Boolean).join(" → "),
      why: [outcome === "failed" ? reason : one.reason, gate, more].filter(Boolean).join("; "),
    };
  });
}

function jobRows({ job, outcome, reason, allocations }) {
  if (allocations.length === 0) return [{ job, outcome, why: reason }];
  return allocations.map((one) => ({ ...one, job, why: one.error ?? (outcome === "failed" ? reason : "") }));
}

function workerRows({ allocations = [], ...one }) {
  if (allocations.length === 0) return [{ ...one, why: one.error }];
  return allocations.map((own) => {
    const unfinished = own.is_unfinished ? "not finished" : "";
    const why = own.files.length > 0 ? count(own.files.length, "file") : unfinished;
    return { ...own, worker: one.worker, why };
  });
}

function gradedOf(rows, rest = {}) {
  const columns = COLUMNS.filter((key) => rows.some((row) => row[key]));
  return el(
    "div.data",
    tableOf("Outcomes", rows, { columns }),
    rows.map(foundOf),
    Object.keys(rest).length > 0 && el("details", el("summary", "More"), dataOf(rest)),
  );
}

function foundOf({ job, worker, files = [], evidence, status: said }) {
  const makes = [evidence?.status, said]
    .filter((one) => one?.lines)
    .map(({ exit_code, lines }) => ({ file: `make status: exit code ${exit_code}`, lines }));
  const found = [...(evidence?.logs ?? []), ...makes];
  if (files.length + found.length === 0) return null;
  const texts = found.map(({ file, lines }) => [el("p", file), textBox(`${file} of ${job} on ${worker}`, lines.join("\n"))]);
  const diffs = files.map(fileDiff);
  return el("details", { open: true }, el("summary", el("b", job), ` on ${worker}`), texts.flat(), diffs);
}

function outputsOf(workers) {
  const answerOf = ({ outcome, exit_code, output, error }) => [outcome, exit_code, output, error].join("\n");
  const groups = [...Map.groupBy(workers, answerOf).values()];
  const rank = (group) => (group[0].outcome === "ok" ? workers.length : 0) + group.length;
  const boxes = groups
    .sort((a, b) => rank(a) - rank(b))
    .map((group, index) => {
      const [{ outcome, exit_code: code, output, error }] = group;
      const names = group.map(({ worker }) => worker).join(", ");
      const state = [status(outcome), code ? ` (exit code ${code})` : ""];
      return el(
        "details",
        { open: index === 0 || group.length <= 3 },
        el("summary", state, " ", el("b", count(group.length, "worker")), " ", names),
        textBox(`Output of ${names}`, [output, error].filter(Boolean).join("\n")),
      );
    });
  return el("div.data", boxes);
}

function planOf({ waves, update_seq }, rows) {
  const jobs = waves.flatMap((wave) => wave.jobs);
  const working = jobs.filter(({ outcome }) => outcome === "roll_out");
  const sum = `${working.length} of ${count(jobs.length, "job")} would be rolled out; nothing was touched. `;
  const text = `${sum}The update sequence is ${update_seq}.`;
  return el("div.data", el("p", el("b", "PLAN "), text), gradedOf(rows));
}

/** A file that differs. */
export function fileDiff({ path, state, change = state, diff, note }) {
  const title = [el(`span.status.${change}`, change), " ", el("code", path), note && ` ${note}`];
  if (!diff) return el("p", title);
  // The sign stays: colour is not all there is.
  const lines = diff.replace(/\n$/, "").split("\n");
  const classOf = (line) => (/^(\+\+\+|---) /.test(line) ? "file" : SIGNS[line[0]]);
  const text = lines.map((line) => el("span", { class: classOf(line) }, `${line}\n`));
  const box = scroller(`Changes of ${path}`, text, "pre.diff");
  return el("details", { open: true }, el("summary", title), box);
}
