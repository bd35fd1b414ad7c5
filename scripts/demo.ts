// `npm run demo`: a server, a bucket, a push of examples/hello, a deploy to three workers on this machine, and a look
// at what runs. It stays up until Ctrl-C; with `--once` it ends after the checks (exit code 0 only if all hold).
// With `--ssh` the workers are reached over ssh: a private sshd stands in for three machines.

import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { remove } from "../lib/core/files.ts";
import { Example } from "./example.ts";
import { LocalServer, ops, type Run } from "./local-server.ts";
import { patience } from "./patience.ts";
import { PrivateSshd } from "./private-sshd.ts";

const INTERRUPTED = 130;
const HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"];

const once = process.argv.includes("--once");
const overSsh = process.argv.includes("--ssh");
if (overSsh) {
  const setup = [fileURLToPath(new URL("setup.js", import.meta.url)), "demo-ssh"];
  const { status } = spawnSync(process.execPath, setup, { stdio: "inherit" });
  if (status !== 0) process.exit(1);
}
const folder = mkdtempSync(path.join(tmpdir(), "ops-demo-"));
const interrupted = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
  // The reader has gone away (`| head`): nothing is left to be shown.
  process.stdout.on("error", () => resolve());
});

let server: Promise<LocalServer> | undefined;
let passed = false;
let bucket = "";
let example: Example | undefined;
let sshd: PrivateSshd | undefined;
let steps = 0;
const demonstration = demonstrate();
try {
  await Promise.race([demonstration, interrupted]);
} catch (error) {
  process.exitCode = 1;
  say(`the demo failed: ${error instanceof Error ? error.message : error}`);
} finally {
  await cleanUp();
}
process.exit(process.exitCode ?? (passed ? 0 : INTERRUPTED));

async function demonstrate(): Promise<void> {
  const server = await start();
  step(`a server listens on ${server.url}, its buckets are in ${folder}/root`);
  bucket = await server.createBucket("hello");
  step(`a bucket was made: ${bucket}`);
  if (overSsh) sshd = await startSshd(server);
  example = await Example.copy("hello", folder, 2, sshd && sshWorker(sshd));
  step("ops push sends examples/hello; the server builds it:");
  const env = { OPS_SERVE_TOKEN: server.token };
  const pushed = await ops(["push", server.url, "--bucket", bucket, "--dir", example.source], { env, onText: show });
  if (pushed.code !== 0) throw new Error(`ops push ended with exit code ${pushed.code}`);
  if (overSsh) {
    step("the host keys of the workers are recorded as trusted:");
    succeeded(await server.run(bucket, "workers/trust", {}, show));
  }
  step(`a deploy brings it to ${example.workers.length} workers:`);
  succeeded(await server.run(bucket, "deploy", {}, show));
  step("every deployed service answers over HTTP:");
  await checkServices();
  step("hooks of both jobs, one in Python and one in TypeScript, ask the services too:");
  for (const job of ["hello", "gateway"]) succeeded(await server.run(bucket, "hooks", { hook: "check", job }, show));
  step("a second deploy has nothing to do:");
  checkSkipped(succeeded(await server.run(bucket, "deploy", {}, show)));
  passed = true;
  say("\nall checks passed");
  if (once) return;
  say(`The console: ${server.url}\nsign in with this token: ${server.token}`);
  say("Ctrl-C stops the services and the server and removes everything.");
  await interrupted;
}

function start(): Promise<LocalServer> {
  server = LocalServer.start(path.join(folder, "root"));
  return server;
}

/** Starts the sshd that stands in for the workers, and gives the bucket the key to it. */
async function startSshd(control: LocalServer): Promise<PrivateSshd> {
  // The services run on the Node that the demo runs on, wherever that is.
  const search = `SetEnv "PATH=${path.dirname(process.execPath)}:${process.env.PATH}"`;
  const started = await PrivateSshd.start(path.join(folder, "sshd"), HOSTS, [search]);
  const key = { private_key: readFileSync(started.clientKey, "utf8") };
  const { status, body } = await control.call("PUT", `/api/buckets/${bucket}/secrets/ssh_key`, key);
  if (status !== 200) throw new Error(`cannot store the ssh key: ${status} ${JSON.stringify(body)}`);
  step(`a private sshd listens on port ${started.port} of ${HOSTS.join(", ")}, the bucket has the key to it:`);
  say(`   ${body.type} ${body.fingerprint}`);
  return started;
}

function sshWorker({ user, port }: PrivateSshd): object {
  return { connection: "ssh", ssh_user: user, ssh_port: port };
}

async function checkServices(): Promise<void> {
  const database = new DatabaseSync(path.join(folder, "root", bucket, "data", "ops.db"), { readOnly: true });
  const services = database
    .prepare("SELECT a.job, a.worker_ip AS host, p.port FROM allocations a JOIN job_ports p ON p.job = a.job ORDER BY 1, 2")
    .all() as unknown as { job: string; host: string; port: number }[];
  database.close();
  for (const { job, host, port } of services) {
    const url = `http://${host}:${port}/`;
    const response = await fetch(url, { signal: AbortSignal.timeout(patience(5_000)) });
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
  if (jobs.length === 0 || changed.length > 0) throw new Error(`the second deploy did not skip ${changed.join(", ")}`);
}

/** Stops what was deployed, through the runner on each worker, then the server; then nothing is left. */
async function cleanUp(): Promise<void> {
  if (!once) say("\nstopping …");
  // Also one that is only just starting; without it, whatever the demonstration was at comes to its end.
  await server?.then((one) => one.stop()).catch(() => {});
  await demonstration.catch(() => {});
  for (const failure of (await example?.stop(bucket)) ?? []) {
    process.exitCode = 1;
    say(failure);
  }
  await sshd?.stop();
  await remove(folder);
}

function show(text: string): void {
  process.stdout.write(text.replace(/^(?=.)/gm, "   "));
}

function step(text: string): void {
  steps++;
  say(`${steps}. ${text}`);
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
