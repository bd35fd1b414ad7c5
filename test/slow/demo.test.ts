import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
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

test("the demo ends after its checks with --once, exit code 0, and leaves nothing behind", async (t) => {
  const folder = temporaryFolder(t);
  const { child, output } = startDemo(folder, "--once");
  assert.deepEqual(await once(child, "close"), [0, null], output.text);
  assert.match(output.text, /all checks passed/);
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
