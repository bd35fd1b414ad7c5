import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { openForReading } from "../lib/bucket/base/database.ts";
import { layoutOf } from "../lib/bucket/base/layout.ts";
import { initBucket } from "../lib/bucket/workspace/init.ts";
import type { BuildCost } from "./build-run.ts";
import type { Cost } from "./contenders.ts";
import { median } from "./measure.ts";

const ROUNDS = 5;
const FILES = 20;
const FILE_BYTES = 4096;
const RUN = fileURLToPath(new URL("build-run.ts", import.meta.url));
const FLOOR = fileURLToPath(new URL("build-floor.ts", import.meta.url));
const PHASES = ["start", "read", "check", "store", "post_build"];

/**
 * Builds, each in a process of its own, beside a bare script that reads and hashes the same files and writes as many KV
 * rows as the first build did: first build, unchanged rebuild, rebuild after one job changed. Then how the cost grows
 * with the workers.
 */
export async function build(): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), "ops-bench-"));
  // What is compiled once is not compiled again, as bin/ops.js has it.
  process.env.NODE_COMPILE_CACHE = path.join(folder, "compiled");
  try {
    const base = await measure(path.join(folder, "base"), 200, 50);
    const wide = await measure(path.join(folder, "wide"), 200, 200);
    for (const [index, kind] of ["first build", "unchanged", "one job changed"].entries())
      console.log(`4x the workers, ${kind}: x ${((wide[index] ?? 0) / (base[index] ?? 1)).toFixed(2)}`);
    await measure(path.join(folder, "peers"), 10, 1_000);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Prints the table of one size and answers the medians of the three builds. */
async function measure(folder: string, jobs: number, workers: number): Promise<number[]> {
  makeWorkspace(folder, jobs, workers);
  const floor: Cost[] = [];
  const builds: Record<string, BuildCost[]> = { "first build": [], unchanged: [], "one job changed": [] };
  let rows = 0;
  // The first round warms caches and is not counted.
  for (let round = -1; round < ROUNDS; round++) {
    rmSync(layoutOf(folder).data, { recursive: true, force: true });
    await initBucket(folder, { source: false });
    const costs = [buildOnce(folder)];
    rows = storedRows(folder);
    costs.push(buildOnce(folder));
    writeFileSync(path.join(folder, "workspace/jobs/job_7/file_3.conf"), fileText(`changed ${round}`));
    costs.push(buildOnce(folder));
    const bare = floorOnce(folder, rows);
    if (round < 0) continue;
    floor.push(bare);
    for (const [index, list] of Object.values(builds).entries()) list.push(costs[index] as BuildCost);
  }
  console.log(`\n${jobs} jobs x ${workers} workers: ${jobs * FILES} files, ${rows} KV rows; medians of ${ROUNDS}`);
  printRow("", ["total", "x floor", "CPU", "x floor", ...PHASES, "max RSS"]);
  printRow("floor", againstFloor(floor, floor));
  for (const [name, costs] of Object.entries(builds)) {
    const phases = PHASES.map((phase) => ms(median(costs.map((cost) => cost.phases[phase] ?? 0))));
    const rss = Math.max(...costs.map((cost) => cost.maxRssMb));
    printRow(name, [...againstFloor(costs, floor), ...phases, `${rss.toFixed(0)} MB`]);
  }
  return Object.values(builds).map((costs) => median(costs.map((cost) => cost.ms)));
}

/** Wall time and CPU, each with its ratio to the floor's. */
function againstFloor(costs: readonly Cost[], floor: readonly Cost[]): string[] {
  return (["ms", "cpuMs"] as const).flatMap((what) => {
    const value = median(costs.map((cost) => cost[what]));
    return [ms(value), (value / median(floor.map((cost) => cost[what]))).toFixed(2)];
  });
}

function makeWorkspace(folder: string, jobs: number, workers: number): void {
  const hosts = Array.from({ length: workers }, (_, index) => `10.0.${Math.floor(index / 250)}.${index % 250}`);
  mkdirSync(path.join(folder, "workspace"), { recursive: true });
  const write = (name: string, text: string) => writeFileSync(path.join(folder, "workspace", name), text);
  write("workers.json", JSON.stringify(hosts.map((host) => ({ host, tags: { zone: "a" } }))));
  for (let job = 0; job < jobs; job++) {
    mkdirSync(path.join(folder, `workspace/jobs/job_${job}`), { recursive: true });
    const ports = { [`job_${job}_http`]: {}, [`job_${job}_admin`]: {} };
    const manifest = { version: "1.0.0", selectors: ["worker"], resources: { ports } };
    write(`jobs/job_${job}/manifest.json`, JSON.stringify(manifest));
    write(`jobs/job_${job}/Makefile`, "start stop restart:\n\t@true\n");
    for (let file = 2; file < FILES; file++) write(`jobs/job_${job}/file_${file}.conf`, fileText(`job ${job} file ${file}`));
  }
}

function fileText(line: string): string {
  return `${line}\n`.repeat(Math.ceil(FILE_BYTES / (line.length + 1))).slice(0, FILE_BYTES);
}

function buildOnce(folder: string): BuildCost {
  return JSON.parse(output(RUN, folder)) as BuildCost;
}

function floorOnce(folder: string, rows: number): Cost {
  const database = path.join(folder, "floor.db");
  for (const suffix of ["", "-wal", "-shm"]) rmSync(`${database}${suffix}`, { force: true });
  return JSON.parse(output(FLOOR, path.join(folder, "workspace"), database, String(rows))) as Cost;
}

function output(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

function storedRows(folder: string): number {
  using db = openForReading(layoutOf(folder).database);
  return db.get<{ n: number }>("SELECT count(*) AS n FROM key_value")?.n ?? 0;
}

function printRow(name: string, cells: readonly string[]): void {
  console.log(`${name.padEnd(16)}${cells.map((cell) => cell.padStart(10)).join("")}`);
}

function ms(value: number): string {
  return `${value.toFixed(0)} ms`;
}
