import { address, get, runsOf, unless } from "../base/api.js";
import { el, patch } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { activity } from "../frame/activity.js";
import { ghosts } from "../parts/region.js";
import { runHead } from "../run/head.js";
import { isPlan, planTitle } from "../run/plan.js";
import { planBody } from "../run/plan-shown.js";
import { progressOf } from "../run/progress.js";
import { summaryOf } from "../run/results.js";
import { auditTab, compareTab, definitionTab, workersTab } from "../run/tabs.js";
import { nameOf, outcomesOf } from "../run/words.js";

/**
 * What the parts of a run's page share.
 * @typedef {object} RunPage
 * @property {import("../routes.js").Page} page
 * @property {any} run as it was read last
 * @property {any[]} rows how it went by job and worker, of a run that has ended
 * @property {Map<string, boolean>} folds which are open or closed by hand
 * @property {Set<string>} chosen chips
 * @property {Map<string, any>} evidence what was read of places
 * @property {Record<string, any>} tables
 * @property {number | null} usual how long it takes otherwise
 * @property {number | undefined} line of the log that tells why it failed
 * @property {any} earlier the revision to go back to
 * @property {{ valid: boolean, reason: string } | null} validity of a plan
 * @property {any} compared the other runs of its kind, and the chosen one
 * @property {{ all: any, known: any, isFinal: boolean }} [map]
 * @property {string} [look] of a plan
 * @property {() => any} bucket
 * @property {() => void} draw
 */

const LOOKED_AT = 20;

/** One run: what it does, or what it came to; its log stands beside it. @param {import("../routes.js").Page} page */
export function runView(page) {
  const [runId] = page.rest;
  const [problem, body] = [el("p.error", { role: "alert", hidden: true }), el("div", ghosts(6))];
  const log = Object.assign(el("div.run-log", { key: "log" }), { own: true });
  const view = sharedOf(page, draw);
  const shown = { title: "Run", element: el("article.run", problem, body), fast: true, refresh };
  addEventListener("hashchange", () => view.run && draw(), { signal: page.signal });
  page.showRun(runId);

  async function refresh() {
    try {
      const hadEnded = view.run && view.run.status !== "running";
      if (!hadEnded) view.run = await get(page.path(`/runs/${runId}`), { signal: page.signal });
      await readAbout(view, hadEnded);
      problem.hidden = true;
    } catch (error) {
      if (page.signal.aborted) return;
      problem.hidden = false;
      problem.textContent = error.message;
      if (!view.run) body.replaceChildren();
    }
    if (view.run) draw();
  }

  function draw() {
    const { run } = view;
    const names = tabsOf(run);
    const wanted = address().query.get("tab");
    const chosen = [wanted, preference("tab", "")].find((name) => names.some((one) => one.name === name)) ?? "summary";
    if (wanted === chosen && chosen !== "compare") prefer("tab", chosen);
    shown.title = isPlan(run) ? planTitle(run) : nameOf(run);
    const isBeside = run.status === "running" || chosen === "log";
    const content = el("div.stack", { key: chosen }, DRAWN[chosen](view));
    patch(
      body,
      runHead(view, names, chosen),
      el("div.run-body", { key: "body", class: isBeside && `beside ${chosen}` }, content, isBeside && log),
    );
    if (isBeside && !log.firstChild) activity.mount(log);
  }
  return shown;
}

/** @returns {RunPage} */
function sharedOf(page, draw) {
  return {
    page,
    run: null,
    rows: [],
    folds: new Map(),
    chosen: new Set(),
    evidence: new Map(),
    tables: {},
    usual: null,
    line: undefined,
    earlier: null,
    validity: null,
    compared: undefined,
    bucket: page.bucket,
    draw,
  };
}

const DRAWN = {
  summary: (view) => (view.run.status === "running" ? progressOf(view) : isPlan(view.run) ? planBody(view) : summaryOf(view)),
  workers: workersTab,
  log: ({ page, run }) =>
    el("p.notice.on-narrow", el("button", { type: "button", onclick: () => page.showRun(run.id, { line: 1 }) }, "Open the log")),
  definition: definitionTab,
  compare: compareTab,
  audit: auditTab,
};

function tabsOf(run) {
  const isActive = run.status === "running";
  const names = outcomesOf(run).map(({ worker }) => worker);
  const workers = new Set(names.filter(Boolean)).size;
  return [
    { name: "summary", label: isActive ? "Progress" : isPlan(run) ? "Plan" : "Summary" },
    (isActive || workers > 0) && { name: "workers", label: "Workers", total: workers },
    !isActive && { name: "log", label: "Log" },
    { name: "definition", label: "Definition" },
    !isActive && { name: "compare", label: "Compare" },
    { name: "audit", label: "Audit" },
  ].filter(Boolean);
}

/** What the page tells beside the run: how long it takes otherwise, why it failed, where to go back to, whether a plan holds. */
async function readAbout(view, hadEnded) {
  const { page, run } = view;
  if (run.status === "running") {
    view.usual ??= await usualOf(view);
    return;
  }
  if (isPlan(run) && run.status === "succeeded") {
    view.validity = await get(page.path(`/runs/${run.id}/plan`)).catch(() => null);
  }
  if (hadEnded) return;
  view.rows = outcomesOf(run);
  view.chosen.clear();
  if (view.rows.some(({ outcome }) => outcome === "failed") && run.result?.summary) view.chosen.add("failed");
  if (run.status !== "failed" || run.params.dry_run) return;
  const [found, revisions] = await Promise.all([
    get(page.path(`/runs/${run.id}/evidence`)).catch(() => null),
    unless(get(page.path("/source/revisions?limit=50")), { items: [] }).catch(() => ({ items: [] })),
  ]);
  view.line = found?.items?.find(({ line }) => line)?.line;
  view.earlier = revisions.items.find((one) => one.id < (run.revision ?? "") && one.build_status === "succeeded") ?? null;
}

/** How long runs like this one take: deploys by the bucket's own mean. */
async function usualOf({ page, run, bucket }) {
  const mean = run.kind === "deploy" && !run.params.dry_run && bucket()?.summary?.mean_deploy_ms;
  if (mean) return mean;
  const others = await runsOf(page.bucketId, { kind: run.kind, status: "succeeded", limit: LOOKED_AT });
  const alike = others.filter(
    ({ params }) => Boolean(params.dry_run) === Boolean(run.params.dry_run) && !params.jobs === !run.params.jobs,
  );
  return alike.length === 0 ? 0 : alike.reduce((ms, one) => ms + one.duration_ms, 0) / alike.length;
}
