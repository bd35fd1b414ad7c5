import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { readEvidence, readFailures } from "../../../lib/run/log/log-evidence.ts";
import { writtenRun } from "../../helpers/written-logs.ts";

const ABOUT = { job: "web", worker: "w1" };

/** A run whose programs say something, and what is told of it. */
async function setUp(t: TestContext) {
  const run = await writtenRun(t);
  const output = (text: string, { job = "web", worker = "w1", stream = "stderr" as "stdout" | "stderr" } = {}) =>
    run.log.output(job, worker, text, { stream });
  const evidence = async () => {
    const { lines = [], ...rest } = await readEvidence(run.layout, run.id, ABOUT);
    return { ...rest, texts: lines.map(({ text }) => text) };
  };
  return { ...run, output, evidence };
}

test("the last 20 lines of a job on a worker are told, without make's closing lines, which are counted", async (t) => {
  const { output, evidence } = await setUp(t);
  output("error: too early");
  for (let line = 1; line <= 21; line++) output(`line ${line}`, { stream: "stdout" });
  output("make: *** [x] Error 1");
  output("of another job", { job: "db" });
  output("of another worker", { worker: "w2" });
  const texts = Array.from({ length: 20 }, (_, index) => `line ${index + 2}`);
  assert.deepEqual(await evidence(), { texts, reason_line: 22, left_out: 1, first_line: 3 });
  output("error: here");
  const told = await evidence();
  assert.deepEqual([told.texts.at(-1), told.reason_line, told.first_line], ["error: here", 26, 4]);
});

test("make's closing line is told where it is all, and what ops said where no program said anything", async (t) => {
  const { log, output, evidence } = await setUp(t);
  assert.deepEqual(await evidence(), { texts: [], reason_line: null, left_out: 0, first_line: null });
  log.info("web: begins", ABOUT);
  log.error("web@w1: no answer", ABOUT);
  assert.deepEqual(await evidence(), {
    texts: ["web: begins", "error: web@w1: no answer"],
    reason_line: 2,
    left_out: 0,
    first_line: 1,
  });
  output("make: *** [x] Error 1");
  assert.deepEqual(await evidence(), { texts: ["make: *** [x] Error 1"], reason_line: 3, left_out: 0, first_line: 3 });
});

test("what is said while the job is put back does not count, that of another job does", async (t) => {
  const { log, output, evidence } = await setUp(t);
  output("broken");
  log.restores("db: is put back", { job: "db" });
  output("and more");
  log.restores("web: is put back", { job: "web" });
  output("while it is put back");
  assert.deepEqual((await evidence()).texts, ["broken", "and more"]);
});

test("what failed with one cause is one item with its first 20 workers, and the first 50 causes are told", async (t) => {
  const { layout, id, output, end } = await setUp(t);
  output("first", { job: "web", worker: "w1" });
  output("error: it broke", { job: "web", worker: "w1" });
  const names = Array.from({ length: 21 }, (_, index) => `w${index + 1}`);
  const fail = (worker: string, error: string | null, outcome = "failed") => ({ worker, action: "restart", outcome, error });
  const jobs = [
    {
      job: "web",
      allocations: [...names.map((worker) => fail(worker, `${worker} broke:\nsomehow`)), fail("w30", "gone", "unreachable")],
    },
    { job: "ok", allocations: [{ worker: "w1", outcome: "changed" }, fail("w2", null, "cancelled"), null] },
    ...Array.from({ length: 48 }, (_, index) => ({ job: `j${index}`, allocations: [fail("w1", null)] })),
  ];
  const reconciled = [{ job: "old", worker: "w9", outcome: "failed", error: "stuck" }];
  await end({ jobs, reconciled, target: "status" });
  const { items = [], total } = await readFailures(layout, id);
  assert.deepEqual([items.length, total], [50, 51]);
  assert.deepEqual(items[0], {
    job: "web",
    worker: "w1",
    workers: names.slice(0, 20),
    worker_count: 21,
    action: "restart",
    outcome: "failed",
    reason: "w1 broke: somehow",
    line: 2,
  });
  const [, lost, other] = items;
  assert.deepEqual([lost?.outcome, lost?.workers, lost?.line], ["unreachable", ["w30"], null]);
  assert.deepEqual([other?.job, other?.reason], ["j0", ""]);
});

test("what a deploy has stopped is among what failed, with the target of the run where no action is told", async (t) => {
  const { layout, id, end } = await setUp(t);
  const reconciled = [{ job: "old", worker: "w9", outcome: "failed", error: "stuck" }];
  await end({ reconciled, target: "status" });
  const { items = [] } = await readFailures(layout, id);
  assert.deepEqual(
    items.map(({ job, worker, action, reason }) => [job, worker, action, reason]),
    [["old", "w9", "status", "stuck"]],
  );
});

test("a run without a result has failed nowhere", async (t) => {
  const { layout, id, end } = await setUp(t);
  await end();
  assert.deepEqual(await readFailures(layout, id), { items: [], total: 0 });
});
