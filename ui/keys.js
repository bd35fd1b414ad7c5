import { address, link } from "./address.js";
import { el } from "./dom.js";
import { tickBox } from "./fields.js";
import { SECTIONS } from "./routes.js";

const CHORD_MS = 1_500;
const OTHERS = [
  ["/", "Search in this view (in Activity: in the log)"],
  ["f", "Find in the log of Activity"],
  ["g b", "Buckets"],
  ["?", "These keys"],
  ["Esc", "Close what is open"],
];

let enabled = true;
let pending = 0;

/** Keys for people who do not want the mouse: `/`, `?`, and `g` with a letter for each view. */
export function startKeys(findInLog) {
  document.getElementById("help").addEventListener("click", showKeys);
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target))
      return;
    if (document.querySelector("dialog[open]")) return;
    if (act(event.key, findInLog)) event.preventDefault();
  });
}

function isTyping(element) {
  return element.matches?.("input:not([type=checkbox]), textarea, select") ?? false;
}

function act(key, findInLog) {
  if (key === "?") return showKeys();
  if (!enabled) return false;
  if (Date.now() - pending < CHORD_MS) return go(key);
  if (key === "g") {
    pending = Date.now();
    return true;
  }
  if (key === "f") return findInLog();
  if (key !== "/") return false;
  const search = document.querySelector("main [data-search]");
  if (!search) return findInLog();
  search.focus();
  search.select();
  return true;
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
  const toggle = tickBox("Keys of one letter", {
    checked: enabled,
    hint: "Where they get in the way of a screen reader or of speech",
    onchange: () => (enabled = toggle.control.checked),
  });
  const dialog = el(
    "dialog",
    { "aria-labelledby": "keys-title" },
    el("h2", { id: "keys-title" }, "Keys"),
    el(
      "dl",
      { class: "keys" },
      ...rows.map(([keys, text]) =>
        el("div", {}, el("dt", {}, ...keys.split(" ").map((key) => el("kbd", {}, key))), el("dd", {}, text)),
      ),
    ),
    toggle,
    el("form", { method: "dialog" }, el("button", { class: "primary" }, "Close")),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return true;
}
