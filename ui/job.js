import { link } from "./address.js";
import { all, bucketPath, call } from "./api.js";
import { el, facts } from "./dom.js";
import { field, picker, tickBox } from "./fields.js";
import { fileParts } from "./files.js";
import { short, status } from "./format.js";
import { whereOf } from "./jobs.js";
import { nothing, part } from "./part.js";
import { startButton } from "./starts.js";
import { plainTable } from "./table.js";

const CONTROLS = [
  ["start", "Start", "Starts it"],
  ["restart", "Restart …", "Restarts it"],
  ["reload", "Reload …", "Makes it read its configuration again, without a restart,"],
  ["stop", "Stop …", "Stops it: it serves nobody until it is started or deployed again,"],
  ["status", "Status", "Asks whether it runs"],
];
const ASK = new Set(["restart", "reload", "stop"]);

/** One job of the catalog: where it is, its ports and hooks, its files as they were built, and its controls. */
export function jobView(main, { bucketId, rest: [job, chosen] }) {
  const encodedJob = encodeURIComponent(job);
  const cat = (name) => call("GET", bucketPath(bucketId, `/cat/${name}?jobs=${encodedJob}`));
  let allocations = [];
  const where = picker("Allocations", {});
  const health = tickBox("Health check afterwards", { checked: true });
  const controls = controlsOf();
  const placed = part(
    "Allocations",
    () => cat("deployments"),
    ({ items }) => {
      allocations = items.filter(({ removed }) => !removed);
      where.offer(allocations.map(({ worker_ip }) => worker_ip));
      if (items.length === 0) return nothing("It is on no worker: none has all of its selectors.");
      return allocationTable(items);
    },
  );
  const about = part(
    "Definition",
    async () => ({ ...(await cat("jobs")).items[0] }),
    (row) =>
      facts([
        ["Version", row.version],
        ["Wave", String(row.deployment_seq)],
        ["Selectors", row.selectors],
        ["Memory", `${row.memory_mb} MB (${row.memory_source})`],
        ["CPU", `${row.cpu_mhz} MHz (${row.cpu_source})`],
      ]),
  );
  const ports = part(
    "Ports",
    () => cat("ports"),
    ({ items }) =>
      items.length === 0
        ? nothing("It has no port.")
        : facts(items.map(({ name, port }) => [name, String(port)])),
  );
  const hooks = part(
    "Hooks",
    () => all(bucketPath(bucketId, `/cat/hooks?jobs=${encodedJob}`)),
    (items) => (items.length === 0 ? nothing("It has no hook.") : plainTable("Hooks", HOOK_COLUMNS, items)),
  );
  const files = fileParts(
    "Files as they were built",
    bucketPath(bucketId, `/jobs/${encodedJob}/files`),
    chosen,
    (path) => link(bucketId, "jobs", [job, path]),
  );
  const parts = [placed, about, ports, hooks, ...files];
  const back = el("p", { class: "crumb" }, el("a", { href: link(bucketId, "jobs") }, "All jobs"));
  const columns = el("div", { class: "columns" }, about.element, ports.element, hooks.element);
  main.replaceChildren(
    back,
    el("h1", {}, job),
    controls,
    placed.element,
    columns,
    ...files.map(({ element }) => element),
  );

  /** Those that are chosen, else all. */
  function chosenOnes() {
    const wanted = where.values();
    return wanted ? allocations.filter(({ worker_ip }) => wanted.includes(worker_ip)) : allocations;
  }

  function order(action, says, extra = {}, checks = true) {
    const body = { ...extra };
    if (where.values()) body.allocations = chosenOnes().map(({ allocation_id }) => allocation_id);
    if (checks && health.control.checked) body.health_check = true;
    const title = `${says} ${job}?`;
    const text = [`${says}: ${job}, ${whereOf(chosenOnes())}.`];
    const ask = { title, says: text, word: job, danger: true };
    return { path: `/jobs/${encodedJob}/${action}`, body, ask };
  }

  function controlsOf() {
    const simple = CONTROLS.map(([action, label, says]) =>
      startButton(bucketId, label, () => {
        const { ask, ...start } = order(action, says, {}, action !== "status" && action !== "stop");
        return ASK.has(action)
          ? { ...start, ask: { ...ask, title: `${label.replace(" …", "")} ${job}?` } }
          : start;
      }),
    );
    const forget = startButton(bucketId, "Stop and forget …", () => forgetOrder(), { danger: true });
    const probe = startButton(bucketId, "Health check", () => ({
      path: "/health_check",
      body: { jobs: [job] },
    }));
    return el(
      "div",
      { class: "panel" },
      el("div", { class: "controls" }, ...simple, forget, probe),
      el(
        "details",
        {},
        el("summary", {}, "On which workers, and other targets"),
        where.element,
        health,
        targetForm(),
      ),
    );
  }

  function forgetOrder() {
    const { ask, ...start } = order(
      "stop",
      "Stops it and forgets that it was deployed",
      { forget: true },
      false,
    );
    const says = [
      ...ask.says,
      "The next deploy starts it as if it was new. Its files and data stay on the workers.",
    ];
    return { ...start, ask: { ...ask, title: `Stop and forget ${job}?`, says } };
  }

  function targetForm() {
    const target = el("input", { required: true, autocomplete: "off", spellcheck: "false" });
    const form = el("form", { class: "row" }, field("Target of its Makefile", target));
    const start = startButton(
      bucketId,
      "Run target …",
      () => order("run", `Runs make ${target.value}`, { target: target.value }, false),
      { form },
    );
    form.append(start);
    return form;
  }
  return { title: job, refresh: () => Promise.all(parts.map((one) => one.refresh())) };
}

const HOOK_COLUMNS = [
  { key: "hook", label: "Hook" },
  { key: "executed_on", label: "Event" },
  { key: "demand_job", label: "Demands job" },
  { key: "demand_hook", label: "Demands hook" },
];

function allocationTable(rows) {
  return plainTable(
    "Allocations",
    [
      { key: "worker_ip", label: "Worker" },
      { key: "rollout", label: "State", cell: (row) => status(row.rollout) },
      { key: "gate", label: "Health gate", cell: (row) => (row.gate === "" ? "" : status(row.gate)) },
      { key: "current_version", label: "Runs" },
      { key: "new_version", label: "Target" },
      { key: "allocation_id", label: "Allocation", cell: (row) => short(row.allocation_id) },
      { key: "current_hash", label: "Files", cell: (row) => short(row.current_hash) },
    ],
    rows,
  );
}
