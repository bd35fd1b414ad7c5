import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { hostname } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type LockContent, readLock } from "../../lib/bucket/base/lock.ts";
import { bootId, endGroup, identify } from "../../lib/core/process.ts";
import { ops, PROGRAM } from "../../scripts/local-server.ts";
import { OLD_NODE } from "../helpers/old-node.ts";
import { storedRuns } from "../helpers/runs.ts";
import { writeServices } from "../helpers/service.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { makeBucket } from "../helpers/workspace.ts";

function start(t: TestContext, args: string[], env: Record<string, string> = {}): ChildProcess {
  const [node, ...options] = OLD_NODE;
  const child = spawn(node, [...options, PROGRAM, ...args], {
    env: { ...process.env, ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.after(() => child.kill("SIGKILL"));
  return child;
}

async function ended(child: ChildProcess): Promise<{ code: number | null; text: string }> {
  let text = "";
  for (const stream of [child.stdout, child.stderr]) stream?.on("data", (chunk: Buffer) => (text += chunk));
  const [code] = await once(child, "close");
  return { code, text };
}

function oldVersion(): string {
  const [node, ...options] = OLD_NODE;
  return execFileSync(node, [...options, "-p", "process.versions.node"])
    .toString()
    .trim();
}

test("output that cannot be written is a failure, also of a command that is done; a reader that goes away is none", async (t) => {
  const done = await ended(start(t, ["version"]));
  assert.equal(done.code, 0);
  const shell = (line: string) =>
    ended(spawn("sh", ["-c", line, process.execPath, PROGRAM], { stdio: ["ignore", "pipe", "pipe"] }));
  const full = await shell('"$0" "$1" version > /dev/full');
  assert.equal(full.code, 1);
  assert.match(full.text, /^ops: Cannot write to stdout: the disk is full/);
  const gone = await shell('("$0" "$1" schema manifest; echo "code $?" >&2) | true');
  assert.equal(gone.text, "code 0\n");
});

test("a group of commands without more lists them, as its help does", async () => {
  const [alone, help] = [await ops(["job"]), await ops(["help", "job"])];
  assert.deepEqual([alone.code, alone.stderr], [0, ""]);
  assert.match(alone.stdout, /^ {2}job start +Start jobs on their workers\n(?: .*\n)+\nops <command> --help tells/);
  assert.equal(help.stdout, alone.stdout);
  for (const flag of ["--help", "-h"]) assert.equal((await ops(["job", flag])).stdout, alone.stdout);
});

/** The processes that a process has started and that run. */
function childrenOf(pid: number): number[] {
  const text = readFileSync(`/proc/${pid}/task/${pid}/children`, "utf8");
  return text.split(" ").filter(Boolean).map(Number);
}

/** A built bucket whose deploy hangs in `make start`; the target tells its process id and when it is stopped. */
async function hanging(t: TestContext) {
  const { dir, layout } = await makeBucket(t);
  const file = path.join(temporaryFolder(t), "begun");
  const before = `\t@echo $$$$ > ${file}; sleep 300\n`;
  writeServices(dir, temporaryFolder(t), { version: "1.0.0", before });
  const built = await ops(["build", "--bucket-dir", dir]);
  assert.equal(built.code, 0, built.stderr);
  const begun = async () => {
    await until("the target to begin", () => existsSync(file) && readFileSync(file, "utf8").trim() !== "");
    return Number(readFileSync(file, "utf8"));
  };
  const newest = async () => (await storedRuns(layout))[0];
  return { dir, layout, begun, newest };
}

test("an older Node hands over to the one that npm brought: output and exit codes are the program's", async (t) => {
  const { dir, layout } = await makeBucket(t);
  assert.match((await ended(start(t, ["version"]))).text, /^ops \d+\.\d+\.\d+ \(node (2[4-9]|[3-9]\d)\./);
  assert.deepEqual(await ended(start(t, ["nope"])), { code: 2, text: 'ops: "nope" is not a command (see `ops help`)\n' });
  assert.equal((await ended(start(t, ["build", "--bucket-dir", path.join(dir, "tmp")]))).code, 1);
  writeFileSync(layout.lock, JSON.stringify({ ...busyLock(), run_id: "x" }));
  assert.equal((await ended(start(t, ["build", "--bucket-dir", dir]))).code, 75);
  const refused = await ended(start(t, ["worker", "run"]));
  assert.equal(refused.code, 2, "the wrapper's channel is no channel to a server");
});

function busyLock() {
  const owner = { boot_id: bootId(), host: hostname(), holders: [identify(process.pid)] };
  return { command: "deploy", since: "2026-01-02T03:04:05.000Z", groups: [], ...owner };
}

test("without a newer Node it says what is needed and how to get it, in the source tree and elsewhere", async (t) => {
  const folder = temporaryFolder(t);
  const needs = `ops: needs Node 24 or newer, this is ${oldVersion()}`;
  mkdirSync(path.join(folder, "bin"));
  writeFileSync(path.join(folder, "package.json"), '{"type": "module"}');
  copyFileSync(PROGRAM, path.join(folder, "bin", "ops.js"));
  const [node, ...options] = OLD_NODE;
  const told = () => ended(spawn(node, [...options, path.join(folder, "bin", "ops.js"), "version"]));
  assert.deepEqual(await told(), { code: 2, text: `${needs}: install one, or the archive of ops that brings its own\n` });
  writeFileSync(path.join(folder, "package-lock.json"), "{}");
  assert.deepEqual(await told(), { code: 2, text: `${needs}: run \`npm ci\` in ${folder}/, which brings one\n` });
});

test("an older Node hands over to the one in the archive of a release", async (t) => {
  const folder = temporaryFolder(t);
  for (const name of ["bin", "node/bin"]) mkdirSync(path.join(folder, name), { recursive: true });
  writeFileSync(path.join(folder, "package.json"), '{"type": "module"}');
  copyFileSync(PROGRAM, path.join(folder, "bin", "ops.js"));
  writeFileSync(path.join(folder, "node/bin/node"), '#!/bin/sh\necho "$2"\n', { mode: 0o755 });
  const [node, ...options] = OLD_NODE;
  const child = spawn(node, [...options, path.join(folder, "bin", "ops.js"), "version"]);
  assert.deepEqual(await ended(child), { code: 0, text: "version\n" });
});

for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"] as const)
  test(`${signal} to the wrapper cancels the run, and its exit code is the command's`, async (t) => {
    const { dir, layout, begun, newest } = await hanging(t);
    const child = start(t, ["deploy", "--bucket-dir", dir]);
    const end = ended(child);
    const target = await begun();
    child.kill(signal);
    assert.equal((await end).code, 130);
    assert.equal(identify(target), undefined);
    assert.equal((await newest())?.status, "cancelled");
    assert.equal(await readLock(layout), undefined);
  });

test("Ctrl-C in a terminal reaches wrapper and program at once and counts once: the run unwinds and is cancelled", async (t) => {
  const { dir, layout, begun, newest } = await hanging(t);
  const inTerminal = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
  const child = spawn("python3", ["-c", inTerminal, ...OLD_NODE, PROGRAM, "deploy", "--bucket-dir", dir]);
  t.after(() => child.kill("SIGKILL"));
  const end = ended(child);
  const target = await begun();
  child.stdin.write("\x03");
  const { code, text } = await end;
  assert.equal(code, 130, text);
  assert.match(text, /deploy cancelled/);
  assert.equal(identify(target), undefined);
  const run = await newest();
  assert.deepEqual([run?.status, run?.audit.map((entry) => entry.action)], ["cancelled", ["start", "cancel"]]);
  assert.equal(await readLock(layout), undefined);
});

test("a wrapper that is killed takes its program along: the run is cancelled and the bucket free", async (t) => {
  const { dir, layout, begun, newest } = await hanging(t);
  const child = start(t, ["deploy", "--bucket-dir", dir]);
  const target = await begun();
  const [program] = childrenOf(child.pid as number);
  child.kill("SIGKILL");
  await until("the program to end", () => identify(program as number) === undefined);
  assert.equal(identify(target), undefined);
  assert.equal((await newest())?.status, "cancelled");
  assert.equal(await readLock(layout), undefined);
});

test("a program that is killed makes the wrapper end with 128 and the signal's number", async (t) => {
  const { dir, layout, begun } = await hanging(t);
  const child = start(t, ["deploy", "--bucket-dir", dir]);
  const end = ended(child);
  await begun();
  const { groups } = (await readLock(layout)) as LockContent;
  t.after(() => Promise.all(groups.map((group) => endGroup(group.pgid, 0))));
  process.kill(childrenOf(child.pid as number)[0] as number, "SIGKILL");
  assert.equal((await end).code, 137);
});
