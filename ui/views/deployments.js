import { bucketPath, get, listOf, runsOf, unless } from "../base/api.js";
import { el, patch } from "../base/dom.js";
import { ago, count, elapsed, listed, number, plain, said } from "../base/text.js";
import { command } from "../parts/dialog.js";
import { fieldsOf } from "../parts/form.js";
import { jobMap } from "../parts/map.js";
import { orderButton } from "../parts/order.js";
import { empty, head, region, tabs } from "../parts/region.js";
import { mark, progressBar, state } from "../parts/state.js";
import { dataTable } from "../parts/table.js";
import { barOf, countsOf } from "../run/head.js";
import { canRetry, deployOrder, redeployOrder, retryButton } from "../run/orders.js";
import { isPlan, planInShort, planOrder, staleBy } from "../run/plan.js";
import { nameOf, outcomesOf } from "../run/words.js";

const LOOKED_AT = 20;
const MOST = 20_000;
const TABS = [
  ["jobs", "Jobs"],
  ["rollout", "Rollout"],
];
/** What of a job is not as the catalog wants it, the worst first. */
const DUE = ["failed", "unreachable", "unsettled", "update", "new"];
const OPTIONS = [
  { name: "build", label: "Build first", type: "checkbox" },
  { name: "force", label: "Force", hint: "Also what is as it should be", type: "checkbox" },
  { name: "sync_only", label: "Only write files", hint: "Start, reload and restart nothing", type: "checkbox" },
  { name: "with_hooks", label: "Hooks in the plan", hint: "A plan runs pre_deploy with DRY_RUN=1", type: "checkbox" },
];

/** What is to be deployed, and how far each allocation is. @param {import("../routes.js").Page} page */
export function deploymentsView(page) {
  return page.rest[0] === "rollout" ? rolloutView(page) : jobsView(page);
}

function deploymentTabs(page, chosen) {
  return tabs(TABS, chosen, (name) => page.link("deployments", [name]));
}

function jobsView(page) {
  const options = fieldsOf(OPTIONS);
  const ticked = new Set();
  const table = tableOfJobs(page, tick);
  const draw = (data) => drawTop(page, data, orders);
  const top = region(() => unless(readAbout(page), null), draw, { rows: 2 });
  const orders = el("span.controls");
  const drawJobs = (rows) => (rows.length > 0 ? table.with(rows) : noJobs(page));
  const list = region(() => unless(readJobs(page), []), drawJobs);

  function tick(job, isOn) {
    if (isOn) ticked.add(job);
    else ticked.delete(job);
    drawOrders();
  }
  function body() {
    const { with_hooks: _, ...given } = options.values();
    return { ...given, ...(ticked.size > 0 && { jobs: [...ticked] }) };
  }
  function drawOrders() {
    const which = ticked.size > 0 ? `${count(ticked.size, "job")} ` : "";
    const plan = () => ({ path: "/deploy", body: { ...body(), ...options.values(), dry_run: true } });
    patch(
      orders,
      orderButton(page, `Deploy ${which}…`, () => deployOrder(body()), { style: "primary" }),
      orderButton(page, `Plan ${which}`.trim(), plan, { done: ({ run_id: id }) => (location.hash = page.link("runs", [id])) }),
    );
  }
  drawOrders();
  const choices = el(
    "details.panel.fold",
    el("summary", el("b", "Options"), el("span.meta", "build, force, only files, hooks")),
    el("div.row.pad", options.labels),
  );
  const element = el("div", top.element, deploymentTabs(page, "jobs"), el("div.stack", choices, list.element));
  return { title: "Deployments", element, fast: true, refresh: () => Promise.all([top.refresh(), list.refresh()]) };
}

function tableOfJobs(page, tick) {
  return dataTable({
    caption: "jobs",
    columns: ["tick", "state", "job", "version", "wave", "due", "allocations"],
    labels: { tick: "", wave: "Wave", due: "To be deployed" },
    cells: {
      tick: ({ job }) =>
        el("input", { type: "checkbox", "aria-label": job, onchange: ({ target }) => tick(job, target.checked) }),
      state: ({ state: word, settled }) => state(word, settled),
      job: ({ job }) => el("a", { href: page.link("jobs", [job]) }, job),
    },
    stateColumn: "state",
    keyOf: ({ job }) => job,
    none: "Nothing is built yet.",
  });
}

async function readJobs(page) {
  const jobs = await listOf(page.path("/cat/jobs?limit=500"));
  const rows = jobs.map((one) => {
    const word = DUE.find((name) => one[name] > 0);
    const due = one.update + one.new;
    return {
      ...one,
      tick: "",
      wave: one.deployment_seq,
      due,
      state: word ?? "ok",
      settled: word ? word.replaceAll("_", " ") : "as it should be",
    };
  });
  return Object.assign(rows, { cut: jobs.cut });
}

/** The running deploy, the last one and the last plan. */
async function readAbout(page) {
  const deploys = await runsOf(page.bucketId, { kind: "deploy", limit: LOOKED_AT });
  const find = (isWanted) => deploys.find(isWanted);
  const running = find(({ status }) => status === "running");
  const plan = find((run) => isPlan(run) && run.status === "succeeded");
  return {
    running: running && (await get(bucketPath(page.bucketId, `/runs/${running.id}`))),
    plan,
    validity: plan && (await get(page.path(`/runs/${plan.id}/plan`)).catch(() => null)),
    last: find(({ params, status }) => !params.dry_run && status !== "running"),
    counts: page.bucket()?.summary?.counts,
    total: page.bucket()?.summary?.jobs,
  };
}

function drawTop(page, data, orders) {
  const { running, plan, validity, last, counts = {} } = data ?? {};
  const due = (counts.new ?? 0) + (counts.update ?? 0);
  const title = running
    ? `${nameOf(running)} goes on`
    : !counts.allocations
      ? "Nothing to deploy yet"
      : due > 0
        ? `${count(due, "allocation")} to be deployed`
        : "Everything is deployed";
  const line =
    counts.allocations > 0 &&
    `${number(counts.promoted ?? 0)} of ${count(counts.allocations, "allocation")} are as the catalog wants them`;
  return [
    head({ title, line, controls: orders }),
    (running || plan || last) &&
      el(
        "section.panel.last",
        { key: "last" },
        running && runningRow(page, running),
        plan && planRow(page, plan, validity),
        last && lastRow(page, last),
      ),
  ];
}

function runningRow(page, run) {
  const { phase = "" } = run.progress ?? {};
  const link = el("a", { href: page.link("runs", [run.id]) }, el("b", nameOf(run)));
  return el(
    "div.row-line",
    { key: "running" },
    mark("running", { label: "running" }),
    link,
    el("span.meta", said(phase)),
    progressBar(barOf(run, countsOf(run))),
    el("span.end", elapsed(run.created_at)),
  );
}

function planRow(page, run, validity) {
  const link = el("a", { href: page.link("runs", [run.id]) }, el("b", "Last plan"));
  const isStale = validity?.valid === false;
  const deploy = orderButton(page, "Deploy this plan …", () => planOrder(run), { style: "small" });
  return el(
    "div.row-line",
    { key: "plan" },
    mark(isStale ? "soon" : "ok"),
    link,
    el("span.meta.one-line", planInShort(run), isStale && `; out of date: ${staleBy(validity)}`),
    el("span.end", ago(run.created_at)),
    !isStale && deploy,
  );
}

function lastRow(page, run) {
  const link = el("a", { href: page.link("runs", [run.id]) }, el("b", "Last deploy"));
  const retry = canRetry(run) && retryButton(page, run, outcomesOf(run), "small");
  return el(
    "div.row-line",
    { key: "last" },
    mark(run.status),
    link,
    el("span.meta.one-line", run.status, run.error && [": ", said(run.error)]),
    el("span.end", ago(run.created_at)),
    retry,
  );
}

function noJobs(page) {
  return empty("Nothing is built yet: push a workspace.", command(`ops push ${location.origin} --bucket ${page.bucketId}`));
}

/** Every allocation with its state: as a map, and as a table. */
function rolloutView(page) {
  const map = jobMap(page, {
    sinceOf: () => "",
    retry: (job) => orderButton(page, "Retry …", () => redeployOrder([job], map), { style: "small" }),
  });
  const table = dataTable({
    caption: "allocations",
    columns: ["state", "job", "worker_ip", "current_version", "new_version", "last_action", "last_run", "last_reason"],
    cells: {
      state: ({ state: word }) => state(word),
      last_reason: ({ last_reason: why }) => why && el("code.one-line", { title: plain(why) }, said(why.split("\n").at(-1))),
    },
    stateColumn: "state",
    keyOf: ({ allocation_id: id }) => id,
    none: "Nothing is placed yet.",
  });
  const read = async () => {
    const rows = await unless(listOf(page.path("/cat/deployments?limit=1000"), MOST), []);
    const shown = rows.filter(({ rollout }) => rollout !== "removed").map((row) => ({ ...row, state: allocationState(row) }));
    return { rows: shown, cut: rows.cut };
  };
  const list = region(read, ({ rows, cut }) => table.with(Object.assign(rows, { cut })), { rows: 0 });
  const order = () => orderButton(page, "Deploy …", () => deployOrder({}), { style: "primary" });
  const about = region(
    async () => page.bucket()?.summary?.counts ?? {},
    (counts) => head({ title: "Rollout", line: saidOf(counts), controls: order() }),
    { rows: 1 },
  );
  // A table of many is read when somebody wants to see it.
  const each = el(
    "details.panel.fold",
    { ontoggle: ({ target }) => target.open && list.refresh() },
    el("summary", el("b", "As a table")),
    list.element,
  );
  const refresh = async () => {
    await about.refresh();
    const found = await unless(get(page.path("/map")), null);
    if (found?.jobs.length > 0) map.show(found);
    if (/** @type {HTMLDetailsElement} */ (each).open) await list.refresh();
  };
  const element = el("div", about.element, deploymentTabs(page, "rollout"), el("div.stack", map.element, each));
  return { title: "Deployments", element, refresh };
}

function allocationState({ rollout, gate, last_outcome: outcome, disabled }) {
  if (disabled) return "disabled";
  if (outcome === "failed" || outcome === "unreachable") return outcome;
  return rollout === "promoted" && /^(failed|pending)$/.test(gate) ? `health_${gate}` : rollout;
}

function saidOf({ allocations = 0, ...states }) {
  const words = Object.entries(states).filter(([, many]) => many > 0);
  return listed([count(allocations, "allocation"), ...words.map(([word, many]) => `${number(many)} ${word}`)], 8);
}
