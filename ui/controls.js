import { all, bucketPath, call, curlOf, link } from "./api.js";
import { alertPlace, ask, button, el, tell } from "./dom.js";
import { count } from "./format.js";

const FEW = 8;
const COPIED_MS = 2_000;
/** The attributes of a box to tick. */
export const TICK = { type: "checkbox" };

const waiting = new Set();
let blocked = {};
let started = () => {};

/** `listener` hears of every run that is started here. */
export function onStarted(listener) {
  started = listener;
}

/** Starts of this bucket wait; null for none (control-plane.md, UI). */
export function blockStarts(bucketId, reason = "") {
  blocked = { bucketId, reason };
  for (const show of waiting) show();
}

/** A button for `order`, a path or `{path, body, method}`; with `says` it asks first, with `danger` for a name. */
export function actionButton(page, label, order, { style, form, free = false, done = page.refresh } = {}) {
  const problem = alertPlace();
  const trigger = el("button", { type: form ? "submit" : "button", class: style }, label);
  let [busy, seen] = [false, false];
  const show = () => {
    if (!trigger.isConnected && seen) return waiting.delete(show);
    seen ||= trigger.isConnected;
    const waits = !free && blocked.bucketId === page.bucketId;
    trigger.disabled = busy || waits;
    trigger.title = waits ? blocked.reason : "";
  };
  waiting.add(show);

  async function act(event) {
    event.preventDefault();
    busy = true;
    show();
    tell(problem, "");
    try {
      const given = typeof order === "string" ? { path: order } : order();
      const submit = () => send(given);
      await (given.says ? ask(questionOf(page, label.replace(" …", ""), given, submit)) : submit());
    } catch (error) {
      tell(problem, `Cannot start: ${error.message}`);
      problem.append(" ", error.way ?? "");
    }
    busy = false;
    show();
  }

  async function send({ method = "POST", path, body = {} }) {
    try {
      const options = method === "POST" || method === "PUT" ? { body: bodyOf(body) } : {};
      const answer = await call(method, page.path(path), options);
      if (answer.run_id) started(page.bucketId, answer.run_id);
      else done(answer);
    } catch (error) {
      if (error.runId) error.way = runLink(page.bucketId, error.runId, "Show that run");
      throw error;
    }
  }
  (form ?? trigger).addEventListener(form ? "submit" : "click", act);
  show();
  return el("div.start", trigger, problem);
}

function questionOf(page, label, given, submit) {
  const { action = label, title = `${action}?`, says, fields = [], danger, isSecret } = given;
  const where = page.bucketId ? [`Bucket: ${page.nameOfBucket()}`] : [];
  return {
    ...{ title, says: [...says, ...where].filter(Boolean), action, submit, danger: Boolean(danger) },
    fields: [...fields, isSecret ? "" : copyButton(page, given)],
    word: danger === true ? page.nameOfBucket() : danger || undefined,
  };
}

function bodyOf(body) {
  return typeof body === "function" ? body() : body;
}

/** Copies a request as a shell command. */
export function copyButton(page, { method = "POST", path, body = {} }) {
  const json = () => (method === "DELETE" ? undefined : JSON.stringify(bodyOf(body)));
  return el(
    "p",
    copying("Copy as curl", () => curlOf(method, page.path(path), json())),
  );
}

/** A button that copies what `textOf` answers, and says so. */
export function copying(label, textOf, attributes) {
  const copy = button(
    label,
    async () => {
      await navigator.clipboard?.writeText(await textOf());
      copy.textContent = "Copied";
      setTimeout(() => (copy.textContent = label), COPIED_MS);
    },
    attributes,
  );
  return copy;
}

/** The first part of an id; a click copies the whole. */
export function short(id) {
  return copying(id.slice(0, 8), () => id, { class: "sorter code", title: `Copy ${id}` });
}

/** A link to a run. */
export function runLink(bucketId, runId, ...text) {
  return el("a", { href: link(bucketId, "runs", [runId]) }, text);
}

/** A box to tick, the label's `control`. */
export function tickBox(label, { checked = false, hint = "", onchange } = {}) {
  const text = el("span", label, hint !== "" && el("small", hint));
  return el("label.tick", el("input", { ...TICK, checked, onchange }), text);
}

/** A choice of one; `options` are `[value, label]`. */
export function choice(label, options, chosen, onchange) {
  const all = options.map(([value, text]) => el("option", { value, selected: value === chosen }, text));
  return el("label.facet", `${label} `, el("select", { onchange }, all));
}

/** Fields from a table of `[name, label, hint, attributes]`; `values()` answers what was filled in. */
export function fieldsOf(table) {
  const labels = table.map(([, label, hint = "", { rows, type = "text", ...attributes } = {}]) => {
    if (type === TICK.type) return tickBox(label, { hint });
    const plain = { autocomplete: "off", spellcheck: "false", ...attributes };
    const input = rows ? el("textarea.code", { rows, ...plain }) : el("input", { type, ...plain });
    return el("label.field", el("span", label), input, hint !== "" && el("small", hint));
  });
  const values = () => {
    const filled = table.map(([name], index) => [name, filledIn(labels[index].control)]);
    return Object.fromEntries(filled.filter(([, value]) => value !== undefined));
  };
  return { labels, values };
}

function filledIn({ type, value, checked }) {
  if (type === TICK.type) return checked || undefined;
  if (value === "") return undefined;
  return type === "number" ? Number(value) : value;
}

/** A field for a whole number between two bounds. */
export function numeric(min, max) {
  return { type: "number", min, max };
}

/** A choice of some names; `offer` changes what there is to choose and keeps what was chosen. */
export function picker(legend, changed = () => {}) {
  const list = el("div.chips", { onchange: changed });
  const inputs = () => [...list.querySelectorAll("input")];
  const chosenNow = () => inputs().flatMap(({ checked, value }) => (checked ? [value] : []));
  let offered = "";
  return {
    element: el("fieldset.picker", el("legend", legend), list),
    values: () => (chosenNow().length === 0 ? undefined : chosenNow()),
    clear() {
      for (const input of inputs()) input.checked = false;
    },
    offer(names, draw = (name) => el("span", name), chosen = chosenNow()) {
      const chips = names.map((name) => el("label.chip", el("input", { ...TICK, value: name }), draw(name)));
      const content = chips.map(({ textContent }) => textContent).join("\n");
      if (content !== offered) list.replaceChildren(...chips);
      offered = content;
      for (const input of inputs()) input.checked = chosen.includes(input.value);
    },
  };
}

/** A choice of workers by name or by label; says which those are. */
export function workerSelection({ path }) {
  const note = el("p.hint", { role: "status" });
  const labels = picker("Labels", () => chosen(labels, names));
  const names = picker("Workers", () => chosen(names, labels));
  let workers = [];

  /** Names and labels exclude each other: the last choice counts. */
  function chosen(now, before) {
    if (now.values()) before.clear();
    note.textContent = `Meant: ${text()}.`;
  }

  function text() {
    const [wanted, tags] = [names.values(), labels.values()];
    const isMeant = (one) =>
      wanted?.includes(one.worker_ip) ?? tags?.some((tag) => labelsOf(one).includes(tag)) ?? true;
    const meant = workers.filter(isMeant).map(({ worker_ip }) => worker_ip);
    const few = meant.length <= FEW ? ` (${meant.join(", ")})` : "";
    return `${meant.length === workers.length ? "all " : ""}${count(meant.length, "worker")}${few}`;
  }

  async function refresh() {
    try {
      workers = await all(path("/cat/workers?active=true"));
      names.offer(workers.map(({ worker_ip }) => worker_ip));
      labels.offer([...new Set(workers.flatMap(labelsOf))].sort());
      note.textContent = `Meant: ${text()}.`;
    } catch (error) {
      note.textContent = `The workers cannot be read: ${error.message}`;
    }
  }
  const element = el("div", el("div.row", labels.element, names.element), note);
  return { element, text, refresh, values: () => ({ workers: names.values(), labels: labels.values() }) };
}

function labelsOf({ labels }) {
  return (labels ?? "").split(",").filter((label) => label !== "");
}

/** Asks whether to cancel a run, and cancels it. */
export function cancelRun(bucketId, { id, kind }) {
  return ask({
    title: "Cancel this run?",
    says: [
      `Stops ${kind} as soon as it can; what it has done until then stays done.`,
      "What is still running after 10 seconds is ended by force. Commands on workers are told to stop too.",
    ],
    action: "Yes, cancel it",
    leave: "Keep it running",
    danger: true,
    submit: () => call("POST", bucketPath(bucketId, `/runs/${id}/cancel`), { body: {} }),
  });
}
