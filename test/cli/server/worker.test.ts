import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { build } from "../../../lib/operation/build/build.ts";
import type { FromWorker, OutcomeMessage } from "../../../lib/run/protocol.ts";
import { PROGRAM } from "../../../scripts/local-server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

function startWorker(t: TestContext, output: "ignore" | number = "ignore"): ChildProcess {
  const child = spawn(process.execPath, [PROGRAM, "worker", "run"], { stdio: ["ignore", output, output, "ipc"] });
  t.after(() => child.kill("SIGKILL"));
  return child;
}

async function orders(t: TestContext) {
  const { dir, bucketId } = await makeBucket(t);
  return { type: "orders", runId: uuidV7(), bucketDir: dir, bucketId, kind: "build", params: {}, by: "test" };
}

async function outcomeOf(child: ChildProcess): Promise<OutcomeMessage> {
  for (;;) {
    const [message] = (await once(child, "message")) as [FromWorker];
    if (message.type === "outcome") return message;
  }
}

test("it carries out its orders, tells the outcome and goes", async (t) => {
  const child = startWorker(t);
  child.send(await orders(t));
  const { ok, error } = await outcomeOf(child);
  assert.deepEqual([ok, error], [true, null]);
  assert.deepEqual(await once(child, "exit"), [0, null]);
});

test("a disk that is full fails the run with that sentence", async (t) => {
  const full = openSync("/dev/full", "w");
  const child = startWorker(t, full);
  closeSync(full);
  const order = await orders(t);
  child.send(order);
  const { ok, error } = await outcomeOf(child);
  const { activity } = runLayout(layoutOf(order.bucketDir), order.runId);
  assert.deepEqual([ok, error?.message], [false, `Cannot write ${activity}: the disk is full (write): make room there`]);
  assert.deepEqual(await once(child, "exit"), [1, null]);
});

for (const [what, end, expected] of [
  ["a cancel", (child) => child.send({ type: "cancel" }), [1, null]],
  ["TERM", (child) => child.kill("SIGTERM"), [null, "SIGTERM"]],
  ["the end of its server", (child) => child.disconnect(), [1, null]],
] as [string, (child: ChildProcess) => unknown, [number | null, string | null]][])
  test(`T-79 ${what} ends it at once while it has no orders`, async (t) => {
    const child = startWorker(t);
    const told: unknown[] = [];
    child.on("message", (message) => void told.push(message));
    const exited = once(child, "exit");
    end(child);
    assert.deepEqual([await exited, told], [expected, []]);
  });

const ENDS = {
  "a cancel": (child: ChildProcess) => child.send({ type: "cancel" }),
  TERM: (child: ChildProcess) => child.kill("SIGTERM"),
  "the end of its server": (child: ChildProcess) => child.disconnect(),
};

test("a cancel, TERM or the end of its server stops what it carries out, in order", async (t) => {
  const root = temporaryFolder(t);
  const { dir, layout, bucketId, context } = await makeBucket(t, { workers: [{ host: "127.0.0.1", connection: "local", root }] });
  await build(context(), {});
  const order = { type: "orders", bucketDir: dir, bucketId, kind: "run_command", params: { command: "sleep 300" }, by: "test" };
  for (const [what, end] of Object.entries(ENDS)) {
    const runId = uuidV7();
    mkdirSync(runLayout(layout, runId).folder, { recursive: true });
    const child = startWorker(t);
    child.send({ ...order, runId });
    while (((await once(child, "message")) as [FromWorker])[0].type !== "group_open");
    const exit = once(child, "exit");
    const told = what === "the end of its server" ? undefined : outcomeOf(child);
    end(child);
    assert.deepEqual(await exit, [1, null], what);
    // Where the server is gone, the next one finds the outcome.
    const { error } = (await told) ?? JSON.parse(readFileSync(runLayout(layout, runId).outcome, "utf8"));
    assert.equal(error.code, "cancelled", what);
  }
});
