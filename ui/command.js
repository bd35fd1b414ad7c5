import { el } from "./dom.js";
import { field, numberField, numberOf, tickBox } from "./fields.js";
import { lastRunPart } from "./last-run.js";
import { viewOfParts } from "./part.js";
import { workerSelection } from "./selection.js";
import { startButton } from "./starts.js";

/** Runs a command on workers; what they answered is folded by what is the same. */
export function commandView(main, { bucketId, nameOfBucket }) {
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
    startButton(bucketId, "Run command", order, { primary: true, form }),
  );
  const last = lastRunPart(bucketId, "Last command", "run_command", "No command has run here yet.", {
    nameOf: ({ params }) => el("code", {}, params.command),
  });

  function order() {
    const body = { command: command.value, ...selection.body() };
    const [width, limit] = [numberOf(concurrency), numberOf(timeout)];
    if (width !== undefined) body.concurrency = width;
    if (limit !== undefined) body.timeout_seconds = limit;
    if (health.control.checked) body.health_check = true;
    if (ignore.control.checked) body.ignore_failure = true;
    const says = [`Runs on ${selection.text()} of ${nameOfBucket()}:`, command.value];
    return {
      path: "/run_command",
      body,
      ask: { title: "Run this command?", says, word: nameOfBucket(), danger: true },
    };
  }
  const view = viewOfParts(main, "Run command", [last], [form]);
  return { title: view.title, refresh: () => Promise.all([last.refresh(), selection.refresh()]) };
}
