import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmdirSync, statSync, writeSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { LinePlace } from "../../lib/bucket/base/line-place.ts";
import { PROGRAM_ROOT } from "../../lib/core/self.ts";
import { ActivityWriter } from "../../lib/run/activity-writer.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const OPS: LinePlace = { stream: "ops" };
const STARTED = 1_700_000_000_000;

function setUp(t: TestContext, target?: string) {
  const folder = temporaryFolder(t);
  const [log = "", times = "", places = ""] = ["log", "times", "places"].map((end) => path.join(folder, `activity.${end}`));
  const output = openSync(target ?? log, "a", 0o600);
  t.after(() => closeSync(output));
  const clock = { now: STARTED };
  const writer = new ActivityWriter(output, { activityTimes: times, activityPlaces: places }, () => clock.now);
  t.after(() => writer.close());
  const later = (ms: number, text: string, place: LinePlace = OPS) => {
    clock.now += ms;
    writer.append(text, place);
  };
  const noted = () => readFileSync(times, "utf8").replace(/(?<= )\d+/g, (ms) => String(+ms - STARTED));
  return { log, times, places, output, later, noted };
}

test("CP-145 output is noted with its place and time every 250 ms, in bytes and beside the log", (t) => {
  const { log, times, later, noted } = setUp(t);
  later(0, "grüße\n");
  later(249, "same\n");
  later(1, "next\n");
  later(10_000, "much later\n");
  assert.equal(readFileSync(log, "utf8"), "grüße\nsame\nnext\nmuch later\n");
  assert.equal(noted(), "0 0\n13 250\n18 10250\n");
  assert.equal(statSync(times).mode & 0o777, 0o600);
});

test("a clock that is set back goes on from there", (t) => {
  const { later, noted } = setUp(t);
  later(3_600_000, "a\n");
  later(-3_600_000, "b\n");
  later(100, "c\n");
  assert.equal(noted(), "0 3600000\n2 0\n");
});

test("whenever a run's process is killed, each whole line of the times and of the places holds", async (t) => {
  const { log, times, places } = setUp(t);
  const program = `
    import { openSync } from "node:fs";
    import { ActivityWriter } from ${JSON.stringify(path.join(PROGRAM_ROOT, "lib/run/activity-writer.ts"))};
    let now = 0;
    const files = ${JSON.stringify({ activityTimes: times, activityPlaces: places })};
    const writer = new ActivityWriter(openSync(${JSON.stringify(log)}, "a"), files, () => (now += 125));
    for (let line = 0; ; line++) writer.append("a line of output\\n", { worker: "w" + (line % 3), stream: "stdout" });`;
  const child = spawn(process.execPath, ["--input-type=module", "--eval", program], { stdio: "ignore" });
  t.after(() => child.kill("SIGKILL"));
  await until("the log to grow", () => statSync(log).size > 100_000);
  child.kill("SIGKILL");
  await once(child, "exit");
  const lines = readFileSync(times, "utf8").split("\n").slice(0, -1);
  const bytes = "a line of output\n".length;
  assert.deepEqual(
    lines,
    Array.from(lines, (_, index) => `${2 * index * bytes} ${125 + 250 * index}`),
  );
  const placed = readFileSync(places, "utf8").split("\n").slice(0, -1);
  assert.deepEqual(
    placed,
    Array.from(placed, (_, index) => `${index * bytes} ${index % 3}${index < 3 ? ` stdout - w${index}` : ""}`),
  );
  assert.ok(lines.length > 1_000 && Number(lines.at(-1)?.split(" ")[0]) <= statSync(log).size);
});

test("what others wrote into the log meanwhile moves no time", (t) => {
  const { output, later, noted } = setUp(t);
  later(0, "a\n");
  writeSync(output, "(node:1) warning\n");
  later(500, "b\n");
  assert.equal(noted(), "0 0\n19 500\n");
});

test("the place of output is noted where it changes, in bytes, and named once", (t) => {
  const { places, output, later } = setUp(t);
  const web: LinePlace = { job: "web", worker: "10.0.0.7", stream: "stderr" };
  later(0, "grüße\n");
  later(0, "more\n");
  later(0, "web@10.0.0.7 ! a\n", web);
  writeSync(output, "(node:1) warning\n");
  later(0, "b\n");
  later(0, "web@10.0.0.7 ! c\n", { ...web });
  assert.equal(readFileSync(places, "utf8"), "0 0 ops - -\n13 1 stderr web 10.0.0.7\n47 0\n49 1\n");
  assert.equal(statSync(places).mode & 0o777, 0o600);
});

test("times and places that cannot be written end, and the log goes on", (t) => {
  const { log, times, places, later } = setUp(t);
  mkdirSync(times);
  mkdirSync(places);
  later(0, "a\n");
  for (const file of [times, places]) rmdirSync(file);
  later(500, "b\n", { stream: "stdout" });
  assert.equal(readFileSync(log, "utf8"), "a\nb\n");
  assert.deepEqual([existsSync(times), existsSync(places)], [false, false], "what lacks an entry gets no later one");
});

test("a log that cannot be written fails with its own reason", (t) => {
  const { times, later } = setUp(t, "/dev/full");
  assert.throws(() => later(0, "a\n"), { code: "ENOSPC", message: /no space left on device, write/ });
  assert.ok(existsSync(times));
});
