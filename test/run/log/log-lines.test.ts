import assert from "node:assert/strict";
import { rmSync, symlinkSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../../lib/bucket/base/layout.ts";
import { type LineFilter, openLogText } from "../../../lib/run/log/log-lines.ts";
import { type RunRecord, readRecord } from "../../../lib/run/record.ts";
import { recordRun } from "../../helpers/log-runs.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

async function logOf(t: TestContext, log: string | Buffer, times?: string) {
  const layout = layoutOf(temporaryFolder(t));
  const id = recordRun(layout.root, "", log);
  const record = readRecord(layout, id) as RunRecord;
  const { activity, activityTimes } = runLayout(layout, id);
  if (times !== undefined) writeFileSync(activityTimes, times);
  const text = async (filter: Partial<LineFilter> = {}, withTimes = false, run = record) => {
    const opened = await openLogText(layout, run, { matchCase: false, ...filter }, withTimes);
    const pieces: Uint8Array[] = [];
    for await (const piece of opened.read()) pieces.push(piece);
    await opened.close();
    return Buffer.concat(pieces);
  };
  return { text, activity, running: { ...record, status: "running" as const } };
}

test("without a question the text is the log byte for byte, whatever is in it", async (t) => {
  const bytes = Buffer.concat([
    Buffer.from("\n\ngrüße 🌍\r\n"),
    Buffer.from([0xff, 0xc3, 0x0a, 0x80, 0x00, 0x0a]),
    Buffer.from("the end has no newline"),
  ]);
  const { text } = await logOf(t, bytes);
  assert.deepEqual(await text(), bytes);
});

test("whole lines are taken that have a text or are of a job or a worker, however long they are", async (t) => {
  const long = `web@10.0.0.7 | ${"ä".repeat(2_000_000)} needle`;
  const lines = [
    "web@10.0.0.7 | started",
    "10.0.0.7 | a needle",
    long,
    "",
    "web: a Needle",
    "web: the end",
    "web@10.0.0.7 ! lost",
  ];
  const { text } = await logOf(t, `${lines.join("\n")}\n`);
  const taken = async (filter: Partial<LineFilter>) =>
    String(await text(filter))
      .split("\n")
      .slice(0, -1);
  assert.deepEqual(await taken({ text: "needle" }), [lines[1], long, lines[4]]);
  assert.deepEqual(await taken({ text: "needle", matchCase: true }), [lines[1], long]);
  assert.deepEqual(await taken({ job: "web", worker: "10.0.0.7" }), [lines[0], long, lines[6]]);
  assert.deepEqual(await taken({ stream: "stderr" }), [lines[6]]);
  assert.deepEqual(await taken({ stream: "ops", text: "needle" }), [lines[4]]);
  assert.deepEqual(await taken({ job: "web", text: "NEEDLE" }), [long, lines[4]]);
  assert.deepEqual(await taken({ text: "nowhere" }), []);
  await assert.rejects(text({ text: "a\nb" }), { code: "invalid_request" });
});

const [FIRST, SECOND] = ["2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.250Z"];

test("each line begins with the time that was noted at or before its beginning", async (t) => {
  const { text } = await logOf(t, "before\none\ntwo, of two moments\n\nlast\nopen", "7 1700000000000\n20 1700000000250\n");
  assert.equal(
    String(await text({}, true)),
    `- before\n${FIRST} one\n${FIRST} two, of two moments\n${SECOND} \n${SECOND} last\n${SECOND} open`,
  );
  assert.equal(String(await text({ text: "LAST" }, true)), `${SECOND} last\n`);
  assert.equal(String(await text({ text: "last" })), "last\n");
});

test("an entry that was cut does not count, and without entries no time is known", async (t) => {
  const { text } = await logOf(t, "one\ntwo\n", "0 1700000000000\n4 17000000");
  assert.equal(String(await text({}, true)), `${FIRST} one\n${FIRST} two\n`);
  const without = await logOf(t, "one\ntwo\n");
  assert.equal(String(await without.text({}, true)), "- one\n- two\n");
});

test("times go along with a log of many pieces", async (t) => {
  const line = `${"x".repeat(99)}\n`;
  const count = 30_000;
  const noted = Array.from({ length: count }, (_, index) => `${index * 100} ${1_700_000_000_000 + index}\n`);
  const { text } = await logOf(t, line.repeat(count), noted.join(""));
  const lines = String(await text({}, true))
    .split("\n")
    .slice(0, -1);
  const expected = lines.map((_, index) => new Date(1_700_000_000_000 + index).toISOString());
  assert.equal(lines.length, count);
  assert.deepEqual(
    lines.map((one) => one.slice(0, 24)),
    expected,
  );
});

test("of a run that goes on there are the lines that are complete", async (t) => {
  const { text, running } = await logOf(t, "one\ntwo\nhal");
  assert.equal(String(await text({}, false, running)), "one\ntwo\n");
  assert.equal(String(await text()), "one\ntwo\nhal");
});

test("a log that is not there, or was replaced by a link, has no lines", async (t) => {
  const { text, activity } = await logOf(t, "one\n", "0 1700000000000\n");
  rmSync(activity);
  assert.equal(String(await text({}, true)), "");
  symlinkSync("/etc/passwd", activity);
  assert.equal(String(await text({}, true)), "");
});
