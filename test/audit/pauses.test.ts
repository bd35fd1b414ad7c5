import assert from "node:assert/strict";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { auditFiles } from "../../lib/audit/files.ts";
import type { AuditLog } from "../../lib/audit/log.ts";
import { AuditSink } from "../../lib/audit/sink.ts";
import { Failure } from "../../lib/core/errors.ts";
import type { Launcher } from "../../lib/core/spawn.ts";
import { BEGIN, type Life, sinking, warning, writeLines } from "../helpers/audit-command.ts";
import { auditBelow } from "../helpers/audit-log.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

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
