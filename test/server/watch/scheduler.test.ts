import assert from "node:assert/strict";
import path from "node:path";
import { test } from "node:test";
import { Pulse } from "../../../lib/server/watch/pulse.ts";
import { Scheduler } from "../../../lib/server/watch/scheduler.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

for (const isIdle of [false, true])
  test(`CP-976 a scheduler ${isIdle ? "that is to start nothing" : "at work"} tells that it looks`, async (t) => {
    const root = temporaryFolder(t);
    const pulse = new Pulse({ root, heartbeatUrl: undefined, log: () => {} });
    let looks = 0;
    t.mock.method(pulse, "looked", () => looks++);
    const scheduler = new Scheduler({
      root,
      labels: "bucket.json",
      readers: {},
      runs: {},
      log: () => {},
      now: Date.now,
    } as never);
    const stop = new AbortController();
    const over = scheduler.run(stop.signal, { pulse, isIdle });
    await until("a look", () => looks > 0);
    stop.abort();
    await over;
  });

test("CP-976 a scheduler that cannot read the root has not looked, and says so", async (t) => {
  const root = path.join(temporaryFolder(t), "gone");
  const told: string[] = [];
  const pulse = new Pulse({ root, heartbeatUrl: undefined, log: () => {} });
  t.mock.method(pulse, "looked", () => assert.fail("it has not looked"));
  const log = (line: string) => told.push(line);
  const scheduler = new Scheduler({ root, labels: "bucket.json", readers: {}, runs: {}, log, now: Date.now } as never);
  const stop = new AbortController();
  const over = scheduler.run(stop.signal, { pulse, isIdle: false });
  await until("it is told", () => told.length > 0);
  stop.abort();
  await over;
  assert.match(told[0] ?? "", /gone/);
});
