// What stands above and below the lines of the log.
import { link } from "../base/api.js";
import { button, el, patch } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { clockTime, count, nameOf, number, size } from "../base/text.js";
import { copying, popupButton } from "../parts/dialog.js";
import { choiceBar, tickBox } from "../parts/form.js";
import { icon, mark } from "../parts/state.js";

/** @typedef {import("./pane.js").LogPane} LogPane */

const TYPING_MS = 300;
/** What is shown of a line, and how: kept by the browser. */
const LOG_LOOKS = { times: "local", fold: true, places: false, wrap: false, place: true, tint: true, escapes: false };
const TIMES = Object.entries({ "": "Off", local: "Local", UTC: "UTC", run: "Since start" });
const NARROWING = { follow: "Follow", only: "Only lines that are found", errors: "Only errors" };
const TICKS = {
  wrap: "Wrap lines",
  fold: "Fold equal lines",
  places: "Fold the lines of each place",
  place: "Job and worker",
  tint: "Tint of stderr",
  escapes: "Sequences for terminals as they are",
};

/** How the log looks, as this browser remembers. */
export function keptLooks() {
  const kept = preference("log", {});
  return Object.fromEntries(Object.entries(LOG_LOOKS).map(([name, otherwise]) => [name, kept[name] ?? otherwise]));
}

/**
 * The tools. What a person types into stays where it is, all else is drawn again.
 * @param {LogPane} pane
 */
export function toolsOf(pane) {
  const narrow = () => pane.narrow({ job: job.field.value.trim(), worker: worker.field.value.trim() });
  const [job, worker] = ["job", "worker"].map((name) => placeField(pane, name, narrow));
  const only = () => toggle(pane, "only", "Only these lines");
  const drawn = { title: logTitle, only, kinds: kindsOf, ways: waysOf, state: logState, orders: logOrders };
  const places = Object.fromEntries(Object.keys(drawn).map((name) => [name, el(`div.log-${name}`)]));
  const copy = copying("Copy", () => pane.text(), { class: "plain" });
  const copyLink = copying("Copy link", () => new URL(pane.href(...pane.view.chosen), location.href).href, { class: "plain" });
  const copies = el("div.log-orders", { hidden: true }, copy, copyLink);
  const filters = el("div.log-filters", places.only, job, worker, places.kinds);
  const head = el("header.log-head", places.title, el("div.log-tools", pane.find.element, filters, places.ways));
  const foot = el("footer.log-foot", places.state, copies, places.orders);
  function draw() {
    for (const [name, content] of Object.entries(drawn)) patch(places[name], content(pane));
    copies.hidden = pane.view.chosen.length === 0;
  }
  return { head, foot, draw, fields: { job: job.field, worker: worker.field } };
}

/** A field for the name of a job or a worker, which offers the names seen. */
function placeField(pane, name, narrow) {
  let typing = 0;
  const offer = () => list.replaceChildren(...pane.names(name).map((value) => el("option", { value })));
  const attributes = { type: "search", list: `log-${name}s`, placeholder: `Any ${name}`, "aria-label": `Only this ${name}` };
  const field = el("input", { ...attributes, autocomplete: "off", spellcheck: "false", onfocus: offer });
  const list = el("datalist", { id: `log-${name}s` });
  field.oninput = () => {
    clearTimeout(typing);
    typing = window.setTimeout(narrow, TYPING_MS);
  };
  return Object.assign(el("span.log-place", field, list), { field });
}

function kindsOf(pane) {
  const errors = [mark("failed"), "Errors ", el("b", number(pane.map?.errors ?? 0))];
  return [toggle(pane, "errors", errors), toggle(pane, "stderr", "stderr")];
}

function waysOf(pane) {
  const { isWhole, around } = pane;
  const follow = toggle(pane, "follow", "Follow");
  const whole = [toggle(pane, "fold", "Fold"), toggle(pane, "wrap", "Wrap")];
  const panel = [
    showButton(pane),
    button(icon("wide"), around.onWhole, { class: "small", "aria-label": "Log in the whole window" }),
    button(icon("close"), around.onClose, { class: "small quiet panel-only", "aria-label": "Close the log" }),
  ];
  return isWhole ? [whole, follow] : [follow, panel];
}

function showButton(pane) {
  const about = { class: "small show", "aria-label": "Show", key: "show" };
  return popupButton([el("span", "Show"), icon("more")], () => logMenu(pane), about);
}

/** The run, and what is done with the whole log; only where the log fills the window. */
function logTitle(pane) {
  const { run, source, around } = pane;
  if (!run || !pane.isWhole) return el("h2", { key: "name" }, "Log");
  const ends = [run.started_at, run.finished_at].filter(Boolean).map(clockTime).join(" to ");
  const facts = [count(source.total, "line"), size(source.size), ends].filter(Boolean).join(", ");
  return [
    el("h2", { key: "run" }, mark(run.status), nameOf(run)),
    el("a.code", { href: link(source.bucketId, "runs", [run.id]), onclick: around.onWhole }, `…${run.id.slice(-8)}`),
    el("span.meta", { key: "where" }, pane.where),
    el("span.small.facts-of", facts),
    el("a.button.small", { href: pane.download(), download: "", key: "download" }, "Download"),
    timesOf(pane),
    showButton(pane),
    button([icon("close"), "Close ", el("kbd", "Esc")], around.onWhole, { class: "small close", key: "close" }),
  ];
}

function timesOf(pane) {
  return choiceBar("Times", TIMES, pane.looks.times, (times) => change(pane, { times }));
}

/** Whether a switch of the tools or of the menu is on. */
function isTurnedOn({ view, filter, looks }, name) {
  return { follow: view.following, stderr: filter.stream === "stderr", ...filter, ...looks }[name];
}

function turn(pane, name) {
  const now = !isTurnedOn(pane, name);
  if (name === "follow") pane.follow(now);
  else if (name === "stderr") pane.set({ stream: now ? name : "" });
  else if (name in LOG_LOOKS) change(pane, { [name]: now });
  else pane.set({ [name]: now });
}

function toggle(pane, name, label) {
  const about = { class: "small toggle", "aria-pressed": String(isTurnedOn(pane, name)), key: name };
  return button(label, () => turn(pane, name), about);
}

/** @param {LogPane} pane */
function logMenu(pane) {
  const ticks = (names) =>
    Object.entries(names).map(([name, label]) =>
      tickBox(label, { checked: isTurnedOn(pane, name), onchange: () => turn(pane, name) }),
    );
  return [
    el("div.stack.show-log", ticks(NARROWING)),
    el("div.show-log", ticks(TICKS)),
    menuTimes(pane),
    el("a.item", { href: pane.download(), download: "" }, pane.isNarrowed() ? "Download these lines" : "Download"),
  ];
}

function menuTimes(pane) {
  const box = el("div");
  const draw = () => box.replaceChildren(timesOf(pane));
  box.onclick = draw;
  draw();
  return box;
}

function change(pane, looks) {
  prefer("log", { ...preference("log", {}), ...looks });
  pane.change(looks);
}

function logState(pane) {
  const { source, run, view, isWhole } = pane;
  if (!source || !run) return [];
  const [from, to] = view.chosen;
  const total = count(source.total, "line");
  const lines = isWhole && source.total > 0 ? ["Line ", el("b", number(view.seen()[0])), ` of ${total}`] : total;
  const chosen = from !== undefined && (from === to ? `line ${number(from)} chosen` : `${number(to - from + 1)} lines chosen`);
  return [mark(run.status, { label: run.status }), el("span", lines), el("span", { key: "chosen" }, chosen)];
}

function logOrders(pane) {
  const { source, map, view, isWhole } = pane;
  if (!source) return [];
  const order = (label, key, act, name) => button([label, el("kbd", key)], act, { class: `plain ${name ?? ""}`, key });
  return [
    map?.errors > 0 && order([mark("failed"), count(map.errors, "error")], "E", () => pane.error(1), "failed"),
    isWhole && order("Go to line", ":", () => pane.askForLine()),
    order("Head", "Home", () => view.go(1, { choose: false })),
    order("Tail", "End", () => view.go(Infinity)),
  ];
}
