import { link } from "./address.js";
import { all, bucketPath, runsOf } from "./api.js";
import { el } from "./dom.js";
import { ago, status } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";
import { resultOf } from "./results.js";
import { runLink, startButton } from "./starts.js";
import { dataTable } from "./table.js";

/** The hooks that people may start: those on the event `cli`. The others run by themselves, in builds and deploys. */
export function hooksView(main, { bucketId }) {
  const table = dataTable({
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
  const list = part(
    "Hooks to run",
    () => all(bucketPath(bucketId, "/cat/hooks")),
    (items) => {
      table.show(cliHooks(items));
      return table.element;
    },
  );
  const last = part(
    "Last hook",
    () => runsOf(bucketId, "hooks", 1),
    ([run]) => {
      if (!run) return nothing("No hook has run here yet.");
      const what = `${run.params.hook}${run.params.job ? ` of ${run.params.job}` : ""}`;
      return [
        el("p", {}, status(run.status), " ", runLink(bucketId, run.id, what), ", ", ago(run.created_at)),
        run.error ? el("p", { class: "error" }, run.error) : null,
        run.result === null ? null : resultOf(run),
      ];
    },
  );
  return viewOfParts(main, "Hooks", [list, last]);
}

/** A row of the catalog stands for one demand of a hook: its hooks, each once. */
function cliHooks(items) {
  const own = items.filter(({ executed_on }) => executed_on.split(",").includes("cli"));
  const hooks = Map.groupBy(own, ({ job, hook }) => JSON.stringify([job, hook]));
  return [...hooks.values()].map((rows) => {
    const demands = rows
      .filter(({ demand_job }) => demand_job)
      .map(({ demand_job, demand_hook }) => `${demand_hook} of ${demand_job}`);
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
