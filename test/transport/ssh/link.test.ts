import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import type { WorkerAddress } from "../../../lib/transport/base/transport.ts";
import { scriptLines, spooledLines } from "../../../lib/transport/ssh/channel.ts";
import { Limit, Patience, Pool } from "../../../lib/transport/ssh/limits.ts";
import { SshLink, type SshRun } from "../../../lib/transport/ssh/link.ts";
import type { Master } from "../../../lib/transport/ssh/masters.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { patience } from "../../../scripts/patience.ts";
import { type Fate, playMaster } from "../../helpers/mux.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { programsFolder } from "../../helpers/worker.ts";

const WORKER: WorkerAddress = { host: "w1", connection: "ssh", root: "/srv" };
const SETTINGS = { user: "agent", port: 22, keyFile: "/k", useSudo: false } as SshSettings;

/** What an attempt to connect comes to: a connection, one of an earlier run, or what ssh says after so many seconds. */
type Attempt = "new" | "old" | [says: string, seconds: number];

interface Setting {
  attempts?: Attempt[];
  fate?: (session: number) => Fate;
  worker?: Partial<WorkerAddress>;
  PATH?: string;
}

/** A link to a worker that is played here; `noted` tells of its handshakes and connections. */
async function setUp(t: TestContext, { attempts = [], fate = () => "runs", worker = {}, PATH }: Setting) {
  const folder = temporaryFolder(t);
  const noted: string[] = [];
  const clock = { now: 0 };
  const played = await playMaster(t, path.join(folder, "s0"), fate, { ...(PATH !== undefined && { PATH }) });
  const ends: ((messages: string) => void)[] = [];
  const master = (isOld: boolean): Master => {
    const { promise: ended, resolve } = Promise.withResolvers<string>();
    const number = ends.push(resolve);
    const close = async () => {
      noted.push(`closed ${number}`);
      // The messages are read once ssh has ended.
      setImmediate(() => resolve("closed here.\n"));
    };
    return { ended, close, release: async (isSound) => void noted.push(`released ${isSound}`), isOld };
  };
  const run: SshRun = {
    settings: SETTINGS,
    folder,
    token: "t",
    listener: undefined,
    sessions: new Limit(8),
    shells: new Pool(8),
    patience: new Patience(),
    enterHandshake: async ({ host, port }) => {
      noted.push(`to ${host} ${port}`);
      return (end) => void noted.push(end);
    },
    masters: {
      async open(socket, host) {
        noted.push(`opens ${socket} ${host}`);
        const attempt = attempts.shift() ?? "new";
        if (typeof attempt === "string") return master(attempt === "old");
        clock.now += attempt[1] * 1_000;
        if (attempt[0] === "thrown") throw new Error("thrown");
        return attempt[0];
      },
      async close() {},
    },
  };
  const link = new SshLink(run, { ...WORKER, ...worker }, "s0");
  const start = async (text: string, signal?: AbortSignal, isSpooled = false) => {
    let said = "";
    const script = { folder, need: "none", text, args: [], env: {} } as const;
    const onOutput = (chunk: Buffer) => {
      said += chunk;
    };
    const started = await link.start({ lines: (mark) => scriptLines(mark, script), isSpooled }, { onOutput }, signal);
    return { started, said: () => said };
  };
  return { link, folder, noted, clock, played, ends, start };
}

/** Pauses take no time, and the clock is the one of the attempts. */
function withoutPauses(t: TestContext, clock: { now: number }): void {
  t.mock.method(Math, "random", () => -1);
  t.mock.method(performance, "now", () => clock.now);
}

const DROPPED = "Connection reset by 10.0.0.7 port 22";
const OPENS = "opens s0 w1";

test("a link opens its connection once, by the jump host's sshd where there is one, and gives the handshake's place back", async (t) => {
  const { link, noted } = await setUp(t, { worker: { sshPort: 23 } });
  assert.equal(await link.connect(), await link.connect());
  assert.deepEqual(noted, ["to w1 23", OPENS, "opened"]);
  const behind = await setUp(t, { worker: { sshJump: "ada@gate:24" }, attempts: ["old"] });
  await behind.link.connect();
  assert.deepEqual(behind.noted, ["to gate 24", OPENS, "failed"], "one of an earlier run tells nothing of handshakes");
  await link.close();
  assert.deepEqual([noted.at(-1), link.closing.aborted], ["released true", true]);
});

test("a connection that is dropped is tried again for 15 s in all, and by a later command anew", async (t) => {
  const { link, noted, clock } = await setUp(t, { attempts: [[DROPPED, 9], [DROPPED, 6], [DROPPED, 0.1], [DROPPED, 15], "new"] });
  withoutPauses(t, clock);
  await assert.rejects(link.connect(), {
    code: "unreachable",
    lasts: false,
    message: /^Cannot connect to worker w1: the connection is dropped .* \(tried 3 times\)$/,
  });
  assert.deepEqual(noted, Array(3).fill(["to w1 22", OPENS, "dropped"]).flat());
  await link.connect();
  assert.deepEqual(noted.slice(9), ["to w1 22", OPENS, "dropped", "to w1 22", OPENS, "opened"]);
  const twice = await setUp(t, {
    attempts: [
      [DROPPED, 8],
      [DROPPED, 8],
    ],
  });
  t.mock.method(performance, "now", () => twice.clock.now);
  await assert.rejects(twice.link.connect(), { message: / \(tried 2 times\)$/ });
});

test("what only a person can change, or no later attempt, is tried once in a run", async (t) => {
  for (const [says, lasts] of [
    ["Permission denied (publickey).", true],
    ["ssh: Could not resolve hostname w1: unknown", false],
  ] as const) {
    const { link, noted } = await setUp(t, { attempts: [[says, 0]] });
    for (let time = 0; time < 2; time++)
      await assert.rejects(link.connect(), (error: Error & { lasts: boolean }) => {
        assert.doesNotMatch(error.message, /tried/);
        return error.lasts === lasts;
      });
    assert.deepEqual(noted, ["to w1 22", OPENS, "failed"]);
  }
});

test("an attempt that throws gives its place back", async (t) => {
  const { link, noted } = await setUp(t, { attempts: [["thrown", 0]] });
  await assert.rejects(link.connect(), { message: "thrown" });
  assert.deepEqual(noted, ["to w1 22", OPENS, "failed"]);
});

test("a group is started over a session, and its connection is no old one any more", async (t) => {
  const { start, link, noted } = await setUp(t, { attempts: ["old"] });
  const { started, said } = await start("echo out; read line; exit 5");
  assert.ok(started !== "refused");
  started.channel.stdin.end();
  assert.equal(await started.channel.ended, 5);
  assert.deepEqual([said(), started.master.isOld, noted.length], ["out\n", false, 3]);
  await started.channel.close();
  await link.close();
  assert.equal(noted.at(-1), "released true");
});

test("a channel that is given back ends the input of its group, which may unwind for a moment", async (t) => {
  const { start } = await setUp(t, {});
  const { started } = await start("cat; exit 4");
  assert.ok(started !== "refused");
  // No time goes by, so that nothing is cut.
  t.mock.timers.enable({ apis: ["setTimeout"] });
  let isClosed = false;
  void started.channel.close().then(() => {
    isClosed = true;
  });
  for (const start = performance.now(); !isClosed && performance.now() - start < patience(20_000); ) await nextRound();
  assert.ok(isClosed);
  assert.deepEqual([await started.channel.closed, started.channel.output.exitCode], [0, 4]);
});

test("a connection that is lost is forgotten: the next command opens another one", async (t) => {
  const { link, ends, noted } = await setUp(t, {});
  const first = await link.connect();
  ends[0]?.("gone");
  await until("the loss to be noticed", async () => (await link.connect()) !== first);
  assert.equal(noted.filter((one) => one === OPENS).length, 2);
  await link.close();
});

test("a session that sshd refuses is asked for again three times", async (t) => {
  const patient = await setUp(t, { fate: (session) => (session < 2 ? "refused" : "runs") });
  const { started } = await patient.start("exit 0");
  assert.ok(started !== "refused");
  await started.channel.close();
  const { start, played } = await setUp(t, { fate: () => "refused" });
  assert.equal((await start("exit 0")).started, "refused");
  assert.equal(played.sessions, 4);
});

test("where nothing was started another connection is opened, once", async (t) => {
  const { start, noted, link } = await setUp(t, { fate: (session) => (session === 1 ? "unconnected" : "runs") });
  const { started } = await start("exit 0");
  assert.ok(started !== "refused");
  await started.channel.close();
  await link.connect();
  assert.deepEqual(
    noted,
    ["to w1 22", OPENS, "opened", "closed 1", "to w1 22", OPENS, "opened"],
    "the end of the first is heard",
  );
  const dead = await setUp(t, { fate: () => "unconnected" });
  const failing = dead.start("exit 0");
  await until("the second session", () => dead.played.sessions === 2);
  dead.ends[1]?.("one\nclient_loop: send disconnect: Broken pipe.\n");
  await assert.rejects(failing, {
    code: "unreachable",
    message: "The connection was lost to worker w1: client_loop: send disconnect: Broken pipe",
  });
  assert.equal(dead.played.sessions, 2);
});

test("a connection that is lost before a group tells of itself is a failure, unless its command survives that", async (t) => {
  const { start, ends, played } = await setUp(t, { fate: () => "lost" });
  const { started } = await start("exit 0", undefined, true);
  assert.ok(started !== "refused" && started.channel.output.group === undefined);
  const failing = start("exit 0");
  await until("the second session", () => played.sessions === 2);
  ends[0]?.("");
  await assert.rejects(failing, {
    code: "unreachable",
    message: "The connection was lost to worker w1: ssh ended without a word",
  });
});

test("why a worker starts no group is told: what its shell says, a missing program, or nothing at all", async (t) => {
  const PATH = await programsFolder(t, "sh");
  for (const [fate, message] of [
    [{ says: "Welcome\nThis account is closed.\n", code: 1 }, "This account is closed"],
    [{ says: "", code: 1 }, "it closed the session"],
    ["runs", "setsid is not installed there"],
  ] as [Fate, string][]) {
    const { start } = await setUp(t, { fate: () => fate, PATH });
    await assert.rejects(start("exit 0"), { code: "failed", message: `Cannot run commands on worker w1: ${message}` });
  }
  const { start, played, ends } = await setUp(t, { fate: () => ({ says: "", code: 1 }) });
  const failing = start("exit 0");
  await until("the session", () => played.sessions === 1);
  ends[0]?.("Timeout, server w1 not responding.\r\n");
  const message = "The connection was lost to worker w1: Timeout, server w1 not responding";
  await assert.rejects(failing, { code: "unreachable", message });
});

test("a spooled command that could not be started is not waited for: its shell waits for somebody who has read all", async (t) => {
  const PATH = await programsFolder(t, "sh", "tee", "rm", "sleep");
  const { link, folder } = await setUp(t, { PATH });
  const script = { folder, need: "none", text: "exit 0", args: [], env: {} } as const;
  const spool = { name: ".ops-b-t-1", label: "it", bytes: 512 };
  const order = { lines: (mark: string) => spooledLines(mark, script, "", spool), isSpooled: true };
  await assert.rejects(link.start(order, { onOutput() {} }, undefined), { message: /: setsid is not installed there$/ });
});

test("an old connection without an answer within 5 s is closed, and a new one is opened", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { start, noted, played } = await setUp(t, { attempts: ["old"], fate: (session) => (session === 1 ? "silent" : "runs") });
  const starting = start("exit 0");
  while (played.sessions === 0) await nextRound();
  await nextRound();
  t.mock.timers.tick(4_999);
  await nextRound();
  assert.ok(!noted.includes("closed 1"));
  t.mock.timers.tick(1);
  const { started } = await starting;
  assert.ok(started !== "refused");
  assert.deepEqual(noted.slice(2), ["failed", "closed 1", "to w1 22", OPENS, "opened"]);
  t.mock.timers.reset();
  await started.channel.close();
});

for (const [fate, code, message] of [
  ["mute", "failed", /^Cannot run commands on worker w1: its shell does not start within 30 s$/],
  ["silent", "unreachable", /^Cannot run commands on worker w1: it does not answer within 30 s$/],
] as const)
  test(`a session that stays ${fate} is given up in time, and its connection is not kept`, async (t) => {
    t.mock.timers.enable({ apis: ["setTimeout"] });
    const { start, link, noted, clock, played } = await setUp(t, { fate: () => fate });
    withoutPauses(t, clock);
    let failure: unknown;
    void start("exit 0").catch((error: unknown) => {
      failure = error;
    });
    while (played.sessions + (fate === "mute" ? played.commands : 1) < 2) await nextRound();
    for (; failure === undefined; await nextRound()) {
      clock.now += 10_000;
      t.mock.timers.tick(10_000);
    }
    assert.deepEqual((failure as { code: string }).code, code);
    assert.match((failure as Error).message, message);
    await link.close();
    assert.equal(noted.at(-1), "released false");
    t.mock.timers.reset();
    // A session that is not open yet keeps its socket.
    if (fate === "mute") await until("the session to end", () => played.open() === 0);
  });

test("a cancel waits 2 s for a command that is on its way; a connection where none has come is not kept", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { start, link, noted, played } = await setUp(t, { fate: () => "mute" });
  const stop = new AbortController();
  const starting = start("exit 0", stop.signal);
  while (played.sessions === 0) await nextRound();
  await nextRound();
  stop.abort();
  await nextRound();
  t.mock.timers.tick(2_000);
  const { started } = await starting;
  assert.ok(started !== "refused" && started.channel.output.group === undefined);
  await link.close();
  assert.equal(noted.at(-1), "released false");
  t.mock.timers.reset();

  const other = await setUp(t, {});
  const late = new AbortController();
  const coming = other.start("exit 0", late.signal);
  await until("the session", () => other.played.sessions === 1);
  late.abort();
  const { started: begun } = await coming;
  assert.ok(begun !== "refused" && begun.channel.output.group !== undefined);
  await begun.channel.close();
  await other.link.close();
  assert.equal(other.noted.at(-1), "released true");
});
