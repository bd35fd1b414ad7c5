import { address } from "../base/api.js";
import { alertPlace, button, el, patch } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { nameOf, number, tell } from "../base/text.js";
import { activity } from "../frame/activity.js";
import { ghosts } from "../parts/region.js";
import { runHead } from "../run/head.js";
import { isPlan, planTitle } from "../run/plan.js";
import { planBody } from "../run/plan-shown.js";
import { progressOf } from "../run/progress.js";
import { summaryOf } from "../run/results.js";
import { auditTab, compareTab, definitionTab, workersTab } from "../run/tabs.js";
import { outcomesOf } from "../run/words.js";

/**
 * What the parts of a run's page share.
 * @typedef {object} RunPage
 * @property {import("../routes.js").Page} page
 * @property {any} run as it was read last
 * @property {Map<string, boolean>} folds which are open or closed by hand
 * @property {Set<string>} chosen chips
 * @property {Record<string, any>} tables
 * @property {(path: string) => any} read an answer below the bucket, read once: undefined before, null where it failed
 * @property {{ valid: boolean, reason: string } | null} validity of a plan
 * @property {string} [comparedWith] another run
 * @property {{ all: any, shown: string }} [map] and the state of the run for which it is shown
 * @property {string} [look] of a plan
 * @property {() => void} draw
 */

/** One run: what it does, or what it came to; its log stands beside it. @param {import("../routes.js").Page} page */
export function runView(page) {
  const [runId] = page.rest;
  const [problem, body] = [alertPlace(), el("div", ghosts(6))];
  const [content, log] = [el("div.stack"), el("div.run-log")];
  // One element for as long as the page: a log that leaves the document loses its scroll position.
  const beside = Object.assign(el("div.run-body", { key: "body" }, content), { own: true });
  const shown = { title: "Run", element: el("article.run", problem, body), fast: true, refresh };
  const read = readerOf(page, draw);
  /** @type {RunPage} */
  const view = { page, run: null, folds: new Map(), chosen: new Set(), tables: {}, read, validity: null, draw };
  addEventListener("hashchange", draw, { signal: page.signal });
  page.showRun(runId);

  async function refresh() {
    try {
      if (!view.run || view.run.status === "running") await readRun();
      const { run } = view;
      // A plan that was valid becomes invalid when the bucket changes, so its validity is read each time.
      if (isPlan(run) && run.status === "succeeded") view.validity = await page.get(`/runs/${runId}/plan`).catch(() => null);
      tell(problem, "");
    } catch (error) {
      if (page.signal.aborted) return;
      tell(problem, error.message);
      if (!view.run) body.replaceChildren();
    }
    draw();
  }

  async function readRun() {
    view.run = await page.get(`/runs/${runId}`, { signal: page.signal });
    if (view.run.status === "running") return;
    view.chosen.clear();
    if (view.run.result?.summary?.allocations.failed > 0) view.chosen.add("failed");
  }

  function draw() {
    const { run } = view;
    if (!run) return;
    const labels = tabsOfRun(run);
    const wanted = address().query.get("tab");
    const chosen = [wanted, preference("tab", "")].find((name) => labels[name]) ?? "summary";
    if (wanted === chosen && chosen !== "compare") prefer("tab", chosen);
    shown.title = isPlan(run) ? planTitle(run) : nameOf(run);
    // The map wants the whole width: the log is in the bar then.
    const isBeside = chosen === "log" || (run.status === "running" && chosen !== "workers");
    if (content.dataset.tab !== chosen) content.replaceChildren();
    content.dataset.tab = chosen;
    patch(content, DRAWN[chosen](view));
    beside.className = isBeside ? `run-body beside ${chosen}` : "run-body";
    patch(body, runHead(view, labels, chosen), beside);
    placeLog(isBeside);
  }

  function placeLog(isBeside) {
    if (isBeside === log.isConnected) return;
    log.remove();
    log.replaceChildren();
    if (!isBeside) return;
    beside.append(log);
    activity.mount(log);
  }
  return shown;
}

/** Reads each path once, and draws again when its answer is there. */
function readerOf(page, draw) {
  const answers = new Map();
  const read = async (path) => {
    answers.set(path, undefined);
    answers.set(path, await page.get(path, { signal: page.signal }).catch(() => null));
    if (!page.signal.aborted) draw();
  };
  return (path) => {
    if (!answers.has(path)) read(path);
    return answers.get(path);
  };
}

const DRAWN = {
  summary: (view) => (view.run.status === "running" ? progressOf(view) : isPlan(view.run) ? planBody(view) : summaryOf(view)),
  workers: workersTab,
  log: () => el("p.notice.on-narrow", button("Open the log", activity.open)),
  definition: definitionTab,
  compare: compareTab,
  audit: auditTab,
};

/** The tabs with their labels, and how many workers there are. @returns {Record<string, any>} */
function tabsOfRun(run) {
  const isActive = run.status === "running";
  const workers = new Set(outcomesOf(run).flatMap(({ worker }) => worker || [])).size;
  const ofWorkers = workers > 0 ? ["Workers", number(workers)] : isActive && "Workers";
  const summary = isActive ? "Progress" : isPlan(run) ? "Plan" : "Summary";
  const [log, compare] = isActive ? [] : ["Log", "Compare"];
  return { summary, workers: ofWorkers, log, definition: "Definition", compare, audit: "Audit" };
}
