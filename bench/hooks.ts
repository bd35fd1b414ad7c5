import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { bucketIdOf, openDatabase, openForReading } from "../lib/bucket/base/database.ts";
import { layoutOf } from "../lib/bucket/base/layout.ts";
import { KvStore } from "../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../lib/bucket/kv/kv-access.ts";
import { initBucket } from "../lib/bucket/workspace/init.ts";
import { uuidV7 } from "../lib/codec/uuid.ts";
import { Launcher } from "../lib/core/spawn.ts";
import type { RunningScript } from "../lib/hook/routes.ts";
import { type HookRuntime, startHookRuntime } from "../lib/hook/runtime.ts";
import { perform } from "../lib/operation/index.ts";
import type { RunKind } from "../lib/run/protocol.ts";
import type { Question, Questions } from "./hooks-client.ts";
import { percentile, sideBySide, timed } from "./measure.ts";

const CLIENT = fileURLToPath(new URL("hooks-client.ts", import.meta.url));
const ROUNDS = 1_000;
const SCRIPT: RunningScript = {
  allocationId: "00000000-0000-5000-8000-000000000001",
  job: "web",
  worker: "10.0.0.1",
  event: "pre_deploy",
  hook: "bench",
};

/** What hooks cost: requests of a script to the runtime API, and the start of a script. */
export async function hooks(): Promise<void> {
  await requests();
  await starts();
}

const WORKERS = 16;
const STARTS = 5;

/** One script after the other, its staging included, beside a bare python that does nothing either. */
async function starts(): Promise<void> {
  const folder = mkdtempSync(`${tmpdir()}/ops-bench-`);
  try {
    await makeBucket(folder);
    await perform(ordersFor(folder, "build", {}), input());
    console.log(`hooks: one script, ${WORKERS} one after the other, median of ${STARTS} rounds`);
    await sideBySide(STARTS, {
      "python3 -c pass": async () => (await timed(barePython)) / WORKERS,
      "a hook in Python": async () => (await timed(() => runHook(folder, "python"))) / WORKERS,
      "a hook in TypeScript": async () => (await timed(() => runHook(folder, "typescript"))) / WORKERS,
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function makeBucket(folder: string): Promise<void> {
  await initBucket(folder, { source: false });
  const hook = { executed_on: ["cli"] };
  const hosts = Array.from({ length: WORKERS }, (_, index) => ({
    host: `127.0.1.${index + 1}`,
    connection: "local",
    root: path.join(folder, `worker-${index + 1}`),
  }));
  const manifest = { selectors: ["worker"], hooks: { python: hook, typescript: hook } };
  mkdirSync(path.join(folder, "workspace/jobs/web/_hooks"), { recursive: true });
  const write = (file: string, text: string) => writeFileSync(path.join(folder, "workspace", file), text);
  write("workers.json", JSON.stringify(hosts));
  write("jobs/web/manifest.json", JSON.stringify(manifest));
  write("jobs/web/Makefile", "start stop:\n\t@true\n");
  write("jobs/web/_hooks/python.py", "pass\n");
  write("jobs/web/_hooks/typescript.ts", "export {};\n");
}

async function barePython(): Promise<void> {
  for (let index = 0; index < WORKERS; index++) await promisify(execFile)("python3", ["-c", "pass"]);
}

async function runHook(folder: string, hook: string): Promise<void> {
  const { ok, error } = await perform(ordersFor(folder, "hooks", { hook }), input());
  if (!ok) throw new Error(error?.message);
}

function ordersFor(bucketDir: string, kind: RunKind, params: Record<string, unknown>) {
  using db = openForReading(layoutOf(bucketDir).database);
  return { runId: uuidV7(), kind, bucketId: bucketIdOf(db), bucketDir, params, revision: null, by: "bench" };
}

function input() {
  return {
    launcher: new Launcher(process.env, () => {}),
    server: null,
    signal: new AbortController().signal,
    activity() {},
    progress() {},
  };
}

/** One client, one request at a time, beside a bare server of Node that answers every request with the same text. */
async function requests(): Promise<void> {
  const folder = mkdtempSync(`${tmpdir()}/ops-bench-`);
  const bare = createServer((incoming, response) => incoming.resume().on("end", () => response.end("{}")));
  await once(bare.listen(0, "127.0.0.1"), "listening");
  const layout = layoutOf(folder);
  await initBucket(layout.root, { source: false });
  using db = openDatabase(layout.database);
  const kv = new KvStore(db, await loadKvKey(layout));
  const runtime = await startHookRuntime({
    kv,
    signal: new AbortController().signal,
    onSecret() {},
    warn() {},
    upstreams: () => new Set<string>(),
    dependents: () => [],
    hasHook: () => false,
    workers: () => [],
    command: async () => undefined,
    waiting: (_on, _limitMs, work) => work,
    allocation: (id) => ({ ...SCRIPT, id }),
  });
  runtime.begin(SCRIPT);
  kv.put("vars/job/web", "key", "value");
  try {
    console.log(`hooks: one request at a time, ${ROUNDS} rounds: median, 99th percentile`);
    const times = await ask(bare.address() as AddressInfo, runtime);
    for (const [name, all] of Object.entries(times)) {
      const [p50, p99] = [percentile(all, 50), percentile(all, 99)].map((ms) => ms.toFixed(2).padStart(8));
      console.log(`${name.padEnd(44)} ${p50} ms ${p99} ms`);
    }
  } finally {
    bare.close();
    await runtime.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function ask(bare: AddressInfo, api: HookRuntime): Promise<Record<string, number[]>> {
  const entry = { namespace: "vars/job/web", key: "key" };
  const get = { method: "GET", path: `/kv?${new URLSearchParams(entry)}` };
  const toBare = { ...get, host: bare.address, port: bare.port };
  const toApi = { host: api.host, port: api.port };
  const questions: Question[] = [
    { name: "bare node:http, kept connection", ...toBare, isKept: true },
    { name: "GET /kv, kept connection", ...toApi, ...get, isKept: true },
    { name: "PUT /kv, kept connection", ...toApi, ...PUT, isKept: true },
    { name: "acquire, kept connection", ...toApi, ...ACQUIRE, isKept: true },
    { name: "bare node:http, new connection", ...toBare, isKept: false },
    { name: "GET /kv, new connection", ...toApi, ...get, isKept: false },
  ];
  const { allocationId, event, hook } = SCRIPT;
  const headers = { "X-ALLOCATION-ID": allocationId, EVENT: event, COMMAND: hook, "Content-Type": "application/json" };
  const orders: Questions = { rounds: ROUNDS, headers, questions };
  const { stdout } = await promisify(execFile)(process.execPath, [CLIENT, JSON.stringify(orders)], {
    maxBuffer: 64 * 1024 * 1024,
  });
  return JSON.parse(stdout);
}

const PUT = { method: "PUT", path: "/kv", body: { namespace: "vars/job/web", key: "written", value: "value" } };
const ACQUIRE = { method: "POST", path: "/semaphore/acquire", body: { name: "lock" } };
