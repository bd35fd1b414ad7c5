import { numbersOf, type ScriptAnswer } from "./answer.ts";

/** The load of a worker and since when it runs, as /proc tells them. */
export interface Uptime {
  load1: number;
  load5: number;
  load15: number;
  uptime_s: number;
}

/** How busy a worker was for a second. */
export interface Sysstat {
  /** The share of all CPUs together. */
  cpu_pct: number;
  mem_total_bytes: number;
  mem_used_bytes: number;
  mem_available_bytes: number;
  mem_swap_total_bytes: number;
  mem_swap_used_bytes: number;
  /** Whole devices that were ever used. */
  disk: { device: string; read_bytes_per_s: number; write_bytes_per_s: number; busy_pct: number }[];
  /** Interfaces that were ever used, without loopback. */
  net: { interface: string; rx_bytes_per_s: number; tx_bytes_per_s: number }[];
}

/** /proc/diskstats counts sectors of this size, whatever the device has. */
const SECTOR_BYTES = 512;
const MOST = 256;

/** Reads what `uptime.sh` told. Throws `failed` where that is no such answer. */
export function parseUptime(answer: ScriptAnswer): Uptime {
  const [load1 = 0, load5 = 0, load15 = 0] = answer.numbers("load", 3);
  const [uptime = 0] = answer.numbers("uptime", 1);
  return { load1, load5, load15, uptime_s: Math.floor(uptime) };
}

/** Reads what `sysstat.sh` told. Throws `failed` where that is no such answer. */
export function parseSysstat(answer: ScriptAnswer): Sysstat {
  const [before = 0] = answer.numbers("before_uptime", 1);
  const [after = 0] = answer.numbers("after_uptime", 1);
  const seconds = Math.max(0.01, after - before);
  return { cpu_pct: cpuOf(answer), ...memoryOf(answer), disk: disksOf(answer, seconds), net: netOf(answer, seconds) };
}

/** user, nice, system, idle, iowait, irq, softirq, steal: what follows is part of the first ones. */
function cpuOf(answer: ScriptAnswer): number {
  const before = answer.numbers("before_cpu", 8);
  const spent = answer.numbers("after_cpu", 8).map((now, index) => rise(before[index], now));
  const total = spent.reduce((sum, one) => sum + one, 0);
  const idle = (spent[3] as number) + (spent[4] as number);
  return total === 0 ? 0 : tenths((100 * (total - idle)) / total);
}

function memoryOf(answer: ScriptAnswer) {
  const sizes = new Map(answer.all("memory").map((line) => line.split(" ") as [string, string]));
  const bytes = (name: string) => (numbersOf(sizes.get(name) ?? "0")[0] ?? 0) * 1024;
  const total = bytes("MemTotal");
  const available = sizes.has("MemAvailable") ? bytes("MemAvailable") : bytes("MemFree");
  return {
    mem_total_bytes: total,
    mem_used_bytes: Math.max(0, total - available),
    mem_available_bytes: available,
    mem_swap_total_bytes: bytes("SwapTotal"),
    mem_swap_used_bytes: Math.max(0, bytes("SwapTotal") - bytes("SwapFree")),
  };
}

function disksOf(answer: ScriptAnswer, seconds: number): Sysstat["disk"] {
  const devices = new Set(answer.all("block"));
  // Two numbers of the device come before its name.
  const counters = (when: string) => countersOf(answer.all(`${when}_disk`), /^\d+ +\d+ +(\S{1,253}) +(.*)$/, 10);
  return changes(counters("before"), counters("after"))
    .filter(({ name }) => devices.has(name))
    .map(({ name, rises }) => ({
      device: name,
      read_bytes_per_s: Math.round(((rises[2] as number) * SECTOR_BYTES) / seconds),
      write_bytes_per_s: Math.round(((rises[6] as number) * SECTOR_BYTES) / seconds),
      busy_pct: Math.min(100, tenths((rises[9] as number) / seconds / 10)),
    }));
}

function netOf(answer: ScriptAnswer, seconds: number): Sysstat["net"] {
  const counters = (when: string) => countersOf(answer.all(`${when}_net`), /^(\S{1,253}) +(.*)$/, 9);
  return changes(counters("before"), counters("after"))
    .filter(({ name }) => name !== "lo")
    .map(({ name, rises }) => ({
      interface: name,
      rx_bytes_per_s: Math.round((rises[0] as number) / seconds),
      tx_bytes_per_s: Math.round((rises[8] as number) / seconds),
    }));
}

/** The counters by name; lines with fewer numbers are passed over. */
function countersOf(lines: readonly string[], pattern: RegExp, count: number): Map<string, number[]> {
  const found = new Map<string, number[]>();
  for (const line of lines) {
    const [, name = "", rest = ""] = pattern.exec(line) ?? [];
    const numbers = numbersOf(rest);
    if (numbers.length >= count) found.set(name, numbers);
  }
  return found;
}

/** What rose between two readings, of those that are in both and not all zero. */
function changes(before: ReadonlyMap<string, number[]>, after: ReadonlyMap<string, number[]>) {
  const used = [...after].filter(([name, numbers]) => before.has(name) && numbers.some((one) => one > 0));
  return used
    .slice(0, MOST)
    .map(([name, numbers]) => ({ name, rises: numbers.map((now, index) => rise(before.get(name)?.[index], now)) }));
}

/** A counter that begins anew, or is lost, has not risen. */
function rise(before: number | undefined, now: number): number {
  return Math.max(0, now - (before ?? now));
}

function tenths(value: number): number {
  return Math.round(value * 10) / 10;
}
