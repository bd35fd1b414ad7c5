import { listOf, queryOf, unless } from "../base/api.js";
import { a, alertPlace, el, patch, tell } from "../base/dom.js";
import { count, number, plain, said, since } from "../base/text.js";
import { item } from "../parts/dialog.js";
import { curlItem, moreMenu, orderButton, orderItem } from "../parts/order.js";
import { empty, head, region, tabs } from "../parts/region.js";
import { mark, tag } from "../parts/state.js";
import { dataOf, listing } from "../parts/table.js";
import { readAllocations } from "../run/allocations.js";
import { healthGlance, healthTab } from "./health.js";

/** One worker: how it is and was, what runs on it, and what is known of it. @param {import("../routes.js").Page} page */
export function workerView(page) {
  const [worker, tab = ""] = page.rest;
  const look = { worker, row: null, reach: null };
  const [top, problem] = [el("div", el("h1", said(worker))), alertPlace()];
  const parts = { health: () => [healthTab(page, { worker })], known: () => [knownOf(page, worker)] }[tab]?.() ?? [
    healthGlance(page, { worker }),
    allocationsOn(page, worker),
  ];

  async function refresh() {
    try {
      const [rows, health] = await Promise.all([
        unless(listOf(page.path(`/cat/workers?${queryOf({ workers: worker })}`)), []),
        unless(listOf(page.path(`/health?${queryOf({ worker, limit: 500 })}`)), []),
      ]);
      look.row = rows.find(({ worker_ip: one }) => one === worker) ?? null;
      look.reach = health.find(({ job, aspect }) => job === "" && aspect === "reach") ?? null;
      const none = empty(`No worker ${plain(worker)} is in the catalog.`, a(page.link("workers"), "All workers"));
      patch(top, look.row ? headOfWorker(page, look, tab) : [el("h1", said(worker)), none]);
      tell(problem, "");
    } catch (error) {
      tell(problem, error.message);
    }
    if (look.row) await Promise.all(parts.map((one) => one.refresh()));
  }
  return { title: plain(worker), element: el("div", top, problem, el("div.stack", ...parts.map((one) => one.element))), refresh };
}

function headOfWorker(page, { worker, row, reach }, tab) {
  const { hostname, labels, allocations: jobs, behind, removed } = row;
  const word = removed ? "removed" : (reach?.state ?? "not_asked");
  const line = [
    hostname && `${plain(hostname)} · `,
    word.replaceAll("_", " "),
    reach && [" ", since(reach.at)],
    ` · ${count(jobs, "job")}`,
    behind > 0 && `, ${number(behind)} behind`,
    " ",
    (labels ?? "").split(",").map((label) => label && [" ", tag(label)]),
  ];
  const one = { workers: [worker] };
  const items = () => [
    orderItem(page, "Read facts", { path: "/workers/facts", body: one }),
    orderItem(page, "Read load", { path: "/workers/sysstat", body: one }),
    item("Run a command there", () => (location.hash = page.link("command", [], { workers: worker }))),
    curlItem(page, { path: "/workers/uptime", body: one }),
  ];
  const controls = [
    orderButton(page, "Read uptime", { path: "/workers/uptime", body: one }, { style: "primary" }),
    orderButton(page, "Check for drift", { path: "/drift", body: one }),
    moreMenu(items),
  ];
  const names = [
    ["", "Jobs", number(jobs)],
    ["health", "Health"],
    ["known", "Facts and definition"],
  ];
  return [
    head({ title: said(worker), mark: mark(word, { large: true, label: word.replaceAll("_", " ") }), line, controls }),
    tabs(names, tab, (name) => page.link("workers", [worker, name])),
  ];
}

function allocationsOn(page, worker) {
  return listing(() => readAllocations(page, { workers: worker }), {
    caption: "Jobs of this worker",
    stateColumn: "state",
    columns: ["job", "state", "current_version", "new_version", "last_action", "last_outcome", "last_run"],
    labels: { last_action: "Last action", last_outcome: "Outcome", last_run: "Run" },
    keyOf: ({ job }) => job,
    none: "No job runs there.",
  });
}

/** What workers.json says of a worker, and what the last reading found. */
function knownOf(page, worker) {
  const read = async () => {
    const [definitions, found] = await Promise.all([
      listOf(page.path("/workers?limit=500")).catch(() => []),
      unless(listOf(page.path("/workers/facts?limit=500")), []),
    ]);
    const { host: _, ...definition } = definitions.find((one) => one.host === worker) ?? {};
    return { definition, facts: found.find((one) => one.worker === worker)?.facts ?? null };
  };
  const draw = ({ definition, facts: known }) => [
    el("h2", "In workspace/workers.json"),
    dataOf(definition),
    el("h2", "Facts"),
    known ? dataOf(known) : el("p.meta", "They were not read yet."),
  ];
  return region(read, draw, { name: "section.panel.pad" });
}
