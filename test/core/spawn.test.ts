import assert from "node:assert/strict";
import { once } from "node:events";
import { closeSync, existsSync, openSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { Failure } from "../../lib/core/errors.ts";
import { type GroupIdentity, hasMembers, identify, isAlive, signalProcess } from "../../lib/core/process.ts";
import { Redactor } from "../../lib/core/redact.ts";
import { type CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import { patience } from "../../scripts/patience.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const folder = temporaryFolder();

const launcher = new Launcher(process.env);

function sh(script: string, options: Parameters<Launcher["run"]>[1] = {}): Promise<CommandOutcome> {
  return launcher.run(["sh", "-c", script], options);
}

/** Runs a script that writes its own pid to a file, and answers the pid as soon as it is there. */
async function startedPid(name: string): Promise<number> {
  const file = path.join(folder, name);
  await until("the pid", () => existsSync(file) && /^\d+\n$/.test(readFileSync(file, "latin1")));
  return Number(readFileSync(file, "latin1"));
}

test("a command's exit code and both of its outputs are told", async () => {
  const outcome = await sh("echo out; echo err >&2; exit 3");
  assert.deepEqual(
    { ...outcome, durationMs: 0 },
    { reason: "exit", exitCode: 3, signal: null, stdout: "out\n", stderr: "err\n", durationMs: 0 },
  );
  assert.ok(outcome.durationMs > 0);
});

test("a command that dies of a signal tells which", async () => {
  const outcome = await sh("kill -9 $$");
  assert.deepEqual([outcome.reason, outcome.exitCode, outcome.signal], ["exit", null, "SIGKILL"]);
});

test("arguments reach the command as they are, whatever they hold", async () => {
  const odd = ["a b", "$(id)", "`id`", "'", '"', "", "*", "\n", "--"];
  const { stdout } = await launcher.run(["printf", "%s|", ...odd]);
  assert.equal(stdout, `${odd.join("|")}|`);
});

test("the environment is the launcher's with the command's own on top; the folder is the asked one", async () => {
  const small = new Launcher({ PATH: process.env.PATH, A: "1", B: "1" });
  const { stdout } = await small.run(["sh", "-c", "echo $A $B $HOME; pwd"], { env: { B: "2" }, cwd: folder });
  assert.equal(stdout, `1 2\n${folder}\n`);
});

test("standard input is empty without input", async () => {
  assert.equal((await launcher.run(["cat"])).stdout, "");
});

const inputs: [string, () => string | Uint8Array | AsyncIterable<Uint8Array>, string][] = [
  ["text", () => "ä€\n", "ä€\n"],
  ["empty text", () => "", ""],
  ["bytes", () => Buffer.from("bytes"), "bytes"],
  ["a stream", () => pieces("one ", "two"), "one two"],
];

for (const [what, input, expected] of inputs)
  test(`${what} as input reaches the command whole, and then its input ends`, async () => {
    assert.equal((await launcher.run(["cat"], { input: input() })).stdout, expected);
  });

async function* pieces(...texts: string[]) {
  for (const text of texts) yield Buffer.from(text);
}

test("a command that does not read its input ends by its exit code", async () => {
  const outcome = await sh("exit 7", { input: Buffer.alloc(4 * 1024 * 1024) });
  assert.deepEqual([outcome.reason, outcome.exitCode], ["exit", 7]);
});

test("a command that ends before its endless input does is not waited for", async () => {
  let closed = false;
  async function* endless() {
    try {
      for (;;) yield Buffer.alloc(65536);
    } finally {
      closed = true;
    }
  }
  assert.equal((await launcher.run(["head", "-c", "3"], { input: endless(), keepBytes: 1 })).exitCode, 0);
  await until("the input to be closed", () => closed);
});

test("a command is not told that its input is complete when the source of it failed", async () => {
  async function* broken() {
    yield Buffer.from("half of it");
    throw new Failure("invalid_source", "the other half is missing");
  }
  const file = path.join(folder, "half");
  const run = sh(`trap '' TERM; cat > ${file}; sleep 60`, { input: broken(), graceMs: 100 });
  await assert.rejects(run, { code: "invalid_source", message: "the other half is missing" });
});

test("a cancel ends the whole group with TERM, children in the background included", async () => {
  const stop = new AbortController();
  const run = sh(`trap 'echo unwinding; exit 0' TERM; sleep 600 & echo $! > ${folder}/child; echo $$ > ${folder}/leader; wait`, {
    signal: stop.signal,
  });
  const [child, leader] = [await startedPid("child"), await startedPid("leader")];
  stop.abort();
  const outcome = await run;
  assert.deepEqual([outcome.reason, outcome.exitCode, outcome.stdout], ["cancelled", 0, "unwinding\n"]);
  assert.equal(identify(child), undefined);
  assert.equal(hasMembers(leader), false);
});

test("a group that ignores TERM is killed after the grace time", async () => {
  const stop = new AbortController();
  const run = sh(`trap '' TERM; echo $$ > ${folder}/deaf; while :; do sleep 600; done`, { signal: stop.signal, graceMs: 50 });
  const pid = await startedPid("deaf");
  stop.abort();
  const outcome = await run;
  assert.deepEqual([outcome.reason, outcome.signal], ["cancelled", "SIGKILL"]);
  assert.equal(hasMembers(pid), false);
});

test("a command that is out of time is ended like a cancelled one", async () => {
  const outcome = await sh("echo before; exec sleep 600", { timeoutMs: 50 });
  assert.deepEqual([outcome.reason, outcome.signal, outcome.stdout], ["timeout", "SIGTERM", "before\n"]);
});

test("a time limit longer than a timer can wait is no time limit", async () => {
  assert.equal((await sh("sleep 0.05", { timeoutMs: 2 ** 40 })).reason, "exit");
});

test("a signal that was aborted before starts nothing", async () => {
  const run = sh(`touch ${folder}/never`, { signal: AbortSignal.abort() });
  await assert.rejects(run, { code: "cancelled" });
  assert.equal(existsSync(path.join(folder, "never")), false);
});

test("the caller's signal has no listeners left, however the command ended", async () => {
  const stop = new AbortController();
  let listeners = 0;
  const { signal } = stop;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  signal.addEventListener = (...args: Parameters<typeof add>) => {
    listeners++;
    (args[2] as { signal?: AbortSignal }).signal?.addEventListener("abort", () => listeners--);
    add(...args);
  };
  signal.removeEventListener = remove;
  await sh("true", { signal });
  await sh("sleep 600", { signal, timeoutMs: 20 });
  await assert.rejects(launcher.run(["/does/not/exist"], { signal }));
  assert.equal(listeners, 0);
});

const notStarted: [string, string[], object, RegExp][] = [
  ["is not installed", ["/does/not/exist"], {}, /^Cannot start \/does\/not\/exist: it is not installed/],
  ["may not be executed", [folder], {}, /^Cannot start .*permission denied/],
  ["gets a missing folder", ["true"], { cwd: "/does/not/exist" }, /^Cannot start true: .*folder .* is missing/],
  ["has too long an argument", ["true", "x".repeat(3_000_000)], {}, /^Cannot start true: .*E2BIG/],
  ["has a zero byte in an argument", ["true", "a\0b"], {}, /^Cannot start true: .*null bytes/],
];

for (const [what, argv, options, message] of notStarted)
  test(`a command that ${what} is a failure in words and opens no group`, async () => {
    const groups: string[] = [];
    const own = new Launcher(process.env, (change) => groups.push(change));
    await assert.rejects(own.run(argv as [string], options), { name: "Failure", code: "failed", message });
    assert.deepEqual([groups, own.groups], [[], []]);
  });

test("a group is listed and reported while its leader runs, and closed however it ends", async () => {
  const changes: ["open" | "close", GroupIdentity][] = [];
  const own = new Launcher(process.env, (change, group) => changes.push([change, group]));
  const run = own.run(["sh", "-c", `echo $$ > ${folder}/open; exec sleep 600`], { timeoutMs: 60_000 });
  const pid = await startedPid("open");
  assert.deepEqual(own.groups, [{ pgid: pid, start_time: identify(pid)?.start_time }]);
  await own.endAll(1_000);
  const { reason, signal } = await run;
  assert.deepEqual([reason, signal], ["exit", "SIGTERM"]);
  assert.deepEqual(
    changes.map(([change, group]) => [change, group.pgid]),
    [
      ["open", pid],
      ["close", pid],
    ],
  );
  assert.deepEqual(own.groups, []);
});

test("a daemon that a command leaves behind is neither waited for nor ended", async () => {
  const outcome = await sh(`echo started; sleep 600 & echo $! > ${folder}/daemon`);
  assert.deepEqual([outcome.exitCode, outcome.stdout], [0, "started\n"]);
  const pid = await startedPid("daemon");
  assert.ok(identify(pid));
  signalProcess(pid, "SIGKILL");
});

test("what is in the pipe within the time of draining is read, however busy this process is", async () => {
  const lines: string[] = [];
  const daemon = `(while kill -0 $$ 2>/dev/null; do sleep 0.01; done; echo 1; sleep 0.01; echo 2; exec sleep 600) &`;
  await sh(`${daemon} echo $! > ${folder}/writer`, {
    onLine: (line) => {
      lines.push(line);
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300);
    },
  });
  signalProcess(await startedPid("writer"), "SIGKILL");
  // On a machine that stands still for longer than the drain, the daemon is too late with both lines.
  assert.deepEqual(lines, lines.length === 0 ? [] : ["1", "2"]);
});

test("two hundred commands leave no zombie and no open descriptor behind", async () => {
  const before = openDescriptors();
  for (let round = 0; round < 10; round++) await Promise.all(Array.from({ length: 20 }, () => launcher.run(["true"])));
  const children = readFileSync(`/proc/self/task/${process.pid}/children`, "latin1").trim().split(" ");
  assert.deepEqual(
    children.filter((pid) => pid !== "" && identify(Number(pid)) === undefined),
    [],
  );
  assert.ok(openDescriptors() <= before + 2);
});

function openDescriptors(): number {
  let count = 0;
  for (let fd = 0; fd < 200; fd++) if (existsSync(`/proc/self/fd/${fd}`)) count++;
  return count;
}

test("no pipe stays open to what a command leaves behind, though it holds all three ends", async (t) => {
  const before = openDescriptors();
  const script = `exec 3<&0; sleep 600 <&3 & echo $! > ${folder}/holder`;
  assert.equal((await sh(script, { input: Buffer.alloc(1024 * 1024) })).exitCode, 0);
  const holder = await startedPid("holder");
  t.after(() => signalProcess(holder, "SIGKILL"));
  await until("the pipes to be closed", () => openDescriptors() <= before);
});

const LIMIT = 64 * 1024;
const lineCases: [string, string, string[]][] = [
  ["lines and a last one without its newline", "printf 'a\\n\\nb'", ["a", "", "b"]],
  ["a line of exactly 64 KiB", `head -c ${LIMIT} /dev/zero | tr '\\0' x; echo; echo y`, ["x".repeat(LIMIT), "y"]],
  [
    "a line of more than 64 KiB in parts, whatever the chunks",
    `head -c ${LIMIT} /dev/zero | tr '\\0' x; sleep 0.05; head -c ${LIMIT + 5} /dev/zero | tr '\\0' x; echo; echo y`,
    ["x".repeat(LIMIT), "x".repeat(LIMIT), "xxxxx", "y"],
  ],
  [
    "a cut between two characters, never inside one",
    `head -c ${LIMIT - 1} /dev/zero | tr '\\0' x; printf '€€\\n'`,
    ["x".repeat(LIMIT - 1), "€€"],
  ],
  ["a character that arrives in two chunks", "printf '\\342'; sleep 0.05; printf '\\202\\254\\n'", ["€"]],
  ["bytes that are no UTF-8", "printf 'a\\377b\\n\\342'", ["a\ufffdb", "\ufffd"]],
  ["continuation bytes without an end", `head -c ${LIMIT + 1} /dev/zero | tr '\\0' '\\200'`, ["\ufffd".repeat(LIMIT), "\ufffd"]],
];

for (const [what, script, expected] of lineCases)
  test(`lines: ${what}`, async () => {
    const lines: string[] = [];
    await sh(script, { onLine: (line, stream) => lines.push(stream === "stdout" ? line : `${stream}: ${line}`) });
    assert.deepEqual(lines, expected);
  });

test("lines tell which stream they came from", async () => {
  const lines: string[] = [];
  await sh("echo a; sleep 0.05; echo b >&2", { onLine: (line, stream) => lines.push(`${stream} ${line}`) });
  assert.deepEqual(lines, ["stdout a", "stderr b"]);
});

test("a listener that fails ends the command, and its failure is the caller's", async () => {
  const run = sh(`echo $$ > ${folder}/listened; echo one; echo two; exec sleep 600`, {
    onLine: (line) => {
      throw new Failure("failed", `no space left for ${line}`);
    },
  });
  await assert.rejects(run, { code: "failed", message: "no space left for one" });
  assert.equal(hasMembers(await startedPid("listened")), false);
});

test("of each stream only the beginning is kept, all of it is read", async () => {
  const outcome = await sh("yes | head -c 1000000; echo end >&2", { keepBytes: 5 });
  assert.deepEqual([outcome.exitCode, outcome.stdout, outcome.stderr], [0, "y\ny\ny", "end\n"]);
  assert.equal((await sh("yes | head -c 2000000")).stdout.length, 1024 * 1024);
  assert.equal((await sh("echo x", { keepBytes: 0 })).stdout, "");
});

const NODE = process.execPath;

test("a channel carries messages both ways, the last one included, and leads its own group", async () => {
  const program = path.join(folder, "echo.mjs");
  writeFileSync(
    program,
    "process.on('message', (m) => { for (let i = 0; i < 1000; i++) process.send({ i }); process.send(m, () => process.exit(4)); });" +
      "process.send('ready');",
  );
  const messages: unknown[] = [];
  const channel = await launcher.channel([NODE, program], "ignore", (message) => {
    messages.push(message);
    if (message === "ready") channel.send({ last: true });
  });
  assert.ok(hasMembers(channel.pid));
  assert.deepEqual(await channel.ended, { exitCode: 4, signal: null });
  assert.equal(messages.length, 1002);
  assert.deepEqual(messages.at(-1), { last: true });
  channel.send("nobody is there");
});

test("a channel's end is told although a daemon of the child lives on", async () => {
  const program = path.join(folder, "parent.mjs");
  writeFileSync(
    program,
    "import { spawn } from 'node:child_process';" +
      "const c = spawn('sleep', ['600'], { detached: true, stdio: 'inherit' }); process.send(c.pid, () => process.kill(process.pid, 'SIGKILL'));",
  );
  let daemon = 0;
  const output = openSync(path.join(folder, "output"), "a");
  const channel = await launcher.channel([NODE, program], output, (pid) => {
    daemon = pid as number;
  });
  closeSync(output);
  assert.deepEqual(await channel.ended, { exitCode: null, signal: "SIGKILL" });
  const identity = identify(daemon);
  assert.ok(identity && isAlive(identity));
  signalProcess(daemon, "SIGKILL");
});

test("both outputs of a channel's child go to one descriptor, in their order", async () => {
  const file = path.join(folder, "activity");
  const output = openSync(file, "a");
  const channel = await launcher.channel(["sh", "-c", "echo 1; echo 2 >&2; echo 3"], output, () => {});
  closeSync(output);
  assert.equal((await channel.ended).exitCode, 0);
  assert.equal(readFileSync(file, "utf8"), "1\n2\n3\n");
});

test("the output of a channel's child can be read through a pipe, without its messages", async () => {
  const channel = await launcher.channel(["sh", "-c", "echo out; echo err >&2"], "pipe", () => {});
  assert.equal((await channel.output?.toArray())?.join(""), "out\n");
  assert.equal((await channel.ended).exitCode, 0);
  assert.equal((await launcher.channel(["true"], "ignore", () => {})).output, null);
});

test("a channel to a program that is not there is a failure in words", async () => {
  await assert.rejects(
    launcher.channel(["/does/not/exist"], "ignore", () => {}),
    { code: "failed", message: /^Cannot start \/does\/not\/exist/ },
  );
});

test("what became of a group that had to be ended is told", async () => {
  const ended = async (script: string) => (await sh(script, { timeoutMs: 100, graceMs: 100, onLine: () => {} })).receipt;
  assert.equal(await ended("sleep 600 & sleep 600"), "stopped");
  assert.equal(await ended("trap '' TERM; while :; do sleep 600; done"), "killed");
  assert.equal((await sh("exit 0")).receipt, undefined);
});

test("a companion takes input, says what it likes, is listed as long as it lives, and tells its end once", async (t) => {
  const changes: string[] = [];
  const own = new Launcher(process.env, (change) => changes.push(change));
  const file = path.join(temporaryFolder(t), "messages");
  const stderr = openSync(file, "w");
  const script = 'read -r line; echo "got $line" >&2; exit 3';
  const companion = await own.start(["sh", "-c", script], { stdin: "pipe", stderr });
  closeSync(stderr);
  assert.equal(own.groups.length, 1);
  companion.stdin?.write("it\n");
  assert.deepEqual(await companion.ended, { exitCode: 3, signal: null });
  assert.equal(readFileSync(file, "utf8"), "got it\n");
  assert.deepEqual([own.groups, changes], [[], ["open", "close"]]);
  companion.stdin?.write("nobody is there any more");
  await companion.end(0);
});

for (const [what, script, signal] of [
  ["by TERM", 'touch "$0"; exec sleep 600', "SIGTERM"],
  ["by KILL where it does not listen", "trap '' TERM; touch \"$0\"; while :; do sleep 600; done", "SIGKILL"],
] as const)
  test(`a companion is ended ${what}, with what it has started`, async (t) => {
    const own = new Launcher(process.env);
    const begun = path.join(temporaryFolder(t), "begun");
    const companion = await own.start(["sh", "-c", `sleep 600 & ${script}`, begun]);
    await until("the companion to begin", () => existsSync(begun));
    const [group] = own.groups as [GroupIdentity];
    await companion.end(100);
    assert.deepEqual(await companion.ended, { exitCode: null, signal });
    await until("the group to end", () => !hasMembers(group.pgid));
    assert.deepEqual(own.groups, []);
  });

test("a companion that is a member of this group ends alone", async () => {
  const companion = await new Launcher(process.env).start(["sleep", "600"], { isMember: true });
  await companion.end(5_000);
  assert.deepEqual(await companion.ended, { exitCode: null, signal: "SIGTERM" });
});

test("a detached child goes on without its starter, speaks over its channel, and is in no list", async (t) => {
  const own = new Launcher(process.env);
  const { pid, channel } = await own.detach(["sh", "-c", 'read -r line <&3; echo "$line, $(pwd)" >&3; exec sleep 600']);
  t.after(() => signalProcess(-pid, "SIGKILL"));
  channel.write("it\n");
  assert.equal(String((await once(channel, "data"))[0]), "it, /\n");
  await own.endAll(0);
  assert.equal(own.ending.aborted, true);
  assert.deepEqual([own.groups, hasMembers(pid)], [[], true]);
  channel.destroy();
});

test("a companion that cannot be started is a failure", async () => {
  await assert.rejects(launcher.start(["no-such-program"]), { code: "failed", message: /^Cannot start no-such/ });
});

test("a command gets the launcher's environment with what is added, or another one as a whole", async () => {
  const launcher = new Launcher({ PATH: process.env.PATH, KEPT: "1" });
  const names = async (options: object) =>
    (await launcher.run(["env"], options)).stdout
      .split("\n")
      .map((line) => line.split("=")[0])
      // NODE_V8_COVERAGE is there while coverage is measured.
      .filter((name) => !["", "_", "NODE_V8_COVERAGE"].includes(name as string))
      .sort();
  assert.deepEqual(await names({ env: { ADDED: "1" } }), ["ADDED", "KEPT", "PATH"]);
  assert.deepEqual(await names({ environment: { PATH: process.env.PATH, OTHER: "1" } }), ["OTHER", "PATH"]);
  assert.deepEqual(Object.keys(launcher.environment), ["PATH", "KEPT"]);
});

test("neither a long line nor what is kept is cut within a secret", async () => {
  const secrets = new Redactor();
  secrets.add("top-secret-value");
  for (let before = LIMIT - 20; before <= LIMIT + 1; before++) {
    const lines: string[] = [];
    const script = `printf '%${before}stop-secret-value and more' ''`;
    const { stdout } = await sh(script, { secrets, keepBytes: LIMIT, onLine: (line) => lines.push(line) });
    assert.equal(lines.join(""), `${" ".repeat(before)}top-secret-value and more`);
    assert.equal(lines.filter((line) => line.includes("top-secret-value")).length, 1);
    for (const line of lines) assert.ok(Buffer.byteLength(line) <= LIMIT);
    assert.ok(stdout.length <= LIMIT);
    assert.match(stdout, /^ +(top-secret-value[ a-z]*)?$/);
  }
});

test("a line is handed out at its end, however long the secrets are", async () => {
  const secrets = new Redactor();
  secrets.add("v".repeat(LIMIT));
  const lines: number[] = [];
  await sh(`printf 'a\\n'; printf '%${LIMIT + 5}s\\n' ''; printf '%${LIMIT + 1}s' ''`, {
    secrets,
    onLine: (line) => lines.push(line.length),
  });
  assert.deepEqual(lines, [1, LIMIT, 5, LIMIT, 1]);
});

test("a command that stays is ended by the end of its input, too: what ignores TERM may still tidy up", async (t) => {
  const file = path.join(temporaryFolder(t), "tidy");
  const own = new Launcher(process.env);
  const script = `trap '' TERM; echo >"$1.up"; cat; echo >"$1"`;
  const companion = await own.start(["sh", "-c", script, "sh", file], { stdin: "pipe" });
  await until("it to be up", () => existsSync(`${file}.up`));
  await companion.end(patience(10_000));
  assert.deepEqual([existsSync(file), (await companion.ended).exitCode, own.groups], [true, 0, []]);
});
