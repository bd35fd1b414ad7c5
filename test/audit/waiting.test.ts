import assert from "node:assert/strict";
import { chownSync, lstatSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import type { AuditEntry } from "../../lib/audit/line.ts";
import { AuditLog } from "../../lib/audit/log.ts";
import { verifyAudit } from "../../lib/audit/verify.ts";
import { auditLines, chainFiles, entryOf } from "../helpers/audit-log.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

/** What an other process lets this one do: write, wait until the gate opens, or nothing. */
interface Turns {
  mode: "free" | "held" | "refused";
  asked: [lock: string, limitMs: number][];
  open: () => void;
}

function setUp(t: TestContext) {
  const root = path.join(temporaryFolder(t), "root");
  mkdirSync(root);
  const clock = { now: Date.UTC(2026, 0, 1) };
  const told: string[] = [];
  const turns: Turns = { mode: "free", asked: [], open: () => {} };
  const takeTurns = async (lock: string, limitMs: number, work: () => Promise<void>) => {
    turns.asked.push([lock, limitMs]);
    if (turns.mode === "refused") return false;
    if (turns.mode === "held") await new Promise<void>((resolve) => Object.assign(turns, { open: resolve }));
    await work();
    return true;
  };
  const log = new AuditLog({ root, takeTurns, tell: (line) => told.push(line), now: () => clock.now });
  return { root, clock, told, turns, log };
}

const alive = (count: number): AuditEntry => ({ what: "alive", count });
const timeAt = (minute: number) => new Date(Date.UTC(2026, 0, 1, 0, minute)).toISOString();

test("a line that comes right behind one that was confirmed or refused is written without a further one", async (t) => {
  const { root, turns, log } = setUp(t);
  await log.append(entryOf(0));
  log.later(alive(1));
  await log.close();
  assert.deepEqual(
    (await auditLines(root)).map(({ what }) => what),
    ["change", "alive"],
  );
  turns.mode = "refused";
  await log.append(entryOf(1)).catch(() => {});
  turns.mode = "free";
  log.later(alive(2));
  await log.close();
  assert.equal((await auditLines(root)).at(-1)?.count, 2);
  await log.append(entryOf(2));
  assert.equal((await log.append(entryOf(3))).n, 5);
  const happened = (await auditLines(root)).map((line) => line.happened);
  assert.deepEqual(happened, [undefined, undefined, timeAt(0), undefined, undefined], "only what came in trouble says when");
});

test("while others keep the turn for ten seconds nothing is written, and the reason is told once", async (t) => {
  const { root, told, turns, log } = setUp(t);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  turns.mode = "refused";
  const lock = path.join(root, "audit", ".turns.db");
  const why = `other processes have kept ${lock} for 10 s`;
  const message = `the audit cannot be written, so nothing is changed: ${why}`;
  for (let count = 0; count < 2; count++)
    await assert.rejects(log.append(entryOf(0)), (error: Error & { code?: string }) => {
      assert.deepEqual([error.code, error.message], ["audit_unavailable", message]);
      assert.equal((error.cause as Error).message, why);
      return true;
    });
  assert.deepEqual(turns.asked, [
    [lock, 10_000],
    [lock, 10_000],
  ]);
  assert.deepEqual(told, [`the audit cannot be written, so that nothing can be changed: ${why}`]);
  t.mock.timers.tick(60_000);
  assert.equal(log.trouble, why, "nothing waits, and so nothing is tried that would go well");
  turns.mode = "free";
  await log.append(entryOf(0));
  assert.deepEqual([told.at(-1), told.length, log.trouble], ["the audit can be written again", 2, undefined]);
});

/** Waits for what happens without timers; those are the test's own. */
async function come(condition: () => boolean): Promise<void> {
  for (let round = 0; round < 1_000_000 && !condition(); round++) await nextRound();
  assert.ok(condition());
  await nextRound();
}

test("what waits is tried again after five seconds, with all that has come since, and says when it happened", async (t) => {
  const { root, clock, turns, log } = setUp(t);
  let written = 0;
  log.onWritten = () => written++;
  const tried = (count: number) => come(() => turns.asked.length >= count);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  turns.mode = "refused";
  for (let count = 1; count <= 2; count++) {
    log.later(alive(count));
    await tried(count);
    clock.now += 60_000;
  }
  t.mock.timers.tick(4_999);
  await nextRound();
  assert.equal(turns.asked.length, 2);
  t.mock.timers.tick(1);
  await tried(3);
  turns.mode = "free";
  t.mock.timers.tick(5_000);
  await come(() => written === 1);
  assert.equal(turns.asked.length, 4);
  t.mock.timers.tick(60_000);
  await log.append(alive(3));
  assert.equal(turns.asked.length, 5, "nothing waited any more");
  turns.mode = "refused";
  log.later(alive(4));
  await tried(6);
  turns.mode = "free";
  await log.append(alive(5));
  t.mock.timers.tick(60_000);
  await log.append(alive(6));
  assert.equal(turns.asked.length, 8, "what was written with another line is not tried again");
  assert.deepEqual(
    (await auditLines(root)).map(({ count, at, happened }) => [count, at, happened]),
    [
      [1, timeAt(2), timeAt(0)],
      [2, timeAt(2), timeAt(1)],
      [3, timeAt(2), undefined],
      [4, timeAt(2), timeAt(2)],
      [5, timeAt(2), undefined],
      [6, timeAt(2), undefined],
    ],
  );
});

test("an audit that is closed tries nothing more by itself, whether it was closed before the trouble or after", async (t) => {
  for (const isBefore of [true, false]) {
    const { turns, log } = setUp(t);
    t.mock.timers.enable({ apis: ["setTimeout"] });
    turns.mode = "refused";
    if (isBefore) await log.close();
    log.later(alive(1));
    await come(() => turns.asked.length === 1);
    await log.close();
    t.mock.timers.tick(60_000);
    turns.mode = "free";
    await log.append(alive(2));
    assert.equal(turns.asked.length, 2);
    t.mock.timers.reset();
  }
});

test("of what comes while a write waits for its turn 1,000 lines are kept, and the others are counted in one", async (t) => {
  const { root, turns, log } = setUp(t);
  turns.mode = "held";
  log.later(alive(5_000));
  await come(() => turns.asked.length === 1);
  for (let count = 1; count <= 1_002; count++) log.later(alive(count));
  const last = log.append(entryOf(0));
  turns.mode = "free";
  turns.open();
  assert.equal((await last).n, 1_003);
  const lines = await auditLines(root);
  assert.deepEqual(
    lines.slice(0, 1_001).map(({ count }) => count),
    [5_000, ...Array.from({ length: 1_000 }, (_, index) => index + 1)],
  );
  const { what, outcome, error, count } = lines[1_001] ?? {};
  assert.deepEqual([what, outcome, error, count], ["outcome", "failed", "audit_unavailable", 2]);
  await log.append(entryOf(1));
  assert.equal((await auditLines(root)).length, 1_004, "they are told once");
});

test("what is just being written is no part of the audit yet", async (t) => {
  const { turns, log } = setUp(t);
  assert.deepEqual(await log.end(), { file: "", size: 0, head: { n: 0, at: "", hash: "0".repeat(64) }, torn: Buffer.alloc(0) });
  assert.equal(log.written, undefined);
  await log.append(entryOf(0));
  const { written } = log;
  turns.mode = "held";
  const next = log.append(entryOf(1));
  await come(() => turns.asked.length === 2);
  assert.equal((await log.head()).n, 1);
  assert.equal(log.written, written);
  turns.open();
  assert.equal((await next).n, 2);
  assert.equal((await log.head()).n, 2);
});

test("a chain goes on in the newest file, whoever began it, and behind an empty one of a later month", async (t) => {
  const { root, clock, log } = setUp(t);
  await log.append(entryOf(0));
  clock.now = Date.UTC(2026, 1, 1);
  const other = new AuditLog({
    root,
    takeTurns: async (_, __, work) => work().then(() => true),
    tell() {},
    now: () => clock.now,
  });
  await other.append(entryOf(1));
  assert.equal((await log.append(entryOf(2))).n, 3);
  writeFileSync(path.join(root, "audit", "2026-03.jsonl"), "");
  assert.equal((await log.append(entryOf(3))).n, 4);
  const files = await chainFiles(root);
  assert.deepEqual(
    files.map((file) => readFileSync(file, "utf8").split("\n").length - 1),
    [1, 2, 1],
  );
  assert.equal((await verifyAudit(files, { publicKey: (await log.key()).publicKey })).ok, true);
});

test("CP-995 a line that was cut off is replaced where it stands, in a later month too", async (t) => {
  const { root, clock, turns, log } = setUp(t);
  await log.append(entryOf(0));
  const [january = ""] = await chainFiles(root);
  writeFileSync(january, "torn", { flag: "a" });
  clock.now = Date.UTC(2026, 1, 1);
  turns.mode = "refused";
  log.later(alive(1));
  await come(() => turns.asked.length === 2);
  turns.mode = "free";
  await log.append(entryOf(1));
  await log.append(entryOf(3));
  const lines = await auditLines(root);
  const sum = "00cc10cc5ab0a89fbf4d84a229bf234e739ba6294a832d2c042ce8d9a1949cf7";
  assert.deepEqual(
    lines.map(({ n, torn }) => [n, torn?.bytes, torn?.sha256]),
    [
      [1, undefined, undefined],
      [2, 4, sum],
      [3, undefined, undefined],
      [4, undefined, undefined],
    ],
  );
  const counts = (await chainFiles(root)).map((file) => readFileSync(file, "utf8").split("\n").length - 1);
  assert.deepEqual(counts, [3, 1]);
});

const isRoot = process.getuid?.() === 0;

test("only root gives what it makes away, and to another user alone", { skip: !isRoot }, async (t) => {
  const cases: [uid: number, gid: number, caller: number, owner: string][] = [
    [65_534, 65_534, 0, "65534:65534"],
    [0, 65_534, 0, "0:0"],
    [65_534, 65_534, 1_000, "0:0"],
  ];
  for (const [uid, gid, caller, owner] of cases) {
    const { root, log } = setUp(t);
    // The lock is made by those who take turns.
    mkdirSync(path.join(root, "audit"));
    writeFileSync(path.join(root, "audit", ".turns.db"), "");
    chownSync(root, uid, gid);
    const mocked = t.mock.method(process as { getuid: () => number }, "getuid", () => caller);
    await log.append(entryOf(0));
    mocked.mock.restore();
    const made = ["audit", "audit.key", "audit/.turns.db", "audit/2026-01.jsonl"].map((name) => lstatSync(path.join(root, name)));
    assert.deepEqual(
      made.map((one) => `${one.uid}:${one.gid}`),
      Array(4).fill(owner),
    );
  }
});
