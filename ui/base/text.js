// How text, numbers and times are written. What a worker, a hook, a file or a person has said goes through `said` or `plain`
// before a page shows it: nothing in it may hide, turn the direction of what follows, or pass for something else.
import { el, patch, scroller } from "./dom.js";

/** What shows nothing or turns the direction: controls but tab and newline, formats, and marks without width but of emoji. */
const HIDDEN = /(?![\t\n]|\ufe0e|\ufe0f)[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;
const MARK_NAMES = { 0: "NUL", 7: "BEL", 8: "BS", 13: "CR", 27: "ESC", 127: "DEL" };

function markName(mark) {
  const code = mark.codePointAt(0);
  return MARK_NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** Text as one string, for titles and labels: what cannot be seen is named. */
export function plain(text) {
  return String(text ?? "").replace(HIDDEN, (mark) => `‹${markName(mark)}›`);
}

/** Text as content of an element: what cannot be seen is a small boxed name. */
export function said(text) {
  const pieces = [];
  let at = 0;
  const whole = String(text ?? "");
  for (const { index, 0: mark } of whole.matchAll(HIDDEN)) {
    pieces.push(whole.slice(at, index), el("span.mark-name", markName(mark)));
    at = index + mark.length;
  }
  return [...pieces, whole.slice(at)];
}

/** A text in a box that scrolls. */
export function textBox(label, text) {
  return scroller(label, said(text || "(empty)"), "pre.scroll");
}

/** A sentence in which two backticks mark code. */
export function prose(text) {
  return text.split(/`([^`]+)`/).map((part, index) => (index % 2 === 1 ? el("code", said(part)) : said(part)));
}

/** Shows a sentence, or nothing. */
export function tell(place, sentence = "", ...more) {
  patch(place, prose(sentence), ...more);
  place.hidden = place.textContent === "";
}

/** Whether a text has every word that was typed in a search. */
export function fits(text, typed) {
  const wanted = typed.toLowerCase().split(/\s+/);
  return wanted.every((word) => text.toLowerCase().includes(word));
}

/** The first line of what was said, for one row. */
export function firstLine(text) {
  return String(text ?? "").split("\n", 1)[0];
}

const SGR = /(?:\x1b\[|\x9b)([\d;:]*)m/g;
const STYLES = { 1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike" };

/** A line of a log as pieces `{ text, classes }`: colours and styles of terminals (SGR) become classes. */
export function styled(text) {
  const [pieces, styles] = [[], new Map()];
  let at = 0;
  const add = (end) => {
    if (end > at) pieces.push({ text: text.slice(at, end), classes: [...styles.values()].join(" ") });
  };
  for (const { index, 0: sequence, 1: numbers } of text.matchAll(SGR)) {
    add(index);
    apply(styles, numbers.split(/[;:]/).map(Number));
    at = index + sequence.length;
  }
  add(text.length);
  return pieces;
}

function apply(styles, codes) {
  while (codes.length > 0) {
    const code = codes.shift();
    const kind = { 3: "fg", 9: "fg", 4: "bg", 10: "bg" }[Math.floor(code / 10)];
    if (code === 0) styles.clear();
    if (code === 22) styles.delete("bold");
    if (STYLES[code]) styles.set(STYLES[code], STYLES[code]);
    else if (STYLES[code - 20]) styles.delete(STYLES[code - 20]);
    else if (kind && code % 10 === 9) styles.delete(kind);
    else if (kind) {
      const colour = code % 10 === 8 ? extended(codes) : code === 90 ? 8 : code % 10;
      if (colour < 9) styles.set(kind, `${kind}${colour}`);
    }
  }
}

/** `5;n` and `2;r;g;b` as the nearest of the eight colours. */
function extended(codes) {
  const kind = codes.shift();
  if (kind === 2) return nearest(...codes.splice(0, 3));
  const n = kind === 5 ? codes.shift() : undefined;
  if (!(n >= 0 && n < 256)) return undefined;
  if (n < 16) return n === 8 ? n : n % 8;
  if (n >= 232) return nearest(...Array(3).fill((n - 232) * 10 + 8));
  return nearest(...[36, 6, 1].map((step) => (Math.floor((n - 16) / step) % 6) * 51));
}

function nearest(...levels) {
  const most = Math.max(...levels);
  return most < 64 ? 0 : levels.reduce((sum, level, bit) => sum | (level > most / 2 ? 1 << bit : 0), 0);
}

const [SECOND, MINUTE, HOUR, DAY] = [1e3, 6e4, 36e5, 864e5];

const digits = new Intl.NumberFormat("en-US");

/** A number as people write it: `1,284`. */
export function number(value) {
  return digits.format(Number(value));
}

/** `1 job`, `2 jobs`, `1,284 jobs`. */
export function count(value, thing) {
  return `${number(value)} ${thing}${value === 1 ? "" : /(s|x|ch)$/.test(thing) ? "es" : "s"}`;
}

/** `0.4 s`, `12 s`, `6 min 02 s`, `2 h 10 min`, `3 d 4 h`. */
export function duration(ms) {
  const part = (unit, size) => String(Math.floor((ms % unit) / size)).padStart(2, "0");
  if (ms < 10 * SECOND) return `${(ms / SECOND).toFixed(1)} s`;
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ${part(MINUTE, SECOND)} s`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h ${part(HOUR, MINUTE)} min`;
  return `${Math.floor(ms / DAY)} d ${Math.floor((ms % DAY) / HOUR)} h`;
}

/** The first part of a duration: `37 min`. */
export function about(ms) {
  if (ms < MINUTE) return `${Math.max(1, Math.floor(ms / SECOND))} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  return count(Math.floor(ms / DAY), "day");
}

/** How many allocations wait for a deploy. */
export function dueText(many) {
  return `${count(many, "allocation")} ${many === 1 ? "waits" : "wait"} for a deploy`;
}

/** A time as it is here. */
export function localTime(iso) {
  return new Date(iso).toLocaleString();
}

/** `03:14`, with the day where that is another one: `12 Nov 03:14`. */
export function clockTime(iso) {
  const at = new Date(iso);
  const time = at.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
  const isToday = at.toDateString() === new Date().toDateString();
  return isToday ? time : `${at.toLocaleDateString("en-GB", { day: "numeric", month: "short" })} ${time}`;
}

/** `900 B`, `1.5 MiB`. */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** step).toFixed(1))} ${units[step]}`;
}

/** `run_command` → `Run command`. */
export function words(name) {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** What a run is: `Deploy`, `Dry run`, `Dry run of ca rotate`, `Run command`. @param {any} run */
export function nameOf({ kind, params, dry_run: isDry = params?.dry_run }) {
  if (!isDry) return words(kind);
  return kind === "deploy" ? "Dry run" : `Dry run of ${words(kind).toLowerCase()}`;
}

/** What there is of these, with commas between. */
export function joined(...parts) {
  return parts.filter(Boolean).join(", ");
}

/** `a`, `a and b`, `a, b and c`, `a, b, c and 4 more`. */
export function listed(names, most = 3) {
  const shown = names.length > most + 1 ? [...names.slice(0, most), `${number(names.length - most)} more`] : names;
  return shown.length < 2 ? (shown[0] ?? "") : `${shown.slice(0, -1).join(", ")} and ${shown.at(-1)}`;
}

/** What a time says, by how it is to be said. The clock brings each up to date. */
const TELLS = {
  ago: (at, now) =>
    Math.abs(now - at) < 5 * SECOND ? "just now" : now < at ? `in ${about(at - now)}` : `${about(now - at)} ago`,
  since: (at, now) => `since ${clockTime(at)}, ${about(Math.max(0, now - at))}`,
  for: (at, now) => duration(Math.max(0, now - at)),
};

function timeAs(how, iso) {
  if (!iso) return "";
  const text = TELLS[how](Date.parse(iso), Date.now());
  return el("time", { datetime: iso, title: `${localTime(iso)} (${iso})`, "data-how": how }, text);
}

/** `37 min ago`, `in 9 days`. */
export const ago = (iso) => timeAs("ago", iso);
/** `since 03:14, 37 min`. */
export const since = (iso) => timeAs("since", iso);
/** `4 min 12 s`, and it runs. */
export const elapsed = (iso) => timeAs("for", iso);

/** Brings every time on the page up to date. */
export function tick() {
  const now = Date.now();
  for (const place of /** @type {NodeListOf<HTMLTimeElement>} */ (document.querySelectorAll("time[data-how]"))) {
    const text = TELLS[place.dataset.how](Date.parse(place.dateTime), now);
    if (place.textContent !== text) place.textContent = text;
  }
}
