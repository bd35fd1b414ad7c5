import assert from "node:assert/strict";
import { test } from "node:test";
import { activityPrinter, EXIT_OF, Lines, liveLines, showResult } from "../../../lib/cli/bucket/output.ts";
import { factsTable, foldWorkers, sysstatTable, uptimeTable } from "../../../lib/cli/bucket/results.ts";
import { NO_DEPLOY } from "../../../lib/run/progress.ts";
import { printed } from "../../helpers/printed.ts";

const FACTS = { hostname: "h", os: "debian", arch: "x64", cpu_count: 4, cpu_mhz: null, memory_mb: 2_048, addresses: ["a", "b"] };
const disk = (mount: string, used_bytes: number, available_bytes: number) => ({ mount, used_bytes, available_bytes });

/** The words of a table's rows, where two blanks or more stand between them. */
function rowsOf(text: string): string[][] {
  return text
    .trimEnd()
    .split("\n")
    .map((line) => line.split(/ {2,}/));
}

test("the facts of workers: memory in units, the fullest disk, and dashes where a worker did not answer", () => {
  const facts = { ...FACTS, disks: [disk("/", 1, 3), disk("/data", 3, 1), disk("/none", 0, 0)] };
  const workers = [
    { worker: "w1", outcome: "ok", facts },
    { worker: "w2", outcome: "not_started", facts: null },
    { worker: "w3", outcome: "ok", facts: { ...FACTS, disks: [] } },
  ];
  const dashes = Array.from({ length: 8 }, () => "-");
  assert.deepEqual(rowsOf(factsTable({ workers })), [
    ["worker", "outcome", "hostname", "os", "arch", "cpus", "mhz", "memory", "disk_used", "addresses"],
    ["w1", "ok", "h", "debian", "x64", "4", "-", "2.0 GiB", "75 % /data", "a b"],
    ["w2", "not started", ...dashes],
    ["w3", "ok", "h", "debian", "x64", "4", "-", "2.0 GiB", "-", "a b"],
  ]);
  for (const nothing of [null, {}, { workers: {} }]) assert.equal(factsTable(nothing), "");
  for (const [only, shown] of [
    [disk("/tiny", 1, 0), "100 % /tiny"],
    [disk("/none", 0, 0), "0 % /none"],
  ] as const)
    assert.match(
      factsTable({ workers: [{ worker: "w", outcome: "ok", facts: { ...FACTS, disks: [only] } }] }),
      new RegExp(`  ${shown}  `),
    );
});

test("how long a worker is up is told in its two largest units", () => {
  const up = (uptime_s: number) => {
    const uptime = { load1: 1, load5: 2, load15: 3, uptime_s };
    const [head, row] = rowsOf(uptimeTable({ workers: [{ worker: "w", outcome: "ok", uptime }] }));
    assert.deepEqual(head, ["worker", "outcome", "load1", "load5", "load15", "up"]);
    return row?.map((cell) => cell.trim()).slice(2);
  };
  const spans: [seconds: number, text: string][] = [
    [59, "0 min"],
    [60, "1 min"],
    [3_599, "59 min"],
    [3_600, "1 h 0 min"],
    [86_399, "23 h 59 min"],
    [86_400, "1 d 0 h"],
    [90_000 + 86_400, "2 d 1 h"],
  ];
  for (const [seconds, text] of spans) assert.deepEqual(up(seconds), ["1", "2", "3", text]);
});

test("the load of a worker: shares, the busiest disk, and what all disks and interfaces do together", () => {
  const found = {
    ...{ cpu_pct: 7, mem_used_bytes: 4_096, mem_total_bytes: 4_096, mem_swap_used_bytes: 0, mem_swap_total_bytes: 0 },
    disk: [
      { busy_pct: 5, read_bytes_per_s: 1_024, write_bytes_per_s: 10 },
      { busy_pct: 9, read_bytes_per_s: 1_024, write_bytes_per_s: 20 },
    ],
    net: [
      { rx_bytes_per_s: 1, tx_bytes_per_s: 3 },
      { rx_bytes_per_s: 1, tx_bytes_per_s: 4 },
    ],
  };
  const row = (sysstat: object) => rowsOf(sysstatTable({ workers: [{ worker: "w", outcome: "ok", sysstat }] }))[1];
  assert.deepEqual(row(found), [...["w", "ok", "7 %", "100 % of 4.0 KiB", "-", "9 %", "2.0 KiB", "30 B", "2 B", "7 B"]]);
  assert.equal(row({ ...found, disk: [] })?.[5], "-");
  const [head] = rowsOf(sysstatTable({ workers: [] }));
  const columns = ["cpu", "memory", "swap", "disk_busy", "read/s", "write/s", "received/s", "sent/s"];
  assert.deepEqual(head, ["worker", "outcome", ...columns]);
});

test("groups of one size: those that failed come first", () => {
  const result = (worker: string, outcome: "ok" | "failed" | "not_started") => {
    const rest = { exit_code: 0, output_sha256: "1", duration_ms: 1, output: "" };
    return { ...rest, worker, outcome, error: outcome === "ok" ? null : "why" };
  };
  const same = foldWorkers([result("a", "failed"), { ...result("b", "failed"), error: "another" }]);
  assert.deepEqual(
    same.map(({ how }) => how),
    ["failed: why", "failed: another"],
  );
  const folds = foldWorkers([result("a", "ok"), result("b", "not_started"), result("c", "failed")]);
  assert.deepEqual(
    folds.map(({ how }) => how),
    ["not started: why", "failed: why", "ok"],
  );
});

test("Activity goes where the view says; in a document errors stay in their place", async (t) => {
  const lines = ["begin\n", "warning: old\n", "error: broken\n", "an error: none\n"];
  const shown = async (...how: [view: Parameters<typeof activityPrinter>[0], isWhole?: boolean]) => {
    const [view, isWhole] = how;
    const { out, err } = await printed(t, () => lines.forEach(activityPrinter(view, "deploy", {}, isWhole)));
    return [out, err];
  };
  const show = () => "";
  const [begin, warning, error, other] = lines;
  assert.deepEqual(await shown(undefined), [`${begin}${warning}${other}`, error]);
  assert.deepEqual(await shown(undefined, true), [lines.join(""), ""]);
  assert.deepEqual(await shown({ show, meanwhile: "before" }), [`${begin}${warning}${other}`, error]);
  assert.deepEqual(await shown({ show, meanwhile: "aside" }), ["", lines.join("")]);
  assert.deepEqual(await shown({ show, meanwhile: "quiet" }), ["", `${warning}${error}`]);
  assert.deepEqual(EXIT_OF, { succeeded: 0, failed: 1, cancelled: 130, running: 1 });
  const fine = await printed(t, () => showResult({ show: (result) => `${result}\n`, meanwhile: "before" }, 5));
  assert.deepEqual(fine, { out: "5\n", err: "", answer: true });
  assert.deepEqual(await printed(t, () => showResult(undefined, 5)), { out: "", err: "", answer: true });
  const broken = () => {
    throw new Error("no such form");
  };
  const refused = await printed(t, () => showResult({ show: broken, meanwhile: "before" }, 5));
  assert.deepEqual([refused.out, refused.answer], ["", false]);
  assert.match(refused.err, /^error: [^\n]*no such form/);
});

test("a log that comes in pieces is handed out in whole lines, and read on from where each piece ends", async () => {
  const handed: string[] = [];
  const lines = new Lines((text) => handed.push(text));
  const pieces = [
    { data: "one\ntw", next: 6, done: false },
    { data: "o\n\nth", next: 11, done: false },
    { data: "ree", next: 14, done: true },
  ];
  const asked: number[] = [];
  const next = async (after: number) => {
    asked.push(after);
    return pieces.shift() as (typeof pieces)[number];
  };
  await lines.follow(next, 2, new AbortController().signal);
  assert.deepEqual(
    [handed, asked],
    [
      ["one\n", "two\n", "\n", "three\n"],
      [2, 6, 11],
    ],
  );
  lines.end();
  assert.equal(handed.length, 4);
  lines.add("left");
  const lost = async () => {
    throw new Error("lost");
  };
  await assert.rejects(lines.follow(lost, 0, new AbortController().signal), { message: "lost" });
  assert.equal(handed[4], "left\n");
});

test("why a run failed is told where none of the last 50 lines has it", () => {
  const after = (count: number, status: "failed" | "succeeded" = "failed", error: string | null = "killed") => {
    const lines = new Lines(() => {});
    lines.add(`error: killed\n${"x\n".repeat(count)}`);
    return lines.untold({ status, error });
  };
  assert.deepEqual([after(0), after(49), after(50)], [undefined, undefined, "killed"]);
  assert.deepEqual([after(50, "succeeded"), after(50, "failed", null)], [undefined, undefined]);
});

test("the live lines name eight jobs and three waits, and count the others", () => {
  const one = {
    job: "web",
    action: "restart",
    batch: 0,
    batches: 1,
    gate: "" as const,
    workers: 1,
    done: 0,
    running: 1,
    failed: 0,
    hosts: [],
  };
  const progress = (jobs: number) => ({
    ...{ ...NO_DEPLOY, phase: "p", done: 0, total: 1, cancel: null, waiting: [] },
    rollouts: Array.from({ length: jobs }, () => one),
  });
  const line = "  web: restart: 0 of 1 worker done, 1 running, 0 failed";
  assert.deepEqual(liveLines(progress(8), 0), ["p: 0 of 1 done", ...Array.from({ length: 8 }, () => line)]);
  assert.deepEqual(liveLines(progress(9), 0).slice(8), [line, "  and 1 more job"]);
  const since = new Date(5_000).toISOString();
  const rest = { reason: "other" as const, job: null, worker: null, detail: "", more: 0 };
  const waiting = Array.from({ length: 3 }, (_, index) => ({ ...rest, on: `w${index}`, since, until: null }));
  assert.equal(liveLines({ ...progress(0), waiting }, 6_499).at(-1), "  waiting: w0 1 s, w1 1 s, w2 1 s");
  assert.equal(liveLines({ ...progress(0), waiting: waiting.slice(0, 1) }, 0).at(-1), "  waiting: w0 0 s");
  assert.deepEqual(liveLines(progress(0), 0), ["p: 0 of 1 done"]);
});
