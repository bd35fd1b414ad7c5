import { type Cell, visibleLines } from "../base/terminal.ts";

/** Facts in two columns; those without a value are left out. */
export function factLines(facts: readonly (readonly [name: string, value: Cell])[]): string {
  const told = facts.filter(([, value]) => value !== null && value !== "");
  const width = Math.max(...told.map(([name]) => name.length));
  const lines = told.map(([name, value]) => {
    const [first = "", ...rest] = String(value).trimEnd().split("\n");
    return [`${name.padEnd(width)}  ${first}`, ...rest.map((line) => " ".repeat(width + 2) + line)].join("\n");
  });
  return visibleLines(`${lines.join("\n")}\n`);
}

/** How long something took: `0.4 s`, `12 s`, `3 min`, `2 h 5 min`, `4 d`. */
export function spanOf(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  const minutes = Math.round(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  if (hours === 0) return `${minutes} min`;
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.round(hours / 24)} d`;
}

/** How long ago a moment was: `3 min ago`. */
export function ago(at: string, now = Date.now()): string {
  return `${spanOf(now - Date.parse(at))} ago`;
}

/** A time in UTC: whole in a pipe, without year and seconds on a terminal. */
export function shownTime(at: string): string {
  return process.stdout.isTTY ? at.slice(5, 16).replace("T", " ") : at;
}
