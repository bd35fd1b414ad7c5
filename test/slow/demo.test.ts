import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { connect } from "node:net";
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

test("the demo reaches its workers over ssh with --ssh, and leaves nothing behind", async (t) => {
  const folder = temporaryFolder(t);
  const { child, output } = startDemo(folder, "--once", "--ssh");
  assert.deepEqual(await once(child, "close"), [0, null], output.text);
  assert.match(output.text, /\n {3}worker 127\.0\.0\.3: trusted, ssh-ed25519 SHA256:/);
  assert.match(output.text, /all checks passed/);
  const port = /private sshd listens on port (\d+)/.exec(output.text)?.[1];
  await assert.rejects(once(connect(Number(port), "127.0.0.1"), "connect"), { code: "ECONNREFUSED" });
  assert.deepEqual(readdirSync(folder), []);
});

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
