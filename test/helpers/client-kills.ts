import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { Going } from "./client.ts";
import { seeded } from "./random.ts";
import { TestServer, TOKEN } from "./server.ts";
import { temporaryFolder, until } from "./temporary.ts";
import { Wire } from "./wire.ts";
import { makeWorkspace } from "./workspace.ts";

interface RunRow {
  id: string;
  kind: string;
  status: string;
  params: Record<string, unknown>;
}

/** A server with a bucket that has been pushed, behind a wire that can be cut. */
interface Rig {
  server: TestServer;
  wire: Wire;
  base: string;
  layout: Layout;
  random: () => number;
  /** Starts a command in the folder of the source. */
  ops(...args: string[]): Going;
  runs(): Promise<RunRow[]>;
  /** The whole Activity of a run, not over the wire. */
  activity(id: string): Promise<string>;
}

const HOST = "127.0.0.1";
const LARGE = 3 * 1024 * 1024;

async function rigFor(t: Pick<TestContext, "after">, seed: number): Promise<Rig> {
  const server = await TestServer.start(t);
  const wire = await Wire.to(t, server.url);
  const { id, path: base, folder } = await server.createBucket();
  const cwd = temporaryFolder(t);
  makeWorkspace(cwd, {
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
    workers: [{ host: HOST, connection: "local", root: path.join(cwd, "worker") }],
    files: { "workspace/jobs/web/large": "x".repeat(LARGE) },
  });
  const env = { OPS_SERVE_TOKEN: TOKEN, OPS_SERVER: wire.url, OPS_BUCKET: id };
  const ops = (...args: string[]) => new Going(args, env, cwd);
  const pushed = await ops("push").ended;
  assert.equal(pushed.code, 0, pushed.stderr);
  return {
    ...{ server, wire, base, ops, layout: layoutOf(folder), random: seeded(seed) },
    runs: async () => (await server.call("GET", `${base}/runs?limit=500`)).body.items,
    async activity(run) {
      let text = "";
      for (let after = 0, done = false; !done; ) {
        const { body } = await server.call("GET", `${base}/runs/${run}/logs?after=${after}&timeout=5`);
        text += body.data;
        ({ next: after, done } = body);
      }
      return text;
    },
  };
}

/**
 * Cuts the connections of commands at random bytes, in both directions, and wants of each command that it ends as its run
 * did, that it has started one run only, and that it has printed the run's Activity byte for byte. Answers how many
 * connections were cut.
 */
export async function cutConnections(t: Pick<TestContext, "after">, rounds: number, seed: number): Promise<number> {
  const rig = await rigFor(t, seed);
  const { wire, random } = rig;
  let cuts = 0;
  for (let round = 1; round <= rounds; round++) {
    const before = new Set((await rig.runs()).map(({ id }) => id));
    wire.allow = () => {
      if (random() < 0.7) return {};
      cuts++;
      return { [random() < 0.5 ? "up" : "down"]: Math.floor(1_500 ** random()) };
    };
    const isPush = random() < 0.2;
    const lines = 20 + Math.floor(random() * 400);
    const said = `i=0; while [ $i -lt ${lines} ]; do i=$((i+1)); echo "${round} zeile $i: äöü € 𝄞"; [ $((i % 40)) = 0 ] && sleep 0.1; done; true`;
    const { code, stdout, stderr } = await (isPush ? rig.ops("push") : rig.ops("run_command", said)).ended;
    wire.allow = () => ({});
    const what = `seed ${seed}, round ${round}: ${stderr}`;
    assert.equal(code, 0, what);
    const started = (await rig.runs()).filter(({ id }) => !before.has(id));
    assert.equal(started.length, 1, what);
    assert.equal(stdout, await rig.activity(started[0]?.id ?? ""), what);
  }
  return cuts;
}

/** A moment of a command, and how the command is brought there; answers once it is there. */
type Moment = (rig: Rig, marker: string) => Promise<Going>;

/** A moment when so many bytes of a command's connection have come through; `skipped` connections come before that one. */
function atByte(args: (marker: string) => string[], way: "up" | "down", most: number, skipped = 0): Moment {
  return async ({ wire, random, ops }, marker) => {
    const { promise, resolve } = Promise.withResolvers<void>();
    const first = wire.count + 1 + skipped;
    wire.allow = (count) => (count < first ? {} : { [way]: Math.floor(random() * most), reached: resolve });
    const going = ops(...args(marker));
    await Promise.race([promise, going.ended]);
    return going;
  };
}

const command = (marker: string) => ["run_command", `echo ${marker}; sleep 0.3; echo end`];

/** The moments at which a client dies. */
export const MOMENTS: Readonly<Record<string, Moment>> = {
  "before its first byte": atByte(command, "up", 1),
  "while it sends a start": atByte(command, "up", 400),
  "before the answer to its start": atByte(command, "down", 1),
  "in the answer to its start": atByte(command, "down", 300),
  "while it follows": atByte(command, "down", 300, 1),
  "while it uploads": atByte((marker) => ["push", "--note", marker], "up", LARGE),
  "in line": async ({ server, base, ops }, marker) => {
    server.hold();
    assert.equal((await server.call("POST", `${base}/build`, { body: {} })).status, 202);
    const going = ops(...command(marker), "--wait");
    await until("a place in line", async () => (await server.call("GET", `${base}/queue`)).body.items.length === 1);
    return going;
  },
  "while it cancels": async ({ wire, random, ops }, marker) => {
    const going = ops("run_command", `echo ${marker}; sleep 300`);
    await going.says(`| ${marker}`);
    const { promise, resolve } = Promise.withResolvers<void>();
    wire.allow = () => ({ [random() < 0.5 ? "up" : "down"]: Math.floor(random() * 300), reached: resolve });
    going.child.kill("SIGINT");
    await promise;
    return going;
  },
};

/**
 * Kills clients with SIGKILL at these moments, and wants each time: at most one run, whose record is whole, nothing that
 * waits, no half of an upload, and a bucket that is free. `keptMs` is how long the end of a place in line is waited for;
 * 0 gives it up in place of the time.
 */
export async function killClients(
  t: Pick<TestContext, "after">,
  moments: readonly string[],
  seed: number,
  keptMs = 0,
): Promise<void> {
  const rig = await rigFor(t, seed);
  for (const [index, name] of moments.entries()) {
    const marker = `marker-${index}-of-${seed}`;
    try {
      const going = await (MOMENTS[name] as Moment)(rig, marker);
      await going.stop("SIGKILL");
      rig.wire.allow = () => ({});
      await checkAfterKill(rig, marker, name === "while it cancels", keptMs);
    } catch (error) {
      throw new Error(`seed ${seed}: killed ${name}: ${(error as Error).message}`, { cause: error });
    }
  }
}

async function checkAfterKill(rig: Rig, marker: string, mayGoOn: boolean, keptMs: number): Promise<void> {
  const { server, base, layout } = rig;
  const queue = async () => (await server.call("GET", `${base}/queue`)).body.items as { key: string; connected: boolean }[];
  await until("the end of the connection", async () => (await queue()).every(({ connected }) => !connected));
  server.release();
  if (keptMs > 0) await until("the end of the place in line", async () => (await queue()).length === 0, keptMs);
  for (const { key } of await queue()) await server.call("DELETE", `${base}/queue/${key}`);
  const started = (await rig.runs()).filter(({ params }) => JSON.stringify(params).includes(marker));
  assert.ok(started.length <= 1, `${started.length} runs`);
  if (mayGoOn) for (const { id } of started) await server.call("POST", `${base}/runs/${id}/cancel`);
  await until("a bucket that is free", async () => (await rig.runs()).every(({ status }) => status !== "running"));
  await until("the end of the upload", () => !existsSync(layout.uploads) || readdirSync(layout.uploads).length === 0);
  for (const { id, kind } of started) {
    const { body } = await server.call("GET", `${base}/runs/${id}`);
    assert.equal(body.status, mayGoOn ? "cancelled" : "succeeded", `${body.error}`);
    assert.match(await rig.activity(id), new RegExp(`\\n${kind} ${body.status}[^\\n]*\\n$`));
  }
  let next = "";
  await until("a start that is taken", async () => {
    const { status, body } = await server.call("POST", `${base}/health_check`, { body: {} });
    // A refusal tells the run of whoever holds the bucket.
    next = body.run_id;
    return status === 202;
  });
  assert.equal((await server.ended(base, next)).status, "succeeded");
}
