// What stands above and below the lines of the log.
import { link } from "../base/api.js";
import { button, el, patch } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { clockTime, count, number, size, words } from "../base/text.js";
import { copying, popupButton } from "../parts/dialog.js";
import { tickBox } from "../parts/form.js";
import { icon, mark } from "../parts/state.js";

/** @typedef {import("./pane.js").LogPane} LogPane */

const TYPING_MS = 300;
/** What is shown of a line, and how: kept by the browser. */
const LOG_LOOKS = { times: "local", fold: true, places: false, wrap: false, place: true, tint: true, escapes: false };
const TIMES = [
  ["", "Off"],
  ["local", "Local"],
  ["UTC", "UTC"],
  ["run", "Since start"],
];
const TICKS = [
  ["wrap", "Wrap lines"],
  ["fold", "Fold equal lines"],
  ["places", "Fold the lines of each place"],
  ["place", "Job and worker"],
  ["tint", "Tint of stderr"],
  ["escapes", "Sequences for terminals as they are"],
];

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
  const [title, kinds, ways, state, orders] = ["log-title", "log-kinds", "log-ways", "log-state", "log-orders"].map((name) =>
    el(`div.${name}`),
  );
  const only = el("div.log-kinds");
  const copy = copying("Copy", () => pane.text(), { class: "plain" });
  const copyLink = copying("Copy link", () => new URL(pane.href(...pane.view.chosen), location.href).href, { class: "plain" });
  const copies = el("div.log-orders", { hidden: true }, copy, copyLink);
  const head = el(
    "header.log-head",
    title,
    el("div.log-tools", pane.find.element, el("div.log-filters", only, job, worker, kinds), ways),
  );
  const foot = el("footer.log-foot", state, copies, orders);
  function draw() {
    patch(title, logTitle(pane));
    patch(
      only,
      toggle("Only these lines", pane.filter.only, () => pane.set({ only: !pane.filter.only })),
    );
    patch(kinds, kindsOf(pane));
    patch(ways, waysOf(pane));
    patch(state, logState(pane));
    patch(orders, logOrders(pane));
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
  const { filter, map } = pane;
  const errors = [mark("failed"), "Errors ", el("b", number(map?.errors ?? 0))];
  const isOfStderr = filter.stream === "stderr";
  return [
    toggle(errors, filter.errors, () => pane.set({ errors: !filter.errors })),
    toggle("stderr", isOfStderr, () => pane.set({ stream: isOfStderr ? "" : "stderr" })),
  ];
}

function waysOf(pane) {
  const { looks, view, isWhole, around } = pane;
  const follow = toggle("Follow", view.following, () => pane.follow(!view.following));
  const whole = [
    toggle("Fold", looks.fold, () => change(pane, { fold: !looks.fold })),
    toggle("Wrap", looks.wrap, () => change(pane, { wrap: !looks.wrap })),
  ];
  const panel = [
    showButton(pane),
    button(icon("wide"), around.onWhole, { class: "small", "aria-label": "Log in the whole window" }),
    button(icon("close"), around.onClose, { class: "small quiet panel-only", "aria-label": "Close the log" }),
  ];
  return isWhole ? [whole, follow] : [follow, panel];
}

function showButton(pane) {
  return popupButton([el("span", "Show"), icon("more")], () => logMenu(pane), {
    class: "small show",
    "aria-label": "Show",
    key: "show",
  });
}

/** The run, and what is done with the whole log; only where the log fills the window. */
function logTitle(pane) {
  const { run, source, around } = pane;
  if (!run || !pane.isWhole) return el("h2", { key: "name" }, "Log");
  const ends = [run.started_at, run.finished_at].filter(Boolean).map(clockTime).join(" to ");
  const facts = [count(source.total, "line"), size(source.size), ends].filter(Boolean).join(", ");
  return [
    el("h2", { key: "run" }, mark(run.status), words(run.kind)),
    el("a.code", { href: link(source.bucketId, "runs", [run.id]), onclick: around.onWhole }, `…${run.id.slice(-8)}`),
    el("span.meta", { key: "where" }, pane.where),
    el("span.small.facts-of", facts),
    el("a.button.small", { href: pane.download(), download: "", key: "download" }, "Download"),
    timesOf(pane),
    showButton(pane),
    button([icon("close"), "Close ", el("kbd", "Esc")], around.onWhole, { class: "small", key: "close" }),
  ];
}

function timesOf(pane) {
  const options = TIMES.map(([times, label]) =>
    button(label, () => change(pane, { times }), { class: "small", "aria-pressed": String(pane.looks.times === times) }),
  );
  return el("div.choice", { role: "group", "aria-label": "Times" }, options);
}

function toggle(label, isOn, onclick) {
  return button(label, onclick, { class: "small toggle", "aria-pressed": String(isOn), key: typeof label === "string" && label });
}

/** @param {LogPane} pane */
function logMenu(pane) {
  const tick = (checked, label, onchange) => tickBox(label, { checked, onchange });
  const { filter, view } = pane;
  const narrow = [
    tick(view.following, "Follow", () => pane.follow(!view.following)),
    tick(filter.only, "Only lines that are found", () => pane.set({ only: !filter.only })),
    tick(filter.errors, "Only errors", () => pane.set({ errors: !filter.errors })),
  ];
  return [
    el("div.stack.show-log.log-narrow", narrow),
    el(
      "div.show-log",
      ...TICKS.map(([name, label]) => tick(pane.looks[name], label, ({ target }) => change(pane, { [name]: target.checked }))),
    ),
    menuTimes(pane),
    el("a.item", { href: pane.download(), download: "" }, pane.isNarrowed() ? "Download these lines" : "Download"),
  ];
}

function menuTimes(pane) {
  const box = el("div");
  const draw = () => box.replaceChildren(timesOf(pane));
  box.addEventListener("click", () => draw());
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
