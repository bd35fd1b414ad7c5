import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { PrivateSshd } from "../scripts/private-sshd.ts";
import { BenchBucket } from "./bucket.ts";
import { Contenders, type Measured, missingTools, type Reach, type Tool } from "./contenders.ts";

const WORKERS = [10, 100, 300, 1_000];
/** The sizes of deploys, as jobs x workers. Each allocation starts `make` on this machine, so that 100,000 would take hours. */
const DEPLOYS: readonly Size[] = [
  { jobs: 10, workers: 50 },
  { jobs: 50, workers: 50 },
  { jobs: 100, workers: 100 },
];
/** The sizes of builds, likewise. */
const BUILDS: readonly Size[] = [...DEPLOYS.slice(0, 1), { jobs: 100, workers: 100 }, { jobs: 100, workers: 1_000 }];
const MITOGEN_WORKERS = 100;
/** OpenSSH's own key exchange would be most of what is measured here; `bench -- fleet` shows what it costs. */
const KEY_EXCHANGE = { KexAlgorithms: "curve25519-sha256" };

interface Size {
  jobs: number;
  workers: number;
}

/** What one command took, by what it did. */
type Row = Record<string, Measured>;

/**
 * Tables of growth: what the commands of a day cost by number of workers, over ssh, and by number of allocations. The
 * exponent says how the CPU grows between the first and the last size: 1 means in proportion.
 */
export async function scale(): Promise<void> {
  const place = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
  const folder = mkdtempSync(path.join(place, "ops-"));
  // Short names: the path of a control socket has at most 108 bytes.
  const parts = (process.env.OPS_BENCH_PARTS ?? "").split(",").filter(Boolean);
  const isWanted = (part: string) => parts.length === 0 || parts.includes(part);
  const counts = WORKERS.filter((count) => isWanted(String(count)));
  try {
    if (counts.length > 0) await byWorkers(path.join(folder, "w"), counts);
    const sizes = (part: string, all: readonly Size[]) =>
      all.filter(({ jobs, workers }) => isWanted(part) || parts.includes(`${part}${jobs * workers}`));
    await byAllocations("builds", path.join(folder, "builds"), sizes("builds", BUILDS), builds);
    await byAllocations("deploys on local workers", path.join(folder, "deploys"), sizes("deploys", DEPLOYS), deploys);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function byWorkers(folder: string, counts: readonly number[]): Promise<void> {
  const hosts = Array.from({ length: counts.at(-1) ?? 0 }, (_, index) => `127.1.${Math.floor(index / 250)}.${1 + (index % 250)}`);
  const sshd = await PrivateSshd.start(path.join(folder, "sshd"), hosts, ["MaxStartups 1000"]);
  try {
    const rows: Row[] = [];
    for (const count of counts)
      rows.push(told(count, await onWorkers(path.join(folder, String(count)), hosts.slice(0, count), sshd)));
    print("workers over ssh", "workers", counts, rows);
  } finally {
    await sshd.stop();
  }
}

/** A job of three files on these workers, and commands on all of them; then the same commands by other tools. */
async function onWorkers(folder: string, hosts: readonly string[], sshd: PrivateSshd): Promise<Row> {
  mkdirSync(folder, { recursive: true });
  const knownHostsFile = path.join(folder, "known_hosts");
  writeFileSync(knownHostsFile, sshd.knownHosts);
  const { port, user, clientKey: keyFile } = sshd;
  const reach: Reach = { hosts, port, user, keyFile, knownHostsFile, options: KEY_EXCHANGE };
  const bucket = await BenchBucket.make(path.join(folder, "bucket"), reach, path.join(folder, "roots"));
  writeJob(bucket, "web", { health_check: { checks: [{ type: "ssh", command: "true" }] } });
  const row: Row = { build: await bucket.measured("build") };
  row["first deploy"] = await bucket.measured("deploy");
  row["unchanged deploy"] = await bucket.measured("deploy");
  row.plan = await bucket.measured("deploy", "--dry-run");
  row.drift = await bucket.measured("drift");
  row.health_check = await bucket.measured("health_check");
  row["uptime, cold"] = await bucket.measured("worker", "uptime");
  row["uptime, warm"] = await bucket.warm("worker", "uptime");
  const missing = missingTools();
  const others = new Contenders(path.join(folder, "x"), reach);
  const beside = async (tool: Tool, name: string, work: () => Promise<Measured>) => {
    if (!missing.has(tool)) row[name] = await work();
  };
  await beside("xargs", "xargs ssh, cold", () => others.bareLoop("uptime"));
  await beside("ansible", "ansible, cold", () => others.ansibleRaw("uptime"));
  // It keeps an interpreter on each worker, and all workers are this machine.
  if (hosts.length <= MITOGEN_WORKERS)
    await beside("mitogen", "mitogen, cold", () => others.ansibleRaw("uptime", "mitogen_linear"));
  await others.warmUp();
  await beside("clush", "clush, warm", () => others.clush("uptime"));
  await others.close();
  return row;
}

async function byAllocations(
  title: string,
  folder: string,
  sizes: readonly Size[],
  measure: (bucket: BenchBucket) => Promise<Row>,
) {
  if (sizes.length === 0) return;
  const rows: Row[] = [];
  for (const { jobs, workers } of sizes) {
    const bucket = await BenchBucket.local(path.join(folder, `${jobs}x${workers}`), workers);
    for (let job = 0; job < jobs; job++) writeJob(bucket, `job_${job}`, {});
    rows.push(told(jobs * workers, await measure(bucket)));
    rmSync(bucket.folder, { recursive: true, force: true });
  }
  print(
    title,
    "allocations",
    sizes.map(({ jobs, workers }) => jobs * workers),
    rows,
  );
}

async function builds(bucket: BenchBucket): Promise<Row> {
  const first = await bucket.measured("build");
  return { "first build": first, "unchanged build": await bucket.measured("build") };
}

async function deploys(bucket: BenchBucket): Promise<Row> {
  bucket.run("build");
  const first = await bucket.measured("deploy");
  const unchanged = await bucket.measured("deploy");
  const plan = await bucket.measured("deploy", "--dry-run");
  const drift = await bucket.measured("drift");
  return {
    "first deploy": first,
    "unchanged deploy": unchanged,
    plan,
    drift,
    health_check: await bucket.measured("health_check"),
  };
}

function writeJob(bucket: BenchBucket, job: string, manifest: object): void {
  const folder = `workspace/jobs/${job}`;
  bucket.write(`${folder}/manifest.json`, JSON.stringify({ version: "1.0.0", selectors: ["worker"], ...manifest }));
  bucket.write(`${folder}/Makefile`, "start stop restart:\n\t@true\n");
  bucket.write(`${folder}/app.conf.tpl`, "{{ .Job }} {{ .NewVersion }} on {{ .WorkerIP }}\n");
  bucket.write(`${folder}/data.bin`, randomBytes(4_096));
}

/** Prints a row as soon as it is there: the whole takes long. */
function told(size: number, row: Row): Row {
  for (const [name, cost] of Object.entries(row)) console.log(`${size.toLocaleString("en")}: ${name}: ${describe(cost)}`);
  return row;
}

function print(title: string, what: string, sizes: readonly number[], rows: readonly Row[]): void {
  console.log(`\n${title}: wall time, CPU, peak memory of a process, most descriptors of a process`);
  console.log(`| ${what} | ${sizes.map((size) => size.toLocaleString("en")).join(" | ")} | exponent of the CPU |`);
  console.log(`|---|${sizes.map(() => "---|").join("")}---|`);
  for (const name of Object.keys(rows[0] ?? {})) {
    const costs = rows.flatMap((row) => row[name] ?? []);
    const cells = rows.map((row) => (row[name] ? describe(row[name]) : ""));
    const growth =
      Math.log((costs.at(-1)?.cpuMs ?? 1) / (costs[0]?.cpuMs ?? 1)) / Math.log((sizes.at(-1) ?? 1) / (sizes[0] ?? 1));
    console.log(`| ${name} | ${cells.join(" | ")} | ${growth.toFixed(2)} |`);
  }
}

function describe({ ms, cpuMs, memoryMb, descriptors }: Measured): string {
  return `${(ms / 1000).toFixed(2)} s, ${(cpuMs / 1000).toFixed(2)} s, ${memoryMb.toFixed(0)} MB, ${descriptors}`;
}
