import assert from "node:assert/strict";
import { once } from "node:events";
import { appendFileSync, existsSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import path from "node:path";

import { type TestContext, test } from "node:test";
import type { CommandOutcome } from "../../../lib/core/spawn.ts";
import type { ScriptOptions, Transport } from "../../../lib/transport/base/transport.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { SshConnections } from "../../../lib/transport/ssh/ssh.ts";
import { publicPart } from "../../../scripts/private-sshd.ts";
import { BUCKET_ID, type FleetOptions, SshFleet } from "../../helpers/ssh-fleet.ts";
import { until } from "../../helpers/temporary.ts";
import { busyboxFolder } from "../../helpers/worker.ts";

interface Setup {
  fleet?: FleetOptions;
  settings?: Partial<SshSettings>;
}

/** A worker, and scripts there that go on step by step. */
async function worker(t: TestContext, { fleet: options, settings }: Setup = {}) {
  const fleet = await SshFleet.start(t, options);
  const one = await fleet.one(t, settings);
  return { fleet, ...stepsOn(one) };
}

/** In a script, `step <name>` waits until the test lets it go on. */
const STEP = 'step() { : >"at-$1"; until [ -e "go-$1" ]; do sleep 0.02 2>/dev/null || sleep 1; done; }\n';

function stepsOn(one: Transport) {
  const file = (name: string) => path.join(one.folder, name);
  const lines: string[] = [];
  const run = (text: string, more: ScriptOptions = {}): Promise<CommandOutcome> => {
    const onLine: ScriptOptions["onLine"] = (line, stream) => lines.push(stream === "stderr" ? `! ${line}` : line);
    const running = one.script(`${STEP}${text}`, { survivesAs: "a test", onLine, ...more });
    running.catch(() => {});
    return running;
  };
  return {
    one,
    lines,
    run,
    /** Resolves when the script has come to `step <name>`. */
    at: (name: string) => until(`the script to come to ${name}`, () => existsSync(file(`at-${name}`))),
    go: (name: string) => writeFileSync(file(`go-${name}`), ""),
    exists: (name: string) => existsSync(file(name)),
    noSpool: () => until("the spool to be gone", () => spoolsIn(one).length === 0),
  };
}

function spoolsIn({ folder }: Transport): string[] {
  return readdirSync(folder).filter((name) => name.startsWith(".ops-"));
}

/** Cuts the connections that are open and waits until nothing of them is left. */
async function cut(fleet: SshFleet): Promise<void> {
  const before = fleet.sessions;
  fleet.cut();
  await until("the sessions to be gone", () => !fleet.sessions.some((pid) => before.includes(pid)));
}

const NUMBERS = Array.from({ length: 5000 }, (_, index) => `${index + 1}\n`).join("");

for (const userland of ["system", "busybox"] as const)
  test(`CP-412 CP-414 a script whose connection is cut in mid-line goes on, and is read on without a gap or a repeat (${userland})`, async (t) => {
    const env: Record<string, string> = userland === "busybox" ? { PATH: await busyboxFolder(t) } : {};
    const { fleet, one, lines, run, at, go, noSpool } = await worker(t, { fleet: { env } });
    const count = "i=0; while [ $i -lt 5000 ]; do i=$((i + 1)); echo $i; done";
    const running = run(`echo one; echo err one >&2; printf 'half a '; step cut; echo line; ${count}; echo err two >&2; exit 7`);
    await at("cut");
    await until("the output before the cut", () => lines.length === 2);
    assert.deepEqual(
      spoolsIn(one).map((name) => statSync(path.join(one.folder, name)).mode & 0o777),
      [0o600, 0o600],
    );
    await cut(fleet);
    go("cut");
    const { exitCode, reason, stdout, stderr } = await running;
    assert.deepEqual([exitCode, reason, stderr], [7, "exit", "err one\nerr two\n"]);
    assert.equal(stdout, `one\nhalf a line\n${NUMBERS}`);
    await noSpool();
  });

test("CP-412 a script whose connection is not lost is as any other, and leaves nothing behind", async (t) => {
  const { fleet, one, run, noSpool } = await worker(t);
  const outcome = await run("cat; echo $0 $# $(umask); exit 3", { input: "from the input\n'", args: ["a", "b"] });
  const plain = await one.script("cat; echo $0 $# $(umask); exit 3", { input: "from the input\n'", args: ["a", "b"] });
  assert.deepEqual([outcome.exitCode, outcome.stdout, outcome.stderr], [plain.exitCode, plain.stdout, plain.stderr]);
  await noSpool();
  assert.equal(fleet.logins, 1);
});

test("CP-412 a connection that is cut between the output and the exit code does not lose the exit code", async (t) => {
  const { fleet, one, lines, run, at, go, exists, noSpool } = await worker(t);
  const running = run("echo out; step end; echo more >&2; (sleep 0.1; : >ended) & exit 9");
  await at("end");
  await until("the first line", () => lines.length === 1);
  fleet.freeze();
  go("end");
  await until("the script to have ended", () => exists("ended") && spoolsIn(one).some((name) => name.endsWith(".code")));
  await cut(fleet);
  const { exitCode, stdout, stderr } = await running;
  assert.deepEqual([exitCode, stdout, stderr], [9, "out\n", "more\n"]);
  await noSpool();
});

test("CP-412 a connection that is cut twice in a row is opened twice, also while output is coming", async (t) => {
  const { fleet, lines, run, at, go, noSpool } = await worker(t);
  const running = run("echo 1; step one; echo 2; step two; seq 5000; step three; echo end");
  await at("one");
  await cut(fleet);
  go("one");
  await at("two");
  await until("the second line over the second connection", () => lines.includes("2"));
  await cut(fleet);
  await until("a third connection", () => fleet.logins === 3);
  await cut(fleet);
  go("two");
  await until("the numbers", () => lines.includes("4000"));
  await cut(fleet);
  go("three");
  const { exitCode, stdout } = await running;
  assert.deepEqual([exitCode, stdout], [0, `1\n2\n${NUMBERS}end\n`]);
  await noSpool();
});

test("CP-412 a worker that cannot be reached for a moment is reached again", async (t) => {
  const { fleet, run, at, go } = await worker(t);
  const running = run("step down; echo up; exit 2");
  await at("down");
  await fleet.sshd.stop();
  await until("the sessions to be gone", () => fleet.sessions.length === 0);
  go("down");
  await new Promise((resolve) => setTimeout(resolve, 500));
  await fleet.sshd.run();
  const { exitCode, stdout } = await running;
  assert.deepEqual([exitCode, stdout], [2, "up\n"]);
});

test("CP-412 a network that swallows everything does not hold the command up: the old session is ended", async (t) => {
  const fleet = await SshFleet.start(t);
  const proxy = await swallowing(t, fleet);
  const options = { ServerAliveInterval: "1", ServerAliveCountMax: "2" };
  const { transports } = await fleet.connect(t, { options }, [fleet.worker(proxy.host)]);
  const { lines, run, at, go, noSpool } = stepsOn(transports[0] as Transport);
  const running = run("echo begun; step on; seq 1000000; echo end");
  await at("on");
  await until("the first line", () => lines.length === 1);
  proxy.swallow();
  go("on");
  assert.equal((await running).exitCode, 0);
  const isWhole = lines.slice(1, -1).every((line, index) => line === String(index + 1));
  assert.deepEqual([lines.length, lines[0], lines.at(-1), isWhole], [1_000_002, "begun", "end", true]);
  await noSpool();
});

test("CP-413 a worker that is away for longer is unreachable, and the next run shows what the command did there", async (t) => {
  const { fleet, one, run, at, go, exists, noSpool } = await worker(t, { settings: { reattachSeconds: 1 } });
  const running = run("echo before; step lost; echo 'after it'; echo err >&2; : >ended; exit 5");
  await at("lost");
  await fleet.sshd.stop();
  await assert.rejects(running, {
    code: "unreachable",
    message:
      /^The connection was lost to worker 127\.0\.0\.1: .+, and no new one was opened within 1 s; its command may still be running$/,
  });
  go("lost");
  await until("the command to end", () => exists("ended") && spoolsIn(one).some((name) => name.endsWith(".code")));
  await fleet.sshd.run();
  assert.equal((await one.script("echo the same run", { isShort: true })).stdout, "the same run\n");
  assert.equal(spoolsIn(one).length, 3, "only the next run removes it");
  const next = await nextRun(t, fleet);
  assert.deepEqual(next.told, [
    "127.0.0.1: a run that is over has left a test; what it printed there:",
    "127.0.0.1 before",
    "127.0.0.1 after it",
    "127.0.0.1 ! err",
    "127.0.0.1: a test has ended with exit code 5",
  ]);
  await noSpool();
});

/** Comes to the worker like another run, and answers what that run has told about the runs before. */
async function nextRun(t: TestContext, fleet: SshFleet) {
  const told: string[] = [];
  const listener = {
    onLine: (host: string, line: string, stream: string) => told.push(`${host} ${stream === "stderr" ? "! " : ""}${line}`),
    onSentence: (sentence: string) => told.push(sentence),
    secrets: { longest: 0, cut: (_: Buffer, limit: number) => limit },
  };
  const workers = fleet.workers.slice(0, 1);
  const connections = await SshConnections.open(fleet.settings(), workers, fleet.launcher, { listener });
  t.after(() => connections.close());
  const transport = connections.transport(workers[0] as (typeof workers)[0], BUCKET_ID);
  await Promise.all([1, 2].map(() => transport.script("true", { isShort: true, isFolderOptional: true })));
  const errors = told.filter((line) => line.includes(" ! "));
  return { told: [...told.slice(0, -1).filter((line) => !errors.includes(line)), ...errors, ...told.slice(-1)], transport };
}

test("CP-415 what still runs is ended by the next run, which shows what it has printed; a live run's spool stays", async (t) => {
  const { fleet, one, run, at, noSpool } = await worker(t, { settings: { reattachSeconds: 1 } });
  const running = run("trap 'echo ended >&2; exit 1' TERM; echo begun; step lost");
  await at("lost");
  await fleet.sshd.stop();
  await assert.rejects(running, /its command may still be running$/);
  await fleet.sshd.run();
  const { told } = await nextRun(t, fleet);
  assert.deepEqual(told, [
    "127.0.0.1: a run that is over has left a test; what it printed there:",
    "127.0.0.1 begun",
    "127.0.0.1 ! ended",
    "127.0.0.1: a test was still running: it is stopped",
  ]);
  await noSpool();
  const other = run("echo alive; step own");
  await at("own");
  await one.script("true", { isShort: true, isFolderOptional: true });
  assert.equal(spoolsIn(one).length, 2);
  fleet.cut();
  writeFileSync(path.join(one.folder, "go-own"), "");
  assert.equal((await other).stdout, "alive\n");
});

test("CP-412 a command without its folder is spooled in the home folder, and found there", async (t) => {
  const fleet = await SshFleet.start(t, { login: 'cd "$HOME" && exec sh -c "$SSH_ORIGINAL_COMMAND"' });
  const connections = await SshConnections.open(fleet.settings(), fleet.workers, fleet.launcher);
  t.after(() => connections.close());
  const one = connections.transport(fleet.worker("127.0.0.1"), BUCKET_ID);
  const spools = () => readdirSync(fleet.folder).filter((name) => name.startsWith(".ops-"));
  const more: ScriptOptions = { survivesAs: "a test", isFolderOptional: true, args: [fleet.folder] };
  const running = one.script('echo $PWD; : >"$1/at"; until [ -e "$1/go" ]; do sleep 0.02; done; exit 4', more);
  await until("the script to run", () => existsSync(path.join(fleet.folder, "at")));
  assert.equal(spools().length, 2);
  await cut(fleet);
  writeFileSync(path.join(fleet.folder, "go"), "");
  const { exitCode, stdout } = await running;
  assert.deepEqual([exitCode, stdout], [4, `${fleet.folder}\n`]);
  await until("the spool to be gone", () => spools().length === 0);
});

test("CP-414 a spool has its limit: the exit code is right, and a line says that more was not kept", async (t) => {
  const { fleet, run, at, go, noSpool } = await worker(t, { settings: { spoolBytes: 8192 } });
  const running = run("echo begun; step lost; seq 5000; exit 6", { keepBytes: 1_000_000 });
  await at("lost");
  await cut(fleet);
  go("lost");
  const { exitCode, stdout } = await running;
  const [first, ...rest] = stdout.split("\n");
  assert.deepEqual([exitCode, first, rest[0]], [6, "begun", "1"]);
  assert.match(stdout, /… more was not kept while the connection was lost \(run_output_limit\)\n$/);
  assert.ok(stdout.length < 8400, `${stdout.length}`);
  await noSpool();
});

test("CP-414 a command goes on and ends where nothing can be spooled, and beyond the limit of the spool", async (t) => {
  const { run, one } = await worker(t, { settings: { spoolBytes: 512 } });
  const { exitCode, stdout } = await run("seq 5000; exit 3");
  assert.deepEqual([exitCode, stdout], [3, NUMBERS]);
  const gone = await one.script('cd /; rmdir "$1"; mkdir "$1"; seq 3', { survivesAs: "a test", args: [one.folder] });
  assert.equal(gone.stdout, "1\n2\n3\n");
});

test("CP-416 while the connection is lost the time limit goes on, and nobody knows what became of the command", async (t) => {
  const { fleet, lines, run, at } = await worker(t);
  const running = run("echo begun; step on", { timeoutMs: 4_000 });
  await at("on");
  await until("the first line", () => lines.length === 1);
  await fleet.sshd.stop();
  const { reason, receipt, stdout } = await running;
  assert.deepEqual([reason, receipt, stdout], ["timeout", "unreachable", "begun\n"]);
});

test("CP-416 a cancel while the connection is lost ends the command where its worker can be reached", async (t) => {
  const { fleet, run, at, noSpool } = await worker(t);
  const stop = new AbortController();
  const running = run("step on", { signal: stop.signal });
  await at("on");
  await cut(fleet);
  // The run has noticed: it opens a new connection.
  await until("a new login", () => fleet.sessions.length > 0);
  stop.abort();
  const { reason, receipt } = await running;
  assert.deepEqual([reason, receipt], ["cancelled", "stopped"]);
  await nextRun(t, fleet);
  await noSpool();
});

test("CP-416 a cancel ends the command too where the connection was lost before it told that the command has begun", async (t) => {
  const hold = 'if [ -e "$HOME/roots/hold" ]; then { until [ -e "$HOME/roots/go" ]; do sleep 0.02; done; cat; }; else cat; fi';
  const { fleet, one, run, at, noSpool } = await worker(t, { fleet: { login: `sh -c "$SSH_ORIGINAL_COMMAND" | ${hold}` } });
  await one.script("true");
  const roots = path.join(fleet.folder, "roots");
  writeFileSync(path.join(roots, "hold"), "");
  const stop = new AbortController();
  const running = run("step on", { signal: stop.signal });
  await at("on");
  rmSync(path.join(roots, "hold"));
  await cut(fleet);
  stop.abort();
  const { reason, receipt } = await running;
  assert.deepEqual([reason, receipt], ["cancelled", "stopped"]);
  writeFileSync(path.join(roots, "go"), "");
  await nextRun(t, fleet);
  await noSpool();
});

test("CP-412 a connection that is cut before the command has begun: the command is not started any more", async (t) => {
  const flag =
    '[ -e "$HOME/roots/hold" ] && mv "$HOME/roots/hold" "$HOME/roots/held" && until [ -e "$HOME/roots/go" ]; do sleep 0.02; done';
  const { fleet, one, run, exists } = await worker(t, { fleet: { login: `${flag}\nexec sh -c "$SSH_ORIGINAL_COMMAND"` } });
  await one.script("true");
  const roots = path.join(fleet.folder, "roots");
  writeFileSync(path.join(roots, "hold"), "");
  const running = run(": >ran");
  await until("the login", () => existsSync(path.join(roots, "held")));
  await cut(fleet);
  await assert.rejects(running, { code: "unreachable", message: /^The connection was lost to .+; its command was not started$/ });
  writeFileSync(path.join(roots, "go"), "");
  assert.equal((await one.script("echo next", { survivesAs: "a test" })).stdout, "next\n");
  assert.equal(exists("ran"), false);
  await nextRun(t, fleet);
  assert.deepEqual(spoolsIn(one), []);
});

test("CP-412 with ssh_reattach_seconds = 0 nothing is spooled, and a lost connection ends the command as it can", async (t) => {
  const { fleet, one, run, at } = await worker(t, { settings: { reattachSeconds: 0 } });
  const running = run("step on");
  await at("on");
  assert.deepEqual(spoolsIn(one), []);
  await cut(fleet);
  await assert.rejects(running, /^Failure: The connection was lost to .+; the command that ran there is stopped$/);
});

/** A way to the first worker under another address, whose connections swallow everything from one moment on. */
async function swallowing(t: TestContext, fleet: SshFleet) {
  const host = "127.0.0.77";
  const { port } = fleet.sshd;
  appendFileSync(fleet.knownHostsFile, `[${host}]:${port} ${publicPart(fleet.sshd.hostKeys[0] as string)}\n`);
  const open: Socket[] = [];
  const server = createServer((socket) => {
    const onward = connect(port, fleet.hosts[0]);
    for (const one of [socket, onward]) one.on("error", () => {});
    open.push(socket, onward);
    socket.pipe(onward).pipe(socket);
  }).listen(port, host);
  t.after(() => {
    for (const socket of open) socket.destroy();
    server.close();
  });
  await once(server, "listening");
  return {
    host,
    swallow() {
      for (const socket of open.splice(0)) {
        socket.unpipe();
        socket.pause();
        t.after(() => socket.destroy());
      }
    },
  };
}
