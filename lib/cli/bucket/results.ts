import { byteSize } from "../../core/plain-text.ts";
import { isObject } from "../../core/shape.ts";
import { shortNames } from "../../core/short-names.ts";
import type { CommandResult } from "../../operation/control/run-command.ts";
import type { DeployResult } from "../../operation/deploy/deploy-result.ts";
import type { Reading, ReadingKind, WorkerReading } from "../../operation/tend/readings.ts";
import { type Cell, textTable, visibleLines } from "../base/terminal.ts";

/** The result of `ops worker facts` as a table; empty for a run that asked no worker. */
export function factsTable(result: unknown): string {
  const columns = ["hostname", "os", "arch", "cpus", "mhz", "memory", "disk_used", "addresses"];
  return readingTable(result, "facts", columns, (facts) => [
    facts.hostname,
    facts.os,
    facts.arch,
    facts.cpu_count,
    facts.cpu_mhz,
    byteSize(facts.memory_mb * MIB),
    fullestDisk(facts.disks),
    facts.addresses.join(" "),
  ]);
}

/** The result of `ops worker uptime` as a table. */
export function uptimeTable(result: unknown): string {
  return readingTable(result, "uptime", ["load1", "load5", "load15", "up"], (found) => [
    found.load1,
    found.load5,
    found.load15,
    durationOf(found.uptime_s),
  ]);
}

/** The result of `ops worker sysstat` as a table; disks and interfaces are added up. */
export function sysstatTable(result: unknown): string {
  const columns = ["cpu", "memory", "swap", "disk_busy", "read/s", "write/s", "received/s", "sent/s"];
  return readingTable(result, "sysstat", columns, (found) => [
    `${found.cpu_pct} %`,
    shareOf(found.mem_used_bytes, found.mem_total_bytes),
    shareOf(found.mem_swap_used_bytes, found.mem_swap_total_bytes),
    found.disk.length === 0 ? null : `${Math.max(...found.disk.map((disk) => disk.busy_pct))} %`,
    byteSize(sum(found.disk.map((disk) => disk.read_bytes_per_s))),
    byteSize(sum(found.disk.map((disk) => disk.write_bytes_per_s))),
    byteSize(sum(found.net.map((one) => one.rx_bytes_per_s))),
    byteSize(sum(found.net.map((one) => one.tx_bytes_per_s))),
  ]);
}

function readingTable<K extends ReadingKind>(
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
function shareOf(used: number, total: number): string | null {
  return total === 0 ? null : `${Math.round((100 * used) / total)} % of ${byteSize(total)}`;
}

/** The fullest file system. */
function fullestDisk(disks: Reading<"facts">["disks"]): string | null {
  const shares = disks.map(({ mount, used_bytes: used, available_bytes: available }) => ({
    mount,
    share: used / Math.max(1, used + available),
  }));
  const [most] = shares.sort((a, b) => b.share - a.share);
  return most ? `${Math.round(most.share * 100)} % ${most.mount}` : null;
}

function durationOf(seconds: number): string {
  const minutes = Math.floor(seconds / 60);
  const hours = Math.floor(minutes / 60);
  const days = Math.floor(hours / 24);
  return days > 0 ? `${days} d ${hours % 24} h` : hours > 0 ? `${hours} h ${minutes % 60} min` : `${minutes} min`;
}

function sum(values: readonly number[]): number {
  return values.reduce((total, one) => total + one, 0);
}

/**
 * The jobs of a deploy as a table of actions, worker counts and durations, and below it the services that the deploy
 * left down; empty for a dry run.
 */
export function deploySummary(result: unknown, width?: number): string {
  const { jobs, left_down = [] } = (result ?? {}) as Partial<DeployResult>;
  if (!Array.isArray(jobs) || jobs.length === 0) return "";
  const rows = jobs.map((job) => [
    job.job,
    job.outcome.replace("_", " "),
    counted(job.allocations.map(({ action }) => action ?? "none")),
    counted(job.allocations.map(({ outcome }) => outcome.replace("_", " "))),
    (job.duration_ms / 1000).toFixed(1),
  ]);
  const table = textTable(["job", "outcome", "actions", "workers", "seconds"], rows, width);
  return table + left_down.map((sentence) => `${sentence}\n`).join("");
}

function counted(names: readonly string[]): string {
  const counts = Map.groupBy(names, (name) => name);
  return [...counts].map(([name, all]) => `${all.length} ${name}`).join(", ") || "-";
}

/** Workers on which a command had the same outcome and output. */
interface Fold {
  workers: string[];
  /** The outcome in words. */
  how: string;
  output: string;
}

/** Groups by outcome and output, the smallest group first; among equal sizes groups that succeeded come last. */
export function foldWorkers(results: readonly CommandResult[]): Fold[] {
  const groups = Map.groupBy(results, (result) =>
    JSON.stringify([result.outcome, reasonOf(result), result.output, result.output_sha256]),
  );
  const folds = [...groups.values()].map((same) => {
    const [first] = same as [CommandResult];
    const why = same.length === 1 ? first.error : reasonOf(first);
    const how = first.outcome.replace("_", " ") + (why === null ? "" : `: ${why}`);
    return { workers: same.map(({ worker }) => worker), how, output: first.output };
  });
  return folds.sort((a, b) => a.workers.length - b.workers.length || Number(a.how === "ok") - Number(b.how === "ok"));
}

/** The reason of a failure; null where it names its worker, since such reasons differ only in that name. */
function reasonOf({ worker, error }: CommandResult): string | null {
  return error?.includes(worker) ? null : error;
}

/** The text that `ops run_command --fold` prints; empty for a run without workers. */
export function foldedText(result: unknown): string {
  if (!isObject(result) || !Array.isArray(result.workers)) return "";
  const texts = foldWorkers(result.workers as CommandResult[]).map(({ workers, how, output }) => {
    const count = workers.length === 1 ? "" : ` (${workers.length} workers)`;
    return `--- ${shortNames(workers)}${count}: ${how}\n${output}`;
  });
  return visibleLines(texts.join(""));
}
