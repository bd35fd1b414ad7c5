import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { layoutOf } from "../lib/bucket/base/layout.ts";
import { LocalServer, type Run } from "../scripts/local-server.ts";
import { PrivateSshd } from "../scripts/private-sshd.ts";
import { median } from "./measure.ts";

const HOSTS = Array.from({ length: 100 }, (_, index) => `127.0.1.${index + 1}`);
const MINUTES = Number(process.env.OPS_BENCH_MINUTES ?? 6);
const MINUTE_MS = 60_000;
const TICK_MS = 10;
/** A process that has this set gets its orphans as children: keepers and their ssh outlive the runs that start them. */
const SUBREAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])";

/**
 * What a server costs that nobody looks at: a schedule that checks the health of 100 workers every minute, over kept
 * connections. The CPU is that of the server and of every process that it or its runs start, minute by minute; the workers'
 * sshd and what it starts are told apart.
 */
export async function watch(): Promise<void> {
  const folder = mkdtempSync(path.join(existsSync("/dev/shm") ? "/dev/shm" : tmpdir(), "ops-"));
  const sshd = await PrivateSshd.start(path.join(folder, "sshd"), HOSTS, ["MaxStartups 200"]);
  const node = ["python3", "-c", SUBREAPER, process.execPath] as const;
  const server = await LocalServer.start(path.join(folder, "root"), { node, quiet: true });
  try {
    const bucket = await watchedBucket(folder, server, sshd);
    const layout = layoutOf(path.join(folder, "root", bucket));
    await untilChecked(server, bucket);
    // The first checks open the connections and store what they find.
    await nextHalfMinute();
    await nextHalfMinute();
    const size = () =>
      statSync(layout.database).size + (statSync(`${layout.database}-wal`, { throwIfNoEntry: false })?.size ?? 0);
    const [sizeBefore, filesBefore] = [size(), filesBelow(layout.runs)];
    const minutes: Spent[] = [];
    for (let minute = 0, before = spent(server, sshd); minute < MINUTES; minute++) {
      await nextHalfMinute();
      const now = spent(server, sshd);
      minutes.push(difference(now, before));
      before = now;
    }
    await requireSuccess(server, bucket);
    print(minutes);
    console.log(
      `  database: ${sizeBefore} bytes before, ${size()} after; files of runs: ${filesBefore}, ${filesBelow(layout.runs)}`,
    );
  } finally {
    await server.stop();
    await sshd.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function watchedBucket(folder: string, server: LocalServer, sshd: PrivateSshd): Promise<string> {
  const bucket = await server.createBucket();
  const source = path.join(folder, "source");
  const write = (file: string, value: object | string) => {
    const target = path.join(source, file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, typeof value === "string" ? value : JSON.stringify(value));
  };
  write("ops.conf", `ssh_user = "${sshd.user}"\nssh_port = ${sshd.port}\n`);
  write(
    "workspace/workers.json",
    HOSTS.map((host) => ({ host, root: path.join(folder, "roots", host), labels: ["web"] })),
  );
  const check = { checks: [{ type: "ssh", command: "true" }] };
  write("workspace/jobs/web/manifest.json", { version: "1.0.0", selectors: ["worker"], health_check: check });
  write("workspace/jobs/web/Makefile", "start stop restart:\n\t@true\n");
  write("workspace/schedules.json", { schedules: [{ name: "health", every: "1m", kind: "health_check" }] });
  const layout = layoutOf(path.join(folder, "root", bucket));
  const { status, body } = await server.call("PUT", `/api/buckets/${bucket}/secrets/ssh_key`, {
    private_key: readFileSync(sshd.clientKey, "utf8"),
  });
  if (status > 299) throw new Error(JSON.stringify(body));
  mkdirSync(path.dirname(layout.knownHosts), { recursive: true, mode: 0o700 });
  writeFileSync(layout.knownHosts, sshd.knownHosts, { mode: 0o600 });
  const pushed = await server.push(bucket, source);
  if (pushed.code !== 0) throw new Error(pushed.stderr + pushed.stdout);
  const deployed = await server.run(bucket, "deploy", {});
  if (deployed.status !== "succeeded") throw new Error(`${deployed.error}`);
  return bucket;
}

async function requireSuccess(server: LocalServer, bucket: string): Promise<void> {
  const { items } = (await server.call<{ items: Run[] }>("GET", `/api/buckets/${bucket}/runs`)).body;
  const last = items.find(({ kind }) => kind === "health_check");
  if (last?.status !== "succeeded") throw new Error(`the last check is ${last?.status}: ${last?.error}`);
}

function print(minutes: readonly Spent[]): void {
  console.log(`\na health check of ${HOSTS.length} workers every minute, medians of ${minutes.length} minutes`);
  for (const [name, title] of Object.entries(TITLES)) {
    const all = minutes.map((one) => one[name as keyof Spent]);
    const [each, range] = [median(all), `${Math.min(...all)}-${Math.max(...all)} ms`];
    const share = `${((each / MINUTE_MS) * 100).toFixed(2)} % of a core`;
    console.log(`  ${title.padEnd(40)} ${each.toFixed(0).padStart(6)} ms of CPU  ${range.padStart(14)}   ${share}`);
  }
}

async function untilChecked(server: LocalServer, bucket: string): Promise<void> {
  for (;;) {
    const { items } = (
      await server.call<{ items: { last: { status: string } | null }[] }>("GET", `/api/buckets/${bucket}/schedules`)
    ).body;
    if (items[0]?.last?.status === "succeeded") return;
    await sleep(1_000);
  }
}

/** Between two checks, which begin with the minute. */
async function nextHalfMinute(): Promise<void> {
  await sleep(MINUTE_MS - ((Date.now() + MINUTE_MS / 2) % MINUTE_MS));
}

/** CPU time in milliseconds: of the server itself, of its runs with all that they wait for, and of what keeps connections. */
interface Spent {
  server: number;
  runs: number;
  connections: number;
  all: number;
  sshd: number;
}

const TITLES: Readonly<Record<keyof Spent, string>> = {
  server: "the server's own process",
  runs: "processes of runs",
  connections: "the keeper and its ssh",
  all: "all of ops",
  sshd: "sshd of the workers and what it starts",
};

function spent(server: LocalServer, sshd: PrivateSshd): Spent {
  const all = processes();
  const pid = server.process.pid as number;
  const own = all.get(pid) as Used;
  const connections = sum(descendants(all, pid).map(wholeOf));
  const workers = sshd.pids.flatMap((one) => [all.get(one) as Used, ...descendants(all, one)]);
  const [of, runs] = [own.ownMs, own.waitedMs];
  return { server: of, runs, connections, all: of + runs + connections, sshd: sum(workers.map(wholeOf)) };
}

function difference(after: Spent, before: Spent): Spent {
  const names = Object.keys(after) as (keyof Spent)[];
  return Object.fromEntries(names.map((name) => [name, after[name] - before[name]])) as unknown as Spent;
}

/** What a process has used, and what those of its children have that it has waited for. */
interface Used {
  parent: number;
  ownMs: number;
  waitedMs: number;
}

function wholeOf({ ownMs, waitedMs }: Used): number {
  return ownMs + waitedMs;
}

function processes(): Map<number, Used> {
  const found = new Map<number, Used>();
  for (const name of readdirSync("/proc").filter((one) => /^\d+$/.test(one))) {
    try {
      const fields = (readFileSync(`/proc/${name}/stat`, "latin1").split(") ").at(-1) as string).split(" ").map(Number);
      const [, parent = 0] = fields;
      const [user = 0, system = 0, waitedUser = 0, waitedSystem = 0] = fields.slice(11, 15);
      found.set(Number(name), { parent, ownMs: (user + system) * TICK_MS, waitedMs: (waitedUser + waitedSystem) * TICK_MS });
    } catch {
      // It has ended meanwhile.
    }
  }
  return found;
}

function descendants(all: ReadonlyMap<number, Used>, pid: number): Used[] {
  return [...all].filter(([, { parent }]) => parent === pid).flatMap(([child, used]) => [used, ...descendants(all, child)]);
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}

function filesBelow(folder: string): number {
  return readdirSync(folder, { recursive: true }).length;
}
