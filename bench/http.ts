import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Layout, layoutOf, runLayout } from "../lib/bucket/base/layout.ts";
import { uuidV7 } from "../lib/codec/uuid.ts";
import { createRecord, saveRecord, settle } from "../lib/run/record.ts";
import { LocalServer } from "../scripts/local-server.ts";
import { Connection, type Load, load, requestText } from "./http-load.ts";
import { median } from "./measure.ts";

const BARE = fileURLToPath(new URL("http-bare.ts", import.meta.url));
const ROUNDS = 5;
/** How often, and how long, a side is asked right after the bare server. */
const PAIRS = 11;
const ROUND_MS = 500;
const CONNECTIONS = 16;
/** Where all are asked equally often: each connection once in so many milliseconds. */
const PACE_MS = 5;
const OLD_RUNS = 1_000;
const CLIENTS = 2_000;
const WRITES = 200;

/**
 * The control plane beside a bare node:http server in the same run: requests a second and their 99th percentile, from
 * a byte in a log to who waits for it, what waiting clients cost, starts.
 */
export async function http(): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), "ops-bench-"));
  try {
    await busyServer(path.join(folder, "busy"));
    await waitingClients(path.join(folder, "fresh"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function busyServer(root: string): Promise<void> {
  const first = await LocalServer.start(root);
  const bucket = await first.createBucket();
  await first.run(bucket, "build");
  await first.stop();
  const layout = layoutOf(path.join(root, bucket));
  // Without the bound on its history the bucket keeps them.
  writeFileSync(layout.opsConf, "log_run_retention_count = 0\n");
  for (let count = 0; count < OLD_RUNS; count++) await oldRun(layout, bucket);
  console.log(`http: medians of ${ROUNDS} rounds, ${CONNECTIONS} connections, ${OLD_RUNS} old runs in the bucket`);
  await serverStarts(root);
  // Its access log goes nowhere: to read it here would cost the clients the time they are to measure.
  const server = await LocalServer.start(root, { quiet: true });
  const bare = startBare();
  try {
    await requests(server, bucket, await listening(bare));
    await firstLines(server, bucket);
    await delays(server, bucket, layout);
  } finally {
    bare.kill();
    await server.stop();
  }
}

function startBare(): ChildProcess {
  return spawn(process.execPath, [BARE], { stdio: ["ignore", "pipe", "inherit"] });
}

async function listening(child: ChildProcess): Promise<string> {
  const [line] = await once(createInterface({ input: child.stdout as NodeJS.ReadableStream }), "line");
  return String(line).replace("listening on ", "");
}

async function newRecord(layout: Layout, bucket: string) {
  const actor = { address: "bench", via: "cli" } as const;
  const fields = { bucket_id: bucket, origin: "cli", kind: "build", params: {} } as const;
  return createRecord(layout, { id: uuidV7(), ...fields, actor, requestId: null });
}

async function oldRun(layout: Layout, bucket: string): Promise<void> {
  const record = await newRecord(layout, bucket);
  settle(record, { exitCode: 0, signal: null, outcome: { ok: true, error: null, result: {} } });
  await saveRecord(layout, record);
}

function show(what: string, value: string, target: string): void {
  console.log(`${what.padEnd(52)} ${value.padStart(22)}   ${target}`);
}

async function serverStarts(root: string): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round <= ROUNDS; round++) {
    const started = performance.now();
    const server = await LocalServer.start(root);
    if (round > 0) times.push(performance.now() - started);
    await server.stop();
  }
  show("server: from exec to listening", `${median(times).toFixed(0)} ms`, "target 250 ms");
}

/** What two could do right after each other. */
interface Pair {
  bare: Load;
  own: Load;
}

/** Each side right after the bare server, in many short rounds: the machine is not equally fast all the time. */
async function requests(server: LocalServer, bucket: string, bare: string): Promise<void> {
  const headers = { Authorization: `Bearer ${server.token}` };
  const base = `/api/buckets/${bucket}`;
  const sides = {
    "GET …/info": [server.url, `${base}/info`],
    "GET …/runs?limit=4 (2 KB)": [server.url, `${base}/runs?limit=4`],
    "GET …/runs (50 of them, 28 KB)": [server.url, `${base}/runs`],
    "the least that an API does (2 KB)": [bare, "/floor"],
    "bare node:http, 28 KB": [bare, "/large"],
  } as const;
  const inPairs = async (url: string, target: string, paceMs: number) => {
    const pairs: Pair[] = [];
    for (let round = 0; round <= PAIRS; round++) {
      const pair = {
        bare: await load(bare, "/", headers, CONNECTIONS, ROUND_MS, paceMs),
        own: await load(url, target, headers, CONNECTIONS, ROUND_MS, paceMs),
      };
      if (round > 0) pairs.push(pair);
    }
    return { pairs, told: told(pairs.map(({ own }) => own)), p99: `p99 x ${slower(pairs).toFixed(2)}` };
  };
  for (const [name, [url, target]] of Object.entries(sides)) {
    const most = await inPairs(url, target, 0);
    const share = 100 * median(most.pairs.map((pair) => pair.own.perSecond / pair.bare.perSecond));
    show(name, most.told, `${share.toFixed(0)} %, ${most.p99} (target 40 %, 2)`);
    const calm = await inPairs(url, target, PACE_MS);
    show("  asked equally often", calm.told, calm.p99);
  }
}

function slower(pairs: readonly Pair[]): number {
  return median(pairs.map(({ own, bare }) => own.p99Ms / bare.p99Ms));
}

function told(loads: readonly Load[]): string {
  const perSecond = median(loads.map((one) => one.perSecond));
  return `${perSecond.toFixed(0)}/s, p99 ${median(loads.map((one) => one.p99Ms)).toFixed(2)} ms`;
}

async function firstLines(server: LocalServer, bucket: string): Promise<void> {
  const times: number[] = [];
  for (let round = 0; round <= 2 * ROUNDS; round++) {
    const started = performance.now();
    const run = await server.startRun(bucket, "build");
    await server.call("GET", `/api/buckets/${bucket}/runs/${run}/logs?timeout=30`);
    if (round > 0) times.push(performance.now() - started);
    await server.follow(bucket, run);
  }
  show("run: from request to first line", `${median(times).toFixed(0)} ms`, "target 150 ms");
}

/** From a byte in activity.log to the answer of who waits for it. */
async function delays(server: LocalServer, bucket: string, layout: Layout): Promise<void> {
  const { id } = await newRecord(layout, bucket);
  const file = runLayout(layout, id).activity;
  appendFileSync(file, "begin\n");
  const connection = await Connection.open(server.url);
  const times: number[] = [];
  let after = 6;
  for (let count = 0; count < WRITES; count++) {
    const target = `/api/buckets/${bucket}/runs/${id}/logs?after=${after}&timeout=60`;
    const answer = connection.ask(requestText(server.url, target, { Authorization: `Bearer ${server.token}` }));
    await sleep(10);
    const written = performance.now();
    appendFileSync(file, ".");
    await answer;
    times.push(performance.now() - written);
    after++;
  }
  connection.destroy();
  show("log: from a byte to who waits for it", `${median(times).toFixed(1)} ms`, "target 20 ms");
}

/** What many who wait for one thing cost a server that has done nothing else yet: its heap grows for them. */
async function waitingClients(root: string): Promise<void> {
  const first = await LocalServer.start(root);
  const bucket = await first.createBucket();
  await first.stop();
  const layout = layoutOf(path.join(root, bucket));
  const targets = {
    async "a client that waits for a log"() {
      const { id } = await newRecord(layout, bucket);
      return `/api/buckets/${bucket}/runs/${id}/logs?timeout=60`;
    },
    async "a client that waits for events"(server: LocalServer) {
      const { next } = (await server.call<{ next: string }>("GET", "/api/events")).body;
      return `/api/events?after=${next}&timeout=60`;
    },
  };
  for (const [what, target] of Object.entries(targets)) {
    const each: number[] = [];
    for (let round = 0; round < ROUNDS; round++) {
      const server = await LocalServer.start(root, { quiet: true });
      try {
        const headers = { Authorization: `Bearer ${server.token}` };
        each.push(await memoryOfClients(server.process, server.url, await target(server), headers));
      } finally {
        await server.stop();
      }
    }
    show(what, kilobytes(each), `of ${CLIENTS}; target 25 KB`);
  }
  const each: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    const bare = startBare();
    try {
      each.push(await memoryOfClients(bare, await listening(bare), "/wait", {}));
    } finally {
      bare.kill();
    }
  }
  show("  of bare node:http", kilobytes(each), "");
}

function kilobytes(each: readonly number[]): string {
  const [least, most] = [Math.min(...each), Math.max(...each)].map((bytes) => (bytes / 1024).toFixed(1));
  return `${(median(each) / 1024).toFixed(1)} KB (${least}-${most})`;
}

async function memoryOfClients(
  server: ChildProcess,
  url: string,
  target: string,
  headers: Record<string, string>,
): Promise<number> {
  const request = requestText(url, target, headers);
  let answered = 0;
  const count = () => {
    answered++;
  };
  const ask = async () => {
    const client = await Connection.open(url);
    client.ask(request).then(count, count);
    return client;
  };
  // A peer of which nobody was admitted has few connections: the others come once the first waits.
  const first = await ask();
  await sleep(500);
  const before = memoryOf(server);
  const clients = await Promise.all(Array.from({ length: CLIENTS }, ask));
  await sleep(3_000);
  const each = (memoryOf(server) - before) / CLIENTS;
  for (const client of [first, ...clients]) client.destroy();
  // Who was refused costs nothing.
  if (answered > 0) throw new Error(`${answered} of ${CLIENTS} clients were answered instead of waiting`);
  return each;
}

function memoryOf(server: ChildProcess): number {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${server.pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1024;
}
