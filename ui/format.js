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

/** How long ago something was, kept up to date by {@link tick}; its title is the time. */
export function ago(iso) {
  if (iso === null || iso === undefined) return "";
  const title = `${TIME.format(new Date(iso))} (${iso})`;
  return el("time", { class: "ago", datetime: iso, title }, sinceText(iso));
}

/** Brings every {@link ago} up to date. */
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

/** `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`. */
export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 10) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} min`;
  return `${Math.floor(seconds / 86_400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

/** A state as a word, a sign and a colour. */
export function status(word) {
  return el("span", { class: `status ${word.replaceAll(/[^a-z_]/g, "")}` }, word.replaceAll("_", " "));
}

/** The state of an allocation in one word. */
export function stateOf({ rollout, gate }) {
  return rollout === "promoted" && /^(failed|pending)$/.test(gate) ? `health_${gate}` : rollout;
}

/** `900 B`, `1.5 MiB`. */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const number = bytes / 1024 ** step;
  return `${step === 0 ? number : number.toFixed(1)} ${units[step]}`;
}

/** `1 job`, `2 jobs`. */
export function count(number, thing) {
  return `${number} ${thing}${number === 1 ? "" : "s"}`;
}

/** `run_command` → `Run command`. */
export function words(name) {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
