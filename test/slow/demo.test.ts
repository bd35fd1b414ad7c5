import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const DEMO = new URL("../../scripts/demo.ts", import.meta.url).pathname;

function startDemo(folder: string, ...args: string[]) {
  const child = spawn(process.execPath, [DEMO, ...args], {
    env: { ...process.env, TMPDIR: folder },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const output = { text: "" };
  child.stdout.on("data", (chunk: Buffer) => {
    output.text += chunk;
  });
  return { child, output };
}

// test/fixtures/installed.ts runs the demo over ssh to its end.
test("the demo that is interrupted before its checks have passed leaves nothing behind and ends with 130", async (t) => {
  const folder = temporaryFolder(t);
  const { child, output } = startDemo(folder, "--once");
  const isThere = (name: string) => readdirSync(folder, { recursive: true }).some((one) => String(one).endsWith(name));
  // The server has begun and does not listen yet.
  await until("the server to make its root", () => isThere("/root"));
  child.kill("SIGTERM");
  assert.deepEqual(await once(child, "close"), [130, null], output.text);
  assert.deepEqual(commandsWith(folder), []);
  assert.deepEqual(readdirSync(folder), []);
});

test("the demo whose reader goes away leaves nothing behind", async (t) => {
  const folder = temporaryFolder(t);
  const { child, output } = startDemo(folder);
  await until("the first step", () => output.text.includes("1. "));
  child.stdout.destroy();
  assert.deepEqual(await once(child, "close"), [130, null]);
  assert.deepEqual(commandsWith(folder), []);
  assert.deepEqual(readdirSync(folder), []);
});

test("the demo stays up until it is interrupted, then stops the services and the server", async (t) => {
  const folder = temporaryFolder(t);
  const { child, output } = startDemo(folder);
  await until("the checks to pass", () => output.text.includes("Ctrl-C stops the services"), 60_000);
  const service = /GET (http:\S+)/.exec(output.text)?.[1] as string;
  assert.equal((await fetch(service)).status, 200);
  child.kill("SIGINT");
  assert.deepEqual(await once(child, "close"), [0, null], output.text);
  await assert.rejects(fetch(service), "the service is stopped");
  assert.deepEqual(readdirSync(folder), []);
});

/** The command lines of running processes that name a folder. */
function commandsWith(folder: string): string[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return pids.flatMap((pid) => {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ");
      return command.includes(folder) ? [command] : [];
    } catch {
      return [];
    }
  });
}
