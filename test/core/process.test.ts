import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import fs, { copyFileSync, readFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { test } from "node:test";
import { sleep } from "../../lib/core/async.ts";
import {
  bootId,
  endGroup,
  endGroups,
  hasMembers,
  identify,
  isAlive,
  isGroupAlive,
  limitOf,
  signalProcess,
} from "../../lib/core/process.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const folder = temporaryFolder();

/** A shell that leads its own group and has printed its first line. */
async function shell(script: string): Promise<{ child: ChildProcess; pid: number; line: string }> {
  const child = spawn("sh", ["-c", script], { detached: true, stdio: ["ignore", "pipe", "ignore"] });
  const [line] = (await once(child.stdout as NodeJS.ReadableStream, "data")) as [Buffer];
  return { child, pid: child.pid as number, line: line.toString().trim() };
}

test("a process is told from a later one of the same number by its start", async () => {
  const own = identify(process.pid);
  assert.ok(own);
  assert.match(own.start_time, /^\d+$/);
  assert.equal(own.start_time, readFileSync("/proc/self/stat", "latin1").split(") ")[1]?.split(" ")[19]);
  assert.equal(isAlive(own), true);
  assert.equal(isAlive({ pid: process.pid, start_time: "1" }), false);
  assert.equal(identify(2 ** 30), undefined);
});

test("a name with blanks and parentheses does not shift the fields", async () => {
  const odd = path.join(folder, "a) R 1 (b");
  copyFileSync("/bin/sleep", odd);
  const child = spawn(odd, ["600"], { stdio: "ignore" });
  const identity = identify(child.pid as number);
  assert.ok(identity && /^\d{2,}$/.test(identity.start_time));
  child.kill("SIGKILL");
  await once(child, "exit");
  assert.equal(isAlive(identity), false);
});

test("a zombie counts as ended, for itself and for its group", async () => {
  // The shell does not collect its child: it becomes `exec`-ed into a program that never asks.
  const { child, pid, line } = await shell("sh -c 'echo $$; exit 0' & exec sleep 600");
  const zombie = Number(line);
  while (!readFileSync(`/proc/${zombie}/stat`, "latin1").includes(") Z ")) await sleep(5);
  assert.equal(identify(zombie), undefined);
  assert.equal(await endGroup(pid, 5_000), "stopped");
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
});

test("a group has members as long as anyone in it runs, and is alive as long as its leader does", async () => {
  const { child, pid } = await shell("sleep 600 & echo ready");
  if (child.exitCode === null) await once(child, "exit");
  assert.equal(isGroupAlive({ pgid: pid, start_time: "1" }), false);
  assert.equal(identify(pid), undefined);
  assert.equal(hasMembers(pid), true);
  assert.equal(await endGroup(pid, 5_000), "stopped");
  assert.equal(hasMembers(pid), false);
  assert.equal(await endGroup(2 ** 30, 5_000), "gone");
});

test("a group gets TERM first and KILL after the grace time", async () => {
  const polite = await shell("trap 'sleep 0.1; exit 5' TERM; echo ready; while :; do sleep 0.01; done");
  assert.equal(await endGroup(polite.pid, 10_000), "stopped");
  const deaf = await shell("trap '' TERM; echo ready; while :; do sleep 600; done");
  assert.equal(isGroupAlive({ pgid: deaf.pid, start_time: identify(deaf.pid)?.start_time ?? "" }), true);
  assert.equal(await endGroup(deaf.pid, 30), "killed");
  assert.equal(hasMembers(deaf.pid), false);
});

test("a group is not given up while it ends", async (t) => {
  const deaf = await shell("trap '' TERM; echo ready; while :; do sleep 600; done");
  const { kill } = process;
  t.mock.method(process, "kill", (target: number, signal: NodeJS.Signals) => {
    if (signal !== "SIGKILL") return kill.call(process, target, signal);
    return Boolean(setTimeout(() => kill.call(process, target, signal), 30));
  });
  assert.equal(await endGroup(deaf.pid, 1), "killed");
});

test("a process belongs to its group, not to its session; who has ended belongs to none, whatever the kernel says", async (t) => {
  const { pid, child, line } = await shell("exec bash -c 'set -m; sleep 600 & echo $!; wait'");
  assert.equal(hasMembers(Number(line)), true);
  assert.equal(await endGroup(Number(line), 5_000), "stopped");
  await endGroup(pid, 5_000);
  if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  const kill = t.mock.method(process, "kill", () => true);
  assert.equal(hasMembers(2 ** 30), false);
  const own = Number(readFileSync("/proc/self/stat", "latin1").split(") ")[1]?.split(" ")[2]);
  assert.equal(hasMembers(own), true);
  kill.mock.mockImplementation(() => {
    throw Object.assign(new Error("nobody"), { code: "ESRCH" });
  });
  assert.deepEqual([hasMembers(own), hasMembers(2)], [false, false]);
  assert.deepEqual(kill.mock.calls.at(-1)?.arguments, [-2, 0]);
});

test("of groups those end whose leader lives, and of those told to end before also the ones without a leader", async () => {
  const group = async (script: string) => {
    const { child, pid } = await shell(script);
    return { child, pgid: pid, start_time: identify(pid)?.start_time ?? "1" };
  };
  const [led, orphaned] = [await group("echo ready; sleep 600"), await group("sleep 600 & echo ready")];
  if (orphaned.child.exitCode === null) await once(orphaned.child, "exit");
  const other = { ...led, start_time: "1" };
  await endGroups([other, orphaned], 5_000, false);
  await endGroups([other], 5_000, true);
  assert.deepEqual([hasMembers(led.pgid), hasMembers(orphaned.pgid)], [true, true]);
  await endGroups([led], 5_000, false);
  assert.deepEqual([hasMembers(led.pgid), hasMembers(orphaned.pgid)], [false, true]);
  await endGroups([led, orphaned], 5_000, true);
  assert.equal(hasMembers(orphaned.pgid), false);
});

for (const pgid of [0, 1, -1, -5, 1.5, Number.NaN])
  test(`a group id of ${pgid} is refused: the kernel would signal ourselves or everyone`, async (t) => {
    // Where the refusal is missing nobody may be signalled either.
    const kill = t.mock.method(process, "kill", () => {
      throw Object.assign(new Error("nobody"), { code: "ESRCH" });
    });
    await assert.rejects(endGroup(pgid, 0), { code: "internal", message: `no process group has id ${pgid}` });
    assert.throws(() => hasMembers(pgid), { code: "internal" });
    assert.equal(kill.mock.callCount(), 0);
  });

test("a signal to nobody is told, not thrown", () => {
  assert.equal(signalProcess(2 ** 30, "SIGTERM"), false);
  assert.equal(signalProcess(process.pid, "SIGCONT"), true);
});

test("a limit of a process is the one in force, and without end where there is none", (t) => {
  const told = ["Limit                     Soft Limit           Hard Limit           Units     "];
  told.push("Max processes             unlimited            63432                processes ");
  told.push("Max open files            1024                 4096                 files     ");
  const read = t.mock.method(fs, "readFileSync", () => told.join("\n"));
  syncBuiltinESMExports();
  t.after(() => {
    read.mock.restore();
    syncBuiltinESMExports();
  });
  assert.deepEqual([limitOf("open files"), limitOf("processes", 7)], [1024, Number.POSITIVE_INFINITY]);
  assert.deepEqual(
    read.mock.calls.map(({ arguments: [file] }) => file),
    ["/proc/self/limits", "/proc/7/limits"],
  );
});

test("the machine is known by its last start", () => {
  assert.match(bootId(), /^[0-9a-f-]{36}$/);
  assert.equal(bootId(), bootId());
});

test("a process lives while any of its threads does, though its first one has ended", async () => {
  const script = [
    "import ctypes, os, threading, time",
    "threading.Thread(target=time.sleep, args=(600,)).start()",
    "print(os.getpid(), flush=True)",
    "ctypes.CDLL(None).pthread_exit(None)",
  ].join("\n");
  const child = spawn("python3", ["-c", script], { stdio: ["ignore", "pipe", "ignore"] });
  const [line] = (await once(child.stdout as NodeJS.ReadableStream, "data")) as [Buffer];
  const pid = Number(line.toString());
  try {
    const state = () => readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]?.[0];
    while (state() !== "Z") await sleep(5);
    assert.ok(identify(pid), "a thread of it may still be at work");
  } finally {
    process.kill(pid, "SIGKILL");
  }
  await once(child, "exit");
  assert.equal(identify(pid), undefined);
});

test("a process that may not be looked at or signalled is not taken for one that is gone", (t) => {
  const refused = (code: string) => () => {
    throw Object.assign(new Error(code), { code });
  };
  t.mock.method(process, "kill", refused("EPERM"));
  assert.throws(() => signalProcess(process.pid, "SIGTERM"), { code: "EPERM" });
  const read = t.mock.method(fs, "readFileSync", refused("EMFILE"));
  syncBuiltinESMExports();
  t.after(() => {
    read.mock.restore();
    syncBuiltinESMExports();
  });
  assert.throws(() => identify(process.pid), { code: "EMFILE" });
  assert.throws(
    () => bootId(),
    ({ code, message, cause }) => code === "failed" && /ops needs Linux with \/proc$/.test(message) && cause.code === "EMFILE",
  );
});
