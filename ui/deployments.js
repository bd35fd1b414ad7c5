import { link } from "./address.js";
import { all, bucketPath } from "./api.js";
import { el } from "./dom.js";
import { picker, tickBox } from "./fields.js";
import { count, short, status } from "./format.js";
import { lastRunPart } from "./last-run.js";
import { nothing, part, tablePart, viewOfParts } from "./part.js";
import { startButton } from "./starts.js";
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
const NO_PLAN = "No plan yet: a dry run shows what a deploy would do, down to the lines of each file.";

/** What is deployed where, and deploys: Jobs plans and starts them, Rollout shows the state of each allocation. */
export function deploymentsView(main, page) {
  const tab = page.rest[0] === "rollout" ? "rollout" : "jobs";
  const bar = tabBar("Deployments", page.bucketId, "deployments", TABS, tab);
  const [parts, above] = tab === "rollout" ? [[rolloutPart(page)], []] : jobsTab(page);
  return viewOfParts(main, "Deployments", parts, [bar, ...above]);
}

function jobsTab({ bucketId, nameOfBucket }) {
  const jobs = picker("Jobs");
  const boxes = new Map(OPTIONS.map(([name, label, hint]) => [name, tickBox(label, { hint })]));
  const form = el("form", { class: "panel" });
  const dryRun = () => ({ path: "/deploy", body: { ...bodyOf(), dry_run: true } });
  const plan = startButton(bucketId, "Dry run", dryRun, { form });
  const deploy = startButton(bucketId, "Deploy …", () => deployOrder(bodyOf(), nameOfBucket()), {
    primary: true,
  });
  const ticks = el("div", { class: "row" }, ...boxes.values());
  form.append(jobs.element, ticks, el("div", { class: "controls" }, plan, deploy));

  function bodyOf() {
    const ticked = [...boxes].filter(([, { control }]) => control.checked).map(([name]) => [name, true]);
    return { ...Object.fromEntries(ticked), jobs: jobs.values() };
  }
  const names = part(
    "",
    () => all(bucketPath(bucketId, "/cat/jobs")),
    (items) => {
      jobs.offer(items.map(({ job }) => job));
      return [];
    },
  );
  const planned = lastRunPart(bucketId, "Last plan", "deploy", NO_PLAN, {
    wanted: ({ params }) => params.dry_run === true,
    controlsOf: (run) => deployPlan(bucketId, nameOfBucket, run),
  });
  const last = lastRunPart(bucketId, "Last deploy", "deploy", "Nothing was deployed from here yet.", {
    wanted: ({ params }) => !params.dry_run,
    controlsOf: (run) => retry(bucketId, run),
  });
  return [[names, planned, last], [form]];
}

function deployOrder({ with_hooks: _, ...body }, name) {
  const what = body.jobs ? `the jobs ${body.jobs.join(", ")}` : "all jobs";
  const files = "Files are written; nothing is started or restarted.";
  const services = "Services are started, reloaded or restarted on their workers.";
  const says = [
    `Brings ${what} of ${name} to the state of the catalog, in health-gated waves${body.build ? ", after a build" : ""}.`,
    body.sync_only ? files : services,
    ...(body.force ? ["What is as it should be is rolled out again, too."] : []),
  ];
  return { path: "/deploy", body, ask: { title: `Deploy ${name}`, says, word: name, action: "Deploy" } };
}

function deployPlan(bucketId, nameOfBucket, { id, status: state }) {
  if (state !== "succeeded") return null;
  const order = () => {
    const says = [
      `Does in ${nameOfBucket()} what this plan shows; where something has changed since, it refuses.`,
    ];
    const ask = { title: "Deploy this plan", says, word: nameOfBucket(), action: "Deploy" };
    return { path: "/deploy", body: { plan: id }, ask };
  };
  return startButton(bucketId, "Deploy this plan …", order, { primary: true });
}

function retry(bucketId, { id, result }) {
  const failed = (result?.jobs ?? []).filter(
    ({ outcome }) => outcome === "failed" || outcome === "not_started",
  );
  if (failed.length === 0) return null;
  const says = [
    `Deploys again what was not all right in that deploy: ${failed.map(({ job }) => job).join(", ")}.`,
  ];
  const ask = { title: "Retry what failed", says };
  return startButton(bucketId, `Retry ${count(failed.length, "job")}`, () => ({
    path: "/deploy",
    body: { retry_of: id },
    ask,
  }));
}

function rolloutPart({ bucketId }) {
  return tablePart("", () => all(bucketPath(bucketId, "/cat/deployments")), {
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
      { key: "gate", label: "Health gate", cell: ({ gate }) => (gate === "" ? "" : status(gate)) },
      { key: "current_version", label: "Runs" },
      { key: "new_version", label: "Target" },
      { key: "previous_hash", label: "Deployed files", cell: (row) => short(row.previous_hash) },
      { key: "current_hash", label: "Target files", cell: (row) => short(row.current_hash) },
    ],
  });
}
