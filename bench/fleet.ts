import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { PrivateSshd } from "../scripts/private-sshd.ts";
import { BenchBucket } from "./bucket.ts";
import { Contenders, type Cost, measured, missingTools, type Reach, type Tool } from "./contenders.ts";
import type { FleetPlan, Order } from "./fleet-client.ts";
import { MainJob } from "./main-job.ts";
import { median } from "./measure.ts";

const CLIENT = fileURLToPath(new URL("fleet-client.ts", import.meta.url));
const HOSTS = Array.from({ length: 100 }, (_, index) => `127.0.1.${index + 1}`);
const JOB_WORKERS = 50;
const JOB_FILES = 20;
const JOB_FILE_BYTES = 8 * 1024;
const MIB = 1024 * 1024;
/**
 * A key exchange that an operator may choose in `ssh_options`: far cheaper than OpenSSH's own choice, but not safe
 * against quantum computers.
 */
const CLASSIC = { KexAlgorithms: "curve25519-sha256" };
/** Whom root measures as: root's login files and the checks of sshd for root would distort what is measured. */
const USER = "ops-bench";

/**
 * Commands and files over ssh, beside what Debian ships, on 100 workers that are loopback addresses of this machine.
 * Both sides of every connection share its cores, so wall times hold half of the workers' work; the CPU is that of the
 * client alone.
 */
export async function fleet(): Promise<void> {
  if (process.getuid?.() === 0) return asUser();
  const chosen = (process.env.OPS_BENCH_PARTS ?? "").split(",").filter(Boolean);
  const missing = missingTools();
  for (const [tool, advice] of missing) console.log(`${tool} is left out: ${advice}`);
  // In memory: a hundred machines have a hundred disks, and one file system is slow at the work of all at once.
  const place = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
  const folder = mkdtempSync(path.join(place, "ops-bench-"));
  // MaxStartups: xargs and ansible open 32 and 50 connections at a time and would be turned away.
  const sshd = await PrivateSshd.start(path.join(folder, "sshd"), HOSTS, ["MaxStartups 200"]);
  const measurement = new Measurement(folder, sshd, missing);
  console.log(`${cpus().length} cores, ${Math.round((await busyShare()) * 100)} % of them busy with other things`);
  try {
    for (const [name, part] of Object.entries(PARTS)) if (chosen.length === 0 || chosen.includes(name)) await part(measurement);
  } finally {
    await measurement.close();
    await sshd.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What is measured; `OPS_BENCH_PARTS=cold,job` chooses. */
const PARTS: Record<string, (measurement: Measurement) => Promise<void>> = {
  cold: (measurement) => measurement.cold(),
  job: (measurement) => measurement.mainJob(),
  warm: (measurement) => measurement.warm(),
  memory: (measurement) => measurement.memory(),
};

/** How much of the machine's time is used while this process waits a moment. */
async function busyShare(): Promise<number> {
  const before = cpus().map(({ times }) => times);
  await sleep(1_000);
  const spent = cpus().map(({ times }, index) => {
    const { idle = 0 } = before[index] ?? {};
    return { idle: times.idle - idle, all: sum(Object.values(times)) - sum(Object.values(before[index] ?? {})) };
  });
  return 1 - sum(spent.map(({ idle }) => idle)) / sum(spent.map(({ all }) => all));
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

/** Starts the same benchmark once more as a user of its own, which stays on this machine afterwards. */
async function asUser(): Promise<void> {
  if (spawnSync("id", [USER]).status !== 0) {
    const made = spawnSync("useradd", ["--system", "--create-home", "--shell", "/bin/sh", USER]);
    if (made.status !== 0) throw new Error(`cannot make the user ${USER}: ${made.stderr}`);
    console.log(`made the user ${USER}; to remove it afterwards: userdel -r ${USER}`);
  }
  const who = ["--reuid", USER, "--regid", USER, "--clear-groups"];
  const names = ["PATH", "LANG", "OPS_BENCH_PARTS", "OPS_PROGRAM", "OPS_BENCH_WITHOUT"];
  const kept = names.map((name) => `${name}=${process.env[name] ?? ""}`);
  const env = ["env", "-i", `HOME=/home/${USER}`, ...kept];
  const self = [process.execPath, fileURLToPath(new URL("main.ts", import.meta.url)), "fleet"];
  const child = spawn("setpriv", [...who, ...env, ...self], { stdio: "inherit", cwd: "/" });
  const [code] = (await once(child, "exit")) as [number | null];
  if (code !== 0) process.exitCode = 1;
}

class Measurement {
  readonly #folder: string;
  readonly #plan: FleetPlan;
  readonly #planFile: string;
  readonly #missing: ReadonlyMap<Tool, string>;
  readonly #all: Contenders;
  readonly #some: Contenders;
  #client: Client | undefined;

  constructor(folder: string, sshd: PrivateSshd, missing: ReadonlyMap<Tool, string>) {
    this.#folder = folder;
    this.#missing = missing;
    const knownHostsFile = path.join(folder, "known_hosts");
    writeFileSync(knownHostsFile, sshd.knownHosts);
    const { port, user, clientKey: keyFile } = sshd;
    const roots = path.join(folder, "roots");
    this.#plan = { hosts: HOSTS, port, user, keyFile, knownHostsFile, roots, options: {} };
    this.#planFile = this.#written("plan.json", this.#plan);
    this.#all = new Contenders(path.join(folder, "all"), this.#plan);
    this.#some = new Contenders(path.join(folder, "some"), { ...this.#plan, hosts: HOSTS.slice(0, JOB_WORKERS) });
  }

  /** The commands that users type, each with connections of its own. */
  async cold(): Promise<void> {
    await this.#cold("OpenSSH's own key exchange", "own", {}, 1.15);
    await this.#cold(`all with ${CLASSIC.KexAlgorithms}`, "classic", CLASSIC, 1.5);
  }

  async #cold(what: string, name: string, options: Reach["options"], most: number): Promise<void> {
    const reach = { ...this.#plan, options };
    const others = new Contenders(path.join(this.#folder, name), reach);
    const bucket = await BenchBucket.make(path.join(this.#folder, `${name}-bucket`), reach, reach.roots);
    bucket.run("build");
    const found = await compare(`uptime on ${HOSTS.length} workers, cold: a connection to each, ${what}`, 3, {
      "ops worker uptime": () => bucket.measured("worker", "uptime"),
      "ops run_command": () => bucket.measured("run_command", "uptime", "--concurrency", "32"),
      ...this.#with("xargs", {
        "xargs -P 32 ssh": () => others.bareLoop("uptime"),
        "… with connections kept": () => others.keptLoop("uptime"),
      }),
      ...this.#with("ansible", { "ansible -m raw -f 50": () => others.ansibleRaw("uptime") }),
    });
    for (const command of ["ops worker uptime", "ops run_command"]) {
      found.ratio("CPU", command, "xargs -P 32 ssh", `wanted: at most ${most}`);
      found.ratio("CPU", command, "ansible -m raw -f 50", "wanted: less than 1");
    }
  }

  /** A deploy as most are: all files new, then with one template changed. */
  async mainJob(): Promise<void> {
    await this.#mainJob("OpenSSH's own key exchange", "own", {});
    await this.#mainJob(CLASSIC.KexAlgorithms, "classic", CLASSIC);
  }

  async #mainJob(what: string, name: string, options: Reach["options"]): Promise<void> {
    const reach = { ...this.#plan, hosts: HOSTS.slice(0, JOB_WORKERS), options };
    const others = new Contenders(path.join(this.#folder, `${name}-main`), reach);
    const job = await MainJob.make(path.join(this.#folder, `${name}-job`), reach);
    const script = "rsync, ssh and curl";
    const ways = {
      "ops deploy": () => job.deploy(),
      ...this.#with("rsync", this.#with("curl", { [script]: () => job.script(others) })),
      ...this.#with("ansible", { "ansible-playbook": () => job.playbook(others, "linear") }),
      ...this.#with("mitogen", { "ansible with mitogen": () => job.playbook(others, "mitogen_linear") }),
    };
    const title = `the main job to ${JOB_WORKERS} workers, ${what}`;
    const first = await compare(`${title}, for the first time`, 1, ways, { warmUp: false });
    const changed = await compare(`${title}, one template changed`, 3, ways, { warmUp: false, before: () => job.change() });
    for (const found of [first, changed]) {
      found.ratio("time", "ops deploy", script, "wanted: at most 1.3");
      found.ratio("CPU", "ops deploy", script, "wanted: at most 1.15");
    }
    await job.close();
  }

  async warm(): Promise<void> {
    this.#client = new Client(this.#planFile);
    const client = this.#client;
    const uptime = (isShort: boolean) => client.carryOut({ do: "command", workers: HOSTS.length, text: "uptime", isShort });
    await uptime(false);
    await this.#all.warmUp();
    const found = await compare(`uptime on ${HOSTS.length} workers, warm`, 7, {
      "ops, a channel each": () => uptime(false),
      "ops, over the kept shells": () => uptime(true),
      ...this.#with("clush", { "clush -f 64": () => this.#all.clush("uptime") }),
    });
    for (const way of ["ops, a channel each", "ops, over the kept shells"])
      found.ratio("time", way, "clush -f 64", "wanted: less than 1, and at most 0.3 s");
    await this.#job(client);
  }

  /** The job on its workers: all files new, then nothing new. */
  async #job(client: Client): Promise<void> {
    const source = path.join(this.#folder, "job");
    const target = (host: string) => path.join(this.#folder, "rsync", host);
    for (const host of HOSTS) mkdirSync(target(host), { recursive: true });
    mkdirSync(path.join(this.#folder, "synchronize"));
    await this.#some.warmUp();
    const ways = {
      ops: () => client.carryOut({ do: "sync", workers: JOB_WORKERS, source }),
      ...this.#with("rsync", { "rsync, xargs -P 32": () => this.#some.rsyncLoop(source, target) }),
    };
    const synchronize = {
      "ansible -m synchronize": () =>
        this.#some.ansibleSynchronize(source, `${this.#folder}/synchronize/{{ inventory_hostname }}`),
    };
    const what = `a job of ${JOB_FILES} files to ${JOB_WORKERS} workers, warm`;
    const change = () => writeJob(source);
    const changed = await compare(`${what}, all of them changed`, 5, ways, { before: change });
    changed.ratio("time", "ops", "rsync, xargs -P 32", "wanted: less than 1");
    const same = await compare(`${what}, nothing changed`, 5, ways);
    same.ratio("time", "ops", "rsync, xargs -P 32", "wanted: at most 0.3 s");
    const slow = await compare(
      `${what}, all of them changed`,
      2,
      { ops: ways.ops, ...this.#with("ansible", synchronize) },
      { before: change },
    );
    slow.ratio("time", "ansible -m synchronize", "ops", "wanted: at least 5");
  }

  async memory(): Promise<void> {
    console.log("\npeak memory of ops while it sends one file");
    const file = path.join(this.#folder, "large");
    for (const mib of [1, 64, 256, 1, 64, 256]) {
      writeFileSync(file, randomBytes(MIB));
      truncateSync(file, mib * MIB);
      await this.#run("send", file);
      const kib = Number(readFileSync(this.#output, "utf8"));
      console.log(`  ${`${mib} MiB`.padEnd(42)} ${(kib / 1024).toFixed(0).padStart(8)} MiB`);
    }
  }

  async close(): Promise<void> {
    await this.#client?.close();
    await this.#all.close();
    await this.#some.close();
  }

  get #output(): string {
    return path.join(this.#folder, "output");
  }

  #run(mode: string, argument: string): Promise<Cost> {
    // As bin/ops.js does it.
    const env = { NODE_COMPILE_CACHE: path.join(this.#folder, "compiled") };
    return measured([process.execPath, CLIENT, this.#planFile, mode, argument], this.#output, { env });
  }

  #written(name: string, plan: FleetPlan): string {
    const file = path.join(this.#folder, name);
    writeFileSync(file, JSON.stringify(plan));
    return file;
  }

  #with(tool: Tool, ways: Record<string, () => Promise<Cost>>): Record<string, () => Promise<Cost>> {
    return this.#missing.has(tool) ? {} : ways;
  }
}

/** Our client as a process that keeps its connections. */
class Client {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string>;

  constructor(planFile: string) {
    this.#child = spawn(process.execPath, [CLIENT, planFile], { stdio: ["pipe", "pipe", "inherit"] });
    this.#answers = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  }

  async carryOut(order: Order): Promise<Cost> {
    this.#child.stdin?.write(`${JSON.stringify(order)}\n`);
    const { value, done } = await this.#answers.next();
    if (done) throw new Error("the client of ops has ended before its time");
    return JSON.parse(value) as Cost;
  }

  async close(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    const exited = once(this.#child, "exit");
    this.#child.stdin?.end();
    await exited;
  }
}

/** Medians of the ways to do one thing. */
class Medians {
  readonly #costs: Map<string, Cost>;

  constructor(costs: Map<string, Cost>) {
    this.#costs = costs;
  }

  /** Prints how two of them compare, if both were measured. */
  ratio(of: "CPU" | "time", one: string, other: string, wanted: string): void {
    const [a, b] = [this.#costs.get(one), this.#costs.get(other)];
    if (!a || !b) return;
    const ratio = of === "CPU" ? a.cpuMs / b.cpuMs : a.ms / b.ms;
    console.log(`  ${of} of ${one} / ${other}: ${ratio.toFixed(2)} (${wanted})`);
  }
}

/** Runs the ways in turn, with `warmUp` once uncounted, and then `rounds` times; prints medians and the range of the times. */
async function compare(
  title: string,
  rounds: number,
  ways: Record<string, () => Promise<Cost>>,
  { before = () => {}, warmUp = true }: { before?: () => void; warmUp?: boolean } = {},
): Promise<Medians> {
  const costs = new Map(Object.keys(ways).map((name) => [name, [] as Cost[]]));
  for (let round = warmUp ? -1 : 0; round < rounds; round++)
    for (const [name, way] of Object.entries(ways)) {
      before();
      const cost = await way();
      if (round >= 0) costs.get(name)?.push(cost);
    }
  console.log(`\n${title}; medians of ${rounds} rounds`);
  const medians = new Map<string, Cost>();
  for (const [name, all] of costs) {
    const times = all.map((cost) => cost.ms);
    const cost = { ms: median(times), cpuMs: median(all.map(({ cpuMs }) => cpuMs)) };
    medians.set(name, cost);
    const range = `${seconds(Math.min(...times))} - ${seconds(Math.max(...times))}`;
    console.log(`  ${name.padEnd(26)} ${seconds(cost.ms).padStart(8)} s  (${range})   CPU ${seconds(cost.cpuMs).padStart(6)} s`);
  }
  return new Medians(medians);
}

function seconds(ms: number): string {
  return (ms / 1000).toFixed(2);
}

function writeJob(folder: string): void {
  mkdirSync(folder, { recursive: true });
  for (let number = 0; number < JOB_FILES; number++)
    writeFileSync(path.join(folder, `file${number}`), randomBytes(JOB_FILE_BYTES));
}
