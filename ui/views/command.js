import { runsOf } from "../base/api.js";
import { alertPlace, el, patch } from "../base/dom.js";
import { draft } from "../base/preferences.js";
import { count, listed, number, plain, tell } from "../base/text.js";
import { item, popupButton } from "../parts/dialog.js";
import { fieldsOf } from "../parts/form.js";
import { orderButton } from "../parts/order.js";
import { head, region } from "../parts/region.js";
import { workerChoice } from "../parts/where.js";
import { answersOf } from "../run/results.js";

const MOST_USED = 8;
const LABEL_CHARACTERS = 60;
const HOW_IT_RUNS = "Runs with sh, or as its first line says. Ctrl Enter runs it.";
const FIELDS = [
  { name: "command", label: "Command", rows: 5, required: true, hint: HOW_IT_RUNS },
  { name: "concurrency", label: "At a time", type: "number", min: 1, placeholder: "1" },
  { name: "timeout_seconds", label: "Time limit in seconds", type: "number", min: 1, placeholder: "300" },
  { name: "ignore_failure", label: "Go on after failures", type: "checkbox" },
  { name: "health_check", label: "Health check after each batch", type: "checkbox" },
];

/** Runs a command on workers. What is typed outlasts a sign-in and a reload, until the command runs. */
export function commandView(page) {
  const key = `command.${page.bucketId}`;
  const kept = draft.read(key);
  const fields = fieldsOf(FIELDS);
  for (const input of fields.inputs) restore(input, kept.values?.[/** @type {any} */ (input).name]);
  const [command, width, limit, ignore, check] = fields.labels;
  const asked = page.query.get("workers");
  const where = workerChoice(page, {
    chosen: asked ? asked.split(",") : (kept.workers ?? null),
    troubled: () => last.data?.failed ?? new Map(),
    onchange: changed,
  });
  const [run, problem] = [el("div.controls"), alertPlace()];
  const form = el("form.command-form.panel", { oninput: changed }, [
    el("div.pad", command, el("div.row", width, limit, ignore, check), run),
    el("div.pad", problem, where.element),
  ]);
  form.onsubmit = (event) => event.preventDefault();
  form.onkeydown = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    /** @type {HTMLButtonElement} */ (run.querySelector(".primary")).click();
  };
  const folds = new Map();
  const draw = (found) => lastOf(page, found, folds, () => last.draw());
  const last = region(() => lastAnswers(page), draw, { rows: 0 });

  function changed() {
    draft.keep(key, { values: fields.values(), workers: where.total() > 0 ? where.chosen() : kept.workers });
    drawRun();
  }

  function drawRun() {
    tell(problem, "");
    const chosen = where.chosen();
    const { command: text, concurrency = 1 } = fields.values();
    const isReady = chosen.length > 0 && text?.trim();
    const order = () => commandOrder(fields.values(), where);
    const done = () => {
      const { commands = [] } = draft.read("commands");
      draft.keep("commands", { commands: [text, ...commands.filter((one) => one !== text)].slice(0, MOST_USED) });
      draft.keep(key, {});
      drawRun();
      page.refresh();
    };
    const start = orderButton(page, `Run on ${count(chosen.length, "worker")} …`, order, { style: "primary", done });
    const missing = chosen.length === 0 ? "No worker is chosen" : "There is no command yet";
    if (!isReady) Object.assign(start, { disabled: true, title: missing });
    start.own = true;
    const told = el("span.meta", isReady && batches(chosen.length, concurrency));
    patch(run, start, told, el("span.end", usedMenu(command, changed)));
  }

  async function refresh() {
    const reading = where.total() === 0 && where.refresh().then(drawRun, ({ message }) => tell(problem, message));
    await Promise.all([reading, last.refresh()]);
    where.update();
  }
  drawRun();
  return { title: "Run command", element: el("div", head({ title: "Run command" }), form, last.element), refresh, fast: true };
}

function restore(input, value) {
  if (value === undefined) return;
  if (input.type === "checkbox") input.checked = value;
  else input.value = value;
}

function commandOrder(values, where) {
  const chosen = where.chosen();
  const isAll = chosen.length === where.total();
  const many = count(chosen.length, "worker");
  return {
    path: "/run_command",
    body: { ...values, ...where.values() },
    says: [isAll ? `Runs on all ${many}.` : `Runs on ${many}: ${listed(chosen, 12)}.`],
    fields: el("pre.scroll", plain(values.command)),
    // Only a command for all of them is asked for twice.
    danger: isAll,
    action: `Run on ${many}`,
    title: "Run this command?",
  };
}

/** `3 batches of 5, 5 and 3`. */
function batches(total, width) {
  const batches = Math.ceil(total / width);
  if (batches === 1) return "in one batch";
  const sizes = Array.from({ length: Math.min(batches, 5) }, (_, index) => Math.min(width, total - index * width));
  return `${number(batches)} batches of ${batches <= 4 ? listed(sizes, 4) : width}`;
}

/** The last commands of this tab. */
function usedMenu(label, changed) {
  const { commands = [] } = draft.read("commands");
  if (commands.length === 0) return null;
  const use = (text) => () => {
    label.control.value = text;
    changed();
  };
  const shorter = (text) => (text.length > LABEL_CHARACTERS ? `${text.slice(0, LABEL_CHARACTERS)}…` : text);
  const items = () => commands.map((text) => item(plain(shorter(text)), use(text)));
  const menu = popupButton("Last used ▾", items, { menu: true, class: "quiet" });
  menu.key = commands[0];
  return menu;
}

async function lastAnswers(page) {
  const [run] = await runsOf(page.bucketId, { kind: "run_command" });
  if (!run) return null;
  const detail = await page.get(`/runs/${run.id}`);
  const failed = (detail.result?.workers ?? []).filter(({ outcome }) => /failed|unreachable/.test(outcome));
  return { run: detail, failed: new Map(failed.map(({ worker, outcome }) => [worker, outcome])) };
}

function lastOf(page, found, folds, draw) {
  if (!found) return el("p.meta", "No command has run in this bucket yet.");
  const open = el("a.button.small", { href: page.link("runs", [found.run.id]) }, "Open the run");
  return [
    el("div.spread", el("h2", "Answers of the last command"), open),
    found.run.result && answersOf({ page, run: found.run, folds, draw }),
  ];
}
