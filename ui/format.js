import { el } from "./dom.js";

const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const AGO = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const STEPS = [
  [60, "second"],
  [60, "minute"],
  [24, "hour"],
  [30, "day"],
  [12, "month"],
  [Number.POSITIVE_INFINITY, "year"],
];

/** A point in time as people here write it; the exact one is in its title. */
export function time(iso) {
  return iso === null ? "" : el("time", { datetime: iso, title: iso }, TIME.format(new Date(iso)));
}

/** How long ago something was, kept up to date by {@link tick}; the time itself is in its title. */
export function ago(iso) {
  if (iso === null || iso === undefined) return "";
  const title = `${TIME.format(new Date(iso))} (${iso})`;
  return el("time", { class: "ago", datetime: iso, title }, sinceText(iso));
}

/** Brings every {@link ago} of the page up to date. */
export function tick() {
  for (const place of document.querySelectorAll("time.ago")) {
    const text = sinceText(place.dateTime);
    if (place.textContent !== text) place.textContent = text;
  }
}

function sinceText(iso) {
  let number = (Date.now() - Date.parse(iso)) / 1000;
  if (Math.abs(number) < 10) return "just now";
  for (const [size, unit] of STEPS) {
    if (Math.abs(number) < size) return AGO.format(-Math.round(number), unit);
    number /= size;
  }
  return "";
}

/** How long something took: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`. */
export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 10) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

/** The state of something, as a word, a sign and a colour. */
export function status(word) {
  return el("span", { class: `status ${word.replaceAll(/[^a-z_]/g, "")}` }, word.replaceAll("_", " "));
}

/** The state of an allocation in one word: of what is promoted, what its health gate has found. */
export function stateOf({ rollout, gate }) {
  return rollout === "promoted" && /^(failed|pending)$/.test(gate) ? `health_${gate}` : rollout;
}

/** A size in bytes for people: `900 B`, `1.5 MiB`. */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const number = bytes / 1024 ** step;
  return `${step === 0 ? number : number.toFixed(1)} ${units[step]}`;
}

/** A number and what it counts: `1 job`, `2 jobs`. */
export function count(number, thing) {
  return `${number} ${thing}${number === 1 ? "" : "s"}`;
}

/** A word with underscores as people write it: `run_command` → `Run command`. */
export function words(name) {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
