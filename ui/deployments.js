import { all } from "./api.js";
import { catalogPart } from "./catalog.js";
import { fieldsOf, picker, TICK } from "./controls.js";
import { el } from "./dom.js";
import { count } from "./format.js";
import { part } from "./parts.js";
import { lastRunPart } from "./results.js";

const OPTIONS = [
  ["build", "Build first", "Makes the catalog anew from the source", TICK],
  ["force", "Force", "Also rolls out what is as it should be", TICK],
  ["sync_only", "Only write files", "Starts and restarts nothing", TICK],
  ["with_hooks", "With hooks (dry run)", "Runs pre_deploy with DRY_RUN=1; what it writes is dropped", TICK],
];

/** What is deployed where, and deploys: Jobs plans and starts them, Rollout shows the state of each allocation. */
export function deploymentsView(page) {
  const [wanted] = page.rest;
  const tabs = page.tabs("deployments", { jobs: "Jobs", rollout: "Rollout" }, wanted ?? "jobs");
  if (wanted === "rollout")
    return { title: "Deployments", above: [tabs], parts: [catalogPart(page, "deployments")] };
  const { path, action } = page;
  const jobs = picker("Jobs");
  const options = fieldsOf(OPTIONS);
  const body = () => ({ ...options.values(), jobs: jobs.values() });
  const form = el("form.panel");
  const dryRun = () => ({ path: "/deploy", body: { ...body(), dry_run: true } });
  const deploy = () => deployOrder(body());
  form.append(
    jobs.element,
    el("div.row", options.labels),
    el("div.controls", action("Dry run", dryRun, { form }), action("Deploy …", deploy, { style: "primary" })),
  );
  const names = part(
    "",
    () => all(path("/cat/jobs")),
    (items) => jobs.offer(items.map(({ job }) => job)),
    { none: "" },
  );
  const planned = lastRunPart(
    page,
    "Last plan",
    "deploy",
    "No plan yet: a dry run shows what a deploy would do.",
    {
      wanted: ({ params }) => params.dry_run === true,
      controlsOf: ({ id, status }) => status === "succeeded" && planButton(page, id),
    },
  );
  const last = lastRunPart(page, "Last deploy", "deploy", "Nothing was deployed from here yet.", {
    wanted: ({ params }) => !params.dry_run,
    controlsOf: (run) => retryButton(page, run),
  });
  return { title: "Deployments", above: [tabs, form], parts: [names, planned, last] };
}

function deployOrder({ with_hooks: _, ...body }) {
  const { jobs, build, sync_only, force } = body;
  const what = `Brings ${jobs ? `the jobs ${jobs.join(", ")}` : "all jobs"} to the state of the catalog`;
  const says = [
    `${what}, in health-gated waves${build ? ", after a build" : ""}${force ? ", also what is as it should be" : ""}.`,
    sync_only
      ? "Files are written; nothing is started."
      : "Services are started, reloaded or restarted on their workers.",
  ];
  return { path: "/deploy", body, says, danger: true };
}

function planButton({ action }, plan) {
  const says = ["Does what this plan shows; where something has changed since, it refuses."];
  const order = { path: "/deploy", body: { plan }, says, danger: true, action: "Deploy" };
  return action("Deploy this plan …", () => order, { style: "primary" });
}

function retryButton({ action }, { id, result }) {
  const isLeft = ({ outcome }) => ["failed", "not_started", "cancelled"].includes(outcome);
  const jobs = (result?.jobs ?? []).filter(isLeft);
  const says = [
    `Deploys again what was not all right in that deploy: ${jobs.map(({ job }) => job).join(", ")}.`,
  ];
  const order = { path: "/deploy", body: { retry_of: id }, says, danger: true, action: "Retry" };
  return jobs.length > 0 && action(`Retry ${count(jobs.length, "job")} …`, () => order);
}
