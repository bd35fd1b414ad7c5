import { link } from "./address.js";
import { all, bucketPath } from "./api.js";
import { el, facts } from "./dom.js";
import { field, picker, tickBox } from "./fields.js";
import { fileParts } from "./files.js";
import { count, short, status } from "./format.js";
import { nothing, part } from "./part.js";
import { startButton } from "./starts.js";
import { plainTable } from "./table.js";

/** What can be done with a job: the last part of the path, the label, what it does; `quiet` ones harm nobody. */
const CONTROLS = [
  { action: "start", label: "Start", does: "Starts it", quiet: true },
  { action: "restart", label: "Restart …", does: "Restarts it" },
  { action: "reload", label: "Reload …", does: "Makes it read its configuration again, without a restart" },
  {
    action: "stop",
    label: "Stop …",
    does: "Stops it: it serves nobody until it is started or deployed again",
  },
  {
    action: "stop",
    label: "Stop and forget …",
    does: "Stops it, and the next deploy starts it as if it was new; its files and data stay on the workers",
    extra: { forget: true },
  },
  { action: "status", label: "Status", does: "Asks whether it runs", quiet: true },
];

/** One job of the catalog: where it is, its ports and hooks, its files as they were built, and its controls. */
export function jobView(main, { bucketId, rest: [job, chosen] }) {
  const encodedJob = encodeURIComponent(job);
  const cat = (name) => all(bucketPath(bucketId, `/cat/${name}?jobs=${encodedJob}`));
  const where = picker("Allocations");
  const health = tickBox("Health check afterwards", { checked: true });
  let allocations = [];
  const placed = part(
    "Allocations",
    () => cat("deployments"),
    (items) => {
      allocations = items.filter(({ removed }) => !removed);
      where.offer(allocations.map(({ worker_ip }) => worker_ip));
      if (items.length === 0) return nothing("It is on no worker: none has all of its selectors.");
      return plainTable("Allocations", ALLOCATION_COLUMNS, items);
    },
  );
  const about = part("Definition", async () => (await cat("jobs"))[0] ?? {}, drawDefinition);
  const ports = part(
    "Ports",
    () => cat("ports"),
    (items) =>
      items.length === 0
        ? nothing("It has no port.")
        : facts(items.map(({ name, port }) => [name, String(port)])),
  );
  const hooks = part(
    "Hooks",
    () => cat("hooks"),
    (items) => (items.length === 0 ? nothing("It has no hook.") : plainTable("Hooks", HOOK_COLUMNS, items)),
  );
  const base = bucketPath(bucketId, `/jobs/${encodedJob}/files`);
  const files = fileParts("Files as they were built", base, chosen, (path) =>
    link(bucketId, "jobs", [job, path]),
  );
  const back = el("p", { class: "crumb" }, el("a", { href: link(bucketId, "jobs") }, "All jobs"));
  const columns = el("div", { class: "columns" }, about.element, ports.element, hooks.element);
  const tail = files.map(({ element }) => element);
  main.replaceChildren(back, el("h1", {}, job), controls(), placed.element, columns, ...tail);

  function controls() {
    const probe = startButton(bucketId, "Health check", () => ({
      path: "/health_check",
      body: { jobs: [job] },
    }));
    const buttons = CONTROLS.map((one) =>
      startButton(bucketId, one.label, () => order(one), { danger: one.extra !== undefined }),
    );
    const target = el("input", { required: true, autocomplete: "off", spellcheck: "false" });
    const form = el("form", { class: "row" }, field("Target of its Makefile", target));
    const run = () =>
      order({
        action: "run",
        label: "Run target …",
        does: `Runs make ${target.value}`,
        extra: { target: target.value },
      });
    form.append(startButton(bucketId, "Run target …", run, { form }));
    return el(
      "div",
      { class: "panel" },
      el("div", { class: "controls" }, ...buttons, probe),
      el(
        "details",
        {},
        el("summary", {}, "On which workers, and other targets"),
        where.element,
        health,
        form,
      ),
    );
  }

  /** On the chosen allocations, else on all. */
  function order({ action, label, does, quiet = false, extra = {} }) {
    const wanted = where.values();
    const meant = allocations.filter(({ worker_ip }) => !wanted || wanted.includes(worker_ip));
    const checks = health.control.checked && ["start", "restart", "reload"].includes(action);
    const body = {
      ...extra,
      allocations: wanted && meant.map(({ allocation_id }) => allocation_id),
      ...(checks && { health_check: true }),
    };
    const says = [
      `${does}: ${job}, ${count(meant.length, "allocation")} on ${meant.map((one) => one.worker_ip).join(", ")}.`,
    ];
    const ask = { title: `${label.replace(" …", "")} ${job}?`, says, word: job, danger: true };
    return { path: `/jobs/${encodedJob}/${action}`, body, ask: quiet ? undefined : ask };
  }
  const parts = [placed, about, ports, hooks, ...files];
  return { title: job, refresh: () => Promise.all(parts.map((one) => one.refresh())) };
}

function drawDefinition({
  version,
  deployment_seq,
  selectors,
  memory_mb,
  memory_source,
  cpu_mhz,
  cpu_source,
}) {
  if (version === undefined) return nothing("The catalog has no such job.");
  return facts([
    ["Version", version],
    ["Wave", String(deployment_seq)],
    ["Selectors", selectors],
    ["Memory", `${memory_mb} MB (${memory_source})`],
    ["CPU", `${cpu_mhz} MHz (${cpu_source})`],
  ]);
}

const HOOK_COLUMNS = [
  { key: "hook", label: "Hook" },
  { key: "executed_on", label: "Event" },
  { key: "demand_job", label: "Demands job" },
  { key: "demand_hook", label: "Demands hook" },
];
const ALLOCATION_COLUMNS = [
  { key: "worker_ip", label: "Worker" },
  { key: "rollout", label: "State", cell: (row) => status(row.rollout) },
  { key: "gate", label: "Health gate", cell: ({ gate }) => (gate === "" ? "" : status(gate)) },
  { key: "current_version", label: "Runs" },
  { key: "new_version", label: "Target" },
  { key: "allocation_id", label: "Allocation", cell: (row) => short(row.allocation_id) },
  { key: "current_hash", label: "Files", cell: (row) => short(row.current_hash) },
];
