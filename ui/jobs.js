import { link } from "./address.js";
import { all, bucketPath } from "./api.js";
import { el } from "./dom.js";
import { count, status } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";
import { startButton } from "./starts.js";
import { dataTable } from "./table.js";

/** The jobs of the catalog, for reading; each has controls of its own. */
export function jobsView(main, { bucketId }) {
  const table = dataTable({
    caption: "Jobs",
    rowKey: ({ job }) => job,
    empty: nothing("The catalog has no job: push a workspace and build it."),
    columns: [
      { key: "job", label: "Job", cell: ({ job }) => el("a", { href: link(bucketId, "jobs", [job]) }, job) },
      { key: "version", label: "Version" },
      { key: "state", label: "State", facet: true, cell: ({ state }) => status(state) },
      { key: "allocations", label: "Allocations", number: true },
      { key: "deployment_seq", label: "Wave", number: true },
      { key: "selectors", label: "Selectors" },
      { key: "memory_mb", label: "Memory MB", number: true },
      { key: "cpu_mhz", label: "CPU MHz", number: true },
    ],
  });
  const list = part(
    "",
    () => readJobs(bucketId),
    (jobs) => {
      table.show(jobs);
      return table.element;
    },
  );
  const says = ["Probes every active allocation of every job once, as its manifest says."];
  const check = startButton(bucketId, "Health check of all jobs", () => ({
    path: "/health_check",
    ask: { title: "Health check", says },
  }));
  return viewOfParts(main, "Jobs", [list], [el("div", { class: "controls" }, check)]);
}

async function readJobs(bucketId) {
  const [jobs, deployments] = await Promise.all(
    ["jobs", "deployments"].map((name) => all(bucketPath(bucketId, `/cat/${name}`))),
  );
  const byJob = Map.groupBy(
    deployments.filter(({ removed }) => !removed),
    ({ job }) => job,
  );
  return jobs.map((job) => ({ ...job, ...stateOf(byJob.get(job.job) ?? [], job.disabled) }));
}

/** The state of a job: that of its allocations, or the first one that asks for attention. */
function stateOf(allocations, disabled) {
  const order = [
    "health_failed",
    "health_pending",
    "restart",
    "disabled_restart",
    "new",
    "promoted",
    "disabled",
  ];
  const states = new Set(allocations.map(({ rollout }) => rollout));
  const state = order.find((one) => states.has(one)) ?? (disabled ? "disabled" : "not placed");
  return { state, allocations: allocations.length };
}

/** `2 allocations on 10.0.0.1, 10.0.0.2`. */
export function whereOf(allocations) {
  return `${count(allocations.length, "allocation")} on ${allocations.map(({ worker_ip }) => worker_ip).join(", ")}`;
}
