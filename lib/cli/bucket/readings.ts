import { isObject } from "../../core/shape.ts";
import type { Reading, ReadingKind, WorkerReading } from "../../operation/tend/readings.ts";
import { textTable } from "../base/table.ts";

type Cell = string | number | null;

/** What `ops worker facts` found, as a table; empty for a run that asked nobody. */
export function factsTable(result: unknown): string {
  const columns = ["hostname", "os", "arch", "cpus", "mhz", "memory", "disk_used", "addresses"];
  return tableOf(result, "facts", columns, (facts) => [
    ...[facts.hostname, facts.os, facts.arch, facts.cpu_count, facts.cpu_mhz, size(facts.memory_mb * MIB)],
    ...[fullest(facts.disks), facts.addresses.join(" ")],
  ]);
}

/** What `ops worker uptime` found, likewise. */
export function uptimeTable(result: unknown): string {
  return tableOf(result, "uptime", ["load1", "load5", "load15", "up"], (found) => [
    ...[found.load1, found.load5, found.load15, lasting(found.uptime_s)],
  ]);
}

/** What `ops worker sysstat` found, likewise; disks and interfaces are added up. */
export function sysstatTable(result: unknown): string {
  const columns = ["cpu", "memory", "swap", "disk_busy", "read/s", "write/s", "received/s", "sent/s"];
  return tableOf(result, "sysstat", columns, (found) => [
    `${found.cpu_pct} %`,
    part(found.mem_used_bytes, found.mem_total_bytes),
    part(found.mem_swap_used_bytes, found.mem_swap_total_bytes),
    found.disk.length === 0 ? null : `${Math.max(...found.disk.map((disk) => disk.busy_pct))} %`,
    size(sum(found.disk.map((disk) => disk.read_bytes_per_s))),
    size(sum(found.disk.map((disk) => disk.write_bytes_per_s))),
    size(sum(found.net.map((one) => one.rx_bytes_per_s))),
    size(sum(found.net.map((one) => one.tx_bytes_per_s))),
  ]);
}

function tableOf<K extends ReadingKind>(
  result: unknown,
  what: K,
  columns: string[],
  cells: (found: Reading<K>) => Cell[],
): string {
  if (!isObject(result) || !Array.isArray(result.workers)) return "";
  const workers = result.workers as WorkerReading<K>[];
  const rows = workers.map((one): Cell[] => {
    const found: Reading<K> | null = one[what];
    const told = found === null ? columns.map(() => null) : cells(found);
    return [one.worker, one.outcome.replace("_", " "), ...told];
  });
  return textTable(["worker", "outcome", ...columns], rows, process.stdout.columns);
}

const MIB = 1024 * 1024;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function size(bytes: number): string {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  const value = bytes / 1024 ** power;
  return `${value < 10 && power > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[power]}`;
}

function part(used: number, total: number): string | null {
  return total === 0 ? null : `${Math.round((100 * used) / total)} % of ${size(total)}`;
}

/** The file system with the least room. */
function fullest(disks: Reading<"facts">["disks"]): string | null {
  const shares = disks.map(({ mount, used_bytes: used, available_bytes: available }) => ({
    mount,
    share: used / Math.max(1, used + available),
  }));
  const [most] = shares.sort((a, b) => b.share - a.share);
  return most ? `${Math.round(most.share * 100)} % ${most.mount}` : null;
}

function lasting(seconds: number): string {
  const [days, hours, minutes] = [86_400, 3_600, 60].map((unit) => Math.floor(seconds / unit)) as [
    number,
    number,
    number,
  ];
  return days > 0 ? `${days} d ${hours % 24} h` : hours > 0 ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, one) => total + one, 0);
}
