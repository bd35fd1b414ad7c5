import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Layout, layoutOf, runLayout } from "../lib/bucket/layout.ts";
import { uuidV7 } from "../lib/codec/uuid.ts";
import { createRecord, saveRecord, settle } from "../lib/run/record.ts";
import { LocalServer } from "../scripts/local-server.ts";
import { ask, dial, type Load, load, requestText } from "./http-load.ts";
import { median } from "./measure.ts";

const BARE = fileURLToPath(new URL("http-bare.ts", import.meta.url));
const ROUNDS = 5;
const ROUND_MS = 2_000;
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
  const root = path.join(folder, "root");
  const first = await LocalServer.start(root);
  const bucket = await first.createBucket();
  await first.run(bucket, "build");
  await first.stop();
  const layout = layoutOf(path.join(root, bucket));
  // Without the bound on its history the bucket keeps them.
  writeFileSync(layout.opsConf, "log_run_retention_count = 0\n");
  for (let count = 0; count < OLD_RUNS; count++) await oldRun(layout, bucket);
  console.log(
    `http: medians of ${ROUNDS} rounds, ${CONNECTIONS} connections, ${OLD_RUNS} old runs in the bucket`,
  );
  await serverStarts(root);
  // Its access log goes nowhere: to read it here would cost the clients the time they are to measure.
  const server = await LocalServer.start(root, { quiet: true });
  const bare = spawn(process.execPath, [BARE], { stdio: ["ignore", "pipe", "inherit"] });
  try {
    await requests(server, bucket, await listening(bare));
    await firstLines(server, bucket);
    await delays(server, bucket, layout);
    await waitingClients(server, bucket, layout);
  } finally {
    bare.kill();
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
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

async function requests(server: LocalServer, bucket: string, bare: string): Promise<void> {
  const headers = { Authorization: `Bearer ${server.token}` };
  const base = `/api/buckets/${bucket}`;
  const sides = {
    "bare node:http": [bare, "/"],
    "bare node:http, 28 KB": [bare, "/large"],
    "the least that an API does (2 KB)": [bare, "/floor"],
    "GET …/info": [server.url, `${base}/info`],
    "GET …/runs (50 of them, 28 KB)": [server.url, `${base}/runs`],
    "GET …/runs?limit=4 (2 KB)": [server.url, `${base}/runs?limit=4`],
  } as const;
  const found = Object.entries(sides).map(([name, [url, target]]) => {
    return { name, url, target, most: [] as Load[], paced: [] as Load[] };
  });
  for (let round = 0; round <= ROUNDS; round++)
    for (const { url, target, most, paced } of found) {
      const one = await load(url, target, headers, CONNECTIONS, ROUND_MS);
      const calm = await load(url, target, headers, CONNECTIONS, ROUND_MS / 2, PACE_MS);
      if (round === 0) continue;
      most.push(one);
      paced.push(calm);
    }
  const medians = found.map((one) => ({ ...one, most: middle(one.most), paced: middle(one.paced) }));
  const [floor] = medians as [(typeof medians)[number]];
  for (const { name, most, paced } of medians) {
    const share = `${((100 * most.perSecond) / floor.most.perSecond).toFixed(0)} %`;
    const times = (p99Ms: number, least: number) => `p99 x ${(p99Ms / least).toFixed(2)}`;
    show(name, told(most), `${share}, ${times(most.p99Ms, floor.most.p99Ms)} (target 40 %, x 2)`);
    // At the most that each can do, who answers half as often has as many wait twice as long.
    show("  asked equally often", told(paced), times(paced.p99Ms, floor.paced.p99Ms));
  }
}

function told({ perSecond, p99Ms }: Load): string {
  return `${perSecond.toFixed(0)}/s, p99 ${p99Ms.toFixed(2)} ms`;
}

function middle(loads: readonly Load[]): Load {
  return {
    perSecond: median(loads.map((one) => one.perSecond)),
    p99Ms: median(loads.map((one) => one.p99Ms)),
  };
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
  const socket = await dial(server.url);
  const times: number[] = [];
  let after = 6;
  for (let count = 0; count < WRITES; count++) {
    const target = `/api/buckets/${bucket}/runs/${id}/logs?after=${after}&timeout=60`;
    const answer = ask(socket, requestText(server.url, target, { Authorization: `Bearer ${server.token}` }));
    await sleep(10);
    const written = performance.now();
    appendFileSync(file, ".");
    await answer;
    times.push(performance.now() - written);
    after++;
  }
  socket.destroy();
  show("log: from a byte to who waits for it", `${median(times).toFixed(1)} ms`, "target 20 ms");
}

async function waitingClients(server: LocalServer, bucket: string, layout: Layout): Promise<void> {
  const { id } = await newRecord(layout, bucket);
  const { next } = (await server.call<{ next: string }>("GET", "/api/events")).body;
  const waits = {
    "a client that waits for a log": `/api/buckets/${bucket}/runs/${id}/logs?timeout=60`,
    "a client that waits for events": `/api/events?after=${next}&timeout=60`,
  };
  for (const [what, target] of Object.entries(waits)) {
    const request = requestText(server.url, target, { Authorization: `Bearer ${server.token}` });
    const before = memoryOf(server);
    const sockets = await Promise.all(Array.from({ length: CLIENTS }, () => dial(server.url)));
    for (const socket of sockets) ask(socket, request).catch(() => {});
    await sleep(3_000);
    const each = (memoryOf(server) - before) / CLIENTS / 1024;
    for (const socket of sockets) socket.destroy();
    await sleep(1_000);
    show(what, `${each.toFixed(1)} KB`, `of ${CLIENTS}; target 25 KB`);
  }
}

function memoryOf(server: LocalServer): number {
  const [, kilobytes] =
    /^VmRSS:\s+(\d+) kB/m.exec(readFileSync(`/proc/${server.process.pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) * 1024;
}
