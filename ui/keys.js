import { findInLog } from "./activity.js";
import { address, link } from "./address.js";
import { tickBox } from "./controls.js";
import { openDialog } from "./dialog.js";
import { el } from "./dom.js";
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

/** Keys for people who do not want the mouse: `/`, `?`, `g` with a letter for each view, and Ctrl+F for the log. */
export function startKeys() {
  document.getElementById("help").addEventListener("click", showKeys);
  addEventListener("keydown", (event) => {
    const { key, target, ctrlKey, metaKey, altKey, shiftKey } = event;
    if (event.defaultPrevented || altKey || document.querySelector("dialog[open]")) return;
    const isTyping = target.matches?.("input:not([type=checkbox]), textarea, select");
    // Pressed again in the search of the log, Ctrl+F is the browser's.
    const isFind = key === "f" && !shiftKey;
    const isTaken =
      ctrlKey || metaKey ? isFind && findInLog() : !isTyping && act(key, target.closest?.("#activity"));
    if (isTaken) event.preventDefault();
  });
}

/** Does what a key stands for; answers whether it stands for anything. */
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
  const list = rows.map(([keys, text]) => el("div", el("dt", keysOf(keys)), el("dd", text)));
  openDialog(
    "Keys",
    el("form", { method: "dialog" }, el("dl.keys", list), toggle, el("button.primary", "Close")),
  );
  return true;
}
