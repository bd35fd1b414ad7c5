import { runsOf, unless } from "../base/api.js";
import { a, el } from "../base/dom.js";
import { ago, count, elapsed, nameOf, number, prose, said } from "../base/text.js";
import { fieldsOf, ticking } from "../parts/form.js";
import { freezeLine } from "../parts/freeze.js";
import { pushCommand } from "../parts/guide.js";
import { orderButton } from "../parts/order.js";
import { empty, head, region, tabbed, viewOf } from "../parts/region.js";
import { mark, progressBar } from "../parts/state.js";
import { dataTable, listing } from "../parts/table.js";
import { readAllocations } from "../run/allocations.js";
import { barOf, countsOf } from "../run/head.js";
import { canRetry, deployedMap, deployOrder, retryButton } from "../run/orders.js";
import { isPlan, planInShort, planOrder, staleBy } from "../run/plan.js";
import { countsInWords, readJobs } from "./jobs.js";

const LOOKED_AT = 20;
const MOST_ALLOCATIONS = 20_000;
const DEPLOY_OPTIONS = [
  { name: "build", label: "Build first", type: "checkbox" },
  { name: "force", label: "Force", hint: "Also what is as it should be", type: "checkbox" },
  { name: "sync_only", label: "Only write files", hint: "Start, reload and restart nothing", type: "checkbox" },
  { name: "with_hooks", label: "Hooks in the plan", hint: "A plan runs pre_deploy with DRY_RUN=1", type: "checkbox" },
];

/** What is to be deployed, and how far each allocation is. @param {import("../routes.js").Page} page */
export function deploymentsView(page) {
  const [choices, viewOfTab] = tabbed(page, { jobs: ["Jobs", jobsTab], rollout: ["Rollout", rolloutTab] });
  return viewOfTab(page, choices);
}

function jobsTab(page, choices) {
  const options = fieldsOf(DEPLOY_OPTIONS);
  const ticked = new Set();
  const list = listing(() => readJobs(page), {
    caption: "jobs",
    columns: ["tick", "state", "job", "version", "deployment_seq", "due", "allocations"],
    labels: { tick: "", due: "To be deployed" },
    cells: {
      tick: ({ job }) => {
        const onchange = ticking(ticked, job, () => about.draw());
        return el("input", { type: "checkbox", "aria-label": job, onchange });
      },
    },
    keyOf: ({ job }) => job,
    none: empty("Nothing is built yet: push a workspace.", pushCommand(page)),
  });

  function body() {
    const { with_hooks: _, ...given } = options.values();
    return { ...given, ...(ticked.size > 0 && { jobs: [...ticked] }) };
  }
  function draw(data) {
    const which = ticked.size > 0 ? `${count(ticked.size, "job")} ` : "";
    const plan = () => ({ path: "/deploy", body: { ...body(), ...options.values(), dry_run: true } });
    return aboutDeploys(page, data, [
      orderButton(page, `Deploy ${which}…`, () => deployOrder(body()), { style: "primary" }),
      orderButton(page, `Plan ${which}`.trim(), plan, { done: ({ run_id: id }) => (location.hash = page.link("runs", [id])) }),
    ]);
  }
  const about = region(() => unless(readAbout(page), {}), draw, { rows: 2 });
  const summary = el("summary", el("b", "Options"), el("span.meta", "build, force, only files, hooks"));
  const choice = el("details.panel.fold", summary, el("div.row.pad", options.labels));
  return { ...viewOf("Deployments", [about, choices], choice, list), fast: true };
}

/** The running deploy, the last one and the last plan. */
async function readAbout(page) {
  const deploys = await runsOf(page.bucketId, { kind: "deploy", limit: LOOKED_AT });
  const running = deploys.find(({ status }) => status === "running");
  const plan = deploys.find((run) => isPlan(run) && run.status === "succeeded");
  return {
    running: running && (await page.get(`/runs/${running.id}`)),
    plan,
    validity: plan && (await page.get(`/runs/${plan.id}/plan`).catch(() => null)),
    last: deploys.find(({ params, status }) => !params.dry_run && status !== "running"),
    counts: page.bucket()?.summary?.counts,
    freezes: page.bucket()?.summary?.freezes,
  };
}

function aboutDeploys(page, { running, plan, validity, last, counts = /** @type {any} */ ({}), freezes }, orders) {
  const { allocations = 0, disabled = 0, promoted = 0 } = counts;
  const all = allocations - disabled;
  const line = all > 0 && `${number(promoted)} of ${count(all, "allocation")} are as the catalog wants them`;
  const rows = [running && runningRow(page, running), plan && planRow(page, plan, validity), last && lastRow(page, last)];
  return [
    head({ title: titleOfDeploys(running, counts), line, controls: orders }),
    freezeLine({ summary: { freezes } }),
    rows.some(Boolean) && el("section.panel.last", { key: "last" }, rows),
  ];
}

function titleOfDeploys(running, { allocations = 0, new: fresh = 0, update = 0 }) {
  if (running) return `${nameOf(running)} goes on`;
  if (allocations === 0) return "Nothing to deploy yet";
  return fresh + update > 0 ? `${count(fresh + update, "allocation")} to be deployed` : "Everything is deployed";
}

function rowOfRun(page, run, [word, name, told], ...more) {
  const link = a(page.link("runs", [run.id]), el("b", name));
  const about = el("span.meta.one-line", told);
  about.title = about.textContent;
  return el("div.row-line", { key: name }, mark(word, { label: word }), link, about, more);
}

function runningRow(page, run) {
  const bar = progressBar(barOf(run, countsOf(run)));
  const phase = said(run.progress?.phase ?? "");
  return rowOfRun(page, run, ["running", nameOf(run), phase], bar, el("span.end", elapsed(run.created_at)));
}

function planRow(page, run, validity) {
  const isStale = validity?.valid === false;
  const deploy = !isStale && orderButton(page, "Deploy this plan …", () => planOrder(run), { style: "small" });
  const told = [planInShort(run), isStale && `; out of date: ${staleBy(validity)}`];
  const word = isStale ? "soon" : "ok";
  return rowOfRun(page, run, [word, "Last plan", told], el("span.end", ago(run.created_at)), deploy);
}

function lastRow(page, run) {
  const retry = canRetry(run) && retryButton(page, run, "small");
  const told = [run.status, run.error && [": ", prose(run.error)]];
  return rowOfRun(page, run, [run.status, "Last deploy", told], el("span.end", ago(run.created_at)), retry);
}

/** Every allocation with its state: as a map, and as a table. */
function rolloutTab(page, choices) {
  const map = deployedMap(page);
  const table = dataTable({
    caption: "allocations",
    columns: ["state", "job", "worker", "current_version", "new_version", "last_action", "last_run", "last_reason"],
    keyOf: ({ allocation_id: id }) => id,
    none: "Nothing is placed yet.",
  });
  const read = () => readAllocations(page, {}, MOST_ALLOCATIONS);
  const list = region(read, (rows) => table.with(rows), { rows: 0 });
  const draw = (counts) => {
    const deploy = orderButton(page, "Deploy …", () => deployOrder({}), { style: "primary" });
    return head({ title: "Rollout", line: countsInWords(counts), controls: deploy });
  };
  const about = region(() => page.bucket()?.summary?.counts ?? {}, draw, { rows: 1 });
  const readMap = async () => {
    const { active_run: id } = page.bucket() ?? {};
    const [found, run] = await Promise.all([unless(page.get("/map"), null), id && page.get(`/runs/${id}`)]);
    if (!found?.jobs.length) return;
    map.show(found);
    map.follow(run);
  };
  // A table of many is read when somebody wants to see it.
  const readTable = () => each.open && list.refresh();
  const each = el("details.panel.fold", { ontoggle: readTable }, el("summary", el("b", "As a table")), list.element);
  const ofMap = { element: map.element, refresh: readMap };
  return viewOf("Deployments", [about, choices], ofMap, { element: each, refresh: readTable });
}
