import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { type AuditSpot, auditFiles } from "../../lib/audit/files.ts";
import type { AuditLog } from "../../lib/audit/log.ts";
import { AuditSink } from "../../lib/audit/sink.ts";
import { Failure } from "../../lib/core/errors.ts";
import type { Launcher } from "../../lib/core/spawn.ts";
import { auditBelow, chainFiles } from "../helpers/audit-log.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

interface Exit {
  exitCode: number | null;
  signal: string | null;
}

/** One life of a command that takes what it is given. */
interface Life {
  pieces: string[];
  numbers: () => number[];
  exit: (exit: Partial<Exit>) => void;
  graces: number[];
  isInputEnded: boolean;
  /** Goes on when its input ends, until it is ended. */
  isStubborn: boolean;
}

/** A sink whose command is played by the test. */
function sinking(t: TestContext, now?: () => number, more: { pauseMs?: number } = { pauseMs: 1 }) {
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root, now);
  const told: string[] = [];
  const given: unknown[] = [];
  const lives: Life[] = [];
  const far = { isDeaf: false };
  const start = async (...args: unknown[]) => {
    given.push(args);
    const { promise: ended, resolve } = Promise.withResolvers<Exit>();
    const exit = (how: Partial<Exit>) => resolve({ exitCode: null, signal: null, ...how });
    const pieces: string[] = [];
    const numbers = () => pieces.flatMap((piece) => piece.trimEnd().split("\n")).map((line) => JSON.parse(line).n);
    const life: Life = { pieces, numbers, exit, graces: [], isInputEnded: false, isStubborn: false };
    lives.push(life);
    const stdin = {
      write: (piece: Buffer, done: (error?: Error) => void) => {
        if (far.isDeaf) return done(new Error("EPIPE"));
        pieces.push(piece.toString());
        done();
      },
      end: () => {
        life.isInputEnded = true;
        if (!life.isStubborn) exit({ exitCode: 0 });
      },
    };
    const end = async (graceMs: number) => {
      life.graces.push(graceMs);
      exit({ signal: "SIGTERM" });
    };
    return { stdin, ended, end };
  };
  const launcher = { start } as unknown as Launcher;
  const sink = new AuditSink({ command: "keep", audit: log, launcher, tell: (line) => told.push(line), ...more });
  /** Ends the sink, and the command at once: one that has failed before would have to live for a second. */
  const close = async () => {
    const closed = sink.close();
    for (const life of lives) life.exit({ exitCode: 0 });
    await closed;
  };
  t.after(close);
  return { root, log, sink, close, told, given, lives, far };
}

/** Writes lines of so many characters, one after the other, and answers where each of them ends. */
async function writeLines(log: AuditLog, count: number, characters: number): Promise<AuditSpot[]> {
  const ends: AuditSpot[] = [];
  for (let index = 0; index < count; index++) {
    await log.append({ what: "change", reason: "x".repeat(characters) });
    ends.push({ ...(log.written as AuditSpot) });
  }
  return ends;
}

const BEGIN: AuditSpot = { file: "", size: 0 };
const warning = (why: string) => `warning: the command of --audit-sink fails, and no copy of the audit is kept: ${why}`;

test("the command is one for sh, which gets whole lines, about 64 KiB of them at once, and a longer one whole", async (t) => {
  const { root, log, sink, given, lives, told } = sinking(t);
  await writeLines(log, 5, 30_000);
  await writeLines(log, 1, 300_000);
  await writeLines(log, 1, 10);
  sink.start(BEGIN);
  await until("all lines", () => lives[0]?.pieces.join("").includes('"n":7') === true);
  assert.deepEqual(given, [[["/bin/sh", "-c", "keep"], { stdin: "pipe" }]]);
  const [file = ""] = await chainFiles(root);
  assert.equal(lives[0]?.pieces.join(""), readFileSync(file, "utf8"));
  assert.deepEqual(
    lives[0]?.pieces.slice(0, 3).map((piece) => piece.split("\n").length - 1),
    [2, 2, 1],
  );
  assert.ok(lives[0]?.pieces.every((piece) => piece.endsWith("\n")));
  await sink.close();
  assert.deepEqual([lives[0]?.isInputEnded, lives[0]?.graces, lives.length, told], [true, [0], 1, []]);
});

test("lines come from where the sink began, each once it is written", async (t) => {
  const { log, sink, lives } = sinking(t);
  const [, second = BEGIN] = await writeLines(log, 3, 10);
  sink.start(second);
  await until("the third line", () => lives[0]?.pieces.length === 1);
  await writeLines(log, 1, 10);
  await until("the fourth line", () => lives[0]?.pieces.length === 2);
  await log.close();
  await sink.close();
  assert.deepEqual(lives[0]?.numbers(), [3, 4]);
});

test("a command that ends gets once more what it may not have read, from the beginning of a line", async (t) => {
  const most = 256 * 1024;
  for (const [more, isNextMonth] of [-1, 0, 1].flatMap((one) => [true, false].map((is) => [one, is] as const))) {
    let at = Date.UTC(2026, 0, 31);
    const { log, sink, close, lives } = sinking(t, () => at);
    await writeLines(log, 1, 10);
    const [{ size: after } = BEGIN, { size: later } = BEGIN] = await writeLines(log, 2, 10);
    const around = later - after - 10;
    await writeLines(log, 1, 100_000);
    // The last lines, of two months, have so many bytes together.
    if (isNextMonth) at = Date.UTC(2026, 1, 1);
    await writeLines(log, 1, most + more - 100_000 - 2 * around);
    sink.start(BEGIN);
    await until("all lines", () => lives[0]?.pieces.join("").includes('"n":5') === true);
    lives[0]?.exit({ exitCode: 3 });
    await until("a piece of the next life", () => lives[1]?.pieces.length === 1);
    assert.equal(lives[1]?.numbers()[0], more > 0 ? 5 : 4, `${more} bytes more`);
    await close();
  }
});

test("what was written before the sink began does not come, however often the command is started", async (t) => {
  const { log, sink, lives } = sinking(t);
  const [first = BEGIN] = await writeLines(log, 2, 10);
  sink.start(first);
  for (let life = 0; life < 3; life++) {
    await until("the second line", () => (lives[life]?.pieces.length ?? 0) > 0);
    assert.equal(lives[life]?.numbers()[0], 2);
    lives[life]?.exit({ exitCode: 1 });
  }
  await until("the next start", () => lives.length === 4);
});

test("of several months only the lines before the beginning of the sink do not come again", async (t) => {
  let at = Date.UTC(2026, 0, 31);
  const { log, sink, lives } = sinking(t, () => at);
  await writeLines(log, 2, 10);
  const start = { ...(log.written as AuditSpot) };
  at = Date.UTC(2026, 1, 1);
  await writeLines(log, 2, 10);
  at = Date.UTC(2026, 2, 1);
  await writeLines(log, 1, 10);
  sink.start(start);
  await until("all lines", () => lives[0]?.pieces.join("").includes('"n":5') === true);
  assert.deepEqual(lives[0]?.numbers(), [3, 4, 5]);
  assert.equal(lives[0]?.pieces.length, 2, "a piece is of one file");
  lives[0]?.exit({ exitCode: 1 });
  await until("a piece of the next life", () => lives[1]?.pieces.length === 1);
  assert.deepEqual(lives[1]?.numbers(), [3, 4]);
});

test("why the command fails is told once, in the log and in the audit, until it works again", async (t) => {
  for (const [how, why] of [
    [{ exitCode: 3 }, "it ended with exit code 3"],
    [{ exitCode: 0 }, "it ended with exit code 0"],
    [{ signal: "SIGKILL" }, "it ended with SIGKILL"],
  ] as [Partial<Exit>, string][]) {
    const { root, log, sink, close, told, lives } = sinking(t);
    await writeLines(log, 1, 10);
    sink.start(BEGIN);
    for (let life = 0; life < 2; life++) {
      await until("a start", () => (lives[life]?.pieces.length ?? 0) > 0);
      lives[life]?.exit(how);
    }
    await until("one start more", () => lives.length === 3);
    assert.deepEqual(told, [warning(why)]);
    await log.close();
    const [file = ""] = await chainFiles(root);
    const { what, via, outcome, facts } = JSON.parse(readFileSync(file, "utf8").split("\n")[1] ?? "");
    assert.deepEqual(
      { what, via, outcome, facts },
      { what: "sink", via: "server", outcome: "failed", facts: { told: warning(why) } },
    );
    await close();
    assert.equal(told.length, 1, "an end that was asked for is no failure");
  }
});

test("a command that cannot be started is told with the reason", async (t) => {
  const { log } = auditBelow(path.join(temporaryFolder(t), "root"));
  const told: string[] = [];
  const start = async () => {
    throw new Failure("failed", "Cannot start sh: no memory");
  };
  const options = { command: "keep", audit: log, launcher: { start } as unknown as Launcher, pauseMs: 1 };
  const sink = new AuditSink({ ...options, tell: (line) => told.push(line) });
  sink.start(BEGIN);
  await until("the failure", () => told.length > 0);
  assert.equal(told[0], warning("Cannot start sh: no memory"));
  await sink.close();
});

test("a line that has not been written whole is not handed over", async (t) => {
  const { root, log, sink, lives } = sinking(t);
  await writeLines(log, 1, 10);
  const [file = ""] = await chainFiles(root);
  writeFileSync(file, '{"audit":1,"n":2\n{"torn', { flag: "a" });
  sink.start(BEGIN);
  await until("the first line", () => lives[0]?.pieces.length === 1);
  await sink.close();
  assert.deepEqual(lives[0]?.numbers(), [1]);
});

/** Makes time a matter of the test, also for the waits of lib. */
function ownTime(t: TestContext): (ms: number) => void {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.timers.reset();
    syncBuiltinESMExports();
  });
  return (ms) => t.mock.timers.tick(ms);
}

/** Waits for what needs no time; looks at the files meanwhile, as a command that is started again makes the sink do. */
async function come(log: AuditLog, condition: () => boolean = () => false, rounds = 10_000): Promise<void> {
  for (let round = 0; round < rounds && !condition(); round++) {
    await auditFiles(log.folder);
    await nextRound();
  }
}

test("a command that fails is started again after 1 s, then after longer and longer pauses up to a minute, until it works for a second", async (t) => {
  const { log, sink, lives, told } = sinking(t, undefined, {});
  await writeLines(log, 1, 10);
  const pass = ownTime(t);
  sink.start(BEGIN);
  const lived = async (count: number) => {
    await come(log, () => lives.length === count && (lives.at(-1)?.pieces.length ?? 0) > 0);
    assert.equal(lives.length, count);
  };
  const fails = async () => {
    lives.at(-1)?.exit({ exitCode: 1 });
    await come(log, undefined, 20);
  };
  for (const pause of [1, 2, 4, 8, 16, 32, 60, 60]) {
    const count = lives.length + (lives.length === 0 ? 1 : 0);
    await lived(count);
    await fails();
    pass(pause * 1_000 - 1);
    await come(log, undefined, 20);
    assert.equal(lives.length, count, `a pause of ${pause} s`);
    pass(1);
    await lived(count + 1);
  }
  assert.equal(told.length, 1);
  pass(999);
  await come(log, undefined, 20);
  assert.equal(told.length, 1);
  pass(1);
  await come(log, () => told.length === 2);
  assert.equal(told[1], "the command of --audit-sink takes lines again");
  await come(log, undefined, 50);
  await fails();
  assert.equal(told.length, 3, "its next failure is told again");
  pass(1_000);
  await lived(10);
});

test("the end of the sink waits two seconds for a command that goes on, and then ends it", async (t) => {
  const { log, sink, lives } = sinking(t);
  await writeLines(log, 1, 10);
  const pass = ownTime(t);
  sink.start(BEGIN);
  await come(log, () => lives[0]?.pieces.length === 1);
  const [life] = lives as [Life];
  life.isStubborn = true;
  let isClosed = false;
  const closed = sink.close().then(() => {
    isClosed = true;
  });
  await come(log, () => life.isInputEnded);
  pass(1_999);
  await come(log, undefined, 20);
  assert.deepEqual([life.graces, isClosed], [[], false]);
  pass(1);
  await closed;
  // Once to end it, once more as after each life.
  assert.deepEqual([life.graces, lives.length], [[0, 0], 1]);
});

test("a command that cannot be started, or takes nothing, is tried again after longer and longer pauses", async (t) => {
  const pass = ownTime(t);
  for (const isStarted of [true, false]) {
    const { log } = auditBelow(path.join(temporaryFolder(t), "root"));
    let starts = 0;
    const start = async () => {
      starts++;
      if (!isStarted) throw new Failure("failed", "no memory");
      return { stdin: { end() {} }, ended: Promise.resolve({ exitCode: 0, signal: null }), end: async () => {} };
    };
    const launcher = { start } as unknown as Launcher;
    const sink = new AuditSink({ command: "keep", audit: log, launcher, tell() {} });
    sink.start(BEGIN);
    for (const [count, pause] of [1, 2, 4, 8].entries()) {
      await come(log, () => starts > count);
      await come(log, undefined, 20);
      pass(pause * 1_000 - 1);
      await come(log, undefined, 20);
      assert.equal(starts, count + 1, `a pause of ${pause} s`);
      pass(1);
    }
    await sink.close();
  }
});

test("a command that takes no more has two seconds to end by itself; then it has closed its standard input", async (t) => {
  const pass = ownTime(t);
  for (const isEnding of [true, false]) {
    const { log, sink, close, lives, told, far } = sinking(t);
    await writeLines(log, 1, 10);
    far.isDeaf = true;
    sink.start(BEGIN);
    await come(log, () => lives.length === 1);
    await come(log, undefined, 20);
    pass(1_999);
    await come(log, undefined, 20);
    assert.deepEqual([told, lives[0]?.graces], [[], []]);
    if (isEnding) lives[0]?.exit({ exitCode: 3 });
    else pass(1);
    await come(log, () => told.length === 1 && lives[0]?.graces.length === 1);
    assert.deepEqual(told, [warning(isEnding ? "it ended with exit code 3" : "it has closed its standard input")]);
    assert.deepEqual(lives[0]?.graces, [0]);
    await close();
  }
});
