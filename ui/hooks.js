import { link } from "./address.js";
import { all, bucketPath } from "./api.js";
import { el } from "./dom.js";
import { lastRunPart } from "./last-run.js";
import { nothing, tablePart, viewOfParts } from "./part.js";
import { startButton } from "./starts.js";

/** The hooks that people may start: those on the event `cli`. The others run by themselves, in builds and deploys. */
export function hooksView(main, { bucketId }) {
  const read = async () => cliHooks(await all(bucketPath(bucketId, "/cat/hooks")));
  const list = tablePart("Hooks to run", read, {
    caption: "Hooks on the event cli",
    rowKey: ({ job, hook }) => JSON.stringify([job, hook]),
    empty: nothing("No job has a hook on the event cli. A manifest declares them under hooks."),
    columns: [
      { key: "hook", label: "Hook" },
      {
        key: "job",
        label: "Job",
        facet: true,
        cell: ({ job }) => el("a", { href: link(bucketId, "jobs", [job]) }, job),
      },
      { key: "demands", label: "Demands" },
      { key: "actions", label: "Actions", text: () => "", cell: (row) => runHook(bucketId, row) },
    ],
  });
  const last = lastRunPart(bucketId, "Last hook", "hooks", "No hook has run here yet.", {
    nameOf: ({ params: { hook, job } }) => (job ? `${hook} of ${job}` : hook),
  });
  return viewOfParts(main, "Hooks", [list, last]);
}

/** A row of the catalog stands for one demand of a hook: its hooks, each once. */
function cliHooks(items) {
  const own = items.filter(({ executed_on }) => executed_on.split(",").includes("cli"));
  const hooks = Map.groupBy(own, ({ job, hook }) => JSON.stringify([job, hook]));
  return [...hooks.values()].map((rows) => {
    const demands = rows
      .filter(({ demand_job }) => demand_job)
      .map((row) => `${row.demand_hook} of ${row.demand_job}`);
    return { job: rows[0].job, hook: rows[0].hook, demands: [...new Set(demands)].join(", ") };
  });
}

function runHook(bucketId, { job, hook }) {
  const says = [
    `Runs ${hook} on the server, once for each allocation of ${job}. What it does is up to its script.`,
  ];
  const question = { title: `Run ${hook} of ${job}?`, says, action: "Run hook" };
  return startButton(bucketId, "Run", () => ({
    path: "/hooks",
    body: { hook, job, verbose: true },
    ask: question,
  }));
}
