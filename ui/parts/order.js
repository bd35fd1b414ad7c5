// Orders: what is asked of the server. A button asks first where the order says something, shows the order as curl, and
// waits where another run goes on in the bucket.
import { bucketPath, call, curlOf, link, pause, request } from "../base/api.js";
import { a, button, el } from "../base/dom.js";
import { has, lackedRole, needsRole, person } from "../base/person.js";
import { nameOf, since } from "../base/text.js";
import { ask, closeDialogs, copying, copyText, item, popupButton, toast } from "./dialog.js";
import { fieldsOf } from "./form.js";
import { freezeLine, isHeldBack } from "./freeze.js";
import { icon } from "./state.js";

/**
 * @typedef {object} Order
 * @property {string} [method] POST by default
 * @property {any} path below the bucket; path and body may be functions, of what is filled in
 * @property {any} [body] by default what is filled in
 * @property {any} [headers] like the body
 * @property {any[]} [asks] fields to fill in (see fieldsOf)
 * @property {any[]} [says] sentences of the question; without any the order is carried out at once
 * @property {any} [fields] more of the question: what changes and on how many
 * @property {boolean | string} [danger] the bucket's name, or this name, has to be typed, unless `word` is false
 * @property {false} [word]
 * @property {string} [leave] the word on the button that leaves the question
 * @property {string} [title] the question
 * @property {string} [action] the word on its button
 * @property {any} [example] the body for curl, where the body holds a secret
 * @property {number} [limitMs] how long the answer may take, in milliseconds
 */

/** The run in the way of starts: `{ bucketId, runId, kind, created_at }`, or null. */
let inTheWay = null;
/** Hears of each start. */
let onStart = (_bucketId, _runId) => {};
const LOOK_MS = 2_000;

/** Says who hears of each start. */
export function onStarted(listener) {
  onStart = listener;
}

/** Starts of this bucket wait for that run (control-plane.md, UI). */
export function blockStarts(run) {
  inTheWay = run;
  for (const one of document.querySelectorAll("[data-starts]")) showBlocked(one);
}

function blocking(bucketId) {
  return inTheWay?.bucketId === bucketId ? inTheWay : null;
}

function showBlocked(trigger) {
  const run = blocking(trigger.dataset.starts);
  trigger.ariaDisabled = run && "true";
  trigger.title = run ? `Not now: ${nameOf(run)} runs in this bucket` : "";
}

/**
 * A button for an order. One that the person may not give is left out, but for the first order of a view: that says why.
 * @param {any} page
 * @param {string} label ends in `…` where a question follows
 * @param {Order | (() => Order)} order
 * @param {{ style?: string, role?: string, free?: boolean, again?: boolean, done?: (answer: any) => void }} [options]
 *   `free`: it starts no run; `again`: it repeats what failed, and the key `r` presses the first such button
 */
export function orderButton(page, label, order, { style, role, free = false, again = false, done } = {}) {
  const lacked = lackedFor(order);
  if (lacked && style !== "primary") return null;
  if (lacked) {
    const title = needsRole("This", lacked);
    return popupButton(label, () => [el("p", title)], { class: style, "aria-disabled": "true", title });
  }
  // What was pressed may be an older element than `trigger`: see patch.
  const act = async ({ currentTarget: pressed }) => {
    const queue = () => give(page, label, order, { done, after: inTheWay?.runId });
    if (!free && blocking(page.bucketId)) return explain(pressed, page, queue);
    pressed.setAttribute("aria-busy", "true");
    await give(page, label, order, { done });
    pressed.removeAttribute("aria-busy");
  };
  const trigger = button([again && icon("again"), label], act, { class: style, role, "data-key": again && "retry" });
  if (free) return trigger;
  trigger.dataset.starts = page.bucketId;
  showBlocked(trigger);
  return trigger;
}

/** What an order needs and the person does not have; of an order that is made when it is given, only where it can matter. */
function lackedFor(order) {
  if (has("admin")) return undefined;
  const { path, body } = valueFor(order);
  return lackedRole({ path: valueFor(path, {}), body: typeof body === "function" ? undefined : body });
}

/** An entry of a menu for an order; null for one that the person may not give. */
export function orderItem(page, label, order, { dangerous = false, ...how } = /** @type {any} */ ({})) {
  return orderButton(page, label, order, { ...how, style: dangerous ? "item dangerous" : "item", role: "menuitem" });
}

/** The menu with the rarer orders of a thing. */
export function moreMenu(items, label = "More orders") {
  return popupButton(icon("more"), items, { menu: true, class: "more", "aria-label": label });
}

/** Copies an order as curl, as an entry of a menu. */
export function curlItem(page, order) {
  return item("Copy as curl", () => copyText(commandOf(page, filled(order)), () => toast("The command is copied.")));
}

/**
 * Gives an order, after its question. A failure is told in the question, or else in a toast. With `after`, the order waits
 * until that run has ended.
 * @param {any} page @param {string} label @param {any} order @param {{ done?: any, after?: string }} [options]
 */
export async function give(page, label, order, { done, after } = {}) {
  const given = filled(order);
  const start = starter(page, given, done);
  const submit = after
    ? async () => void startAfter(page.bucketId, after, label, start)
    : () => startOrOffer(page, label, given, start);
  try {
    await (given.says ? ask(questionOf(page, label, { ...given, submit, after })) : submit());
  } catch (error) {
    toast(`${withoutDots(label)}: ${error.message}`, { error: true, controls: error.way });
  }
}

function withoutDots(label) {
  return label.replace(/ …$/, "");
}

/** The function that sends an order. */
function starter(page, { method = "POST", path, body = {}, headers = undefined, limitMs = undefined }, done = page.refresh) {
  return async () => {
    const sent = method === "DELETE" ? undefined : valueFor(body);
    const answer = await call(method, page.path(valueFor(path)), { body: sent, headers: valueFor(headers), limitMs });
    if (answer.run_id) onStart(page.bucketId, answer.run_id);
    done?.(answer);
  };
}

/** The kinds of runs that a bucket may want approved. */
const APPROVED_KINDS = ["deploy", "rollback", "hooks", "run_command"];

/** The paths that start runs, where they are not called by the kind. */
const START_PATHS = {
  rollback: "/source/rollback",
  snapshot_create: "/snapshots",
  kv_rekey: "/kv/rekey",
  ca_rotate: "/ca/rotate",
  ssh_key_rotate: "/secrets/ssh_key/rotate",
};

/** The path that starts a run of a kind, but for those of one job. */
export function startPathOf(kind) {
  return START_PATHS[kind] ?? `/${kind.replace("worker_", "workers/")}`;
}

/** The ways on from a start that needs approval: to propose it. A deploy is proposed as its plan. */
function waysToApproval(page, label, { path, body = {} }) {
  const [kind, params] = [APPROVED_KINDS.find((one) => startPathOf(one) === valueFor(path)), valueFor(body)];
  const show = a(page.link("approvals"), "Show the proposals");
  if (kind === "deploy" && !params.plan) return [" Plan it first: a deploy is approved as its plan. ", show];
  if (!kind || params.proposal) return [" ", show];
  const order = { path: "/proposals", body: { kind, params } };
  const done = () => toast("It is proposed.", { controls: [show] });
  return [" ", wayOn("Propose it", () => give(page, label, order, { done })), " ", show];
}

/** A way on from a question that was refused. */
function wayOn(label, act, attributes = {}) {
  const go = () => {
    closeDialogs();
    act();
  };
  return button(label, go, attributes);
}

/** The way of an admin past what holds a start back: everybody sees the reason. */
function breakingGlass(page, label, { path, body }) {
  const order = {
    path,
    body: () => valueFor(body),
    says: ["Starts the run all the same. The run, its log and the audit show who did it and why."],
    asks: [{ name: "reason", label: "Reason", required: true, maxlength: 200 }],
    headers: ({ reason }) => ({ "Ops-Break-Glass": encodeURIComponent(reason) }),
    danger: true,
    action: "Break the glass",
  };
  return [" ", wayOn("Break the glass …", () => give(page, label, order), { class: "danger" })];
}

/**
 * Starts; a refusal for a run in the way leads to that run, and offers to wait for its end. One for want of approval offers
 * to propose the run, and one that an admin may pass offers that.
 */
async function startOrOffer(page, label, given, start) {
  const { bucketId } = page;
  try {
    await start();
  } catch (error) {
    const { runId, code } = error;
    if (code === "approval_required") error.way = waysToApproval(page, label, given);
    if (["approval_required", "frozen"].includes(code) && has("admin"))
      error.way = [error.way, breakingGlass(page, label, given)];
    if (!runId) throw error;
    const later = wayOn("Queue after it", () => startAfter(bucketId, runId, label, start));
    error.way = [" ", a(link(bucketId, "runs", [runId]), "Show that run"), " ", later];
    throw error;
  }
}

/** Says beside a button why its order cannot be given now. */
function explain(trigger, page, queue) {
  const { created_at: begun, runId } = inTheWay;
  const show = el("a.button.small", { href: link(page.bucketId, "runs", [runId]) }, "Show that run");
  const says = () => [
    el("p", `Not now: ${nameOf(inTheWay)} runs in this bucket `, since(begun), "."),
    el("div.controls", show, button("Queue after it", queue, { class: "small item" })),
  ];
  const why = popupButton("", says, { "aria-label": "Why" });
  // A menu closes before the reason opens.
  const place = trigger.getBoundingClientRect();
  why.getBoundingClientRect = () => place;
  why.click();
}

/** Starts something once a run has ended, unless it is taken back. */
async function startAfter(bucketId, runId, label, start) {
  let isWanted = true;
  const takeBack = () => {
    isWanted = false;
    told.close();
  };
  const controls = [button("Take back", takeBack)];
  const told = toast(`${withoutDots(label)} starts after the run that goes on.`, { controls });
  for (let after = runId; after; ) {
    await pause(LOOK_MS);
    const run = await request("GET", bucketPath(bucketId, `/runs/${after}`)).catch(() => null);
    if (!isWanted) return;
    if (run && run.status !== "running") after = await startNow(label, start);
  }
  told.close();
}

/** Starts, or says why not; answers the run that is in the way again. */
async function startNow(label, start) {
  try {
    await start();
  } catch (error) {
    if (error.runId) return error.runId;
    toast(`${withoutDots(label)} was not started: ${error.message}`, { error: true });
  }
  return undefined;
}

function questionOf(page, label, given) {
  const { action = withoutDots(label), title = `${action}?`, danger, after, path, body } = given;
  const { word = danger === true ? page.nameOfBucket() : danger } = given;
  const freeze = isHeldBack({ path: valueFor(path), body: valueFor(body) }) && freezeLine(page.bucket?.());
  const asked = { title, action: after ? "Queue after it" : action, danger: Boolean(danger), word };
  const foot = copying("Copy as curl", () => commandOf(page, given), { class: "quiet" });
  return { ...given, ...asked, fields: [freeze, given.fields], foot };
}

/** The order with its fields. */
function filled(order) {
  const given = valueFor(order);
  if (!given.asks) return given;
  const { labels, values } = fieldsOf(given.asks);
  const { path, body = (typed) => typed, headers } = given;
  const ofTyped = (one) => () => valueFor(one, values());
  return { ...given, fields: [given.fields, labels], path: ofTyped(path), body: ofTyped(body), headers: ofTyped(headers) };
}

function valueFor(one, values) {
  return typeof one === "function" ? one(values) : one;
}

function commandOf(page, { method = "POST", path, body = {}, example = body, headers = undefined }) {
  const content = method === "DELETE" ? undefined : JSON.stringify(valueFor(example));
  return curlOf(method, page.path(valueFor(path)), content, { "Content-Type": "application/json", ...valueFor(headers) });
}

/** The button that cancels a run; null for one that the person may not cancel. */
export function cancelButton(page, { id, kind, audit }, attributes = {}) {
  const isOwn = audit[0]?.actor.name === person.name;
  if (!has(isOwn ? "operate" : "deploy")) return null;
  const order = {
    path: `/runs/${id}/cancel`,
    title: `Cancel this ${kind.replaceAll("_", " ")}?`,
    says: ["It stops what runs now, after 10 seconds by force. What is done stays done."],
    ...{ danger: true, word: false, action: "Cancel the run", leave: "Keep it running" },
  };
  return button("Cancel …", () => give(page, "Cancel …", order), attributes);
}
