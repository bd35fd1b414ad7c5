// `npm run demo`: a server, a bucket, a push of examples/hello, a deploy to three workers on this machine, and a look
// at what runs. It stays up until Ctrl-C; with `--once` it ends after the checks (exit code 0 only if all hold).
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { Launcher } from "../lib/core/spawn.ts";
import { LocalServer, ops, type Run } from "./local-server.ts";

const EXAMPLE = fileURLToPath(new URL("../examples/hello", import.meta.url));
const STOP_LIMIT_MS = 20_000;

interface Worker {
  host: string;
  root: string;
}

const once = process.argv.includes("--once");
const folder = mkdtempSync(path.join(tmpdir(), "ops-demo-"));
const launcher = new Launcher(process.env);
const interrupted = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
});

let server: LocalServer | undefined;
let bucket = "";
let workers: Worker[] = [];
try {
  await Promise.race([demonstrate(), interrupted]);
} catch (error) {
  process.exitCode = 1;
  say(`the demo failed: ${error instanceof Error ? error.message : error}`);
} finally {
  await cleanUp();
}
process.exit();

async function demonstrate(): Promise<void> {
  server = await LocalServer.start(path.join(folder, "root"));
  say(`1. a server listens on ${server.url}, its buckets are in ${folder}/root`);
  bucket = await server.createBucket("hello");
  say(`2. a bucket was made: ${bucket}`);
  const source = await prepareSource();
  say("3. ops push sends examples/hello; the server builds it:");
  const env = { OPS_SERVE_TOKEN: server.token };
  const pushed = await ops(["push", server.url, "--bucket", bucket, "--dir", source], { env, onText: show });
  if (pushed.code !== 0) throw new Error(`ops push ended with exit code ${pushed.code}`);
  say(`4. a deploy brings it to ${workers.length} workers:`);
  succeeded(await server.run(bucket, "deploy", {}, show));
  say("5. every deployed service answers over HTTP:");
  await checkServices();
  say("6. a second deploy has nothing to do:");
  checkSkipped(succeeded(await server.run(bucket, "deploy", {}, show)));
  say(`\nall checks passed. The console: ${server.url}\nsign in with this token: ${server.token}`);
  if (once) return;
  say("Ctrl-C stops the services and the server and removes everything.");
  await interrupted;
}

/** The example with a root of its own for every worker, and ports that are free here. */
async function prepareSource(): Promise<string> {
  const source = path.join(folder, "source");
  cpSync(EXAMPLE, source, { recursive: true });
  const file = path.join(source, "workspace", "workers.json");
  workers = (JSON.parse(readFileSync(file, "utf8")) as Worker[]).map((worker) => ({
    ...worker,
    root: path.join(folder, "workers", worker.host),
  }));
  writeFileSync(file, `${JSON.stringify(workers, null, 2)}\n`);
  const first = await freePorts(
    workers.map((worker) => worker.host),
    2,
  );
  writeFileSync(
    path.join(source, "workspace", "bucket.conf"),
    `port_min = "${first}"\nport_max = "${first + 1}"\n`,
  );
  return source;
}

/** The first of `count` consecutive ports that nothing listens on, on any of the hosts. */
async function freePorts(hosts: string[], count: number): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt++) {
    const first = 20_000 + Math.floor(Math.random() * 10_000);
    const wanted = Array.from({ length: count }, (_, index) => first + index);
    const free = await Promise.all(wanted.flatMap((port) => hosts.map((host) => isFree(host, port))));
    if (free.every(Boolean)) return first;
  }
  throw new Error("found no free ports on the loopback addresses");
}

function isFree(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once("error", () => resolve(false));
    probe.listen(port, host, () => probe.close(() => resolve(true)));
  });
}

async function checkServices(): Promise<void> {
  const database = new DatabaseSync(path.join(folder, "root", bucket, "data", "ops.db"), { readOnly: true });
  const services = database
    .prepare(
      "SELECT a.job, a.worker_ip AS host, p.port FROM allocations a JOIN job_ports p ON p.job = a.job ORDER BY 1, 2",
    )
    .all() as unknown as { job: string; host: string; port: number }[];
  database.close();
  for (const { job, host, port } of services) {
    const url = `http://${host}:${port}/`;
    const response = await fetch(url, { signal: AbortSignal.timeout(5_000) });
    const text = (await response.text()).trim().replaceAll(/\s+/g, " ");
    if (response.status !== 200) throw new Error(`${job} on ${host} answered ${response.status}: ${text}`);
    say(`   ${job}@${host}  GET ${url}  200  ${text.slice(0, 100)}`);
  }
  if (services.length === 0) throw new Error("nothing was deployed");
}

function succeeded(run: Run): Run {
  if (run.status !== "succeeded") throw new Error(`the ${run.kind} run ${run.status}: ${run.error}`);
  return run;
}

function checkSkipped(run: Run): void {
  const { jobs } = run.result as { jobs: { job: string; outcome: string }[] };
  const changed = jobs.filter((job) => job.outcome !== "skipped").map((job) => job.job);
  if (jobs.length === 0 || changed.length > 0)
    throw new Error(`the second deploy did not skip ${changed.join(", ")}`);
}

/** Stops what was deployed, through the runner on each worker, then the server; then nothing is left. */
async function cleanUp(): Promise<void> {
  if (!once) say("\nstopping …");
  await server?.stop();
  await Promise.all(workers.flatMap((worker) => jobsOn(worker).map((job) => stopJob(worker, job))));
  rmSync(folder, { recursive: true, force: true });
}

function jobsOn(worker: Worker): string[] {
  try {
    return readdirSync(path.join(worker.root, bucket, "jobs"));
  } catch {
    return [];
  }
}

async function stopJob(worker: Worker, job: string): Promise<void> {
  const runner = path.join(worker.root, bucket, "bin", "runner");
  const outcome = await launcher.run(["sh", runner, job, "stop"], { timeoutMs: STOP_LIMIT_MS });
  if (outcome.exitCode === 0) return;
  process.exitCode = 1;
  say(
    `cannot stop ${job} on ${worker.host}: ${outcome.stderr.trim() || outcome.stdout.trim() || outcome.reason}`,
  );
}

function show(text: string): void {
  process.stdout.write(text.replace(/^(?=.)/gm, "   "));
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
