import { all, bucketPath, runsOf } from "./api.js";
import { el } from "./dom.js";
import { field, numberField, numberOf, picker, tickBox } from "./fields.js";
import { ago, count, status } from "./format.js";
import { nothing, part, viewOfParts } from "./part.js";
import { resultOf } from "./results.js";
import { runLink, startButton } from "./starts.js";

/** Runs a command on workers; what they answered is folded by what is the same. */
export function commandView(main, { bucketId, bucket }) {
  const command = el("textarea", {
    rows: 3,
    required: true,
    spellcheck: "false",
    autocomplete: "off",
    class: "code",
  });
  const concurrency = numberField(1, 1024);
  const timeout = numberField(1, 86_400);
  const health = tickBox("Health check after each batch", {
    hint: "Goes on only while the jobs there are healthy",
  });
  const ignore = tickBox("Ignore failures", { hint: "Goes on after a batch that failed" });
  const selection = workerSelection(bucketId);
  const form = el("form", { class: "panel" });
  const start = startButton(bucketId, "Run command", order, { primary: true, form });
  form.append(
    field(
      "Command",
      command,
      "Runs in the bucket's folder on each worker, with sh (bash if its first line says so)",
    ),
    selection.element,
    el(
      "div",
      { class: "row" },
      field("At a time", concurrency, "Workers in one batch; 1 by default"),
      field("Time limit in seconds", timeout, "Of each worker; 300 by default"),
      ...[health, ignore],
    ),
    start,
  );
  const last = part(
    "Last command",
    () => runsOf(bucketId, "run_command", 1),
    ([run]) => {
      if (!run) return nothing("No command has run here yet.");
      return [
        el(
          "p",
          {},
          status(run.status),
          " ",
          runLink(bucketId, run.id, el("code", {}, run.params.command)),
          ", ",
          ago(run.created_at),
        ),
        run.error ? el("p", { class: "error" }, run.error) : null,
        run.result === null ? null : resultOf(run),
      ];
    },
  );

  function order() {
    const body = { command: command.value, ...selection.body() };
    const [width, limit] = [numberOf(concurrency), numberOf(timeout)];
    if (width !== undefined) body.concurrency = width;
    if (limit !== undefined) body.timeout_seconds = limit;
    if (health.control.checked) body.health_check = true;
    if (ignore.control.checked) body.ignore_failure = true;
    const name = bucket()?.name ?? bucketId;
    const says = [`Runs on ${selection.text()} of ${name}:`, command.value];
    return {
      path: "/run_command",
      body,
      ask: { title: "Run this command?", says, word: name, danger: true },
    };
  }
  const view = viewOfParts(main, "Run command", [last], [form]);
  return { title: view.title, refresh: () => Promise.all([last.refresh(), selection.refresh()]) };
}

/** A choice of workers, by name or by label; says how many that are. */
export function workerSelection(bucketId) {
  const note = el("p", { class: "hint", role: "status" });
  const labels = picker("Labels", { onchange: () => chosen(labels, names) });
  const names = picker("Workers", { onchange: () => chosen(names, labels) });
  const element = el("div", {}, el("div", { class: "row" }, labels.element, names.element), note);
  let workers = [];

  /** Names and labels exclude each other: the last choice counts. */
  function chosen(now, before) {
    queueMicrotask(() => {
      if (now.values() !== undefined) before.clear();
      note.textContent = `Meant: ${text()}.`;
    });
  }

  function meant() {
    const [wanted, tags] = [names.values(), labels.values()];
    if (wanted) return workers.filter(({ worker_ip }) => wanted.includes(worker_ip));
    if (tags) return workers.filter((one) => labelsOf(one).some((label) => tags.includes(label)));
    return workers;
  }

  function text() {
    const found = meant();
    const few = found.length <= 8 ? ` (${found.map(({ worker_ip }) => worker_ip).join(", ")})` : "";
    return `${found.length === workers.length ? "all " : ""}${count(found.length, "worker")}${few}`;
  }
  return {
    element,
    text,
    body() {
      const [wanted, tags] = [names.values(), labels.values()];
      return { ...(wanted && { workers: wanted }), ...(tags && { labels: tags }) };
    },
    async refresh() {
      try {
        workers = (await all(bucketPath(bucketId, "/cat/workers?active=true"))).filter(
          ({ removed }) => !removed,
        );
        names.offer(workers.map(({ worker_ip }) => worker_ip));
        labels.offer([...new Set(workers.flatMap(labelsOf))].sort());
        note.textContent = `Meant: ${text()}.`;
      } catch (error) {
        note.textContent = `The workers cannot be read: ${error.message}`;
      }
    },
  };
}

function labelsOf({ labels }) {
  return (labels ?? "").split(",").filter((label) => label !== "");
}
