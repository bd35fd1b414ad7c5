import { findInLog } from "./activity.js";
import { address, bucketPath, link } from "./api.js";
import { bucketsView, catalogView, deploymentsView, overviewView } from "./bucket.js";
import { actionButton, choice, runLink, tickBox } from "./controls.js";
import { el, openDialog } from "./dom.js";
import { commandView, hooksView, jobsView, jobView, workersView } from "./fleet.js";
import { status, words } from "./format.js";
import { prefer } from "./preferences.js";
import { runView } from "./run.js";
import { runsView } from "./runs.js";
import { sourceView } from "./source.js";

/** The views of a bucket; `key` comes after `g`, `one` shows one of its kind. */
export const SECTIONS = [
  { name: "", label: "Overview", key: "o", view: overviewView },
  { name: "deployments", label: "Deployments", key: "d", view: deploymentsView },
  { name: "jobs", label: "Jobs", key: "j", view: jobsView, one: jobView },
  { name: "workers", label: "Workers", key: "w", view: workersView },
  { name: "runs", label: "Runs", key: "r", view: runsView, one: runView },
  { name: "command", label: "Run command", key: "c", view: commandView },
  { name: "hooks", label: "Hooks", key: "h", view: hooksView },
  { name: "catalog", label: "Catalog", key: "k", view: catalogView },
  { name: "source", label: "Source", key: "s", view: sourceView },
];

const CHORD_MS = 1_500;
const OTHERS = [
  ["/", "Search in this view (in Activity: in the log)"],
  ["f", "Find in the log of Activity"],
  ["Shift ↑ ↓", "The view before or after"],
  ["Shift ← →", "The tab before or after"],
  ["g b", "Buckets"],
  ["?", "These keys"],
  ["Esc", "Close what is open"],
];

const ARROWS = {
  ...{ ArrowUp: ["#sections", -1], ArrowDown: ["#sections", 1] },
  ...{ ArrowLeft: [".tabs", -1], ArrowRight: [".tabs", 1] },
};
const SCHEMES = [
  ["", "as the system has them"],
  ["light", "light"],
  ["dark", "dark"],
];

let enabled = true;
let pending = 0;
const header = document.getElementById("subject");
const sections = document.getElementById("sections");

/** Draws the view that an address names; answers `{ title, refresh }`. */
export function viewAt(main, { bucketId, ...place }) {
  const page = {
    ...{ bucketId, ...place },
    path: (rest) => (bucketId ? bucketPath(bucketId, rest) : rest),
    link: (...rest) => link(bucketId, ...rest),
    action: (...about) => actionButton(page, ...about),
    tabs: (...about) => tabsOf(page, ...about),
  };
  const {
    title,
    parts = [],
    above = [],
    readers = [],
    back,
    heading = el("h1", title),
  } = viewOf(place, bucketId)(page);
  const elements = parts.map((one) =>
    Array.isArray(one)
      ? el(
          "div.columns",
          one.map(({ element }) => element),
        )
      : one.element,
  );
  const crumb = back ? [el("p.crumb", el("a", { href: page.link(back) }, `All ${back}`))] : [];
  main.replaceChildren(...crumb, heading, ...above, ...elements);
  return { title, refresh: () => Promise.all([...parts.flat(), ...readers].map((one) => one.refresh())) };
}

function viewOf({ known, view, rest }, bucketId) {
  if (known && bucketId === undefined) return bucketsView;
  const section = known && SECTIONS.find(({ name }) => name === view);
  if (section) return rest.length > 0 && section.one ? section.one : section.view;
  const way = el("p", el("a", { href: "#/" }, "Go to the buckets"));
  return () => ({ title: "There is no such page", above: [way] });
}

function tabsOf(page, view, labels, chosen, before = []) {
  const links = Object.entries(labels).map(([name, label]) =>
    el("a", { href: page.link(view, [...before, name]), "aria-current": name === chosen && "page" }, label),
  );
  return el("nav.tabs", { "aria-label": words(view) }, links);
}

/** Draws where the page is, the way to other views and buckets, and what runs. */
export function drawSubject({ bucketId, view }, bucket, buckets) {
  header.hidden = bucketId === undefined;
  sections.hidden = bucketId === undefined;
  if (bucketId === undefined) return;
  const linkOf = ({ name, label, key }) => {
    const current = name === view && "page";
    return el("a", { href: link(bucketId, name), title: `g ${key}`, "aria-current": current }, label);
  };
  const content = JSON.stringify([bucketId, view, bucket, buckets.length]);
  if (header.dataset.content === content) return;
  header.dataset.content = content;
  sections.replaceChildren(...SECTIONS.map(linkOf));
  const { project = "…", active_run: active, last_run: last } = bucket ?? {};
  const running = active && last?.id === active ? words(last.kind) : "A run";
  const now = active && [
    runLink(bucketId, active, status("running"), ` ${running}`),
    ": starts wait for its end",
  ];
  const switcher = switcherOf(bucketId, view, bucket, buckets);
  const where = [el("a", { href: "#/" }, "Buckets"), el("span", ` / ${project} / `), switcher];
  header.replaceChildren(el("nav", { "aria-label": "Where this is" }, where), el("p.now", now));
}

function switcherOf(bucketId, view, bucket, buckets) {
  const known = buckets.some(({ id }) => id === bucketId)
    ? buckets
    : [bucket ?? { id: bucketId, name: bucketId }];
  const options = known.map(({ id, project, name }) => {
    const label = bucket && project !== bucket.project ? `${project} / ${name}` : name;
    return el("option", { value: id, selected: id === bucketId }, label);
  });
  const change = ({ target }) => {
    location.hash = link(target.value, view);
  };
  return el("select", { "aria-label": "Bucket", onchange: change }, options);
}

/** Listens to the keys of the whole page. */
export function startKeys() {
  document.getElementById("help").addEventListener("click", showKeys);
  addEventListener("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey, shiftKey } = event;
    if (event.defaultPrevented || altKey || document.querySelector("dialog[open]")) return;
    const isTyping = target.matches?.("input:not([type=checkbox]), textarea, select");
    // Pressed again there, Ctrl+F is the browser's.
    const isFind = key === "f" && !shiftKey;
    const isTaken =
      ctrlKey || metaKey
        ? isFind && findInLog()
        : !isTyping && ((shiftKey && step(key)) || act(key, target.closest?.("#activity")));
    if (isTaken) event.preventDefault();
  });
}

function act(key, isInLog) {
  if (key === "?") return showKeys();
  if (!enabled) return false;
  if (Date.now() - pending < CHORD_MS) return go(key);
  if (key === "g") pending = Date.now();
  if (key === "g") return true;
  const search = document.querySelector("main [data-search]");
  if (key === "f" || (key === "/" && (isInLog || !search))) return findInLog();
  if (key !== "/") return false;
  search.focus();
  search.select();
  return true;
}

function step(key) {
  const [nav, by] = ARROWS[key] ?? [];
  const links = by ? [...document.querySelectorAll(`${nav} a`)] : [];
  links[links.findIndex((one) => one.ariaCurrent) + by]?.click();
  return links.length > 0;
}

function go(key) {
  pending = 0;
  const { bucketId } = address();
  const section = SECTIONS.find((one) => one.key === key);
  if (key === "b") location.hash = "#/";
  else if (section && bucketId) location.hash = link(bucketId, section.name);
  else return false;
  return true;
}

function showKeys() {
  const rows = [...OTHERS, ...SECTIONS.map(({ key, label }) => [`g ${key}`, label])];
  const keysOf = (keys) => keys.split(" ").map((key) => el("kbd", key));
  const toggle = tickBox("Keys of one letter", {
    checked: enabled,
    hint: "Where they get in the way of a screen reader or of speech",
    onchange: () => (enabled = toggle.control.checked),
  });
  const root = document.documentElement.style;
  const scheme = choice("Colours", SCHEMES, root.colorScheme, ({ target }) => {
    root.colorScheme = target.value;
    prefer("colours", target.value);
  });
  const list = rows.map(([keys, text]) => el("div", el("dt", keysOf(keys)), el("dd", text)));
  openDialog(
    "Keys",
    el("form", { method: "dialog" }, el("dl.keys", list), toggle, scheme, el("button.primary", "Close")),
  );
  return true;
}
