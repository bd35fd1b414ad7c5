import { listOf, runsOf, unless } from "../base/api.js";
import { el } from "../base/dom.js";
import { ago, listed } from "../base/format.js";
import { said } from "../base/text.js";
import { curlItem, moreMenu, orderButton } from "../parts/order.js";
import { head, region } from "../parts/region.js";
import { state } from "../parts/state.js";
import { dataTable } from "../parts/table.js";

/** The hooks on the event `cli`, which people run (control-plane.md, UI). */
export function hooksView(page) {
  const table = dataTable({
    caption: "Hooks",
    columns: ["hook", "job", "last_run", "demands", "actions"],
    labels: { actions: "" },
    cells: {
      hook: ({ hook }) => el("b", said(hook)),
      last_run: ({ last }) =>
        last && el("a", { href: page.link("runs", [last.id]) }, state(last.status), " ", ago(last.created_at)),
      demands: ({ demands }) => el("span.meta", listed(demands)),
      actions: (row) =>
        el(
          "span.controls",
          runButton(page, row),
          moreMenu(() => [curlItem(page, orderOf(row))]),
        ),
    },
    keyOf: ({ job, hook }) => `${job} ${hook}`,
    none: "No job has a hook on the event cli. A hook is a script in the job's folder _hooks, named in its manifest.",
  });
  const list = region(
    () => read(page),
    (rows) => table.with(rows),
  );
  return {
    title: "Hooks",
    element: el(
      "div",
      head({ title: "Hooks", line: "Scripts that run on the server, once for each allocation of their job." }),
      list.element,
    ),
    refresh: list.refresh,
  };
}

async function read(page) {
  const [rows, runs] = await Promise.all([
    unless(listOf(page.path("/cat/hooks")), []),
    runsOf(page.bucketId, { kind: "hooks", limit: 50 }),
  ]);
  const own = rows.filter(({ executed_on: events }) => events.split(",").includes("cli"));
  return [...Map.groupBy(own, ({ job, hook }) => `${job} ${hook}`).values()].map((same) => {
    const [{ hook, job }] = same;
    const demands = new Set(same.filter((one) => one.demand_job).map((one) => `${one.demand_hook} of ${one.demand_job}`));
    const last = runs.find(({ params }) => params.hook === hook && (params.job ?? job) === job) ?? null;
    return { hook, job, demands: [...demands], last, last_run: last?.created_at ?? "", actions: "" };
  });
}

function orderOf({ job, hook }) {
  const says = [`Runs ${hook} on the server, once for each allocation of ${job}.`];
  return { path: "/hooks", body: { hook, job, verbose: true }, says, danger: job, action: "Run the hook", title: `Run ${hook}?` };
}

function runButton(page, row) {
  return orderButton(page, "Run …", () => orderOf(row), { style: "small" });
}
