import * as view from "./log-view.js";

const TYPING_MS = 120;
const MOST_MATCHES = 50_000;

const form = document.forms.find;
const count = form.querySelector(".count");
const { text, exact, only, before, close } = form.elements;

let panel;
let typing;
let searching = new AbortController();
let offsets = [];
let index = -1;
let complete = false;
let scope = {};

/** Starts the bar that finds text in the log. */
export function startFind(around) {
  panel = around;
  form.addEventListener("input", ({ target }) => {
    clearTimeout(typing);
    typing = setTimeout(change, target === text ? TYPING_MS : 0);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    step(1);
  });
  before.addEventListener("click", () => step(-1));
  close.addEventListener("click", leave);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    else if (event.key === "Enter" && event.shiftKey && event.target === text) step(-1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}

/** What is looked for, as a query, and whether only that is shown. */
export function sought() {
  const query = form.hidden || text.value === "" ? {} : { q: text.value, case: exact.checked };
  return { query, isAlone: only.checked };
}

/** Opens the bar; false where it had the keyboard. */
export function openFind() {
  if (document.activeElement === text) return false;
  const wasOpen = !form.hidden;
  form.hidden = false;
  text.select();
  text.focus();
  if (!wasOpen && text.value !== "") change();
  return true;
}

/** Looks for nothing. */
export function clearFind() {
  form.hidden = true;
  only.checked = false;
  stop();
}

/** Looks in these lines only. */
export function lookIn(lines) {
  scope = lines;
  start();
}

function leave() {
  clearFind();
  panel.changed();
  panel.leave();
}

function stop() {
  clearTimeout(typing);
  searching.abort();
  [typing, offsets, index, complete] = [undefined, [], -1, false];
  count.textContent = "";
}

function change() {
  panel.changed();
  start();
}

function start() {
  stop();
  const { query } = sought();
  if (!query.q || !panel.log()) return;
  tell();
  searching = new AbortController();
  const { signal } = searching;
  search(panel.log(), { ...scope, ...query }, signal).catch((error) => {
    if (!signal.aborted) count.textContent = `The search failed: ${error.message}`;
  });
}

// What is added later only counts.
async function search(log, query, signal) {
  const position = view.position();
  let isOver = false;
  for (let after = { offset: 0, line: 1 }; offsets.length < MOST_MATCHES; ) {
    const { promise: growth } = log.growth;
    const page = await log.search({ ...query, after, signal });
    if (signal.aborted) return;
    offsets.push(...page.lines.map(({ start }) => start));
    complete = page.isLast;
    const next = offsets.findIndex((offset) => offset >= position);
    if (!isOver && index < 0 && offsets.length > 0 && (next >= 0 || complete)) goTo(Math.max(0, next));
    isOver ||= complete;
    tell();
    if (complete) await growth;
    after = page.next;
  }
}

function step(by) {
  if (typing !== undefined || searching.signal.aborted) change();
  else if (offsets.length > 0) goTo((index + by + offsets.length) % offsets.length);
}

function goTo(place) {
  index = place;
  tell();
  view.go(offsets[index]);
}

function tell() {
  const all = offsets.length.toLocaleString("en") + (complete ? "" : "+");
  const found = index < 0 ? all : `${(index + 1).toLocaleString("en")} of ${all}`;
  count.textContent = offsets.length > 0 ? found : complete ? "No match" : "Searching …";
}
