// What needs attention in a bucket: one row for each cause, what happened in words, the worker's own line, what to press.
import { a, button, el } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { count, listed, number, plain, said, since } from "../base/text.js";
import { item, wayItem } from "./dialog.js";
import { showReason } from "./map/reason.js";
import { curlItem, moreMenu, orderButton } from "./order.js";
import { mark } from "./state.js";

/** So many rows are open at first, and so many unreachable workers have a row each. */
const [OPEN, EACH] = [5, 3];
/** What an action that failed means: before and behind the workers' names. */
const SAYS = {
  start: ["is down on", "it did not start"],
  restart: ["is down on", "it did not restart"],
  health_check: ["is down on", "its health check fails"],
  gate: ["failed its gate on"],
  reload: ["did not reload on"],
  stop: ["did not stop on"],
  sync: ["could not be brought to"],
  promote: ["could not be promoted on"],
  restore: ["could not be put back on"],
  restored: ["failed on", "it was put back"],
  remove: ["could not be removed from"],
  gc: ["could not be removed from"],
  unhealthy: ["is unhealthy on"],
  unreachable: ["could not be asked on"],
  drifted: ["was changed by hand on"],
};

/** How the reason of a gate begins; its action is the one that the gate came after. */
const OF_GATE = /^\S+ after \d+ attempts?: /;

/** What tells a problem from another one, in this browser. */
function problemKey(bucketId, { kind, job, action, workers }) {
  return [bucketId, kind, job ?? "", action, ...(job ? [] : workers)].join(" ");
}

/**
 * The problems as rows: those that are dismissed left out, many unreachable workers as one. `total` is how many there are.
 * @param {string} bucketId
 * @param {{ items: any[], cut: number }} problems
 * @param {boolean} withDismissed
 */
export function attentionRows(bucketId, { items, cut }, withDismissed = false) {
  const dismissed = preference("dismissed", {});
  const isDismissed = (one) => dismissed[problemKey(bucketId, one)] === one.run_id;
  const causes = items.filter((one) => !isLeftBy(one, items));
  const rows = silentFolded(causes.filter((one) => withDismissed || !isDismissed(one)));
  return { rows, dismissed: causes.filter(isDismissed).length, total: rows.length + cut, cut };
}

/** What a failure has left half-way belongs to its row. */
function isLeftBy(one, items) {
  const isCause = ({ kind, job, run_id: runId }) => kind === "failed" && job === one.job && runId === one.run_id;
  return one.kind === "unsettled" && items.some(isCause);
}

function silentFolded(items) {
  const silent = items.filter(({ kind, job }) => kind === "unreachable" && !job);
  if (silent.length <= EACH) return items;
  const [first] = silent;
  const together = {
    ...first,
    parts: silent,
    since: silent.map((one) => one.since).sort()[0],
    workers: silent.flatMap(({ workers }) => workers),
    worker_count: silent.reduce((sum, one) => sum + one.worker_count, 0),
    job_count: Math.max(...silent.map((one) => one.job_count)),
  };
  return items.flatMap((one) => (one === first ? together : silent.includes(one) ? [] : one));
}

/** Hides a row until it fails again. */
function dismiss(bucketId, one) {
  const kept = Object.entries(preference("dismissed", {})).slice(-200);
  const now = (one.parts ?? [one]).map((part) => [problemKey(bucketId, part), part.run_id]);
  prefer("dismissed", Object.fromEntries([...kept, ...now]));
}

/**
 * The panel with the rows.
 * @param {any} page
 * @param {ReturnType<typeof attentionRows>} attention
 * @param {{ isOpen: boolean, onOpen?: () => void, onDismiss: () => void, retryOrder: (job: string) => any,
 *   reasonOf: (problem: any) => string, places: { countsOf: (job: string) => any, whereOf?: (workers: string[]) => string } }} options
 */
export function attentionPanel(page, { rows, cut }, options) {
  if (rows.length === 0) return null;
  const shown = options.isOpen ? rows : rows.slice(0, OPEN);
  const left = rows.length - shown.length + cut;
  const more = left > 0 && rows.length > shown.length && button(`${number(left)} more`, options.onOpen, { class: "quiet" });
  const unread = options.isOpen && cut > 0 && el("p.meta", `${number(cut)} more are not shown.`);
  const list = el("ul", ...shown.map((one) => problemRow(page, one, options)));
  const about = { "aria-label": "Needs attention", key: "attention" };
  return el("section.panel.attention", about, list, (more || unread) && el("footer", more, unread));
}

/** @param {any} page @param {any} one @param {any} options */
function problemRow(page, one, { onDismiss, retryOrder, reasonOf, places }) {
  const { kind, job, workers, worker_count: workerCount, allocation_count: many } = one;
  const where = workerCount > EACH && workers.length === workerCount && places.whereOf?.(workers);
  const reason = reasonOf(one);
  const says = el("span.says", sentenceOf(page, one), where && [", ", said(where)]);
  says.title = says.textContent;
  const hide = () => {
    dismiss(page.bucketId, one);
    onDismiss();
  };
  const [again, order] = wayOut(one, retryOrder);
  const command = () => wayItem("Run a command there", page.link("command", [], { workers: workers.join() }));
  const more = () => (order ? [command(), curlItem(page, order)] : wayItem("Show the incidents", page.link("incidents")));
  const menu = () => [item("Dismiss", hide), more()];
  const onAll = many > 1 && job && el("small", ` · on all ${number(many)}`);
  return el(
    "li",
    { key: problemKey(page.bucketId, one) },
    mark(kind, { label: kind }),
    el(
      "div.what",
      el("p", says, " ", el("span.meta", since(one.since)), " ", el("span.meta", thenOf(one, places))),
      reason && el("code.reason", { tabindex: 0 }, said(reason), onAll),
    ),
    el(
      "div.controls",
      order && orderButton(page, again, order, { style: "small" }),
      one.run_id && button("Log", () => showReason(page, one), { class: "small" }),
      moreMenu(menu, "More orders for this problem"),
    ),
  );
}

/** What to press: a job is deployed again; what could not be reached, or is not well, is looked at again. */
function wayOut({ kind, job, aspect, workers, incident }, retryOrder) {
  if (incident) return ["", null];
  if (job && !aspect) return ["Retry …", retryOrder(job)];
  if (aspect === "files") return ["Check again", { path: "/drift", body: { jobs: [job], workers } }];
  if (job) return ["Check again", { path: "/health_check", body: { jobs: [job] } }];
  return [kind === "unreachable" ? "Try again" : "Check again", { path: "/workers/uptime", body: { workers } }];
}

function sentenceOf(page, { kind, job, action, reason, workers, worker_count: many, more, incident }) {
  if (incident) return el("b", said(incident.subject));
  const named = job && a(page.link("jobs", [job]), el("b", said(job)));
  const where = namesOf(page, workers, more ? `${number(many)} or more workers` : many > EACH && count(many, "worker"));
  if (kind === "unreachable" && !job) return [where, " cannot be reached"];
  if (kind === "soon") return [where, workers.length === 1 ? " has" : " have", " a high load"];
  if (kind === "unsettled") return [named, " was left half-way on ", where];
  const [before, after] = SAYS[action] ?? [`did not end ${plain(action)} on`];
  if (OF_GATE.test(reason)) return [named, ` ${SAYS.gate} `, where, action === "restored" && `: ${after}`];
  return [named, ` ${before} `, where, after && `: ${after}`];
}

/** Up to three names; of `many` the number, with the names as a title. */
function namesOf(page, workers, many) {
  if (many) return el("b", { title: plain(listed(workers, 20)) }, many);
  return workers.map((worker, index) => [
    index === 0 ? "" : index === workers.length - 1 ? " and " : ", ",
    a(page.link("workers", [worker]), el("b", said(worker))),
  ]);
}

/** What follows from it. */
function thenOf({ kind, job, job_count: jobs, aspect, incident }, places) {
  if (aspect || incident) return "";
  if (kind === "unreachable") return jobs > 0 ? `${count(jobs, "job")} went on regardless` : "";
  const { w: waiting = 0 } = places.countsOf(job);
  return waiting > 0 ? `${number(waiting)} more wait for a deploy` : "";
}
