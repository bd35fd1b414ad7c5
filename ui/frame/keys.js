import { address, link } from "../base/api.js";
import { alertPlace, button, el, facts } from "../base/dom.js";
import { prefer, preference } from "../base/preferences.js";
import { tell } from "../base/text.js";
import { ask, closeDialogs } from "../parts/dialog.js";
import { tickBox } from "../parts/form.js";
import { SECTIONS } from "../routes.js";
import { activity } from "./activity.js";

const CHORD_MS = 1_500;
/** A key does the first of its orders that can be done now: an element with `data-key` of the same name is clicked. */
const PLAIN = [
  { label: "These keys", key: "?", act: showKeys },
  { label: "Search in this view", key: "/", act: focusSearch },
  { label: "Find in the log", key: "f", act: activity.find },
  { label: "Log", key: "l", act: activity.toggle },
  { label: "Log in the whole window", key: "L", act: activity.fill },
  { label: "Next row", key: "j", act: () => step(1) },
  { label: "Row before", key: "k", act: () => step(-1) },
  { label: "Tick the row", key: "x", act: () => press(".current [type=checkbox]") },
  { label: "More orders", key: ".", act: () => press(".head .more") },
  { label: "Retry what failed", key: "r", act: () => press("[data-key=retry]") },
  { label: "Next error in the log", key: "e", act: () => activity.error(1) },
  { label: "Error before", key: "E", act: () => activity.error(-1) },
  { label: "Next match", key: "n", act: () => activity.match(1) },
  { label: "Match before", key: "N", act: () => activity.match(-1) },
  { label: "Go to a line of the log", key: ":", act: activity.askForLine },
  { label: "Go to a view", key: "g", act: () => (chord.since = Date.now()) },
];
const VIEWS = [
  { label: "Buckets", key: "b", act: () => (location.hash = "#/") },
  ...SECTIONS.map(({ name, rest, label, key }) => ({ label, key, act: () => goToView(name, rest) })),
];
const FIXED = [
  ["Ctrl K", "Go to anything, start anything"],
  ["Shift ↑ ↓", "The view before or after"],
  ["Shift ← →", "The tab before or after"],
  ["Enter", "Open the row or the cell"],
  ["Esc", "Close what is open"],
];
const ARROWS = { ArrowUp: ["#sections", -1], ArrowDown: ["#sections", 1], ArrowLeft: [".tabs", -1], ArrowRight: [".tabs", 1] };

const chord = { since: 0 };
const isOn = () => preference("letters", true);
const keyFor = ({ label, key }) => preference("keys", {})[label] ?? key;

/** Listens to the keys of the page. */
export function startKeys() {
  addEventListener("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey, shiftKey } = event;
    if (event.defaultPrevented || altKey || document.querySelector("dialog[open], [popover]:popover-open")) return;
    const isTyping = /** @type {Element} */ (target).matches?.("input:not([type=checkbox]), textarea, select");
    // The second Ctrl+F is the browser's.
    const isFind = key === "f" && !shiftKey;
    const isTaken = ctrlKey || metaKey ? isFind && activity.find() : !isTyping && ((shiftKey && shifted(event)) || act(event));
    if (isTaken) event.preventDefault();
  });
}

function act({ key }) {
  const isChord = Date.now() - chord.since < CHORD_MS;
  chord.since = 0;
  const one = (isChord ? VIEWS : PLAIN).find((known) => keyFor(known) === key);
  if (!one || !(isOn() || one.act === showKeys)) return false;
  return /** @type {any} */ (one.act()) !== false;
}

function goToView(name, rest) {
  const { bucketId } = address();
  if (bucketId) location.hash = link(bucketId, name, rest);
}

function focusSearch() {
  const field = /** @type {HTMLInputElement | null} */ (document.querySelector("main [type=search]"));
  if (!field) return activity.find();
  field.focus();
  field.select();
  return true;
}

function shifted({ key }) {
  const [nav, by] = ARROWS[key] ?? [];
  if (!by) return false;
  const links = [...document.querySelectorAll(`${nav} a`)];
  /** @type {HTMLElement | undefined} */ (links[links.findIndex((one) => one.ariaCurrent) + by])?.click();
  return links.length > 0;
}

function press(selector) {
  const found = /** @type {HTMLElement | null} */ (document.querySelector(`main ${selector}`));
  found?.click();
  return found !== null;
}

/** Moves the ground of the current row, and the focus to its link. */
function step(by) {
  const rows = [...document.querySelectorAll("main :is(tbody tr:not(.group), .attention li)")];
  const now = document.querySelector("main .current");
  const next = rows[now ? rows.indexOf(now) + by : by > 0 ? 0 : rows.length - 1];
  if (!next) return rows.length > 0;
  now?.classList.remove("current");
  next.classList.add("current");
  next.scrollIntoView({ block: "nearest" });
  next.querySelector("a")?.focus({ preventScroll: true });
  return true;
}

/** Shows all keys, where they can be changed or turned off. */
export function showKeys() {
  const problem = alertPlace();
  const fieldOf = (group) => (one) => {
    const field = el("input.key", { maxlength: 1, "aria-label": one.label, value: keyFor(one), onfocus: () => field.select() });
    field.oninput = () => {
      const key = field.value.trim();
      const taken = group.find((other) => other !== one && keyFor(other) === key);
      tell(problem, taken ? `${key} is taken: ${taken.label}` : "");
      if (key && !taken) prefer("keys", { ...preference("keys", {}), [one.label]: key });
      field.value = keyFor(one);
      field.select();
    };
    return [field, one.label];
  };
  const fixed = FIXED.map(([keys, text]) => [keys.split(" ").map((key) => el("kbd", key)), text]);
  const toggle = tickBox("Keys of one letter", { checked: isOn(), onchange: ({ target }) => prefer("letters", target.checked) });
  const reset = button("Reset the keys", () => {
    prefer("keys", {});
    closeDialogs();
    showKeys();
  });
  const plain = facts([...PLAIN.map(fieldOf(PLAIN)), ...fixed]);
  const list = el("div.keys", plain, facts(VIEWS.map(fieldOf(VIEWS))));
  ask({ title: "Keys", fields: [list, problem, toggle, el("p", reset)], action: "Close", leave: "", wide: true });
}
