import { el } from "./dom.js";

const TIME = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

/** A point in time as people here write it; the exact one is in its title. */
export function time(iso) {
  return iso === null ? "" : el("time", { datetime: iso, title: iso }, TIME.format(new Date(iso)));
}

/** How long something took: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 10 min`. */
export function duration(ms) {
  const seconds = Math.floor(ms / 1000);
  if (seconds < 10) return `${(ms / 1000).toFixed(1)} s`;
  if (seconds < 60) return `${seconds} s`;
  const two = (number) => String(number).padStart(2, "0");
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${two(seconds % 60)} s`;
  return `${Math.floor(seconds / 3600)} h ${two(Math.floor(seconds / 60) % 60)} min`;
}

/** The state of a run, as a word and a colour. */
export function status(word) {
  return el("span", { class: `status ${word}` }, word);
}

/** A size in bytes for people: `900 B`, `1.5 MiB`. */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  const number = bytes / 1024 ** step;
  return `${step === 0 ? number : number.toFixed(1)} ${units[step]}`;
}
