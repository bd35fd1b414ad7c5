import { styled, visible } from "./ansi.js";
import { button, drawList, el } from "./dom.js";
import { count } from "./format.js";
import { PLACE } from "./run-log.js";

const STEP = 120;
const KEPT = 600;
// Browsers limit the height of what is scrolled.
const MOST_PX = 4_000_000;
const PX_PER_BYTE = 0.2;
const NEAR_PX = 24;
// So far behind the end, lines are skipped.
const SKIPPED_BYTES = 64 * 1024;

/** Whether the end is followed. */
export let following = true;
/** The first and the last byte that the address points at. */
export let pointed = [];

const list = el("div.window");
const spaces = [el("div"), el("div")];
let box;
let options;
let log = null;
let source = null;
let marks = null;
let rows = [];
let opened = [];
let ends = { first: true, last: true };
let nextAt = 0;
let scrolledTo = 0;
// What was read for an earlier turn is dropped.
let turns = 0;
let wanted = null;
let settling = null;
let hasGrown = false;
let asking = false;
let unsettled = false;

/** Lines of a log, between two spaces for the rest. */
export function startView(element, how) {
  [box, options] = [element, how];
  box.tabIndex = 0;
  box.replaceChildren(spaces[0], list, spaces[1]);
  box.addEventListener("scroll", scrolled);
  box.addEventListener("keydown", key);
  box.addEventListener("click", extend);
  new ResizeObserver(resized).observe(box);
}

/** Shows lines of a log, from a place on. */
export function show(from, lines, offset) {
  [log, source, wanted, opened] = [from, lines, 0, [pointed]];
  return go(offset);
}

/** Shows nothing. */
export function clear() {
  turns++;
  [source, wanted, pointed] = [null, null, []];
  draw([]);
}

/** Marks what is looked for. */
export function mark(find) {
  marks = find;
  draw();
}

/** Whether a line is not to be folded. */
export const isOpen = ({ start }) => opened.some(([first, last]) => first <= start && start <= last);

async function unfold(start) {
  const row = rows.find((line) => line.start === start);
  opened.push([start, row.end - 1]);
  const { lines } = await source.after(start, row.more + 1);
  const at = rows.indexOf(row);
  if (at < 0) return;
  follow(false);
  draw(rows.toSpliced(at, 1, ...lines));
  box.focus();
}

/** To lines; for Infinity to the end. */
export async function go(offset, last = offset) {
  const toEnd = offset === Infinity;
  follow(toEnd);
  pointed = toEnd ? [] : [offset, last];
  opened.push(pointed);
  draw();
  if (toEnd || wanted !== null || !rows.some((line) => isPointed(line) && !line.more)) want(toEnd ? log.size : offset);
  await settle();
  if (!toEnd) bringIn();
  await settle();
}

/** The first byte in sight. */
export function position() {
  return rows[firstSeen()]?.start ?? 0;
}

/** The log has grown. */
export function grew() {
  hasGrown = true;
  return settle();
}

function takeGrowth() {
  [ends.last, hasGrown] = [false, false];
  if (rows.at(-1)?.open) nextAt = rows.pop().start;
  if (following && log.size - nextAt > SKIPPED_BYTES) want(log.size);
}

function resized() {
  if (!source || box.clientHeight === 0) return;
  draw();
  settle();
}

function isPointed({ start, end }) {
  const [first, last] = pointed;
  return start <= last && first < end;
}

/** Follows the end, or stays. */
export function follow(now) {
  if (following === now) return;
  following = now;
  options.onFollow();
}

// Browsers tell late of a scroll.
function scrolled() {
  const { scrollTop, clientHeight, scrollHeight } = box;
  const moved = scrollTop - scrolledTo;
  scrolledTo = scrollTop;
  if (moved < 0) follow(false);
  else if (moved > 0 && ends.last && scrollHeight - scrollTop - clientHeight < NEAR_PX) follow(true);
  if (moved !== 0) settle();
}

function key(event) {
  const place = { Home: 0, End: Infinity }[event.key];
  if (place === undefined || event.target !== box || !source) return;
  event.preventDefault();
  go(place);
}

function extend(event) {
  const row = event.target.closest(".number")?.parentNode;
  if (!event.shiftKey || !row || pointed.length === 0) return;
  event.preventDefault();
  const { start } = rows[[...list.children].indexOf(row)];
  location.hash = options.href(...[pointed[0], start].sort((a, b) => a - b));
}

function want(offset) {
  turns++;
  wanted = offset;
}

function settle() {
  unsettled = true;
  settling ??= work().finally(() => {
    settling = null;
  });
  return settling;
}

async function work() {
  for (let isMore = true; isMore || unsettled; ) {
    unsettled = false;
    const turn = turns;
    try {
      isMore = await improve(turn);
      options.onProblem("");
    } catch (error) {
      isMore = turn !== turns;
      if (error.name !== "AbortError" && !isMore) options.onProblem(error.message);
    }
  }
}

async function improve(turn) {
  const { scrollTop, clientHeight } = box;
  if (!source || clientHeight === 0) return false;
  if (hasGrown && ends.last) takeGrowth();
  const { offsetTop, offsetHeight } = list;
  const above = scrollTop - offsetTop;
  const below = offsetTop + offsetHeight - scrollTop - clientHeight;
  const isAway = !following && (above < -clientHeight || below < -clientHeight);
  const share = scrollTop / Math.max(1, box.scrollHeight - clientHeight);
  if (wanted === null && isAway) want(Math.floor(share * log.size));
  if (wanted !== null) await showFrom(wanted, turns);
  else if (below < clientHeight && !ends.last) await extendDown(turn);
  else if (above < clientHeight && !ends.first) await extendUp(turn);
  else return false;
  return true;
}

async function showFrom(offset, turn) {
  const { size } = log;
  let found = offset < size ? await source.after(offset, STEP) : { lines: [] };
  const fromEnd = found.lines.length === 0;
  if (fromEnd) found = { ...(await source.before(offset, STEP)), next: size };
  if (turn !== turns) return;
  const { lines, done, next } = found;
  wanted = null;
  ends = { first: fromEnd ? done : offset === 0, last: fromEnd || done };
  hasGrown ||= size !== log.size;
  nextAt = next;
  draw(lines);
  scrollTo(fromEnd ? box.scrollHeight : list.offsetTop);
}

async function extendDown(turn) {
  const { lines, done, next } = await source.after(nextAt, STEP);
  scrolled();
  if (turn !== turns) return;
  [ends.last, nextAt] = [done, next];
  const all = [...rows, ...lines];
  if (all.length > KEPT) ends.first = false;
  draw(all.slice(-KEPT));
}

async function extendUp(turn) {
  const { lines, done } = await source.before(rows[0]?.start ?? nextAt, STEP);
  scrolled();
  if (turn !== turns) return;
  ends.first = done;
  const all = [...lines, ...rows];
  if (all.length > KEPT && !following) {
    [ends.last, nextAt] = [false, all[KEPT].start];
    all.length = KEPT;
  }
  draw(all);
}

/** What is seen stays, unless the end is followed. */
export function draw(lines = rows) {
  const first = firstSeen();
  const [seen, top] = [rows[first]?.start, list.children[first]?.offsetTop];
  rows = lines;
  numberRows();
  const items = lines.map((line) => ({ ...line, time: options.timeOf(line), isPointed: isPointed(line), find: marks }));
  drawList(list, items, rowOf);
  space(0, ends.first, lines[0]?.start ?? 0);
  space(1, ends.last, log ? log.size - nextAt : 0);
  const row = list.children[lines.findIndex(({ start }) => start === seen)];
  if (following) scrollTo(box.scrollHeight);
  else if (row) scrollTo(box.scrollTop + row.offsetTop - top);
}

function space(index, isEnd, bytes) {
  const px = Math.max(2 * box.clientHeight, bytes * Math.min(PX_PER_BYTE, MOST_PX / log?.size));
  spaces[index].style.height = isEnd ? "0" : `${px}px`;
}

function scrollTo(px) {
  box.scrollTop = px;
  scrolledTo = box.scrollTop;
}

function firstSeen() {
  const { scrollTop } = box;
  return [...list.children].findIndex((row) => row.offsetTop + row.offsetHeight > scrollTop);
}

function bringIn() {
  const row = list.querySelector(".pointed");
  if (!row) return;
  const { scrollTop, clientHeight } = box;
  const isSeen = row.offsetTop > scrollTop && row.offsetTop < scrollTop + clientHeight - NEAR_PX;
  if (!isSeen) scrollTo(Math.max(0, row.offsetTop - clientHeight / 3));
}

function numberRows() {
  if (rows[0]?.start === 0) rows[0].number = 1;
  const known = rows.findIndex(({ number }) => number !== undefined);
  if (known < 0) return ask(rows[0]);
  const begins = ({ continued }) => (continued ? 0 : 1);
  let number = rows[known].number - begins(rows[known]);
  for (const row of rows.slice(0, known)) number -= begins(row) + (row.more ?? 0);
  for (const row of rows) {
    row.number ??= number + begins(row);
    number = row.number + (row.more ?? 0);
  }
}

async function ask(line) {
  if (!line || asking) return;
  asking = true;
  line.number = (await log.place(line.start).catch(() => ({}))).line;
  asking = false;
  if (line.number !== undefined || !rows.includes(line)) draw();
}

function rowOf({ start, text, number, continued, more, time, isPointed, find }) {
  const [place = "", job, worker, sign] = PLACE.exec(text) ?? [];
  const pieces = styled(text.slice(place.length)).map((piece) =>
    el("span", { class: piece.classes || null }, marked(piece.text, find)),
  );
  const origin = (name, kind) => name && el(`span.${kind}`, marked(visible(name), find));
  const from = [origin(job, "job"), origin(job && "@", "job.worker"), origin(worker, "worker")];
  const title = `The address of ${number ? `line ${number}` : "this line"}`;
  return el(
    isPointed ? "div.line.pointed" : "div.line",
    el("a.number", { href: options.href(start), title, tabindex: -1 }, continued ? "↪" : (number ?? "·")),
    time && el("span.when", time),
    el(sign === "!" ? "span.text.stderr" : "span.text", place && el("span.place", from, ` ${sign} `), pieces),
    more > 0 && button(`▸ ${count(more, "more line")}`, () => unfold(start), { class: "sorter" }),
  );
}

function marked(text, find) {
  if (!find?.q) return text;
  const parts = text.split(new RegExp(`(${RegExp.escape(find.q)})`, find.case ? "g" : "gi"));
  return parts.map((part, index) => (index % 2 === 1 ? el("mark", part) : part));
}
