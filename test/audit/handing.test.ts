import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { AuditSpot } from "../../lib/audit/files.ts";
import { AuditSink } from "../../lib/audit/sink.ts";
import { Failure } from "../../lib/core/errors.ts";
import type { Launcher } from "../../lib/core/spawn.ts";
import { BEGIN, type Exit, sinking, warning, writeLines } from "../helpers/audit-command.ts";
import { auditBelow, chainFiles } from "../helpers/audit-log.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

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

test("what was put behind the lines of an earlier month is not handed over, and holds nothing up", async (t) => {
  let at = Date.UTC(2026, 0, 31);
  const { root, log, sink, lives } = sinking(t, () => at);
  await writeLines(log, 1, 10);
  at = Date.UTC(2026, 1, 1);
  await writeLines(log, 1, 10);
  const [january = ""] = await chainFiles(root);
  writeFileSync(january, "x".repeat(100_000), { flag: "a" });
  sink.start(BEGIN);
  await until("both lines", () => lives[0]?.pieces.length === 2);
  assert.deepEqual(lives[0]?.numbers(), [1, 2]);
});

test("a line that the command had not taken when it ended comes again, however long it is", async (t) => {
  const { log, sink, lives, far } = sinking(t);
  await writeLines(log, 1, 300_000);
  far.isStuck = true;
  sink.start(BEGIN);
  await until("the line to be offered", () => far.offers === 1);
  lives[0]?.exit({ exitCode: 1 });
  far.isStuck = false;
  await until("the line", () => lives.some(({ pieces }) => pieces.length > 0));
  assert.equal(lives.flatMap(({ numbers }) => numbers())[0], 1);
});
