import { link } from "./address.js";
import { all, bucketPath } from "./api.js";
import { el } from "./dom.js";
import { stateOf, status } from "./format.js";
import { nothing, tablePart, viewOfParts } from "./part.js";
import { startButton } from "./starts.js";

/** What asks for attention first. */
const STATES = ["health_failed", "health_pending", "update", "stop", "new", "promoted", "disabled"];

/** The jobs of the catalog, for reading; each has controls of its own. */
export function jobsView(main, { bucketId }) {
  const list = tablePart("", () => readJobs(bucketId), {
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
  const check = startButton(bucketId, "Health check of all jobs", () => ({ path: "/health_check" }));
  return viewOfParts(main, "Jobs", [list], [el("div", { class: "controls" }, check)]);
}

async function readJobs(bucketId) {
  const cat = (name) => all(bucketPath(bucketId, `/cat/${name}`));
  const [jobs, deployments] = await Promise.all([cat("jobs"), cat("deployments")]);
  const byJob = Map.groupBy(
    deployments.filter(({ removed }) => !removed),
    ({ job }) => job,
  );
  return jobs.map((job) => {
    const own = (byJob.get(job.job) ?? []).map(stateOf);
    return {
      ...job,
      state: STATES.find((one) => own.includes(one)) ?? "not placed",
      allocations: own.length,
    };
  });
}
