import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { matchesLog, parseLogLine, RunLog, readLogs } from "../../../lib/bucket/base/logs.ts";
import { Redactor } from "../../../lib/core/redact.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const RUN = "0190a5e8-0000-7000-8000-000000000001";
const FIELDS = {
  event: "command_end",
  worker: "10.0.0.1",
  job: "web",
  phase: "rollout",
  action: "start",
  cmd: 'make "x"=1',
  exit: 2,
  duration_ms: 12,
  reason: "a b",
  msg: 'tab\there "and" = \\ there',
};

for (const format of ["kv", "json"] as const)
  test(`what a run writes as ${format} is read back field by field`, async (t) => {
    const layout = layoutOf(temporaryFolder(t));
    const log = new RunLog({ layout, runId: RUN, command: "deploy", format, redactor: new Redactor(), activity: () => {} });
    log.updateSeq = 7;
    log.record(FIELDS);
    log.close();
    const lines = await Array.fromAsync(readLogs(layout.logs, {}));
    assert.equal(lines.length, 1);
    const { ts, ...entry } = lines[0]?.entry ?? {};
    assert.match(ts ?? "", /^\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z$/);
    assert.deepEqual(entry, { level: "info", run: RUN, ops: "deploy", seq: "7", ...FIELDS, exit: "2", duration_ms: "12" });
  });

test("a command is written with at most 200 characters", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const log = new RunLog({
    layout,
    runId: RUN,
    command: "run_command",
    format: "kv" as const,
    redactor: new Redactor(),
    activity: () => {},
  });
  log.record({ cmd: "x".repeat(500) });
  log.close();
  const [line] = await Array.fromAsync(readLogs(layout.logs, {}));
  assert.equal(line?.entry.cmd, "x".repeat(200));
});

for (const [what, line] of [
  ["an empty line", ""],
  ["a line without a time", "level=info msg=x"],
  ["a line cut inside of a value", 'ts=2026-01-01T00:00:00.000Z msg="half'],
  ["JSON cut by a crash", '{"ts":"2026-01-01T00:0'],
  ["a JSON list", '["ts"]'],
  ["prose", "something else"],
] as const)
  test(`${what} is no log line`, () => assert.equal(parseLogLine(line), undefined));

for (const [field, value, wanted, expected] of [
  ["run", RUN, "0190a", true],
  ["run", RUN, "0190b", false],
  ["worker", "10.0.0.1", "10.0.0.1", true],
  ["worker", "10.0.0.17", "10.0.0.1", false],
  ["worker", "10.0.0.17", "10.0", true],
  ["worker", "10.0.0.17:22", "10.0.0.1", false],
  ["job", "web_front", "web", true],
  ["job", "webfront", "web", false],
  ["event", "command_end", "command", true],
] as const)
  test(`${field} ${value} ${expected ? "matches" : "does not match"} ${wanted}`, () =>
    assert.equal(matchesLog({ [field]: value }, { [field]: ["nothing", wanted] }), expected));

test("the logs of a folder are merged by time, rotated ones included, activity.log left alone", async (t) => {
  const folder = temporaryFolder(t);
  const write = (name: string, ...lines: [number, string][]) =>
    writeFileSync(
      path.join(folder, name),
      lines.map(([second, msg]) => `ts=2026-01-01T00:00:0${second}.000Z worker=w msg=${msg}\n`).join(""),
    );
  write("ops.log", [3, "c"], [6, "f"]);
  write("ops.log.1", [1, "a"]);
  write("10.0.0.1.log", [2, "b"], [4, "d"]);
  write("fe80::1.log", [5, "e"]);
  write("activity.log", [0, "never"]);
  mkdirSync(path.join(folder, "runs"));
  const lines = await Array.fromAsync(readLogs(folder, {}));
  assert.equal(lines.map(({ entry }) => entry.msg).join(""), "abcdef");
  assert.deepEqual(await Array.fromAsync(readLogs(path.join(folder, "nowhere"), {})), []);
});

test("what stands in the place of a log and is none is told, and not passed over", async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(path.join(folder, "w.log"));
  await assert.rejects(Array.fromAsync(readLogs(folder, {})), { code: "file_not_found" });
});

test("lines that are no log lines, and those that do not match, are left out", async (t) => {
  const folder = temporaryFolder(t);
  const line = (msg: string, worker = "w") => `ts=2026-01-01T00:00:00.000Z worker=${worker} msg=${msg}\n`;
  writeFileSync(
    path.join(folder, "a.log"),
    `${line("1")}half\n${line("2", "v")}{"ts": 5}\n{"ts": "2026", "worker": "w", "msg": 3}\n`,
  );
  writeFileSync(path.join(folder, "a.logs"), line("4"));
  const read = async (filter: object) => (await Array.fromAsync(readLogs(folder, filter))).map(({ entry }) => entry.msg).join("");
  assert.deepEqual(
    [await read({}), await read({ worker: ["w"] }), await read({ worker: ["v"], phase: ["x"] }), await read({ worker: [] })],
    ["123", "13", "", ""],
  );
});
