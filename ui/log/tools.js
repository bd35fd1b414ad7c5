// What stands above and below the lines of the log.
import { link } from "../base/api.js";
import { button, el } from "../base/dom.js";
import { clockTime, count, number, size, words } from "../base/format.js";
import { prefer, preference } from "../base/preferences.js";
import { copying } from "../parts/copy.js";
import { opener } from "../parts/dialog.js";
import { tickBox } from "../parts/form.js";
import { icon, mark } from "../parts/state.js";

/** @typedef {import("./pane.js").LogPane} LogPane */

const TYPING_MS = 300;
/** What is shown of a line, and how: kept by the browser. */
const LOOKS = { times: "local", fold: true, places: false, wrap: false, place: true, tint: true, escapes: false };
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

export function keptLooks() {
  const kept = preference("log", {});
  return Object.fromEntries(Object.entries(LOOKS).map(([name, otherwise]) => [name, kept[name] ?? otherwise]));
}

/** The parts of the tools that stay: a person types into them or has opened them. @param {LogPane} pane */
export function partsOf(pane) {
  const show = opener([el("span", "Show"), icon("more")], () => menuOf(pane), { class: "small show" });
  const parts = { show, job: placeField(pane, "job"), worker: placeField(pane, "worker") };
  for (const part of Object.values(parts)) part.own = true;
  return parts;
}

/** A field for the name of a job or a worker, which offers the names seen. */
function placeField(pane, name) {
  let typing = 0;
  const narrow = () => pane.narrow({ ...pane.filter, [name]: field.value.trim() });
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

/** @param {LogPane} pane */
export function headOf(pane) {
  const { filter, looks, view, parts, around } = pane;
  const filters = el(
    "div.log-filters",
    toggle("Only these lines", filter.only, () => pane.set({ only: !filter.only })),
    ...[parts.job, parts.worker],
    toggle([mark("failed"), "Errors ", el("b", number(pane.map?.errors ?? 0))], filter.errors, () =>
      pane.set({ errors: !filter.errors }),
    ),
    toggle("stderr", filter.stderr, () => pane.set({ stderr: !filter.stderr })),
  );
  const ways = el(
    "div.log-ways",
    toggle("Fold", looks.fold, () => change(pane, { fold: !looks.fold }), "fold"),
    toggle("Wrap", looks.wrap, () => change(pane, { wrap: !looks.wrap }), "wrap"),
    toggle("Follow", view.following, () => pane.follow(!view.following), "follow"),
    el("span.log-only-part", { key: "show" }, parts.show),
    button(icon("wide"), around.onWhole, { class: "small log-only-part", "aria-label": "Log in the whole window", key: "wide" }),
    button(icon("close"), around.onClose, { class: "small quiet log-only-panel", "aria-label": "Close the log", key: "close" }),
  );
  return [titleOf(pane), el("div.log-tools", { key: "tools" }, pane.find.element, filters, ways)];
}

/** The run, and what is done with the whole log; only where the log fills the window. */
function titleOf(pane) {
  const { run, source, around } = pane;
  if (!run || !pane.isWhole) return el("h2.log-name", { key: "name" }, "Log");
  const ends = [run.started_at, run.finished_at].filter(Boolean).map(clockTime).join(" to ");
  const facts = [count(source.total, "line"), size(source.size), ends].filter(Boolean).join(", ");
  return el(
    "div.log-title",
    { key: "title" },
    el("h2", mark(run.status), words(run.kind)),
    el("a.code", { href: link(source.bucketId, "runs", [run.id]), onclick: around.onClose }, `…${run.id.slice(-8)}`),
    ...[el("span.meta", pane.where), el("span.small.facts-of", facts)],
    el("a.button.small", { href: pane.download(), download: "" }, "Download"),
    timesOf(pane),
    pane.parts.show,
    button([icon("close"), "Close"], around.onWhole, { class: "small" }),
    el("kbd", "Esc"),
  );
}

function timesOf(pane) {
  const options = TIMES.map(([times, label]) =>
    button(label, () => change(pane, { times }), { class: "small", "aria-pressed": String(pane.looks.times === times) }),
  );
  return el("div.choice", { role: "group", "aria-label": "Times" }, options);
}

function toggle(label, isOn, onclick, key) {
  return button(label, onclick, { class: "small toggle", "aria-pressed": String(isOn), key: key ?? String(label) });
}

/** @param {LogPane} pane */
function menuOf(pane) {
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
      TICKS.map(([name, label]) => tick(pane.looks[name], label, ({ target }) => change(pane, { [name]: target.checked }))),
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

/** @param {LogPane} pane */
export function footOf(pane) {
  const { source, run, view, map } = pane;
  if (!source) return [];
  const [first] = view.seen();
  const [from, to] = view.chosen;
  const lines = from === undefined ? 0 : to - from + 1;
  const key = (name) => el("kbd", name);
  return [
    run && mark(run.status, { label: run.status }),
    el(
      "span",
      source.total > 0 && pane.isWhole
        ? ["Line ", el("b", number(first)), ` of ${number(source.total)}`]
        : count(source.total, "line"),
    ),
    lines > 0 && el("span", lines === 1 ? `line ${number(from)}` : `${number(lines)} lines chosen`),
    lines > 0 && pane.parts.copy,
    lines > 0 && pane.parts.copyLink,
    el("span.space"),
    map?.errors > 0 &&
      button([mark("failed"), count(map.errors, "error"), key("E")], () => pane.error(1), {
        class: "plain failed",
        key: "errors",
      }),
    button(["Go to line", key(":")], () => pane.askForLine(), { class: "plain log-only-whole", key: "line" }),
    button(["Head", key("Home")], () => view.go(1, { choose: false }), { class: "plain", key: "head" }),
    button(["Tail", key("End")], () => view.go(Infinity), { class: "plain", key: "tail" }),
  ];
}

/** Buttons that copy the lines that are chosen, and their address. @param {LogPane} pane */
export function copiesOf(pane) {
  const copy = copying("Copy", () => pane.text(), { class: "plain" });
  const copyLink = copying("Copy link", () => new URL(pane.href(...pane.view.chosen), location.href).href, { class: "plain" });
  for (const one of [copy, copyLink]) one.own = true;
  return { copy, copyLink };
}
