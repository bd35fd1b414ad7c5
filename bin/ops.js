#!/usr/bin/env node
// The one entrypoint, in plain JavaScript that every Node understands: its first task is to find a Node that is new
// enough for the rest (decisions: Runtime 3).
import { spawn } from "node:child_process";
import { closeSync, existsSync, lstatSync, mkdirSync, openSync, readFileSync, readSync, writeSync } from "node:fs";
import module from "node:module";
import os from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const NEEDED = 24;
const WRAPPED = "OPS_WRAPPED";
const root = fileURLToPath(new URL("../", import.meta.url));
/** Where the archive of a release and `npm ci` put a Node. */
const NODES = ["node/bin/node", "node_modules/.bin/node"];

if (Number.parseInt(process.versions.node, 10) < NEEDED) runAgainOnNewerNode();
else await main();

function runAgainOnNewerNode() {
  const newer = NODES.map((name) => path.join(root, name)).find((file) => existsSync(file));
  if (newer === undefined) {
    const isSource = existsSync(path.join(root, "package-lock.json"));
    const advice = isSource
      ? `run \`npm ci\` in ${root}, which brings one`
      : "install one, or the archive of ops that brings its own";
    process.stderr.write(`ops: needs Node ${NEEDED} or newer, this is ${process.versions.node}: ${advice}\n`);
    process.exit(2);
  }
  // The channel tells the child when this wrapper is gone, also after a kill.
  const child = spawn(newer, process.argv.slice(1), {
    stdio: ["inherit", "inherit", "inherit", "ipc"],
    env: { ...process.env, [WRAPPED]: "1" },
  });
  hideToken();
  for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) process.on(signal, () => child.kill(signal));
  child.on("error", (error) => {
    process.stderr.write(`ops: cannot start ${newer}: ${error.message}\n`);
    process.exit(2);
  });
  child.on("exit", (code, signal) => {
    process.exitCode = code ?? 128 + os.constants.signals[signal];
    if (child.connected) child.disconnect();
  });
}

async function main() {
  hideToken();
  if (process.env[WRAPPED] !== undefined) {
    delete process.env[WRAPPED];
    process.once("disconnect", () => process.kill(process.pid, "SIGTERM"));
    process.channel?.unref();
    // This channel leads to the wrapper: no code behind here may take it for the channel to a server.
    delete process.send;
  }
  // The script of a hook neither reads nor fills our cache. Without the cache each module of ours takes long to load, so no
  // command is loaded here.
  if (process.argv[2] === "hook-run" && process.argv.length === 4) {
    const { runHookFile } = await import("../lib/cli/server/hook-run.ts");
    process.exitCode = await runHookFile(process.argv[3]);
    return;
  }
  useCompileCache();
  await import("../lib/cli/imports.ts");
  // A process that runs start and that waits for long: it loads no command.
  if (process.argv[2] === "keep") return await (await import("../lib/cli/server/keep.ts")).keep();
  // A server starts many of these.
  const isRun = process.argv.length === 4 && process.argv[2] === "worker" && process.argv[3] === "run";
  if (isRun && process.send) return await (await import("../lib/cli/server/worker.ts")).runWorker();
  const { runProgram } = await import("../lib/cli/main.ts");
  process.exitCode = await runProgram(process.argv.slice(2));
}

// A token in the environment or the arguments would stand in /proc/<pid>/environ or cmdline for as long as this process
// lives: it is overwritten there. process.env and process.argv keep it.
function hideToken() {
  const token = process.env.OPS_SERVE_TOKEN;
  const isTold = process.argv.some((argument) => /^--token(=|$)/.test(argument));
  if (process.platform !== "linux" || (token === undefined && !isTold)) return;
  try {
    overwrite(/(?<=^|\0)(?:OPS_SERVE_TOKEN=|--token[=\0])([^\0]*)/g);
  } catch (error) {
    process.stderr.write(
      `ops: warning: other processes of this user can read the API token in /proc/${process.pid}: ${error.message}; give it with --token-file\n`,
    );
  }
  if (token !== undefined) process.env.OPS_SERVE_TOKEN = token;
}

// Overwrites the last group of each match in the memory where the kernel keeps arguments and environment.
function overwrite(pattern) {
  const stat = readFileSync("/proc/self/stat", "latin1");
  // proc(5), fields 48 to 51, counted behind the name of the program, which may hold anything.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const [argumentsStart, argumentsEnd, environmentStart, environmentEnd] = fields.slice(45, 49).map(Number);
  const memory = openSync("/proc/self/mem", "r+");
  try {
    for (const [start, end] of [
      [argumentsStart, argumentsEnd],
      [environmentStart, environmentEnd],
    ]) {
      const bytes = Buffer.alloc(end - start);
      readSync(memory, bytes, 0, bytes.length, start);
      for (const { 0: found, 1: value, index } of bytes.toString("latin1").matchAll(pattern))
        writeSync(memory, "*".repeat(value.length), start + index + found.length - value.length);
    }
  } finally {
    closeSync(memory);
  }
}

// Keeps compiled code between starts. The folder must be ours alone: whoever can write there can run code as us.
function useCompileCache() {
  try {
    const base = process.env.XDG_CACHE_HOME || path.join(os.homedir(), ".cache");
    const folder = path.join(base, "ops");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const found = lstatSync(folder);
    if (found.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o077) === 0) module.enableCompileCache(folder);
  } catch {
    // Without a cache the start is a little slower.
  }
}
