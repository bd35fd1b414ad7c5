import assert from "node:assert/strict";
import { appendFileSync } from "node:fs";
import { test } from "node:test";
import type { LineFilter } from "../../../lib/run/log/log-lines.ts";
import { readMap } from "../../../lib/run/log/log-view.ts";
import { seeded } from "../../helpers/random.ts";
import { writtenRun } from "../../helpers/written-logs.ts";

for (const count of [1, 7, 160, 161, 5_000])
  test(`errors and matches of ${count} lines are counted in 160 parts of as many lines each as can be`, async (t) => {
    const { layout, id, log, end } = await writtenRun(t);
    const random = seeded();
    const wanted = Array.from({ length: 160 }, () => ({ errors: 0, matches: 0 }));
    let first: { line: number; offset: number } | null = null;
    let offset = 0;
    for (let line = 1; line <= count; line++) {
      const worker = random() < 0.5 ? "10.0.0.7" : "10.0.0.8";
      const text = `${random() < 0.02 ? "error: bad" : "well"} ${line} ${random() < 0.3 ? "Needle" : ""}`;
      log.output("web", worker, text, { stream: "stdout" });
      const part = wanted.findLastIndex((_, index) => 1 + Math.floor((index * count) / 160) <= line);
      const bucket = wanted[part] as (typeof wanted)[0];
      if (text.startsWith("error")) {
        bucket.errors++;
        first ??= { line, offset };
      }
      if (worker === "10.0.0.7" && text.endsWith("Needle")) bucket.matches++;
      offset += Buffer.byteLength(`web@${worker} | ${text}\n`);
    }
    await end();
    const map = async (filter: Partial<LineFilter> = {}) => await readMap(layout, id, { matchCase: false, ...filter });
    const found = await map({ text: "needle", worker: "10.0.0.7", job: "web" });
    assert.deepEqual(found.buckets, wanted);
    const sum = (of: "errors" | "matches") => wanted.reduce((all, one) => all + one[of], 0);
    assert.deepEqual([found.lines, found.errors, found.matches], [count, sum("errors"), sum("matches")]);
    assert.deepEqual([found.first_error, found.done], [first, true]);
    assert.equal((await map()).matches, 0);
    assert.equal((await map({ job: "web" })).matches, count);
  });

test("the map of a log that is empty, or goes on, is true too", async (t) => {
  const { layout, id, log, files } = await writtenRun(t);
  const map = async () => await readMap(layout, id, { text: "a", matchCase: false });
  const { buckets, ...nothing } = await map();
  assert.equal(buckets.length, 160);
  assert.deepEqual(nothing, { lines: 0, errors: 0, matches: 0, first_error: null, done: false });
  log.error("a failed");
  // What Node says in between is no sentence of ops.
  appendFileSync(files.activity, "(node:7) it failed\nhalf of a line");
  const { buckets: _, ...more } = await map();
  assert.deepEqual(more, { lines: 2, errors: 1, matches: 2, first_error: { line: 1, offset: 0 }, done: false });
  await assert.rejects(readMap(layout, id, { text: "a\nb", matchCase: false }), { code: "invalid_request" });
});
