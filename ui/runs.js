import { bucketPath, call } from "./api.js";
import { drawList, el, tell } from "./dom.js";
import { duration, status, time } from "./format.js";

const PAGE = 25;

/**
 * The view of one bucket: its runs, newest first, and what can be started. Starts are blocked only while the Activity
 * panel streams an active run of this very bucket. Without a run in the address the newest is shown in Activity,
 * unless that follows an active run elsewhere.
 */
export function bucketView(main, bucketId, activity) {
  const problem = el("p", { class: "error", role: "alert", hidden: true });
  const heading = el("h1", {}, "Bucket");
  const project = el("p", { class: "project" });
  const starts = startControls(bucketId, refresh);
  const rows = el("ul", { class: "runs", "aria-label": "Runs, newest first" });
  const empty = el("p", { class: "notice", hidden: true });
  const older = el("button", { hidden: true, onclick: showOlder }, "Older runs");
  const title = el("h2", {}, "Runs");
  main.replaceChildren(
    project,
    heading,
    el("code", {}, bucketId),
    problem,
    starts.element,
    title,
    empty,
    rows,
    older,
  );
  empty.append("Nothing has run here yet. Send a workspace to it: ", pushCommand(bucketId));

  const view = { title: "Bucket", bucketId, refresh, showActivity };
  let shown = PAGE;

  async function refresh() {
    try {
      const [bucket, runs] = await Promise.all([
        call("GET", bucketPath(bucketId)),
        call("GET", bucketPath(bucketId, `/runs?limit=${shown}`)),
      ]);
      if (!heading.isConnected) return;
      tell(problem, "");
      drawBucket(bucket);
      drawRuns(runs);
      if (runs.items[0] && activity.isFreeFor(bucketId)) activity.show(bucketId, runs.items[0].id);
    } catch (error) {
      tell(problem, error.message);
    }
  }

  function drawBucket({ name, project: projectName }) {
    view.title = name;
    heading.textContent = name;
    project.replaceChildren(el("a", { href: "#/" }, "Buckets"), ` / ${projectName}`);
    activity.name(bucketId, `${projectName} / ${name}`);
  }

  function drawRuns({ items, next_cursor }) {
    empty.hidden = items.length > 0;
    older.hidden = next_cursor === null;
    drawList(
      rows,
      items.map(rowOf),
      ({ id }) => id,
      (row) => runRow(bucketId, row),
    );
    showActivity();
  }

  function showOlder() {
    shown = Math.min(shown + PAGE, 500);
    refresh();
  }

  function showActivity() {
    starts.block(activity.activeBucket === bucketId);
    for (const link of rows.querySelectorAll("[data-run]")) link.removeAttribute("aria-current");
    rows.querySelector(`[data-run="${activity.runId}"]`)?.setAttribute("aria-current", "true");
  }
  return view;
}

function startControls(bucketId, onChange) {
  const problem = el("p", { class: "error", role: "alert", hidden: true });
  const note = el("p", { class: "hint" });
  const buttons = ["build", "deploy"].map((kind) =>
    el("button", { class: kind === "deploy" ? "primary" : null, onclick: () => start(kind) }, capital(kind)),
  );
  let [blocked, starting] = [false, false];

  function show() {
    for (const button of buttons) button.disabled = blocked || starting;
    note.textContent = blocked ? "A run of this bucket is active: wait for its end or cancel it." : "";
  }

  async function start(kind) {
    starting = true;
    show();
    tell(problem, "");
    try {
      const { run_id: run } = await call("POST", bucketPath(bucketId, `/${kind}`), { body: {} });
      location.hash = `#/buckets/${bucketId}/runs/${run}`;
    } catch (error) {
      tell(problem, `Cannot start ${kind}: ${error.message}`);
      if (error.runId) problem.append(" ", runLink(bucketId, error.runId, "Show that run"));
    } finally {
      starting = false;
      show();
      onChange();
    }
  }
  return {
    element: el("div", { class: "starts" }, el("div", { class: "controls" }, ...buttons), note, problem),
    block(now) {
      blocked = now;
      show();
    },
  };
}

/** What the list shows of a run: a row is drawn again only when this changes. */
function rowOf({ id, kind, status: state, created_at, started_at, duration_ms, error }) {
  const took = state === "running" ? "" : duration(duration_ms);
  return { id, kind, state, started: started_at ?? created_at, took, error };
}

function runRow(bucketId, { id, kind, state, started, took, error }) {
  return el(
    "li",
    {},
    status(state),
    runLink(bucketId, id, kind),
    el("span", {}, time(started)),
    el("span", { class: "duration" }, took),
    error === null ? null : el("p", { class: "why" }, error),
  );
}

function runLink(bucketId, runId, text) {
  return el("a", { href: `#/buckets/${bucketId}/runs/${runId}`, "data-run": runId }, text);
}

function pushCommand(bucketId) {
  return el("code", {}, `ops push ${location.origin} --bucket ${bucketId}`);
}

function capital(word) {
  return word[0].toUpperCase() + word.slice(1);
}
