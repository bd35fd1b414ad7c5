import { link } from "./address.js";
import { bucketPath, call } from "./api.js";
import { button, el, facts } from "./dom.js";
import { ago, duration, status, time, words } from "./format.js";
import { part } from "./part.js";
import { cancelRun, progressOf } from "./progress.js";
import { resultOf } from "./results.js";
import { startButton } from "./starts.js";

/** Where a run of a kind is started, below the bucket; kinds that are not here begin elsewhere. */
const PATHS = {
  ...{
    build: "/build",
    deploy: "/deploy",
    drift: "/drift",
    health_check: "/health_check",
    gc: "/gc",
    hooks: "/hooks",
  },
  ...{ run_command: "/run_command", worker_trust: "/workers/trust", worker_facts: "/workers/facts" },
  ...{ worker_uptime: "/workers/uptime", worker_sysstat: "/workers/sysstat" },
};
const RETRIES = /^(run_command|worker_\w+|health_check|job_\w+|deploy)$/;

/** One run: how it stands or ended, its result, what was asked for and by whom. Its log is in Activity. */
export function runView(main, { bucketId, rest: [runId], showRun }) {
  const run = part("", () => call("GET", bucketPath(bucketId, `/runs/${runId}`)), drawRun, { level: "h2" });
  const heading = el("h1", {}, "Run");
  const back = el("p", { class: "crumb" }, el("a", { href: link(bucketId, "runs") }, "All runs"));
  main.replaceChildren(back, heading, run.element);
  showRun(runId);

  function drawRun(one) {
    heading.textContent = words(one.kind);
    const active = one.status === "running";
    return [
      el(
        "p",
        { class: "headline" },
        status(one.status),
        active ? null : ` after ${duration(one.duration_ms)}`,
      ),
      one.error === null ? null : el("p", { class: "error" }, one.error),
      active ? progressOf(one.progress) : null,
      el("div", { class: "controls" }, ...actionsOf(one)),
      section("Result", one.result === null ? null : resultOf(one)),
      section("Asked for", paramsOf(one)),
      section("History", auditOf(one)),
    ];
  }

  function actionsOf(one) {
    if (one.status === "running")
      return [button("Cancel run …", () => cancelRun(bucketId, one), { class: "danger" })];
    const path = pathOf(one);
    if (path === undefined) return [];
    const { retry_of: _, ...params } = one.params;
    const again = startButton(bucketId, "Run again", () => ({
      path,
      body: bodyOf(params),
      ask: againQuestion(one),
    }));
    const retry = startButton(bucketId, "Retry what failed", () => ({
      path,
      body: { ...onlyNames(one), retry_of: one.id },
    }));
    const canRetry = one.status !== "succeeded" && RETRIES.test(one.kind);
    return [again, canRetry ? retry : null, copyButton(bucketId, path, bodyOf(params))].filter(
      (node) => node !== null,
    );
  }
  return {
    title: "Run",
    refresh: run.refresh,
  };
}

function section(title, content) {
  return content === null ? null : el("section", { class: "part" }, el("h2", {}, title), content);
}

/** Where to start the like of a run, or undefined. */
function pathOf({ kind, params }) {
  if (kind.startsWith("job_") && params.job)
    return `/jobs/${encodeURIComponent(params.job)}/${kind.slice(4)}`;
  return PATHS[kind];
}

function bodyOf({ job, ...params }) {
  return params.hook === undefined || job === undefined ? params : { job, ...params };
}

/** What a retry still has to name beside the run. */
function onlyNames({ kind, params }) {
  return kind === "run_command"
    ? { command: params.command }
    : kind === "job_run"
      ? { target: params.target }
      : {};
}

function againQuestion({ kind, params }) {
  const asked = Object.keys(params).length === 0 ? "without parameters" : `with ${JSON.stringify(params)}`;
  return {
    title: `${words(kind)} again`,
    says: [`Starts ${kind} in this bucket ${asked}.`],
    action: "Run again",
  };
}

function copyButton(bucketId, path, body) {
  const json = JSON.stringify(body).replaceAll("'", "'\\''");
  const command =
    `curl -X POST '${location.origin}${bucketPath(bucketId, path)}' -H "Authorization: Bearer $OPS_SERVE_TOKEN" ` +
    `-H 'Content-Type: application/json' -d '${json}'`;
  const copy = button("Copy as curl", async () => {
    await navigator.clipboard?.writeText(command);
    copy.textContent = "Copied";
    setTimeout(() => {
      copy.textContent = "Copy as curl";
    }, 2_000);
  });
  return copy;
}

function paramsOf({ params, origin, id, kind }) {
  const given = Object.entries(params).map(([name, value]) => [
    words(name),
    typeof value === "string" ? value : JSON.stringify(value),
  ]);
  return facts([
    ["Kind", kind],
    ["Started from", origin === "cli" ? "the command line" : "the server"],
    ["Id", el("code", {}, id)],
    ...given,
  ]);
}

function auditOf({ audit, started_at, finished_at }) {
  const entries = audit.map(({ at, action, actor }) =>
    el(
      "li",
      {},
      time(at),
      ` ${words(action).toLowerCase()}, by ${actor.via} from ${actor.address || "this machine"}`,
    ),
  );
  const ended = finished_at === null ? null : el("li", {}, time(finished_at), " ended");
  const began = started_at === null ? null : el("li", {}, time(started_at), " began, ", ago(started_at));
  return el("ol", { class: "plain" }, ...entries, began, ended);
}
