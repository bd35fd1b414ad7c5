import assert from "node:assert/strict";
import { cpSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { after, test } from "node:test";
import { identify } from "../../lib/core/process.ts";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { type CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import { patience } from "../../scripts/patience.ts";
import { testRuntime } from "../helpers/hook-runtime.ts";
import { environmentOf, HookScripts } from "../helpers/hook-scripts.ts";
import { freePort } from "../helpers/sshd.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const JOBS = path.join(PROGRAM_ROOT, "examples", "hello", "workspace", "jobs");
const base = temporaryFolder();
const launcher = new Launcher({ ...process.env, PATH: `${path.dirname(process.execPath)}:${process.env.PATH}` });
const folders: string[] = [];
after(async () => {
  for (const folder of folders) await service(folder, "stop");
});

type Config = Record<string, unknown> & { worker: string; port: number };

/** A job as it lies on a worker: without templates, with a rendered configuration. */
function deployed(job: string, config: Config): string {
  const folder = path.join(base, `${job}-${config.port}-${folders.length}`);
  cpSync(path.join(JOBS, job), folder, { recursive: true });
  writeFileSync(path.join(folder, "config.json"), JSON.stringify(config));
  folders.push(folder);
  return folder;
}

function service(folder: string, command: string): Promise<CommandOutcome> {
  return launcher.run(["sh", path.join(folder, "service"), command], { timeoutMs: patience(30_000) });
}

async function hello(changes: Record<string, unknown> = {}): Promise<{ folder: string; config: Config; url: string }> {
  const config = { job: "hello", version: "1.0.0", worker: "127.0.0.1", port: await freePort(), ...changes };
  return { folder: deployed("hello", config), config, url: `http://127.0.0.1:${config.port}` };
}

const pidOf = (folder: string) => Number(readFileSync(path.join(folder, "data", "pid"), "latin1").split(" ")[0]);

test("start returns when the service answers, and a second start changes nothing", async () => {
  const { folder, url } = await hello({ greeting: "Hi", peers: ["x"] });
  assert.equal((await service(folder, "start")).exitCode, 0);
  const answer = (await (await fetch(url)).json()) as Record<string, unknown>;
  assert.deepEqual(
    { ...answer, uptime_s: 0 },
    { greeting: "Hi", job: "hello", version: "1.0.0", worker: "127.0.0.1", peers: ["x"], uptime_s: 0 },
  );
  const pid = pidOf(folder);
  assert.equal((await service(folder, "start")).exitCode, 0);
  assert.equal(pidOf(folder), pid);
  assert.match((await service(folder, "status")).stdout, /^running, pid \d+\n$/);
});

test("stop returns when the service is gone, and a second stop is no error", async () => {
  const { folder, url } = await hello();
  await service(folder, "start");
  const pid = pidOf(folder);
  assert.equal((await service(folder, "stop")).exitCode, 0);
  assert.equal(identify(pid), undefined);
  await assert.rejects(fetch(url));
  assert.equal((await service(folder, "stop")).exitCode, 0);
  assert.equal((await service(folder, "status")).exitCode, 3);
});

test("reload takes a new configuration over in the same process; restart takes a new one", async () => {
  const { folder, config, url } = await hello();
  await service(folder, "start");
  const pid = pidOf(folder);
  writeFileSync(path.join(folder, "config.json"), JSON.stringify({ ...config, version: "1.1.0" }));
  assert.equal((await service(folder, "status")).exitCode, 1);
  assert.equal((await service(folder, "reload")).exitCode, 0);
  assert.equal(((await (await fetch(url)).json()) as { version: string }).version, "1.1.0");
  assert.equal(pidOf(folder), pid);
  assert.equal((await service(folder, "restart")).exitCode, 0);
  assert.notEqual(pidOf(folder), pid);
});

test("a service that was killed is started again by start, restart and reload", async () => {
  const { folder } = await hello();
  for (const command of ["start", "restart", "reload"]) {
    assert.equal((await service(folder, command)).exitCode, 0, command);
    const pid = pidOf(folder);
    process.kill(pid, "SIGKILL");
    await until("the service is gone", () => identify(pid) === undefined);
  }
});

test("a later process with the pid of a service that is gone is left alone", async () => {
  const { folder } = await hello();
  await service(folder, "start");
  await service(folder, "stop");
  writeFileSync(path.join(folder, "data", "pid"), `${process.pid} 1\n`);
  assert.equal((await service(folder, "stop")).exitCode, 0);
  assert.equal(existsSync(path.join(folder, "data", "pid")), false);
});

test("a start that fails says why, with the end of the log, and leaves nothing running", async () => {
  const server = createServer((_, response) => response.writeHead(404).end()).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { folder } = await hello({ port: (server.address() as AddressInfo).port });
  const outcome = await service(folder, "start");
  server.closeAllConnections();
  server.close();
  assert.equal(outcome.exitCode, 1);
  assert.match(outcome.stderr, /^the program is not ready; the end of .*\/logs\/service\.log:\ncannot listen on /);
  assert.equal(existsSync(path.join(folder, "data", "pid")), false);
});

test("the gateway answers with the answers of all its peers, and with 502 when one is missing", async () => {
  const { folder, url } = await hello();
  await service(folder, "start");
  const port = await freePort();
  const gateway = deployed("gateway", { job: "gateway", version: "1.0.0", worker: "127.0.0.1", port, peers: [url] });
  assert.equal((await service(gateway, "start")).exitCode, 0);
  const whole = await fetch(`http://127.0.0.1:${port}/`);
  const { peers } = (await whole.json()) as { peers: { peer: string; answer: { job: string } }[] };
  assert.deepEqual([whole.status, peers[0]?.peer, peers[0]?.answer.job], [200, url, "hello"]);
  await service(folder, "stop");
  assert.equal((await fetch(`http://127.0.0.1:${port}/`)).status, 502);
  assert.equal((await fetch(`http://127.0.0.1:${port}/health`)).status, 200);
});

for (const [job, file] of [
  ["hello", "check.py"],
  ["gateway", "check.ts"],
] as const)
  test(`the hook of ${job} asks for its port and prints what the service answers`, async (t) => {
    const { folder, config } = await hello();
    await service(folder, "start");
    const script = { allocationId: "id", job, worker: "127.0.0.1", event: "cli", hook: "check" } as const;
    const { runtime, kv } = await testRuntime(t, { allocation: (id) => ({ ...script, id }) });
    kv.put("ops/bucket", `${job}_http`, String(config.port));
    runtime.begin(script);
    const scripts = new HookScripts(t, path.join(JOBS, job, "_hooks"));
    const { exitCode, stdout, stderr } = await scripts.runFile(file, environmentOf(runtime, script));
    assert.deepEqual([exitCode, stderr], [0, ""]);
    assert.equal(JSON.parse(stdout).job, "hello");
  });

test("both jobs run their server by the template `service`", () => {
  for (const job of ["hello", "gateway"])
    for (const file of ["service", "Makefile"]) {
      const template = path.join(PROGRAM_ROOT, "lib", "bucket", "templates", "service", file);
      assert.equal(readFileSync(path.join(JOBS, job, file), "utf8"), readFileSync(template, "utf8"), `${job}/${file}`);
    }
});
