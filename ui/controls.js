import { all, bucketPath, call, curlOf, link, pause, request } from "./api.js";
import { alertPlace, ask, button, closeDialogs, el, tell, textBox } from "./dom.js";
import { count } from "./format.js";

const FEW = 8;
const COPIED_MS = 2_000;
const LOOK_MS = 2_000;
const waiting = document.getElementById("queue");
/** A box to tick. */
export const TICK = { type: "checkbox" };

let blocked = {};
let queues = false;
let started = () => {};

/** Hears of each start. */
export function onStarted(listener) {
  started = listener;
}

/** Starts of this bucket wait (control-plane.md, UI). */
export function blockStarts(bucketId, reason = "") {
  blocked = { bucketId, reason };
  showBlocked();
}

/** Whether starts queue. */
export function queueing() {
  const onchange = ({ target }) => {
    queues = target.checked;
    showBlocked();
  };
  return tickBox("Queue what is started", { checked: queues, onchange });
}

function showBlocked(triggers = document.querySelectorAll("[data-starts]")) {
  for (const one of triggers) {
    const waits = one.dataset.starts === blocked.bucketId && !queues;
    one.disabled = waits || one.ariaBusy;
    one.title = waits ? blocked.reason : "";
  }
}

/** A button for an order. */
export function actionButton(page, label, order, { style, form, free = false, done = page.refresh } = {}) {
  const problem = alertPlace();
  const trigger = el("button", { type: form ? "submit" : "button", class: style }, label);
  const given = () => (typeof order === "string" ? { path: order } : made(order));
  const name = label.replace(" …", "");
  if (!free) trigger.dataset.starts = page.bucketId;

  async function act(event) {
    event.preventDefault();
    trigger.ariaBusy = true;
    showBlocked([trigger]);
    tell(problem, "");
    try {
      const now = given();
      const submit = () => send(page, name, now, done);
      await (now.says ? ask(questionOf(page, name, now, submit)) : submit());
    } catch (error) {
      tell(problem, `Cannot start: ${error.message}`, error.way);
    }
    trigger.ariaBusy = null;
    showBlocked([trigger]);
  }
  (form ?? trigger).addEventListener(form ? "submit" : "click", act);
  showBlocked([trigger]);
  const shell = { class: "sorter", title: "Copy as curl", "aria-label": `Copy ${name} as curl` };
  const copy = name === label && copying("$", () => commandOf(page, given()), shell, "✓");
  return el("div.start", el("div", trigger, " ", copy), problem);
}

async function send(page, name, { method = "POST", path, body = {} }, done) {
  const { bucketId } = page;
  const content = method === "DELETE" ? undefined : made(body);
  const start = async () => {
    const answer = await call(method, page.path(path), { body: content });
    if (answer.run_id) started(bucketId, answer.run_id);
    else done(answer);
  };
  try {
    await start();
  } catch (error) {
    const { runId } = error;
    if (!runId) throw error;
    const queue = () => startAfter(bucketId, runId, `${name} in ${page.nameOfBucket()}`, start);
    if (queues) return void queue();
    const later = button("Queue after this", () => {
      closeDialogs();
      later.parentElement.hidden = true;
      queue();
    });
    error.way = [" ", runLink(bucketId, runId, "Show that run"), " ", later];
    throw error;
  }
}

/** Takes back whatever waits. */
export function clearQueue() {
  waiting.replaceChildren();
}

async function startAfter(bucketId, runId, what, start) {
  const says = el("span");
  const takeBack = button("Take back", () => item.remove());
  const item = el("li", says, takeBack);
  waiting.append(item);
  for (let after = runId; item.isConnected; ) {
    says.replaceChildren(`${what}: queued, starts after `, runLink(bucketId, after, "this run"));
    await endOf(bucketId, after, item);
    if (!item.isConnected) return;
    try {
      await start();
      item.remove();
    } catch (error) {
      after = error.runId;
      if (after) continue;
      says.replaceChildren(el("span.why", `${what}: not started: ${error.message}`));
      return;
    }
  }
}

async function endOf(bucketId, runId, item) {
  let run = { status: "running" };
  while (run.status === "running" && item.isConnected) {
    await pause(LOOK_MS);
    run = await request("GET", bucketPath(bucketId, `/runs/${runId}`)).catch(() => run);
  }
}

function questionOf(page, name, given, submit) {
  const { action = name, title = `${action}?`, says, fields = [], danger } = given;
  const where = page.bucketId && `Bucket: ${page.nameOfBucket()}`;
  return {
    title,
    says: [...says, where],
    action,
    submit,
    danger,
    fields: [...fields, copyButton(page, given)],
    word: danger === true ? page.nameOfBucket() : danger,
  };
}

function made(one) {
  return typeof one === "function" ? one() : one;
}

function commandOf(page, { method = "POST", path, body = {}, example = body }) {
  const content = method === "DELETE" ? undefined : JSON.stringify(made(example));
  return curlOf(method, page.path(path), content);
}

/** A button to copy a text. */
export function copying(label, textOf, attributes, said = "Copied") {
  const act = async () => {
    const text = await textOf();
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = said;
      setTimeout(() => (copy.textContent = label), COPIED_MS);
    } catch {
      ask({ title: "Copy this", fields: textBox("Text", text), action: "Close", leave: "" });
    }
  };
  const copy = button(label, act, attributes);
  return copy;
}

/** Copies a request as a shell command. */
export function copyButton(page, order) {
  return el(
    "p",
    copying("Copy as curl", () => commandOf(page, order)),
  );
}

/** A short id to copy. */
export function short(id) {
  return copying(id.slice(0, 8), () => id, { class: "sorter code", title: `Copy ${id}` });
}

/** A link to a run. */
export function runLink(bucketId, runId, ...text) {
  return el("a", { href: link(bucketId, "runs", [runId]) }, text);
}

/** A box to tick, with its label. */
export function tickBox(label, { hint, ...attributes } = {}) {
  return el("label.tick", el("input", { ...TICK, ...attributes }), el("span", label, hint && el("small", hint)));
}

/** A choice of one. */
export function choice(label, options, chosen, onchange) {
  const all = options.map(([value, text]) => el("option", { value, selected: value === chosen }, text));
  return el("label.facet", `${label} `, el("select", { onchange }, all));
}

/** Fields by `[name, label, hint, attributes]`. */
export function fieldsOf(table) {
  const labels = table.map(([, label, hint = "", attributes = {}]) => {
    if (attributes.type === TICK.type) return tickBox(label, { ...attributes, hint });
    return el("label.field", el("span", label), inputOf(attributes), hint && el("small", hint));
  });
  const values = () => {
    const filled = table.map(([name], index) => [name, filledIn(labels[index].control)]);
    return Object.fromEntries(filled.filter(([, value]) => value !== undefined));
  };
  return { labels, values };
}

function inputOf({ options, rows, value, ...attributes }) {
  const plain = { autocomplete: "off", spellcheck: "false", ...attributes };
  const choices = options?.map((one) => el("option", one));
  if (choices) return el("select", attributes, choices);
  return rows ? el("textarea.code", { rows, ...plain }, value) : el("input", { value, ...plain });
}

function filledIn({ type, value, checked, files }) {
  if (type === TICK.type) return checked || undefined;
  if (type === "file") return files[0];
  if (value === "") return undefined;
  return type === "number" ? Number(value) : value;
}

/** A choice of some names. */
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

/** A choice of workers by name or label. */
export function workerSelection({ path }) {
  const note = el("p.hint", { role: "status" });
  const labels = picker("Labels", () => chosen(labels, names));
  const names = picker("Workers", () => chosen(names, labels));
  let workers = [];

  function chosen(now, before) {
    if (now.values()) before.clear();
    note.textContent = `Meant: ${text()}.`;
  }

  function meant() {
    const [wanted, tags] = [names.values(), labels.values()];
    const isMeant = (one) => wanted?.includes(one.worker_ip) ?? tags?.some((tag) => labelsOf(one).includes(tag)) ?? true;
    return workers.filter(isMeant).map(({ worker_ip }) => worker_ip);
  }

  function text() {
    const some = meant();
    const few = some.length <= FEW ? ` (${some.join(", ")})` : "";
    return `${count(some.length, "worker")}${few}`;
  }

  const values = () => ({ workers: names.values(), labels: labels.values() });

  function confirmed() {
    const some = meant();
    const { element, offer, values: kept } = picker(`On ${count(some.length, "worker")}`);
    offer(some, undefined, some);
    const left = () => (kept()?.length === some.length ? values() : { workers: kept() ?? [] });
    return { element, values: left };
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
  return { element, text, refresh, values, confirmed };
}

function labelsOf({ labels }) {
  return labels?.split(",").filter(Boolean) ?? [];
}

/** Asks, then cancels a run. */
export function cancelRun(bucketId, { id, kind }) {
  const path = `/runs/${id}/cancel`;
  return ask({
    title: "Cancel this run?",
    says: [`Stops ${kind}, after 10 seconds by force; what is done stays done.`],
    fields: [copyButton({ path: (rest) => bucketPath(bucketId, rest) }, { path })],
    action: "Yes, cancel it",
    leave: "Keep it running",
    danger: true,
    submit: () => call("POST", bucketPath(bucketId, path), { body: {} }),
  });
}
