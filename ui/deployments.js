import { link } from "./address.js";
import { all, bucketPath, call, runsOf } from "./api.js";
import { el } from "./dom.js";
import { picker, tickBox } from "./fields.js";
import { ago, count, short, status } from "./format.js";
import { progressOf } from "./overview.js";
import { nothing, part, viewOfParts } from "./part.js";
import { planOf } from "./plan.js";
import { resultOf } from "./results.js";
import { runLink, startButton } from "./starts.js";
import { dataTable } from "./table.js";
import { tabBar } from "./tabs.js";

const TABS = [
  ["jobs", "Jobs"],
  ["rollout", "Rollout"],
];
const OPTIONS = [
  ["build", "Build first", "Makes the catalog anew from the source"],
  ["force", "Force", "Also rolls out what is as it should be"],
  ["sync_only", "Only write files", "Starts and restarts nothing"],
  ["with_hooks", "With hooks (dry run)", "Runs pre_deploy with DRY_RUN=1; what it writes is dropped"],
];

/** What is deployed where, and deploys: Jobs starts them and plans them, Rollout shows the state of each allocation. */
export function deploymentsView(main, page) {
  const { bucketId, rest } = page;
  const tab = rest[0] === "rollout" ? "rollout" : "jobs";
  const bar = tabBar("Deployments", bucketId, "deployments", TABS, tab);
  const view = tab === "rollout" ? rolloutTab(main, page, bar) : jobsTab(main, page, bar);
  return { ...view, title: `${tab === "rollout" ? "Rollout · " : ""}Deployments` };
}

function jobsTab(main, { bucketId, bucket }, bar) {
  const jobs = picker("Jobs", {});
  const boxes = new Map(OPTIONS.map(([name, label, hint]) => [name, tickBox(label, { hint })]));
  const form = el("form", { class: "panel" });
  const deploy = startButton(bucketId, "Deploy …", () => deployOrder(), { primary: true });
  const plan = startButton(
    bucketId,
    "Dry run",
    () => ({ path: "/deploy", body: { ...bodyOf(), dry_run: true } }),
    { form },
  );
  form.append(
    jobs.element,
    el("div", { class: "row" }, ...boxes.values()),
    el("div", { class: "controls" }, plan, deploy),
  );

  function bodyOf() {
    const chosen = [...boxes].filter(([, { control }]) => control.checked).map(([name]) => [name, true]);
    return { ...Object.fromEntries(chosen), ...(jobs.values() && { jobs: jobs.values() }) };
  }

  function deployOrder() {
    const { with_hooks: _, ...body } = bodyOf();
    const name = bucket()?.name ?? bucketId;
    const what = body.jobs ? `the jobs ${body.jobs.join(", ")}` : "all jobs";
    const says = [
      `Brings ${what} of ${name} to the state of the catalog, in health-gated waves${body.build ? ", after a build" : ""}.`,
      body.sync_only
        ? "Files are written; nothing is started or restarted."
        : "Services are started, reloaded or restarted on their workers.",
      body.force ? "Also what is as it should be is rolled out again." : "",
    ].filter((sentence) => sentence !== "");
    return { path: "/deploy", body, ask: { title: `Deploy ${name}`, says, word: name, action: "Deploy" } };
  }
  const list = part(
    "",
    () => all(bucketPath(bucketId, "/cat/jobs")),
    (items) => {
      jobs.offer(items.map(({ job }) => job));
      return [];
    },
  );
  const planned = part(
    "Last plan",
    () => lastRuns(bucketId, true),
    ([run]) => drawPlan(bucketId, bucket, run),
  );
  const last = part(
    "Last deploy",
    () => lastRuns(bucketId, false),
    ([run]) => drawDeploy(bucketId, run),
  );
  const view = viewOfParts(main, "Deployments", [planned, last], [bar, form]);
  const refresh = () => Promise.all([list, planned, last].map((one) => one.refresh()));
  return { ...view, refresh };
}

async function lastRuns(bucketId, dry) {
  const runs = await runsOf(bucketId, "deploy", 20);
  const [run] = runs.filter(({ params }) => (params.dry_run === true) === dry);
  if (!run) return [];
  return [run.status === "running" ? await call("GET", bucketPath(bucketId, `/runs/${run.id}`)) : run];
}

function headOf(bucketId, run) {
  return el(
    "p",
    {},
    status(run.status),
    " ",
    runLink(bucketId, run.id, "Run ", short(run.id)),
    ", ",
    ago(run.created_at),
  );
}

function drawPlan(bucketId, bucket, run) {
  if (!run)
    return nothing("No plan yet: a dry run shows what a deploy would do, down to the lines of each file.");
  const head = headOf(bucketId, run);
  if (run.status !== "succeeded" || run.result === null)
    return [head, run.error ? el("p", { class: "error" }, run.error) : progressOf(run.progress)];
  const name = bucket()?.name ?? bucketId;
  const says = [
    `Does in ${name} what this plan shows, and nothing else: where something has changed since, it refuses.`,
  ];
  const order = () => ({
    path: "/deploy",
    body: { plan: run.id },
    ask: { title: "Deploy this plan", says, word: name, action: "Deploy" },
  });
  return [head, startButton(bucketId, "Deploy this plan …", order, { primary: true }), planOf(run.result)];
}

function drawDeploy(bucketId, run) {
  if (!run) return nothing("Nothing was deployed from here yet.");
  const failed = (run.result?.jobs ?? []).filter(
    ({ outcome }) => outcome === "failed" || outcome === "not_started",
  );
  const says = [
    `Deploys again what was not all right in that deploy: ${failed.map(({ job }) => job).join(", ")}.`,
  ];
  const order = () => ({
    path: "/deploy",
    body: { retry_of: run.id },
    ask: { title: "Retry what failed", says },
  });
  return [
    headOf(bucketId, run),
    run.error ? el("p", { class: "error" }, run.error) : null,
    run.status === "running" ? progressOf(run.progress) : null,
    failed.length > 0 ? startButton(bucketId, `Retry ${count(failed.length, "job")}`, order) : null,
    run.result === null ? null : resultOf(run),
  ];
}

function rolloutTab(main, { bucketId }, bar) {
  const table = dataTable({
    caption: "Rollout: each allocation",
    rowKey: ({ allocation_id }) => allocation_id,
    empty: nothing("Nothing is placed: push a workspace and build it."),
    columns: [
      {
        key: "job",
        label: "Job",
        facet: true,
        cell: ({ job }) => el("a", { href: link(bucketId, "jobs", [job]) }, job),
      },
      { key: "worker_ip", label: "Worker", facet: true },
      { key: "rollout", label: "State", facet: true, cell: (row) => status(row.rollout) },
      { key: "gate", label: "Health gate", cell: (row) => (row.gate === "" ? "" : status(row.gate)) },
      { key: "current_version", label: "Runs" },
      { key: "new_version", label: "Target" },
      { key: "previous_hash", label: "Deployed files", cell: (row) => short(row.previous_hash) },
      { key: "current_hash", label: "Target files", cell: (row) => short(row.current_hash) },
    ],
  });
  const list = part(
    "",
    () => all(bucketPath(bucketId, "/cat/deployments")),
    (items) => {
      table.show(items);
      return table.element;
    },
  );
  return viewOfParts(main, "Deployments", [list], [bar]);
}
