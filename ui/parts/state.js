import { button, el, svg } from "../base/dom.js";
import { duration, number, plain, words } from "../base/text.js";

/**
 * The mark of each word that the server says of a run, an allocation, a worker, a gate or a certificate. The worst comes
 * first, in every list too.
 */
const MARKS = {
  failed: "failed expired unhealthy health_failed undelivered ongoing error invalid refused rejected key_changed",
  unreachable: "unreachable",
  running: "running checking restoring unknown pending health_pending",
  waiting: "waiting new update unsettled not_started not_asked queued open",
  soon: "soon expiring warning high unwell",
  hand: "hand drifted",
  cancelled: "cancelled withdrawn stale",
  changed: "changed deployed replaced started restored",
  ok: "ok succeeded skipped promoted in_sync passed healthy trusted unchanged not_needed known active done approved used reachable normal over sent",
  disabled: "disabled removed stop stopped",
};
const BY_WORD = new Map(Object.entries(MARKS).flatMap(([mark, words]) => words.split(" ").map((word) => [word, mark])));

/** The mark that stands for a word: `in_sync` → `ok`. */
export function markOf(word) {
  return BY_WORD.get(word) ?? "waiting";
}

/** States from the worst on. */
export const WORST_FIRST = Object.keys(MARKS);

/** Compares words by their states, the worst first. */
export function byTrouble(one, other) {
  return WORST_FIRST.indexOf(markOf(one)) - WORST_FIRST.indexOf(markOf(other));
}

/** Compares names; numbers in them count as numbers. */
export const byName = new Intl.Collator("en", { numeric: true }).compare;

/** A drawing of the page's sprite. */
export function icon(name) {
  return svg("svg.icon", { "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

/** The mark of a state, without its word; `label` is said to those who cannot see it. */
export function mark(word, { label = "", large = false } = {}) {
  const name = markOf(word);
  const spoken = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return svg(`svg.mark.${name}`, { class: large && "large", ...spoken }, svg("use", { href: `#m-${name}` }));
}

/**
 * What a row says of a thing: the mark of its state, its name, what is told of it, and what else.
 * @param {string} word @param {any} name @param {any} [told] @param {any[]} more
 */
export function rowAbout(word, name, told, ...more) {
  return [mark(word, { label: word.replaceAll("_", " ") }), el("b", name), told && el("span.meta", told), more];
}

/** A mark and its word. */
export function state(word, text = word.replaceAll("_", " ")) {
  return el("span.state", mark(word), text);
}

/** A mark and its word on a soft ground, where no title says them. */
export function badge(word, text = word.replaceAll("_", " ")) {
  return el("span.badge", { class: markOf(word) }, mark(word), text);
}

/** A small grey word: a wave, an action, a label. */
export function tag(text) {
  return el("span.tag", text);
}

/**
 * Chips: each is a state with its number, and a filter. `onchange` hears the chosen words.
 * @param {{ word: string, count: number, text?: string, sign?: any }[]} items
 * @param {Set<string>} chosen
 * @param {() => void} onchange
 */
export function chips(items, chosen, onchange) {
  const toggle = (word) => () => {
    if (!chosen.delete(word)) chosen.add(word);
    onchange();
  };
  const shown = items.map(({ word, count, text = word.replaceAll("_", " "), sign = mark(word) }) => {
    const isChosen = chosen.has(word);
    const about = { class: "chip", key: word, "aria-pressed": String(isChosen), disabled: count === 0 && !isChosen };
    return button([sign, el("b", number(count)), text], toggle(word), about);
  });
  return el("div.chips", { role: "group", "aria-label": "Filter by state" }, shown);
}

/** Progress as one bar: `{ changed, running, failed, unreachable, total }`. */
export function progressBar({ total, waiting = 0, ...counts }) {
  const percent = (many) => Math.min(100, (100 * many) / Math.max(1, total));
  const done = ["changed", "running", "failed", "unreachable"].filter((word) => counts[word] > 0);
  const parts = done.map((word) => {
    const part = el(`span.${word}`, { key: word });
    part.style.width = `${percent(counts[word])}%`;
    return part;
  });
  const now = Math.round(percent(total - waiting - (counts.running ?? 0)));
  const value = { "aria-valuenow": now, "aria-valuemin": 0, "aria-valuemax": 100 };
  return el("div.progress", { role: "progressbar", "aria-label": "Progress", ...value }, parts);
}

const [WIDTH, BAR_GAP, UP, DOWN] = [5, 2, 14, 7];
/** The marks of bars by the status of a run, and the order in which they are told. */
const BAR_MARKS = { succeeded: "changed", failed: "failed", running: "running", cancelled: "cancelled" };

/**
 * The last runs as bars, the oldest first: up went well, down failed, low and grey was cancelled, an open one goes on. The
 * height is how long it took.
 * @param {{ kind: string, status: string, duration_ms: number, dry_run?: boolean }[]} recent
 */
export function runStrip(recent) {
  const longest = Math.max(1, ...recent.map(({ duration_ms: ms }) => Math.log1p(ms)));
  const bars = recent.map(({ kind, status, duration_ms: ms, dry_run: isDry }, index) => {
    const up = status === "cancelled" ? 3 : 4 + ((UP - 4) * Math.log1p(ms)) / longest;
    const [y, height] = status === "failed" ? [UP, DOWN] : [UP - up, up];
    const says = `${isDry ? "Dry run" : words(kind)}, ${status}, ${duration(ms)}`;
    const bar = { class: BAR_MARKS[status], rx: 1, x: index * (WIDTH + BAR_GAP), y, width: WIDTH, height };
    return svg("rect", bar, svg("title", plain(says)));
  });
  const groups = Map.groupBy(recent, ({ status }) => status);
  const told = Object.keys(BAR_MARKS).flatMap((word) => (groups.has(word) ? `${groups.get(word).length} ${word}` : []));
  const label = `Last ${recent.length} runs: ${told.join(", ")}`;
  const [width, height] = [20 * (WIDTH + BAR_GAP), UP + DOWN];
  return svg("svg.strip", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, bars);
}
