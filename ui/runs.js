import { keepQuery } from "./address.js";
import { call, runsOf } from "./api.js";
import { choice, copyButton, runLink } from "./controls.js";
import { button, el } from "./dom.js";
import { ago, duration, status, words } from "./format.js";
import { dataOf, listPart, part } from "./parts.js";
import { cancelRun, progressOf } from "./progress.js";
import { aboutOf, resultOf } from "./results.js";

const PAGE = 50;
const MOST = 500;
const LOOKED_AT = 10;
const STATUSES = "running succeeded failed cancelled".split(" ");
const KINDS = (
  "push rollback build deploy drift health_check gc run_command hooks worker_trust worker_facts worker_uptime " +
  "worker_sysstat job_start job_stop job_restart job_reload job_status job_run snapshot_create snapshot_restore"
).split(" ");
/** Kinds that begin elsewhere; those of which the server can repeat what failed; those that change no worker. */
const ELSEWHERE = /^(push|rollback|snapshot_\w+)$/;
const REPEATED = /^(run_command|worker_\w+|health_check|deploy)$/;
const HARMLESS = /^(build|drift|health_check|worker_\w+|job_status)$/;

/** The history of a bucket, newest first, with filters by kind and status that the server applies. */
export function runsView(page) {
  const { path, query } = page;
  let most = PAGE;
  const narrow = (name, names) => {
    const options = ["", ...names].map((one) => [one, one === "" ? "all" : words(one)]);
    return choice(words(name), options, query.get(name) ?? "", ({ target }) => {
      keepQuery({ [name]: target.value });
      most = PAGE;
      runs.refresh();
    });
  };
  const filters = [narrow("kind", KINDS), narrow("status", STATUSES)];
  const read = () => {
    const [kind, state] = filters.map(({ control }) => control.value);
    const wanted = { limit: most, ...(kind && { kind }), ...(state && { status: state }) };
    return call("GET", path(`/runs?${new URLSearchParams(wanted)}`));
  };
  const older = button("Older runs", () => {
    most = Math.min(most + PAGE, MOST);
    runs.refresh();
  });
  const runs = runsPart(page, "", async () => {
    const { items, next_cursor } = await read();
    older.hidden = next_cursor === null || most === MOST;
    return items;
  });
  return {
    title: "Runs",
    above: [el("div.filters", filters)],
    parts: [runs, { element: older, refresh() {} }],
  };
}

/** A part with a table of runs; those that run can be cancelled there. */
export function runsPart(page, title, read, options) {
  const rows = async () => (await read()).map(rowOf);
  return listPart(title, rows, {
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

/** One run: how it stands or ended, its result, what was asked for and by whom. Its log is in Activity. */
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
    const {
      kind,
      status: state,
      created_at,
      duration_ms,
      error,
      progress,
      result,
      params,
      origin,
      audit,
    } = one;
    heading.textContent = words(kind);
    const isActive = state === "running";
    const by = rowOf(one).by;
    const history = audit.map(({ at, action, actor }) => ({ at, action, ...actor }));
    const more = { origin, id: one.id, started_at: one.started_at, finished_at: one.finished_at };
    return [
      el(
        "p.headline",
        status(state),
        isActive ? "" : ` after ${duration(duration_ms)}`,
        " ",
        el("code", aboutOf(one)),
      ),
      el("p.hint", `by ${by}, `, ago(created_at)),
      error && el("p.error", error),
      progressOf(progress),
      one.usual && usuallyTakes(one.usual, duration_ms),
      el("div.controls", isActive ? cancelButton(page, one.id, kind) : againButtons(page, one)),
      result && section("Result", resultOf(one)),
      section("Asked for", dataOf({ kind, ...params, ...more })),
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

function cancelButton({ bucketId }, id, kind) {
  return button("Cancel run …", () => cancelRun(bucketId, { id, kind }), { class: "danger" });
}

/** What can be done about a run that has ended: the same again, or what is left of it; and what that is in a shell. */
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
