import { el } from "./dom.js";

const UNITS = [
  ["d", 864e5, Infinity],
  ["h", 36e5, 864e5],
  ["min", 6e4, 36e5],
  ["s", 1e3, 6e4],
];

/** A time as it is here. */
export function localTime(iso) {
  return new Date(iso).toLocaleString();
}

/** How long ago something was. */
export function ago(iso) {
  if (!iso) return "";
  const title = `${localTime(iso)} (${iso})`;
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
  const ms = Date.now() - Date.parse(iso);
  if (Math.abs(ms) < 10_000) return "just now";
  const [text] = /^\S+ \S+/.exec(duration(Math.abs(ms)));
  return ms > 0 ? `${text} ago` : `in ${text}`;
}

/** `0.4 s`, `12 s`, `3 min 5 s`, `2 h 10 min`. */
export function duration(ms) {
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  const first = UNITS.findIndex(([, unit]) => ms >= unit);
  const parts = UNITS.slice(first, first + 2).map(([name, unit, of]) => `${Math.floor((ms % of) / unit)} ${name}`);
  return parts.join(" ");
}

/** A state with its sign, by default its own. */
export function status(word, sign = word) {
  return el("span", { class: `status ${sign.replaceAll(/[^a-z_]/g, "")}` }, word.replaceAll("_", " "));
}

/** The state of an allocation. */
export function stateOf({ rollout, gate }) {
  return rollout === "promoted" && /^(failed|pending)$/.test(gate) ? `health_${gate}` : rollout;
}

/** How far the cancel of a run is; empty without one. */
export function cancelling({ status: state, audit, progress }) {
  if (state !== "running" || !audit.some(({ action }) => action === "cancel")) return "";
  const { confirmed, total } = progress?.cancel ?? {};
  return `Cancelling${total ? `: ${confirmed} of ${total} confirmed` : ""}; after 10 seconds by force`;
}

/** `900 B`, `1.5 MiB`. */
export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** step).toFixed(1))} ${units[step]}`;
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
