import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { bootId } from "../../../lib/core/process.ts";
import type { LeftListener, ScriptOptions, WorkerAddress } from "../../../lib/transport/base/transport.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { SshConnections } from "../../../lib/transport/ssh/ssh.ts";
import { MARK } from "../../helpers/local-shell.ts";
import { type Fate, playedSsh } from "../../helpers/mux.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

interface Setting extends Partial<SshSettings> {
  fate?: (session: number, open: number) => Fate;
  says?: () => string | undefined;
  listener?: LeftListener;
}

/** Connections of a run to one worker, which is this machine without any sshd. */
async function setUp(t: TestContext, { fate = () => "runs", says, listener, ...more }: Setting = {}) {
  const above = temporaryFolder(t);
  const [keyFile, knownHostsFile] = ["worker.key", "known_hosts"].map((name) => path.join(above, name)) as [string, string];
  for (const file of [keyFile, knownHostsFile]) writeFileSync(file, "");
  const limits = { concurrency: 8, useSudo: false, reattachSeconds: 0, spoolBytes: 65_536 };
  const settings: SshSettings = { user: "agent", port: 22, keyFile, knownHostsFile, options: {}, ...limits, ...more };
  const worker: WorkerAddress = { host: "w1", connection: "ssh", root: above };
  const ssh = playedSsh(t, { fate: (session) => fate(session, open()), ...(says && { says }) });
  const open = () => ssh.masters.reduce((sum, master) => sum + master.open(), 0);
  const connections = await SshConnections.open(settings, [worker], ssh.launcher, { ...(listener && { listener }) });
  t.after(() => connections.close());
  const transport = connections.transport(worker, "b");
  const say = async (text: string, options?: ScriptOptions) => (await transport.script(text, options)).stdout;
  const sessions = () => ssh.masters[0]?.sessions ?? 0;
  return { ...ssh, connections, transport, worker, settings, say, open, sessions, folder: path.join(above, "b") };
}

const timers = () => process.getActiveResourcesInfo().filter((name) => name === "Timeout").length;

test("a run connects once, keeps a shell for short scripts, and leaves neither session nor connection nor folder", async (t) => {
  const { transport, say, noted, open, connections, folder } = await setUp(t, { concurrency: 1 });
  const before = timers();
  for (const isShort of [false, false, true, true])
    assert.equal(await say("pwd", { isShort, timeoutMs: 600_000 }), `${folder}\n`);
  assert.equal(await say("cat", { input: "in" }), "in");
  await until("all but the kept shell to end", () => open() === 1);
  assert.equal(timers(), before, "who waits for no time limit any more");
  const place = path.dirname(connections.configFile);
  await transport.close();
  assert.deepEqual(noted, ["ssh w1", "end w1"]);
  await connections.close();
  assert.ok(!existsSync(place));
});

test("a script that is cancelled before it begins connects to nothing", async (t) => {
  const { transport, noted } = await setUp(t);
  await assert.rejects(transport.script("true", { signal: AbortSignal.abort() }), { code: "cancelled" });
  assert.deepEqual(noted, []);
});

test("without a private key, and for a worker that was not prepared, there is no way", async (t) => {
  const { connections, worker, settings, launcher } = await setUp(t);
  assert.throws(() => connections.transport({ ...worker, host: "w2" }, "b"), { code: "internal", message: /for worker w2$/ });
  const keyFile = path.join(worker.root, "none");
  await assert.rejects(SshConnections.open({ ...settings, keyFile }, [worker], launcher), {
    message: /no private key secrets\/none/,
  });
});

test("what a daemon keeps open is cut when its script has ended", async (t) => {
  const { say, open } = await setUp(t);
  const pid = Number(await say("setsid sleep 600 & echo $!"));
  t.after(() => process.kill(pid, "SIGKILL"));
  await until("the session to end", () => open() === 0);
});

test("a folder that others may write to is refused", async (t) => {
  const { transport, folder } = await setUp(t);
  mkdirSync(folder);
  chmodSync(folder, 0o777);
  for (const isShort of [false, true])
    await assert.rejects(transport.script("true", { isShort }), {
      code: "failed",
      message: new RegExp(`^Cannot use the folder on worker w1: ${folder} must be a folder of the user `),
    });
});

for (const [what, options] of [
  ["a script", {}],
  ["a script that would survive", { survivesAs: "it" }],
] as const) {
  test(`${what} waits where sshd allows no further session, and is told of an sshd that allows one alone`, async (t) => {
    const { say, folder, sessions } = await setUp(t, {
      fate: (_, open) => (open >= 1 ? "refused" : "runs"),
      reattachSeconds: 60,
    });
    const first = say(": >begun; until [ -e go ]; do sleep 0.01; done; echo first", options);
    await until("the first one", () => existsSync(path.join(folder, "begun")));
    const second = say("echo second", options);
    await until("four attempts", () => sessions() === 5);
    // The last refusal is heard.
    for (let round = 0; round < 200; round++) await nextRound();
    writeFileSync(path.join(folder, "go"), "");
    assert.deepEqual(await Promise.all([first, second]), ["first\n", "second\n"]);
    const none = await setUp(t, { fate: () => "refused", reattachSeconds: 60 });
    await assert.rejects(none.transport.script("true", options), {
      code: "failed",
      message: /^Cannot run commands on worker w1: its sshd allows only one session in a connection; set MaxSessions there/,
    });
    await assert.rejects(none.transport.script("true", { isShort: true }), {
      code: "failed",
      message: "Cannot open a shell on worker w1: its sshd allows too few sessions (MaxSessions)",
    });
  });

  test(`${what} that is cut short is ended, also where only the place of the kept shell is left for that`, async (t) => {
    const { say, transport, open, sessions } = await setUp(t, {
      fate: (_, open) => (open >= 2 ? "refused" : "runs"),
      reattachSeconds: 60,
    });
    assert.equal(await say("echo short", { isShort: true }), "short\n");
    const stop = new AbortController();
    const cut = await transport.script("echo begun; exec sleep 600", {
      ...options,
      signal: stop.signal,
      onLine: () => stop.abort(),
    });
    assert.deepEqual([cut.reason, cut.receipt, cut.stdout], ["cancelled", "stopped", "begun\n"]);
    assert.ok(sessions() >= 6, "four attempts were refused");
    await until("the session that has ended it to end", () => open() === 0);
    const late = await transport.script("exec sleep 600", { ...options, timeoutMs: 20 });
    assert.deepEqual([late.reason, late.receipt], ["timeout", "stopped"]);
    await until("the sessions to end", () => open() === 0);
  });
}

test("a command that survives leaves nothing behind once all was read", async (t) => {
  const { say, folder, open } = await setUp(t, { reattachSeconds: 60 });
  const before = timers();
  assert.equal(await say("echo out", { survivesAs: "it", timeoutMs: 600_000 }), "out\n");
  await until("the spool to go", () => readdirSync(folder).length === 0);
  await until("the session to end", () => open() === 0);
  assert.equal(timers(), before);
});

test("what another run has left is told before a script runs", async (t) => {
  const told: string[] = [];
  const listener = { onLine: (_: string, line: string) => told.push(line), onSentence: (text: string) => told.push(text) };
  const { say, folder } = await setUp(t, { listener: { ...listener, secrets: { longest: 0 } as never } });
  mkdirSync(folder);
  const spool = path.join(folder, ".ops-b-old-1");
  writeFileSync(`${spool}.out`, `${MARK} start 4000000 ${bootId()} 4000000 a label\nleft\n${MARK} end 3\n`);
  writeFileSync(`${spool}.err`, `${MARK} start\n${MARK} end\n`);
  assert.equal(await say("echo ran"), "ran\n");
  assert.deepEqual(told, [
    "w1: a run that is over has left a label; what it printed there:",
    "left",
    "w1: a label has ended with exit code 3",
  ]);
  await until("the spool to go", () => readdirSync(folder).length === 0);
});

test("a connection that is lost under a script is told, with what became of it", async (t) => {
  const { transport, masters } = await setUp(t);
  const lost = transport.script("echo begun; exec sleep 600", { onLine: () => masters[0]?.close() });
  await assert.rejects(lost, { code: "unreachable", message: /; the command that ran there is (?:already gone|stopped)$/ });
});

test("where a cancel comes while a lost command is being ended, it was cancelled", async (t) => {
  const stop = new AbortController();
  let isLost = false;
  const { transport, masters } = await setUp(t, {
    fate: () => {
      if (isLost) stop.abort();
      return "runs";
    },
  });
  const onLine = () => {
    isLost = true;
    masters[0]?.close();
  };
  const { reason } = await transport.script("echo begun; exec sleep 600", { signal: stop.signal, onLine });
  assert.equal(reason, "cancelled");
});

test("a cancel does not wait for a session that says nothing, nor does the end of a run", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { transport, connections, sessions, open } = await setUp(t, { fate: () => "mute" });
  const stop = new AbortController();
  const cancelled = transport.script("true", { signal: stop.signal });
  const asked = transport.script("true", { isShort: true });
  while (sessions() < 2) await nextRound();
  stop.abort();
  const closing = connections.close();
  const ticks = setInterval(() => t.mock.timers.tick(1_000), 1);
  const { reason, receipt } = await cancelled;
  assert.deepEqual([reason, receipt], ["cancelled", "unreachable"]);
  await assert.rejects(asked, { code: "cancelled" });
  await closing;
  clearInterval(ticks);
  t.mock.timers.reset();
  assert.equal(open(), 0);
});
