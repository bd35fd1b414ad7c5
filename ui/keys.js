import { findInLog } from "./activity.js";
import { address, link } from "./api.js";
import { choice, tickBox } from "./controls.js";
import { alertPlace, ask, button, closeDialogs, el, facts, tell } from "./dom.js";
import { prefer, preference } from "./preferences.js";
import { SECTIONS } from "./routes.js";

const CHORD_MS = 1_500;
const PLAIN = [
  { label: "These keys", key: "?", act: showKeys },
  { label: "Search in this view", key: "/", act: search },
  { label: "Find in the log", key: "f", act: findInLog },
  { label: "Go to a view", key: "g", act: () => (pending = Date.now()) },
];
const VIEWS = [
  { label: "Buckets", key: "b", act: () => (location.hash = "#/") },
  ...SECTIONS.map(({ name, rest, label, key }) => {
    const act = () => {
      const { bucketId } = address();
      if (bucketId) location.hash = link(bucketId, name, rest);
    };
    return { label, key, act };
  }),
];
const FIXED = [
  ["Shift ↑ ↓", "The view before or after"],
  ["Shift ← →", "The tab before or after"],
  ["Shift 1 … 9", "The row with this number"],
  ["Esc", "Close what is open"],
];
const ARROWS = { ArrowUp: ["#sections", -1], ArrowDown: ["#sections", 1], ArrowLeft: [".tabs", -1], ArrowRight: [".tabs", 1] };
const SCHEMES = ["", "light", "dark"].map((one) => [one, one || "system"]);

let pending = 0;

const isOn = () => preference("letters", true);
const keyOf = ({ label, key }) => preference("keys", {})[label] ?? key;

/** Listens to the keys of the page. */
export function startKeys() {
  document.getElementById("help").addEventListener("click", showKeys);
  addEventListener("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey, shiftKey } = event;
    if (event.defaultPrevented || altKey || document.querySelector("dialog[open]")) return;
    const isTyping = target.matches?.("input:not([type=checkbox]), textarea, select");
    // The second Ctrl+F is the browser's.
    const isFind = key === "f" && !shiftKey;
    const isTaken = ctrlKey || metaKey ? isFind && findInLog() : !isTyping && ((shiftKey && shifted(event)) || act(event));
    if (isTaken) event.preventDefault();
  });
  for (const end of ["keyup", "blur"]) addEventListener(end, ({ key = "Shift" }) => key === "Shift" && number([]));
}

function act({ key, target }) {
  const isChord = Date.now() - pending < CHORD_MS;
  pending = 0;
  const one = (isChord ? VIEWS : PLAIN).find((known) => keyOf(known) === key);
  const isMeant = one && (isOn() || one.act === showKeys);
  if (isMeant) one.act(target);
  return isMeant;
}

function search(target) {
  const field = document.querySelector("main [type=search]");
  if (!field || target.closest("#activity")) return findInLog();
  field.focus();
  field.select();
}

function shifted({ key, code }) {
  const [nav, by] = ARROWS[key] ?? [];
  if (by) {
    const links = [...document.querySelectorAll(`${nav} a`)];
    links[links.findIndex((one) => one.ariaCurrent) + by]?.click();
    return links.length > 0;
  }
  if (!isOn()) return false;
  const rows = rowsInSight();
  if (key === "Shift") number(rows);
  const row = rows[/^Digit([1-9])$/.exec(code)?.[1] - 1];
  row?.querySelector("a").click();
  return row !== undefined;
}

function rowsInSight() {
  const rows = [...document.querySelectorAll("main tbody tr:has(a)")];
  const isSeen = (row) => {
    const { top } = row.getBoundingClientRect();
    return top >= 0 && top < innerHeight;
  };
  return rows.filter(isSeen).slice(0, 9);
}

function number(rows) {
  for (const row of document.querySelectorAll("[data-number]")) delete row.dataset.number;
  for (const [index, row] of rows.entries()) row.firstElementChild.dataset.number = index + 1;
}

function showKeys() {
  const problem = alertPlace();
  const fieldOf = (group) => (one) => {
    const field = el("input.key", { maxlength: 1, "aria-label": one.label, value: keyOf(one) });
    field.addEventListener("focus", () => field.select());
    field.addEventListener("input", () => {
      const key = field.value.trim();
      const taken = group.find((other) => other !== one && keyOf(other) === key);
      tell(problem, taken ? `${key} is taken: ${taken.label}` : "");
      if (key && !taken) prefer("keys", { ...preference("keys", {}), [one.label]: key });
      field.value = keyOf(one);
      field.select();
    });
    return [field, one.label];
  };
  const fixed = FIXED.map(([keys, text]) => [keys.split(" ").map((key) => el("kbd", key)), text]);
  const toggle = tickBox("Keys of one letter, numbers of rows", {
    checked: isOn(),
    onchange: ({ target }) => prefer("letters", target.checked),
  });
  const root = document.documentElement.style;
  const scheme = choice("Colours", SCHEMES, root.colorScheme, ({ target }) => {
    root.colorScheme = target.value;
    prefer("colours", target.value);
  });
  const reset = button("Reset", () => {
    prefer("keys", {});
    closeDialogs();
    showKeys();
  });
  const plain = facts([...PLAIN.map(fieldOf(PLAIN)), ...fixed]);
  const list = el("div.columns", plain, facts(VIEWS.map(fieldOf(VIEWS))));
  ask({ title: "Keys", fields: [list, problem, toggle, scheme, el("p", reset)], action: "Close", leave: "" });
}
