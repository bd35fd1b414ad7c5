import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { humanLog } from "../../../lib/cli/bucket/logs.ts";
import { runLogLines } from "../../../lib/cli/server/run-logs.ts";
import { ops } from "../../helpers/command-line.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const [FIRST, SECOND] = ["0190a5e8-0000-7000-8000-000000000001", "0190a5e9-0000-7000-8000-000000000002"];

async function withLogs(t: TestContext): Promise<(...flags: string[]) => ReturnType<typeof ops>> {
  const { dir, layout } = await makeBucket(t);
  const write = (file: string, ...lines: string[]) => {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, lines.map((line) => `${line}\n`).join(""));
  };
  const one = (second: number, run: string, rest: string) =>
    `ts=2026-01-01T00:00:0${second}.000Z level=info run=${run} ops=deploy ${rest}`;
  write(path.join(layout.logs, "ops.log"), one(1, FIRST, "worker=- msg=begin"), one(5, SECOND, "worker=- msg=again"));
  write(
    path.join(layout.logs, "10.0.0.1.log"),
    one(2, FIRST, 'event=command_begin worker=10.0.0.1 job=web phase=rollout cmd="make start"'),
    one(3, FIRST, 'worker=10.0.0.1 job=web phase=rollout stream=stderr msg="oh \\u001b[31mno"'),
    one(4, FIRST, "event=command_end worker=10.0.0.1 job=web phase=rollout exit=2 duration_ms=1500"),
  );
  write(path.join(layout.runs, FIRST, "ops.log"), one(1, FIRST, "worker=- msg=mine"));
  return (...flags) => ops(["logs", "--bucket-dir", dir, ...flags], { cwd: path.dirname(layout.runs) });
}

test("ops logs shows what runs said, command by command", async (t) => {
  const logs = await withLogs(t);
  const { stdout, code } = await logs();
  assert.equal(code, 0);
  assert.equal(
    stdout,
    [
      "2026-01-01 00:00:01  deploy  run=00000001",
      "  begin",
      "  web@10.0.0.1 $ make start",
      "  web@10.0.0.1 ! oh \\x1b[31mno",
      "  web@10.0.0.1 FAIL, exit 2, 1.5 s",
      "2026-01-01 00:00:05  deploy  run=00000002",
      "  again",
      "",
    ].join("\n"),
  );
});

test("ops logs filters, takes the last lines and prints JSON", async (t) => {
  const logs = await withLogs(t);
  const json = async (...flags: string[]) =>
    (await logs("--json", ...flags)).stdout
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line));
  assert.deepEqual(
    (await json("--event", "command_end")).map((one) => one.exit),
    ["2"],
  );
  assert.deepEqual(
    (await json("--worker", "-", "--tail", "1")).map((one) => one.msg),
    ["again"],
  );
  assert.deepEqual(
    (await json("--run", "0190a5e9")).map((one) => one.msg),
    ["again"],
  );
  assert.deepEqual(
    (await json("--run", FIRST)).map((one) => one.msg),
    ["mine"],
    "the run's own folder",
  );
  for (const [part, said] of [
    [FIRST.slice(-8), "mine"],
    [FIRST.slice(0, 8), "mine"],
    [SECOND.slice(-8), "again"],
  ] as const)
    assert.deepEqual(
      (await json("--run", part)).map((one) => one.msg),
      [said],
      part,
    );
  assert.deepEqual(await json("--job", "other"), []);
  assert.deepEqual(
    (await json("--run-dir", `runs/${FIRST}`)).map((one) => one.msg),
    ["mine"],
  );
  assert.match((await logs("--format", "raw", "--tail", "1")).stdout, /^ts=2026-01-01T00:00:05.000Z .* msg=again\n$/);
});

test("--tail has the last lines, however many there are", async (t) => {
  const { layout } = await makeBucket(t);
  for (let count = 0; count <= 8; count++) {
    const lines = Array.from({ length: count }, (_, index) => `ts=2026-01-01T00:00:0${index}.000Z level=info msg=line-${index}`);
    writeFileSync(path.join(layout.logs, "ops.log"), lines.map((line) => `${line}\n`).join(""));
    for (const tail of [0, 1, 2, undefined]) {
      const found = await Array.fromAsync(runLogLines(layout, { filter: {}, tail }), ({ text }) => text);
      assert.deepEqual(found, lines.slice(tail === undefined ? 0 : lines.length - Math.min(tail, count)), `${tail} of ${count}`);
    }
  }
});

test("a run that ops logs does not find is an error; a run without a line of a job is none", async (t) => {
  const logs = await withLogs(t);
  const unknown = await logs("--run", "nope");
  assert.deepEqual([unknown.code, unknown.stdout, unknown.stderr], [1, "", 'ops: there is no run "nope"\n']);
  assert.deepEqual(await logs("--run", FIRST, "--job", "other"), { code: 0, stdout: "", stderr: "" });
});

test("only a line feed ends a line of a log, none of the other characters that end lines elsewhere", async (t) => {
  const { dir, layout } = await makeBucket(t);
  mkdirSync(layout.logs, { recursive: true });
  const text = "a\u2028b\u2029c\u0085d";
  writeFileSync(path.join(layout.logs, "ops.log"), `ts=2026-01-01T00:00:00.000Z run=${FIRST} msg=${JSON.stringify(text)}\n`);
  const { stdout } = await ops(["logs", "--json", "--bucket-dir", dir]);
  assert.equal(JSON.parse(stdout).msg, text);
});

test("wrong flags of ops logs are wrong usage", async (t) => {
  const logs = await withLogs(t);
  for (const flags of [
    ["--format", "xml"],
    ["--tail", "-1"],
    ["--run", "019"],
    ["--worker", "a,,b"],
  ])
    assert.equal((await logs(...flags)).code, 2, flags.join(" "));
});

test("output of commands that run at the same time does not mix", () => {
  const shown: string[] = [];
  const log = humanLog((text) => shown.push(text));
  const line = (worker: string, rest: Record<string, string>) =>
    log.line({ ts: "2026-01-01T00:00:00.000Z", level: "info", run: FIRST, ops: "deploy", worker, job: "web", ...rest });
  line("a", { event: "command_begin", cmd: "one" });
  line("b", { event: "command_begin", cmd: "two" });
  line("a", { stream: "stdout", msg: "1" });
  line("b", { stream: "stdout", msg: "2" });
  line("a", { event: "command_end", exit: "0", duration_ms: "100" });
  const first = ["  web@a $ one", "  web@a | 1", "  web@a ok, 0.1 s"];
  assert.deepEqual(shown.slice(1), first);
  line("b", { run: SECOND, event: "command_begin", cmd: "three" });
  const second = ["  web@b $ two", "  web@b | 2", "2026-01-01 00:00:00  deploy  run=00000002"];
  assert.deepEqual(shown.slice(1), [...first, ...second], "what has no end is shown before the next run");
  for (let times = 0; times < 2; times++) log.end();
  assert.deepEqual(shown.slice(1), [...first, ...second, "  web@b $ three"]);
});
