import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import path from "node:path";
import { createInterface } from "node:readline";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { identify, type ProcessIdentity } from "../../../lib/core/process.ts";
import type { Launcher } from "../../../lib/core/spawn.ts";
import { digestIn, makeSshFolder } from "../../../lib/transport/ssh/folder.ts";
import { type FromKeeper, say, type ToKeeper } from "../../../lib/transport/ssh/keeper.ts";
import { keptMasters } from "../../../lib/transport/ssh/kept-masters.ts";
import type { Master, Masters } from "../../../lib/transport/ssh/masters.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const never = new AbortController().signal;

/** A process of which a keeper's group consists here. */
async function victim(t: TestContext) {
  const child = spawn("sleep", ["600"], { detached: true, stdio: "ignore" });
  await once(child, "spawn");
  const exited = once(child, "exit");
  t.after(() => child.kill("SIGKILL"));
  return { owner: identify(child.pid as number) as ProcessIdentity, exited };
}

/** Plays keepers at a socket: each run that connects is answered so, and what it says is noted. */
async function playing(t: TestContext, file: string, answers: "ready" | "refuses" | "hangs") {
  const runs: Socket[] = [];
  const heard: ToKeeper[] = [];
  const server = createServer((run) => {
    runs.push(run.on("error", () => {}));
    createInterface({ input: run }).on("line", (line) => {
      const order = JSON.parse(line) as ToKeeper;
      heard.push(order);
      if (order.type !== "hello" || answers === "hangs") return;
      if (answers === "ready") say(run, { type: "ready" });
      else run.destroy();
    });
  }).listen(file);
  await once(server, "listening");
  t.after(() => {
    for (const run of runs) run.destroy();
    server.close();
  });
  return { heard, runs, tells: (answer: FromKeeper) => say(runs.at(-1) as Socket, answer) };
}

/** A bucket, and a launcher whose keeper is played and whose own ssh connects at once. */
async function setUp(
  t: TestContext,
  { answers = "ready", seconds = 60 }: { answers?: Parameters<typeof playing>[2]; seconds?: number } = {},
) {
  const bucket = temporaryFolder(t);
  const [keyFile, knownHostsFile] = ["worker.key", "known_hosts"].map((name) => path.join(bucket, name)) as [string, string];
  for (const file of [keyFile, knownHostsFile]) writeFileSync(file, path.basename(file));
  const settings = { user: "agent", port: 22, keyFile, knownHostsFile, options: {} } as unknown as SshSettings;
  const workers = [{ host: "w1", connection: "ssh", root: "/srv" }] as const;
  const { owner, exited } = await victim(t);
  const folders: string[] = [];
  t.after(() => {
    for (const folder of folders) rmSync(folder, { recursive: true, force: true });
  });
  const started: string[] = [];
  const channels: Socket[] = [];
  const played = await playing(t, path.join(bucket, "keeper"), answers);
  const stop = new AbortController();
  const launcher = {
    ending: stop.signal,
    async detach() {
      started.push("keeper");
      channels.push(connect(path.join(bucket, "keeper")));
      return { pid: owner.pid, channel: channels.at(-1) };
    },
    async start(argv: readonly string[]) {
      started.push(`ssh ${argv.at(-1)}`);
      setImmediate(() => writeFileSync(argv[4] as string, ""));
      return { ended: new Promise(() => {}), end: async () => {} };
    },
  } as unknown as Launcher;
  const setup = { settings, workers, launcher, keeping: { seconds, server: null } };
  const kept = async (...living: Parameters<typeof keptMasters>[1]) => {
    const found = await keptMasters(setup, living);
    if (found) folders.push(found.folder);
    return found;
  };
  /** The folder of a keeper that has run before. */
  const earlier = async (of: ProcessIdentity) => {
    const folder = await makeSshFolder(of, setup, "kept");
    folders.push(folder);
    return folder;
  };
  return { owner, exited, started, channels, played, kept, earlier, stop, setup, bucket };
}

type Found = { folder: string; masters: Masters };

test("a run starts a keeper, tells it of its connections, and leaves them with a farewell, once", async (t) => {
  const { kept, played, started, owner } = await setUp(t);
  const { folder, masters } = (await kept()) as Found;
  assert.match(path.basename(folder), new RegExp(`^ops-ssh-${owner.pid}-${owner.start_time}-kept-`));
  const digest = await digestIn(folder);
  assert.deepEqual(played.heard, [{ type: "hello", folder, digest, seconds: 60, server: null }]);
  const opening = masters.open("s0", "w1", never);
  await until("the order", () => played.heard.length === 2);
  played.tells({ type: "opened", id: 0, isOld: true });
  const master = (await opening) as Master;
  assert.equal(master.isOld, true);
  await master.release(true);
  const closing = master.release(false);
  await until("the order to close", () => played.heard.length === 3);
  played.tells({ type: "ended", id: 0, messages: "bye" });
  await closing;
  assert.equal(await master.ended, "bye");
  const refused = masters.open("s1", "w2", never);
  await until("the second order", () => played.heard.length === 4);
  played.tells({ type: "ended", id: 1, messages: "Permission denied" });
  assert.equal(await refused, "Permission denied");
  await masters.close();
  await until("the farewell", () => played.heard.length === 5);
  const [one, two] = [
    { socket: "s0", host: "w1" },
    { socket: "s1", host: "w2" },
  ];
  const orders = [
    { type: "open", id: 0, ...one },
    { type: "close", socket: "s0" },
    { type: "open", id: 1, ...two },
    { type: "bye" },
  ];
  assert.deepEqual(played.heard.slice(1), orders);
  await masters.close();
  assert.ok(existsSync(folder), "the folder is the keeper's");
  assert.deepEqual(started, ["keeper"]);
});

test("a channel to the keeper is given back at the farewell, though the keeper keeps its end open", async (t) => {
  const { kept, played, channels } = await setUp(t);
  const { masters } = (await kept()) as Found;
  const [run] = played.runs;
  if (run) run.allowHalfOpen = true;
  await masters.close();
  assert.equal(channels[0]?.destroyed, true);
});

for (const [answers, what] of [
  ["refuses", "refuses"],
  ["hangs", "does not answer within 5 s"],
] as const)
  test(`a keeper that ${what} is killed, and nothing of it stays: neither of a new one nor of an earlier one`, async (t) => {
    if (answers === "hangs") t.mock.timers.enable({ apis: ["setTimeout"] });
    const { kept, earlier, exited, played, bucket } = await setUp(t, { answers });
    const old = await victim(t);
    const folder = await earlier(old.owner);
    const before = await playing(t, path.join(folder, "keeper"), answers);
    let found: unknown = "nothing yet";
    void kept({ folder, owner: old.owner }).then((one) => {
      found = one;
    });
    const waits = async (of: { heard: unknown[]; runs: Socket[] }) => {
      while (of.heard.length === 0) await nextRound();
      await nextRound();
      t.mock.timers.tick(5_000);
      while (of.runs[0]?.destroyed === false && !of.runs[0]?.readableEnded) await nextRound();
    };
    if (answers === "hangs") for (const one of [before, played]) await waits(one);
    while (found === "nothing yet") await nextRound();
    assert.equal(found, undefined);
    for (const one of [exited, old.exited]) assert.deepEqual(await one, [null, "SIGKILL"]);
    assert.ok(!existsSync(folder));
    const [made] = played.heard;
    assert.ok(made?.type === "hello" && made.folder !== folder && !existsSync(made.folder), bucket);
  });

test("a keeper that lives is used, and where connections are not to be kept it is told to end", async (t) => {
  const { kept, earlier, started, owner } = await setUp(t);
  const folder = await earlier(owner);
  const { heard } = await playing(t, path.join(folder, "keeper"), "ready");
  const found = (await kept({ folder, owner })) as Found;
  assert.deepEqual([found.folder, heard.length, started], [folder, 1, []]);
  await found.masters.close();
  const none = await setUp(t, { seconds: 0 });
  const place = { folder: await none.earlier(none.owner), owner: none.owner };
  assert.equal(await none.kept(place), undefined);
  assert.deepEqual(await none.exited, [null, "SIGTERM"]);
  assert.deepEqual([none.started, existsSync(place.folder)], [[], true]);
});

test("a keeper that has ended before it was asked leaves the run to itself", async (t) => {
  const { kept, exited, owner, channels } = await setUp(t);
  process.kill(-owner.pid, "SIGKILL");
  await exited;
  assert.equal(await kept(), undefined);
  assert.equal(channels[0]?.destroyed, true);
});

test("where the keeper ends, connections on their way and later ones are the run's own, and so is the folder", async (t) => {
  const { kept, played, started } = await setUp(t);
  const { folder, masters } = (await kept()) as Found;
  const opening = masters.open("s0", "w1", never);
  await until("the order", () => played.heard.length === 2);
  played.runs[0]?.destroy();
  for (const master of [await opening, await masters.open("s1", "w2", never)])
    assert.ok(typeof master === "object" && !master.isOld);
  assert.deepEqual(started, ["keeper", "ssh w1", "ssh w2"]);
  assert.equal(played.heard.length, 2);
  await masters.close();
  assert.ok(!existsSync(folder));
});

test("a cancel takes the order back; a keeper that stays silent is killed, and the run connects by itself", async (t) => {
  const { kept, played, started, exited } = await setUp(t);
  const { masters } = (await kept()) as Found;
  const stop = new AbortController();
  const cancelled = masters.open("s0", "w1", stop.signal);
  await until("the order", () => played.heard.length === 2);
  stop.abort();
  await assert.rejects(cancelled, { code: "cancelled" });
  await until("the order to close", () => played.heard.length === 3);
  assert.deepEqual([played.heard.at(-1), started], [{ type: "close", socket: "s0" }, ["keeper"]]);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const silent = masters.open("s1", "w2", never);
  await nextRound();
  t.mock.timers.tick(45_000);
  assert.deepEqual(await exited, [null, "SIGKILL"]);
  assert.ok(typeof (await silent) === "object");
  assert.deepEqual(started, ["keeper", "ssh w2"]);
});

test("who must end at once says no farewell", async (t) => {
  const { kept, played, stop } = await setUp(t);
  await kept();
  stop.abort();
  await until("the end of the channel", () => played.runs[0]?.readableEnded === true);
  assert.equal(played.heard.length, 1);
});
