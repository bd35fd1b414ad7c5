// `npm run demo`: a server, a bucket, a push of examples/hello, a deploy to three workers on this machine, and a look
// at what runs. It stays up until Ctrl-C; with `--once` it ends after the checks (exit code 0 only if all hold).
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Example } from "./example.ts";
import { LocalServer, ops, type Run } from "./local-server.ts";

const once = process.argv.includes("--once");
const folder = mkdtempSync(path.join(tmpdir(), "ops-demo-"));
const interrupted = new Promise<void>((resolve) => {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => resolve());
});

let server: LocalServer | undefined;
let bucket = "";
let example: Example | undefined;
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
  example = await Example.copy("hello", folder, 2);
  say("3. ops push sends examples/hello; the server builds it:");
  const env = { OPS_SERVE_TOKEN: server.token };
  const pushed = await ops(["push", server.url, "--bucket", bucket, "--dir", example.source], {
    env,
    onText: show,
  });
  if (pushed.code !== 0) throw new Error(`ops push ended with exit code ${pushed.code}`);
  say(`4. a deploy brings it to ${example.workers.length} workers:`);
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
  for (const failure of (await example?.stop(bucket)) ?? []) {
    process.exitCode = 1;
    say(failure);
  }
  rmSync(folder, { recursive: true, force: true });
}

function show(text: string): void {
  process.stdout.write(text.replace(/^(?=.)/gm, "   "));
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
