import assert from "node:assert/strict";
import fs, { mkdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../../lib/bucket/base/layout.ts";
import type { LinePlace } from "../../../lib/bucket/base/line-place.ts";
import { RunLog, readLogs } from "../../../lib/bucket/base/logs.ts";
import { Redactor } from "../../../lib/core/redact.ts";
import { openFiles, temporaryFolder } from "../../helpers/temporary.ts";

const RUN = "019a0000-0000-7000-8000-000000000000";

function openLog(t: TestContext, { format = "kv" as "kv" | "json", outputLimit = 2 ** 20 } = {}) {
  const layout = layoutOf(temporaryFolder(t));
  const redactor = new Redactor();
  const said: string[] = [];
  const places: LinePlace[] = [];
  const activity = (text: string, { job, worker, stream }: LinePlace) => {
    said.push(text);
    places.push({ job, worker, stream });
  };
  const log = new RunLog({ layout, runId: RUN, command: "deploy", redactor, activity, format, outputLimit });
  t.after(() => log.close());
  const read = (file: string) => readFileSync(path.join(layout.logs, file), "utf8");
  return { layout, redactor, log, said, places, read };
}

test("HR-023 HR-024 HR-025 a structured line has time, run, phase and payload, in the bucket's log and in the run's copy", (t) => {
  const { log, said, read } = openLog(t);
  log.updateSeq = 7;
  log.output("web", "10.0.0.1", 'said "a=b"', { stream: "stderr", phase: "rollout", action: "start" });
  log.warn("slow disk");
  assert.deepEqual(said, ['web@10.0.0.1 ! said "a=b"\n', "warning: slow disk\n"]);
  const line = `level=info run=${RUN} ops=deploy seq=7 worker=10.0.0.1 job=web phase=rollout action=start stream=stderr msg="said \\"a=b\\""\n`;
  assert.match(read("10.0.0.1.log"), /^ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z /);
  assert.ok(read("10.0.0.1.log").endsWith(line));
  assert.equal(read(`runs/${RUN}/10.0.0.1.log`), read("10.0.0.1.log"));
  assert.match(read("ops.log"), /^ts=\S+ level=warn .*worker=- phase=deploy msg="slow disk"\n$/);
});

test("HR-024 log_format json gives the same keys as JSON, numbers as numbers", (t) => {
  const { log, read } = openLog(t, { format: "json" });
  log.updateSeq = 3;
  log.record({ event: "command_end", worker: "10.0.0.1", exit: 2, duration_ms: 15 });
  const { ts, ...rest } = JSON.parse(read("10.0.0.1.log"));
  assert.match(ts, /Z$/);
  assert.deepEqual(rest, {
    level: "info",
    event: "command_end",
    run: RUN,
    ops: "deploy",
    seq: 3,
    worker: "10.0.0.1",
    phase: "deploy",
    exit: 2,
    duration_ms: 15,
  });
});

test("a known secret is masked in Activity and in the files, also one that turns up during the run", (t) => {
  const { log, redactor, said, read } = openLog(t);
  redactor.add("correct horse");
  log.output("web", "10.0.0.1", `it is correct horse, ${Buffer.from("correct horse").toString("base64")}`, { stream: "stdout" });
  assert.equal(said[0], "web@10.0.0.1 | it is ***, ***\n");
  assert.match(read("10.0.0.1.log"), /msg="it is \*\*\*, \*\*\*"/);
});

test("HR-022 the file of a worker has its address for a name, colons too, and is the owner's alone", (t) => {
  const { layout, log } = openLog(t);
  log.record({ worker: "fd00::1", msg: "x" });
  assert.equal(statSync(path.join(layout.logs, "fd00::1.log")).mode & 0o777, 0o600);
  assert.equal(statSync(layout.runs).mode & 0o777, 0o700);
});

test("CP-145 HR-022 HR-023 lines of workers named ops and activity are in no file that is the bucket's or the run's", async (t) => {
  const { layout, log, read } = openLog(t);
  const run = runLayout(layout, RUN);
  mkdirSync(run.folder, { recursive: true });
  writeFileSync(run.activity, "what the run said\n");
  log.info("of the bucket");
  for (const worker of ["ops", "activity"]) log.record({ worker, msg: `of ${worker}` });
  assert.equal(readFileSync(run.activity, "utf8"), "what the run said\n");
  for (const folder of [layout.logs, run.folder]) {
    const found: string[] = [];
    for await (const { entry } of readLogs(folder, { worker: ["ops", "activity"] })) found.push(String(entry.msg));
    assert.deepEqual(found.sort(), ["of activity", "of ops"]);
  }
  assert.match(read("ops.log"), /^[^\n]*msg="of the bucket"\n$/);
});

test("HR-022 a worker with the longest name that a host may have has a log, which can move aside", (t) => {
  const { layout, log, read } = openLog(t);
  const worker = `${`${"a".repeat(61)}.`.repeat(4)}bcdef`;
  assert.equal(worker.length, 253);
  log.record({ worker, msg: "first" });
  log.close();
  const file = `${worker.slice(0, 249)}.log`;
  truncateSync(path.join(layout.logs, file), 32 * 1024 * 1024);
  log.record({ worker, msg: "second" });
  assert.match(read(file), /^[^\n]*msg=second\n$/);
  assert.match(read(`${file}.1`), /msg=first\n/);
});

test("the bucket's log moves aside at 32 MiB, one old file is kept, the run's copy stays whole", (t) => {
  const { layout, log, read } = openLog(t);
  log.info("first");
  log.close();
  truncateSync(path.join(layout.logs, "ops.log"), 32 * 1024 * 1024);
  writeFileSync(path.join(layout.logs, "ops.log.1"), "older");
  log.info("second");
  assert.equal(read("ops.log").match(/msg=/g)?.length, 1);
  assert.ok(statSync(path.join(layout.logs, "ops.log.1")).size >= 32 * 1024 * 1024);
  assert.equal(read(`runs/${RUN}/ops.log`).match(/msg=/g)?.length, 2);
});

test("T-100 a secret that a command prints in quotes is masked before the line is quoted itself", (t) => {
  const { log, read } = openLog(t);
  const secret = 'with "quotes" and \\ in it';
  log.redactor.add(secret);
  log.output("web", "10.0.0.1", `{"password":${JSON.stringify(secret)}}`, { stream: "stdout" });
  log.error(`cannot use ${JSON.stringify(secret)}`);
  for (const file of ["10.0.0.1.log", "ops.log"]) {
    assert.doesNotMatch(read(file), /quotes|in it/);
    assert.match(read(file), /\*\*\*/);
  }
});

test("CP-350 CP-351 a worker's output beyond the limit is left out, and a line says how much; other lines are not", (t) => {
  const { log, said, read } = openLog(t, { outputLimit: 2_000 });
  const print = (worker: string, line: string) => log.output(undefined, worker, line, { stream: "stdout" });
  for (let number = 1; number <= 100; number++) print("10.0.0.1", `line ${String(number).padStart(3, "0")}`);
  const shown = said.length - 1;
  assert.ok(shown > 0 && shown < 100);
  assert.deepEqual(said.splice(-2), [
    `10.0.0.1 | line ${String(shown).padStart(3, "0")}\n`,
    "10.0.0.1 ! … from here on this worker's output is left out (run_output_limit)\n",
  ]);
  said.length = 0;
  print("10.0.0.2", "another worker");
  log.remark("web", "10.0.0.1", "a sentence of ops", { stream: "stderr" });
  log.endOutput();
  log.endOutput();
  assert.deepEqual(said, [
    "10.0.0.2 | another worker\n",
    "web@10.0.0.1 ! a sentence of ops\n",
    `10.0.0.1 ! … ${(100 - shown) * 9} B more of this worker's output were left out (run_output_limit)\n`,
  ]);
  for (const file of ["10.0.0.1.log", `runs/${RUN}/10.0.0.1.log`]) {
    const lines = read(file).trimEnd().split("\n");
    assert.equal(lines.length, shown + 3);
    const output = lines.slice(0, shown).map((line) => line.length + 1);
    assert.ok(output.reduce((sum, length) => sum + length, 0) < 2_000 + Math.max(...output));
  }
});

test("each line of Activity has its place, and the sentences of ops their level in ops.log", (t) => {
  const { log, said, places, read } = openLog(t);
  const about = { job: "web", worker: "10.0.0.1" };
  log.info("begins", about);
  log.info("of nobody");
  log.warn("odd", { worker: "10.0.0.1" });
  log.error("bad", about);
  log.restores("goes back", about);
  log.output("web", "10.0.0.1", "a\nb", { stream: "stderr" });
  log.remark("web", "10.0.0.1", "skipped", { stream: "stdout" });
  const none = { job: undefined, worker: undefined };
  assert.deepEqual(
    said.map((text, index) => [text, places[index]]),
    [
      ["begins\n", { ...about, stream: "ops" }],
      ["of nobody\n", { ...none, stream: "ops" }],
      ["warning: odd\n", { ...none, worker: "10.0.0.1", stream: "ops" }],
      ["error: bad\n", { ...about, stream: "error" }],
      ["goes back\n", { ...about, stream: "restore" }],
      ["web@10.0.0.1 ! a\nweb@10.0.0.1 ! b\n", { ...about, stream: "stderr" }],
      ["web@10.0.0.1 | skipped\n", { ...about, stream: "stdout" }],
    ],
  );
  const told = (file: string) =>
    [...read(file).matchAll(/level=(\w+) .*msg=(.*)\n/g)].map(([, level, text]) => `${level} ${text}`);
  assert.deepEqual(told("ops.log"), ["info begins", 'info "of nobody"', "warn odd", "error bad", 'info "goes back"']);
  assert.deepEqual(told("10.0.0.1.log"), ['info "a\\nb"', "info skipped"]);
});

test("a field that says nothing is left out, and one with a blank, a quote or an equals sign is quoted", (t) => {
  const { log, read } = openLog(t);
  log.record({ worker: "w", phase: "p", reason: "", cmd: `${"x".repeat(199)} y`, msg: "plain" }, "error");
  log.record({ worker: "w", action: 'a"b', event: "c=d", job: "e\tf", msg: "g" });
  const [first = "", second = ""] = read("w.log").split("\n");
  assert.equal(
    first.replace(/^ts=\S+ /, ""),
    `level=error run=${RUN} ops=deploy worker=w phase=p cmd="${"x".repeat(199)} " msg=plain`,
  );
  assert.equal(
    second.replace(/^ts=\S+ /, ""),
    `level=info event="c=d" run=${RUN} ops=deploy worker=w job="e\\tf" phase=deploy action="a\\"b" msg=g`,
  );
});

test("a line that cannot be written fails the run by the name of the file", (t) => {
  const { layout, log } = openLog(t);
  mkdirSync(path.join(layout.logs, "w.log"), { recursive: true });
  const cannot = (file: string) => ({ code: "failed", message: new RegExp(`^Cannot write ${file}: `) });
  assert.throws(() => log.record({ worker: "w", msg: "x" }), cannot(path.join(layout.logs, "w.log")));
  const activity = () => {
    throw new Error("no room");
  };
  const full = new RunLog({ layout, runId: RUN, command: "deploy", redactor: new Redactor(), activity, format: "kv" });
  const { activity: file } = runLayout(layout, RUN);
  assert.throws(() => full.info("x"), { code: "failed", message: `Cannot write ${file}: no room` });
});

test("HR-022 a log takes at most a quarter of the files that a process may open, and lines of all workers are written", (t) => {
  const limits = t.mock.method(
    fs,
    "readFileSync",
    () => "Max open files            20                   20                   files\n",
  );
  syncBuiltinESMExports();
  const { layout, log } = openLog(t);
  limits.mock.restore();
  syncBuiltinESMExports();
  const opened = () => openFiles().filter((file) => file.startsWith(layout.root)).length;
  for (const round of [1, 2])
    for (let index = 0; index < 6; index++) {
      log.record({ worker: `w${index}`, msg: `${round}` });
      assert.ok(opened() <= 5, `${opened()} files`);
    }
  assert.equal(opened(), 5);
  for (let index = 0; index < 6; index++)
    for (const file of [`w${index}.log`, `runs/${RUN}/w${index}.log`])
      assert.deepEqual(readFileSync(path.join(layout.logs, file), "utf8").match(/msg=\d/g), ["msg=1", "msg=2"], file);
  log.close();
  assert.equal(opened(), 0);
});

test("a log that cannot be moved aside fails the run, and is closed once", (t) => {
  const { layout, log } = openLog(t);
  log.record({ msg: "first" });
  log.close();
  const file = path.join(layout.logs, "ops.log");
  truncateSync(file, 32 * 1024 * 1024);
  mkdirSync(`${file}.1/x`, { recursive: true });
  const cannot = { code: "failed", message: new RegExp(`^Cannot write ${file}: `) };
  assert.throws(() => log.record({ msg: "second" }), cannot);
  log.close();
  assert.throws(() => log.record({ msg: "third" }), cannot);
  truncateSync(file, 32 * 1024 * 1024 - 1);
  log.record({ msg: "fourth" });
  assert.match(readFileSync(file, "latin1").slice(-200), /msg=fourth\n$/);
});
