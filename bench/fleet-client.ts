// Our side of `npm run bench -- fleet`, in a process of its own:
//   node bench/fleet-client.ts <file> send <file>    sends one file to the first worker and prints its own peak memory
//   node bench/fleet-client.ts <file>                opens all connections, then carries out the orders on its input
// The file is a FleetPlan. Orders are lines of JSON, so are the answers: what it took, in milliseconds.
import { createHash } from "node:crypto";
import { createReadStream, readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { Launcher } from "../lib/core/spawn.ts";
import type { Transport, WorkerAddress } from "../lib/transport/base/transport.ts";
import { type SyncFile, syncTree } from "../lib/transport/files/sync.ts";
import { SshConnections } from "../lib/transport/ssh/ssh.ts";
import type { Cost, Reach } from "./contenders.ts";

/** The workers, and a folder in which each has its root. */
export interface FleetPlan extends Reach {
  roots: string;
}

/** What the client is to do on its first `workers` workers. */
export type Order =
  | { do: "command"; workers: number; text: string; isShort: boolean }
  | { do: "sync"; workers: number; source: string };

const BUCKET_ID = "0190a5e8-0000-7000-8000-000000000001";
/** The default of `ssh_concurrency`. */
const CONCURRENCY = 32;

const [planFile = "", mode, argument = ""] = process.argv.slice(2);
const plan = JSON.parse(readFileSync(planFile, "utf8")) as FleetPlan;
const workers: WorkerAddress[] = plan.hosts.map((host) => ({ host, connection: "ssh", root: path.join(plan.roots, host) }));
const ssh = await SshConnections.open(
  {
    user: plan.user,
    port: plan.port,
    keyFile: plan.keyFile,
    knownHostsFile: plan.knownHostsFile,
    options: plan.options,
    concurrency: CONCURRENCY,
    useSudo: false,
    reattachSeconds: 60,
    spoolBytes: 2 ** 26,
  },
  workers,
  new Launcher(process.env),
);
const transports = workers.map((worker) => ssh.transport(worker, BUCKET_ID));
try {
  if (mode === "send") await send(argument);
  else for await (const line of createInterface({ input: process.stdin })) await answer(JSON.parse(line));
} finally {
  await ssh.close();
}

async function answer(order: Order): Promise<void> {
  const chosen = transports.slice(0, order.workers);
  const started = performance.now();
  const cpu = cpuMs();
  if (order.do === "command") await command(chosen, order.text, order.isShort);
  else await syncAll(chosen, order.source);
  const cost: Cost = { ms: performance.now() - started, cpuMs: cpuMs() - cpu };
  process.stdout.write(`${JSON.stringify(cost)}\n`);
}

async function command(chosen: readonly Transport[], text: string, isShort: boolean): Promise<void> {
  const run = async (transport: Transport) => {
    const { exitCode, stderr } = await transport.script(text, { isShort, timeoutMs: 60_000 });
    if (exitCode !== 0) throw new Error(`${text} on ${transport.worker.host}: ${stderr}`);
  };
  await Promise.all(chosen.map(run));
}

async function syncAll(chosen: readonly Transport[], source: string): Promise<void> {
  const files = readdirSync(source).map((name) => fileAt(source, name));
  await Promise.all(chosen.map((transport) => syncTree(transport, { name: "web", folder: "jobs/web", files })));
}

function fileAt(folder: string, name: string): SyncFile {
  const content = readFileSync(path.join(folder, name));
  const sha256 = createHash("sha256").update(content).digest("hex");
  return { path: name, mode: 0o644, sha256, size: content.length, open: () => once(content) };
}

async function* once(content: Uint8Array): AsyncGenerator<Uint8Array> {
  yield content;
}

async function send(file: string): Promise<void> {
  const digest = createHash("sha256");
  for await (const chunk of createReadStream(file)) digest.update(chunk);
  const sent: SyncFile = {
    path: "large",
    mode: 0o644,
    sha256: digest.digest("hex"),
    size: statSync(file).size,
    open: () => createReadStream(file) as AsyncIterable<Uint8Array>,
  };
  await syncTree(transports[0] as Transport, { name: "web", folder: "jobs/web", files: [sent] });
  process.stdout.write(`${process.resourceUsage().maxRSS}\n`);
}

/** Of this process and of the children that have ended. The connections that stay open are left out, as they are with the others. */
function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  const fields = readFileSync("/proc/self/stat", "latin1").split(") ").at(-1)?.split(" ") ?? [];
  const ticks = Number(fields[13]) + Number(fields[14]);
  return (user + system) / 1000 + ticks * 10;
}
