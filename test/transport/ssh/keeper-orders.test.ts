import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync, writeSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import type { Duplex } from "node:stream";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { identify, type ProcessIdentity } from "../../../lib/core/process.ts";
import type { Launcher } from "../../../lib/core/spawn.ts";
import { digestIn } from "../../../lib/transport/ssh/folder.ts";
import { hear, keepConnections, say, type ToKeeper } from "../../../lib/transport/ssh/keeper.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

type Answer = { type: string; id?: number; isOld?: boolean; messages?: string };

async function socketPair(t: TestContext) {
  const file = path.join(temporaryFolder(t), "pair");
  const server = createServer().listen(file);
  await once(server, "listening");
  const ours = connect(file);
  const [theirs] = (await once(server, "connection")) as [Socket];
  t.after(() => {
    ours.destroy();
    server.close();
  });
  return { ours, theirs };
}

/** A run as the keeper knows it, over this channel: what it is answered, one after the other. */
function runOver(channel: Duplex) {
  const answers = createInterface({ input: channel })[Symbol.asyncIterator]();
  const ask = (order: ToKeeper) => say(channel, order);
  const heard = async () => JSON.parse((await answers.next()).value as string) as Answer;
  return { channel, ask, heard };
}

/** A keeper in this process, whose ssh is played: host `bad` lets nobody in. */
async function setUp(t: TestContext, { seconds = 60, server = null as ProcessIdentity | null } = {}) {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const clock = { now: 0 };
  t.mock.method(performance, "now", () => clock.now);
  const folder = path.join(temporaryFolder(t), "ssh");
  mkdirSync(folder);
  for (const name of ["config", "key", "known_hosts"]) writeFileSync(path.join(folder, name), name);
  const noted: string[] = [];
  const exits: (() => void)[] = [];
  const launcher = {
    async start(argv: readonly string[], { stderr }: { stderr?: number }) {
      const { promise: ended, resolve } = Promise.withResolvers<void>();
      const host = argv.at(-1) as string;
      noted.push(argv[0] === "ssh" ? `ssh ${host}` : argv.join(" "));
      exits.push(resolve);
      if (argv[0] === "ssh") {
        writeSync(stderr as number, `said by ${host}`);
        if (host === "bad") resolve();
        else if (host !== "slow") setImmediate(() => writeFileSync(argv[4] as string, ""));
      }
      const end = async () => {
        noted.push(`end ${host}`);
        resolve();
      };
      return { ended, end };
    },
  } as unknown as Launcher;
  const { ours, theirs } = await socketPair(t);
  const stop = new AbortController();
  let isOver = false;
  const over = keepConnections(theirs, launcher, stop.signal).then(() => {
    isOver = true;
  });
  t.after(() => stop.abort());
  const hello = async (more: Partial<ToKeeper> = {}): Promise<ToKeeper> => {
    return { type: "hello", folder, digest: await digestIn(folder), seconds, server, ...more } as ToKeeper;
  };
  const first = runOver(ours);
  first.ask(await hello());
  assert.deepEqual(await first.heard(), { type: "ready" });
  /** A later run that finds the keeper by its socket. */
  const later = async () => {
    const channel = connect(path.join(folder, "keeper"));
    t.after(() => channel.destroy());
    await once(channel, "connect");
    return runOver(channel);
  };
  /** After this time the keeper looks whether anybody may use its connections any more. */
  const look = async (afterMs: number) => {
    clock.now += afterMs;
    t.mock.timers.tick(1_000);
    for (let round = 0; round < 50; round++) await nextRound();
    return isOver;
  };
  const endsAfter = async (ms: number) => {
    await look(ms);
    await over;
  };
  const leave = async ({ ask, channel } = first) => {
    ask({ type: "bye" });
    channel.end();
    for (let round = 0; round < 50; round++) await nextRound();
  };
  return { folder, noted, exits, first, later, hello, look, endsAfter, leave, stop, over, isOver: () => isOver };
}

test("a connection is opened once for all runs, and is an old one for the later ones; a loss is told to each", async (t) => {
  const { first, later, hello, noted, exits } = await setUp(t);
  first.ask({ type: "open", id: 3, socket: "s0", host: "w1" });
  assert.deepEqual(await first.heard(), { type: "opened", id: 3, isOld: false });
  const second = await later();
  second.ask(await hello());
  assert.deepEqual(await second.heard(), { type: "ready" });
  second.ask({ type: "open", id: 0, socket: "s0", host: "w1" });
  assert.deepEqual(await second.heard(), { type: "opened", id: 0, isOld: true });
  assert.deepEqual(noted, ["sh -c read _; kill -9 0", "ssh w1"]);
  exits[1]?.();
  assert.deepEqual(await first.heard(), { type: "ended", id: 3, messages: "said by w1" });
  assert.deepEqual(await second.heard(), { type: "ended", id: 0, messages: "said by w1" });
  second.ask({ type: "open", id: 1, socket: "s0", host: "w1" });
  assert.deepEqual(await second.heard(), { type: "opened", id: 1, isOld: false });
  second.ask({ type: "close", socket: "s0" });
  assert.equal((await second.heard()).type, "ended");
  assert.equal(noted.at(-1), "end w1");
});

test("a connection that cannot be opened is told with what ssh says, and tried anew when it is asked for again", async (t) => {
  const { first, noted } = await setUp(t);
  for (const id of [0, 1]) {
    first.ask({ type: "open", id, socket: "s1", host: "bad" });
    assert.deepEqual(await first.heard(), { type: "ended", id, messages: "said by bad" });
    await nextRound();
  }
  assert.deepEqual(noted.slice(1), ["ssh bad", "ssh bad"]);
});

test("without a run the connections end after their time, not while one is there", async (t) => {
  const { look, endsAfter, leave, first, folder, noted } = await setUp(t);
  first.ask({ type: "open", id: 0, socket: "s0", host: "w1" });
  await first.heard();
  assert.equal(await look(1_000_000), false);
  await leave();
  assert.equal(await look(59_999), false);
  await endsAfter(1);
  assert.equal(noted.at(-1), "end w1");
  assert.ok(!existsSync(folder));
});

test("a later run begins the time anew, and says how long it is", async (t) => {
  const { look, endsAfter, leave, later, hello } = await setUp(t);
  await leave();
  assert.equal(await look(59_000), false);
  const second = await later();
  second.ask(await hello({ seconds: 5 }));
  await second.heard();
  await leave(second);
  assert.equal(await look(4_999), false);
  await endsAfter(1);
});

for (const [what, end] of [
  ["a run goes without a farewell", async ({ first }) => void first.channel.destroy()],
  ["it is told to end", async ({ stop }) => stop.abort()],
  ["what watches it has ended", async ({ exits }) => exits[0]?.()],
  [
    "a later run has other keys",
    async ({ later, hello }) => {
      const second = await later();
      second.ask(await hello({ digest: "another" }));
    },
  ],
  [
    "what it hears is no order",
    async ({ first }) => {
      first.channel.write("no JSON\n");
    },
  ],
] as [string, (keeper: Awaited<ReturnType<typeof setUp>>) => Promise<void>][])
  test(`a keeper ends with its connections where ${what}`, async (t) => {
    const keeper = await setUp(t);
    keeper.first.ask({ type: "open", id: 0, socket: "s0", host: "w1" });
    await keeper.first.heard();
    assert.equal(keeper.isOver(), false);
    await end(keeper);
    await keeper.over;
    assert.equal(keeper.noted.at(-1), "end w1");
  });

test("a run that goes without a farewell leaves nothing", async (t) => {
  const { first, folder, over } = await setUp(t);
  first.channel.destroy();
  await over;
  assert.ok(!existsSync(folder));
});

test("each connection is ended once, however many reasons to end come together", async (t) => {
  const { first, noted, exits, over, stop } = await setUp(t);
  for (const [id, host] of ["w1", "slow"].entries()) first.ask({ type: "open", id, socket: `s${id}`, host });
  await first.heard();
  await until("both connections", () => noted.length === 3);
  exits[0]?.();
  stop.abort();
  await over;
  assert.deepEqual(noted.slice(3).sort(), ["end slow", "end w1"]);
});

test("a connection on its way is given up where nobody wants it any more", async (t) => {
  const { first, noted } = await setUp(t);
  first.ask({ type: "open", id: 0, socket: "s0", host: "slow" });
  await until("the ssh", () => noted.includes("ssh slow"));
  first.ask({ type: "close", socket: "s0" });
  assert.equal((await first.heard()).type, "ended");
  assert.equal(noted.at(-1), "end slow");
});

test("a keeper ends where its server is gone, or a file that its connections were opened with has changed", async (t) => {
  const alone = await setUp(t, { server: { pid: process.pid, start_time: "1" } });
  assert.equal(await alone.look(0), false);
  await alone.leave();
  await alone.endsAfter(0);
  t.mock.timers.reset();
  t.mock.restoreAll();
  const { look, endsAfter, leave, folder } = await setUp(t, { server: identify(process.pid) as ProcessIdentity });
  await leave();
  assert.equal(await look(0), false);
  writeFileSync(path.join(folder, "config"), "config");
  assert.equal(await look(0), false, "written anew, and the same");
  writeFileSync(path.join(folder, "key"), "another");
  await endsAfter(0);
});

test("a run that is still there when its keeper ends keeps the folder", async (t) => {
  const { stop, over, folder } = await setUp(t);
  stop.abort();
  await over;
  assert.ok(existsSync(folder));
});

test("lines of JSON are heard one by one; a line that is none ends the channel, and nothing is said to one that has ended", async (t) => {
  const { ours, theirs } = await socketPair(t);
  const heard: unknown[] = [];
  hear(theirs, (line) => heard.push(line));
  ours.write('{"type":"bye"}\n{"type":"close",');
  ours.write('"socket":"s0"}\n');
  await until("both lines", () => heard.length === 2);
  assert.deepEqual(heard, [{ type: "bye" }, { type: "close", socket: "s0" }]);
  ours.write("bye\n");
  await until("the end", () => theirs.destroyed);
  say(theirs, { type: "bye" });
});
