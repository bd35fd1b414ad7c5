import { runsOf, unless } from "../base/api.js";
import { a, el } from "../base/dom.js";
import { ago, listed, said } from "../base/text.js";
import { orderButton } from "../parts/order.js";
import { head, viewOf } from "../parts/region.js";
import { state } from "../parts/state.js";
import { listing } from "../parts/table.js";

/** The hooks on the event `cli`, which people run (control-plane.md, UI). */
export function hooksView(page) {
  const list = listing(() => readHooks(page), {
    caption: "Hooks",
    columns: ["hook", "job", "last_run", "demands", "actions"],
    cells: {
      hook: ({ hook }) => el("b", said(hook)),
      last_run: ({ last }) => last && a(page.link("runs", [last.id]), state(last.status), " ", ago(last.created_at)),
      demands: ({ demands }) => el("span.meta", listed(demands)),
      actions: (row) => orderButton(page, "Run …", hookOrder(row), { style: "small" }),
    },
    keyOf: ({ job, hook }) => `${job} ${hook}`,
    none: "No job has a hook on the event cli. A hook is a script in the job's folder _hooks, named in its manifest.",
  });
  const line = "Scripts that run on the server, once for each allocation of their job.";
  return viewOf("Hooks", head({ title: "Hooks", line }), list);
}

async function readHooks(page) {
  const [rows, runs] = await Promise.all([
    unless(page.list("/cat/hooks"), []),
    runsOf(page.bucketId, { kind: "hooks", limit: 50 }),
  ]);
  const own = rows.filter(({ executed_on: events }) => events.split(",").includes("cli"));
  return [...Map.groupBy(own, ({ job, hook }) => `${job} ${hook}`).values()].map((same) => {
    const [{ hook, job }] = same;
    const demands = new Set(same.filter((one) => one.demand_job).map((one) => `${one.demand_hook} of ${one.demand_job}`));
    const last = runs.find(({ params }) => params.hook === hook && (params.job ?? job) === job) ?? null;
    return { hook, job, demands: [...demands], last, last_run: last?.created_at ?? "" };
  });
}

function hookOrder({ job, hook }) {
  const says = [`Runs ${hook} on the server, once for each allocation of ${job}.`];
  return { path: "/hooks", body: { hook, job, verbose: true }, says, danger: job, action: "Run the hook", title: `Run ${hook}?` };
}
