import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { bootId } from "../../../lib/core/process.ts";
import type { ScriptOptions } from "../../../lib/transport/base/transport.ts";
import { loopLines, type ShellScript } from "../../../lib/transport/ssh/channel.ts";
import { Limit } from "../../../lib/transport/ssh/limits.ts";
import { Execution, endRemoteGroup, KeptShell, type ScriptEnd } from "../../../lib/transport/ssh/shell.ts";
import { localChannel, MARK } from "../../helpers/local-shell.ts";
import { until } from "../../helpers/temporary.ts";

const script = (text: string, ...args: string[]): ShellScript => ({ folder: "/", need: "none", text, args, env: {} });

/** A kept shell on this machine; `opened` are the channels that it has opened. */
function localShell(t: TestContext) {
  const opened: Awaited<ReturnType<typeof localChannel>>[] = [];
  const shell = new KeptShell(async (reader) => {
    const channel = await localChannel(t, loopLines(MARK), reader);
    opened.push(channel);
    return channel.started;
  });
  const ended = ({ execution, code, started }: ScriptEnd) => {
    const { stdout, stderr } = execution.outcome("exit", null);
    return { code, stdout, stderr, isStarted: started !== undefined, unusable: execution.unusable, left: execution.left };
  };
  const ask = async (text: string, options: ScriptOptions & { input?: string } = {}, ...args: string[]) =>
    await shell.ask(script(text, ...args), options, [], ended);
  return { shell, opened, ask, ended };
}

const WELL = { isStarted: true, unusable: undefined, left: [] };

test("a kept shell runs one script after the other, and opens when the first one comes", async (t) => {
  const { shell, opened, ask } = localShell(t);
  assert.equal(shell.isFree, false);
  const asked = [1, 2, 3].map((code) => ask(`echo "$1 $$"; echo err >&2; exit ${code}`, {}, `n${code}`));
  assert.equal(shell.isFree, false);
  const found = await Promise.all(asked);
  const pid = found[0]?.stdout.split(" ")[1];
  assert.deepEqual(
    found,
    [1, 2, 3].map((code) => ({ code, stdout: `n${code} ${pid}`, stderr: "err\n", ...WELL })),
  );
  assert.deepEqual([opened.length, shell.isFree], [1, true]);
  await shell.close();
  assert.equal(shell.isFree, false);
  assert.equal((await ask("true")).code, 0);
  assert.equal(opened.length, 2);
});

test("each text goes to the shell once; of more than 16 the first gives way", async (t) => {
  const { opened, ask } = localShell(t);
  const sent = (text: string) => opened[0]?.written().split(`'${text}'`).length as number;
  for (let round = 0; round < 2; round++)
    for (let text = 1; text <= 16; text++) assert.equal((await ask(`echo ${text}; exit ${text}`)).code, text);
  assert.deepEqual([sent("echo 1; exit 1"), sent("echo 16; exit 16")], [2, 2]);
  assert.equal((await ask("echo 17; exit 17")).stdout, "17\n");
  assert.equal((await ask("echo 2; exit 2")).stdout, "2\n");
  assert.equal((await ask("echo 1; exit 1")).stdout, "1\n");
  assert.deepEqual([sent("echo 1; exit 1"), sent("echo 2; exit 2")], [3, 2]);
});

test("input that a script leaves is none of the next one's", async (t) => {
  const { ask } = localShell(t);
  assert.equal((await ask("true", { input: `${MARK} echo no\n` })).code, 0);
  assert.equal((await ask("cat", { input: "for this one" })).stdout, "for this one");
  assert.equal((await ask("cat")).stdout, "");
});

test("a script that is cut short or lost gets no exit code, and the shell is not used again", async (t) => {
  const { opened, ask } = localShell(t);
  const stop = new AbortController();
  const cancelled = ask("echo begun; exec sleep 600", { signal: stop.signal, onLine: () => stop.abort() });
  assert.deepEqual(await cancelled, { code: "cancelled", stdout: "begun\n", stderr: "", ...WELL });
  assert.equal((await ask("exec sleep 600", { timeoutMs: 20 })).code, "timeout");
  const lost = ask("echo begun; exec sleep 600", { onLine: () => void opened[2]?.close() });
  assert.deepEqual(await lost, { code: "lost", stdout: "begun\n", stderr: "", ...WELL });
  assert.equal((await ask("exit 9")).code, 9);
  assert.equal(opened.length, 4);
});

test("a cancel before the shell is open runs nothing; the time counts from the begin of the script", async () => {
  const never = new KeptShell(() => new Promise(() => {}));
  const stop = new AbortController();
  let begun = 0;
  const options = { signal: stop.signal, timeoutMs: 1, onBegin: () => begun++ };
  const asked = never.ask(script("true"), options, [], ({ code, started }) => [code, started]);
  await nextRound();
  stop.abort();
  assert.deepEqual([await asked, begun], [["cancelled", undefined], 0]);
  await assert.rejects(
    never.ask(script("true"), { signal: stop.signal }, [], () => {}),
    { code: "cancelled" },
  );
});

test("a shell that cannot be opened fails its script, gives the places back, and is tried again", async (t) => {
  let attempts = 0;
  const shell = new KeptShell(async (reader) => {
    if (++attempts === 1) throw new Error("no session");
    return (await localChannel(t, loopLines(MARK), reader)).started;
  });
  const place = new Limit(1);
  const ask = () => shell.ask(script("exit 3"), {}, [place], ({ code }) => code);
  await assert.rejects(ask(), { message: "no session" });
  assert.equal(place.isFree, true);
  assert.deepEqual([await ask(), place.isFree, attempts], [3, true, 2]);
});

test("marks before the end tell why a folder cannot be used, and what is left there", async (t) => {
  const { ask } = localShell(t);
  const found = await ask(`echo "${MARK} unusable a b"; echo "${MARK} left x y"; echo "${MARK} left z"; echo "${MARK} other"`);
  assert.deepEqual(found, { code: 0, stdout: "", stderr: "", isStarted: true, unusable: "a b", left: ["x y", "z"] });
});

test("who cannot go on with the output ends the script, and is told of his own error", async (t) => {
  const { shell } = localShell(t);
  const onLine = () => {
    throw new Error("full");
  };
  const asked = shell.ask(script("echo a; exec sleep 600"), { onLine }, [], ({ execution, code }) => {
    assert.equal(code, "cancelled");
    return execution.outcome("cancelled", null);
  });
  await assert.rejects(asked, { message: "full" });
});

test("the outcome of an execution has its reason, its code, its receipt and its time", async (t) => {
  const clock = { now: 1_000 };
  t.mock.method(performance, "now", () => clock.now);
  const execution = new Execution({ keepBytes: 3 });
  clock.now = 2_000;
  execution.begin();
  execution.take(Buffer.from("abcdef"), "stdout");
  clock.now = 2_500;
  const { stdout, ...rest } = execution.outcome("timeout", null, "killed");
  assert.match(stdout, /^abc/);
  assert.deepEqual(rest, { reason: "timeout", receipt: "killed", exitCode: null, signal: null, stderr: "", durationMs: 500 });
  assert.ok(!("receipt" in execution.outcome("exit", 3)));
  execution.close();
});

test("an execution that is over keeps no timer and no listener, and a shell that is closed no process", async (t) => {
  const { shell, opened } = localShell(t);
  const { signal } = new AbortController();
  const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;
  const before = timers();
  await shell.ask(script("true"), { signal, timeoutMs: 600_000 }, [], () => {});
  assert.deepEqual([getEventListeners(signal, "abort").length, timers()], [0, before]);
  await shell.close();
  await opened[0]?.exited;
});

test("of endless output only a part is taken once the script was cut off", async () => {
  const stop = new AbortController();
  const execution = new Execution({ signal: stop.signal });
  execution.take(Buffer.alloc(100_000, "a"), "stdout");
  stop.abort();
  assert.equal(await execution.cut, "cancelled");
  for (let chunk = 0; chunk < 100; chunk++) execution.take(Buffer.alloc(16 * 1024, "b"), "stdout");
  assert.equal(execution.outcome("cancelled", null).stdout.length, 100_000 + 64 * 1024);
  execution.close();
});

/** Asks of a worker that says this, one answer after the other; what it was asked is noted. */
function saying(...answers: (string | number)[]) {
  const asked: string[] = [];
  const ask = async (about: ShellScript, _: unknown, __: unknown, conclude: (end: unknown) => unknown) => {
    asked.push(about.args.join(" "));
    const said = answers.shift();
    const outcome = () => ({ stdout: `${said}\n` });
    return conclude({ execution: { outcome }, code: typeof said === "number" ? said : 0 });
  };
  return { asked, shell: { ask } as unknown as KeptShell };
}

const GROUP = { id: "7", bootId: "boot" };

test("a group that is gone needs no other look, and one that the worker does not tell of is unreachable", async () => {
  const gone = saying("gone");
  assert.equal(await endRemoteGroup(gone.shell, GROUP), "gone");
  assert.deepEqual(gone.asked, ["7 boot TERM"]);
  const stopped = saying("running", "running", "gone");
  assert.equal(await endRemoteGroup(stopped.shell, GROUP), "stopped");
  assert.deepEqual(stopped.asked, ["7 boot TERM", "7 boot 0", "7 boot 0"]);
  for (const answers of [["what"], [1], ["running", ""], []])
    assert.equal(await endRemoteGroup(saying(...answers).shell, GROUP), "unreachable", answers.join());
});

test("a group that does not unwind in 4 s is killed, and one that is there 2 s later remains", async (t) => {
  const clock = { now: 0 };
  t.mock.method(performance, "now", () => {
    clock.now += 1_300;
    return clock.now;
  });
  const looks = (count: number) => Array(count).fill("running");
  const killed = saying(...looks(1 + 3 + 1), "gone");
  assert.equal(await endRemoteGroup(killed.shell, GROUP), "killed");
  assert.deepEqual(killed.asked, ["7 boot TERM", ...Array(3).fill("7 boot 0"), "7 boot KILL", "7 boot 0"]);
  const remaining = saying(...looks(1 + 3 + 1 + 1));
  assert.equal(await endRemoteGroup(remaining.shell, GROUP), "remaining");
  assert.deepEqual(remaining.asked.slice(4), ["7 boot KILL", "7 boot 0"]);
});

test("a group on a machine is ended by its number, of this start of the machine alone", async (t) => {
  const { shell } = localShell(t);
  const child = spawn("sleep", ["600"], { detached: true, stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  const exited = once(child, "exit");
  await until("the process", () => child.pid !== undefined);
  assert.equal(await endRemoteGroup(shell, { id: String(child.pid), bootId: "another" }), "gone");
  assert.equal(await endRemoteGroup(shell, { id: String(child.pid), bootId: bootId() }), "stopped");
  assert.deepEqual((await exited)[1], "SIGTERM");
});
