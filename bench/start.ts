import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { LocalServer, ops } from "../scripts/local-server.ts";
import { sideBySide, timed } from "./measure.ts";

const ROUNDS = 15;

/** How long a server and a run take to start, beside a Node that does nothing. */
export async function start(): Promise<void> {
  const folder = mkdtempSync(path.join(tmpdir(), "ops-bench-"));
  const server = await LocalServer.start(path.join(folder, "root"));
  try {
    const bucket = await server.createBucket();
    console.log(`start: medians of ${ROUNDS} rounds, range, ratio to the empty Node`);
    await sideBySide(ROUNDS, {
      "an empty Node": () => timed(emptyNode),
      "ops version": () => timed(() => ops(["version"])),
      "server: from its start to listening": () => serverStart(path.join(folder, "other")),
      "run: from the request to its first log line": () => firstLine(server, bucket),
      "run: an empty build from request to end": () => timed(() => server.run(bucket, "build")),
    });
  } finally {
    await server.stop();
    rmSync(folder, { recursive: true, force: true });
  }
}

async function emptyNode(): Promise<void> {
  await once(spawn(process.execPath, ["-e", "0"], { stdio: "ignore" }), "exit");
}

async function serverStart(root: string): Promise<number> {
  const started = performance.now();
  const server = await LocalServer.start(root);
  const ms = performance.now() - started;
  await server.stop();
  return ms;
}

async function firstLine(server: LocalServer, bucket: string): Promise<number> {
  const started = performance.now();
  const run = await server.startRun(bucket, "build");
  await server.call("GET", `/api/buckets/${bucket}/runs/${run}/logs?after=0&timeout=30`);
  const ms = performance.now() - started;
  await server.follow(bucket, run);
  return ms;
}
