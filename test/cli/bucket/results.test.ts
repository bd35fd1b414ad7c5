import assert from "node:assert/strict";
import { chmodSync, readdirSync, readFileSync, statSync } from "node:fs";
import { cpus, totalmem } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { factsTable, sysstatTable } from "../../../lib/cli/bucket/results.ts";
import { generateWorkers } from "../../../lib/cli/bucket/workspace.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

async function bucket(t: TestContext, more: Record<string, unknown>[] = []) {
  const dir = temporaryFolder(t);
  assert.equal((await ops(["init", "--bucket-dir", dir])).code, 0);
  const root = temporaryFolder(t);
  makeWorkspace(dir, {
    workers: [
      { tags: { b: "x", a: "y" }, CPU: "1 ghz", host: "127.0.0.1", connection: "local", root, labels: ["one"] },
      { host: "127.0.0.2", connection: "local", root: `${root}/2` },
      ...more,
    ],
  });
  assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
  const file = path.join(dir, "workspace", "workers.json");
  return { dir, file, worker: (...args: string[]) => ops(["worker", ...args], { cwd: dir }) };
}

test("ops worker facts, uptime and sysstat print a table, and with --json the result", async (t) => {
  const { worker } = await bucket(t);
  const table = await worker("facts");
  assert.deepEqual([table.code, table.stderr], [0, ""]);
  assert.match(table.stdout, /^worker +outcome +hostname +os +arch +cpus +mhz +memory +disk_used +addresses\n127\.0\.0\.1 +ok /);
  assert.match((await worker("uptime")).stdout, /^worker +outcome +load1 +load5 +load15 +up\n127\.0\.0\.1 +ok +\d/);
  const busy = await worker("sysstat", "--labels", "one");
  assert.match(
    busy.stdout,
    /^worker +outcome +cpu +memory +swap +disk_busy +read\/s +write\/s +received\/s +sent\/s\n127\.0\.0\.1 +ok +[\d.]+ % +\d+ % of .*\n$/,
  );
  const { stdout, stderr } = await worker("uptime", "--json", "-w", "127.0.0.2", "-c", "1");
  const { workers } = JSON.parse(stdout);
  assert.deepEqual(Object.keys(workers[0]), ["worker", "outcome", "error", "uptime"]);
  assert.deepEqual(Object.keys(workers[0].uptime), ["load1", "load5", "load15", "uptime_s"]);
  assert.equal(workers.length, 1);
  assert.match(stderr, /1 of 1 worker is ok\nworker_uptime succeeded in [\d.]+ s\n$/);
});

test("a worker that cannot be reached has its row, its error is on stderr and the exit code is 1", async (t) => {
  const { worker } = await bucket(t, [{ host: "127.0.0.3", ssh_port: 1 }]);
  const { code, stdout, stderr } = await worker("uptime");
  assert.equal(code, 1);
  assert.match(stdout, /\n127\.0\.0\.3 +failed +- +- +- +-\n$/);
  assert.match(
    stderr,
    /^error: 127\.0\.0\.3: .* there is no private key .*\nerror: worker_uptime failed after [\d.]+ s: 1 of 3 workers are not ok: 127\.0\.0\.3 \(failed\)\n$/,
  );
});

test("HR-127 HR-128 --generate-workers writes memory and processors into workers.json only, all else stays as it was", async (t) => {
  const { file, worker } = await bucket(t);
  chmodSync(file, 0o640);
  const before = readFileSync(file, "utf8");
  const dry = await worker("facts", "--generate-workers", "--dry-run");
  assert.equal(dry.code, 0, dry.stderr);
  assert.match(dry.stdout, /^@@ .*\n(.*\n)*workspace\/workers\.json would be written\n$/);
  assert.equal(readFileSync(file, "utf8"), before);
  const written = await worker("facts", "--generate-workers");
  assert.match(written.stdout, /\+ {4}"memory": "\d+ mb"(.*\n)*workspace\/workers\.json was written\n$/);
  const memory = `${Math.ceil(totalmem() / 1024 / 1024)} mb`;
  const [first, second] = JSON.parse(readFileSync(file, "utf8"));
  assert.deepEqual(Object.keys(first), ["tags", "CPU", "host", "connection", "root", "labels", "memory"]);
  assert.deepEqual(first.tags, { b: "x", a: "y" });
  assert.equal(first.memory, memory);
  assert.deepEqual(Object.keys(second), ["host", "connection", "root", "memory", "cpu"]);
  const mhz = /^(\d+) mhz$/.exec(second.cpu)?.[1];
  assert.equal(Number(mhz) % cpus().length, 0);
  assert.match(readFileSync(file, "utf8"), /^\[\n {2}\{\n {4}"tags": \{ /);
  assert.equal(statSync(file).mode & 0o777, 0o640);
  assert.deepEqual(readdirSync(path.dirname(file)).sort(), ["bucket.conf", "jobs", "workers.json"]);
});

test("when one worker did not answer, --generate-workers writes nothing and says so", async (t) => {
  const { file, worker } = await bucket(t, [{ host: "127.0.0.3", ssh_port: 1 }]);
  const before = readFileSync(file, "utf8");
  const { code, stdout, stderr } = await worker("facts", "--generate-workers");
  assert.deepEqual([code, stdout], [1, ""]);
  assert.match(stderr, /\nerror: workspace\/workers\.json stays as it is: not all workers have answered\n$/);
  assert.equal(readFileSync(file, "utf8"), before);
});

for (const [args, message] of [
  [["facts", "--dry-run"], /--dry-run goes with --generate-workers/],
  [["facts", "--generate-workers", "--json"], /give --generate-workers or --json, not both/],
  [["uptime", "--generate-workers"], /has no flag "--generate-workers"/],
  [["sysstat", "-w", "a", "-l", "b"], /--labels: excludes workers: give one of the two/],
] as const)
  test(`ops worker ${args.join(" ")} is wrong usage`, async (t) => {
    const { code, stderr } = await ops(["worker", ...args], { cwd: temporaryFolder(t) });
    assert.equal(code, 2, stderr);
    assert.match(stderr, message);
  });

const FACTS = { cpu_count: 2, cpu_mhz: 1000, memory_mb: 512 };

for (const [what, text, worker, message] of [
  ["a worker that is not in the file", '[{"host":"a"}]', { worker: "b", facts: FACTS }, /worker "b" is not in it/],
  ["a worker without a clock", '[{"host":"b"}]', { worker: "b", facts: { ...FACTS, cpu_mhz: null } }, /does not tell the clock/],
  ["a file that is no JSON", "[", { worker: "b", facts: FACTS }, /not valid JSON/],
  ["a file that is no list", "{}", { worker: "b", facts: FACTS }, /is not in it/],
  ["a list of other things", "[1]", { worker: "b", facts: FACTS }, /it is no list of workers/],
  ["a result without a worker", '[{"host":"a"}]', [], /no worker was asked/],
] as const)
  test(`${what} leaves workers.json as it is`, async (t) => {
    const dir = temporaryFolder(t);
    makeWorkspace(dir, { files: { "workspace/workers.json": text } });
    await assert.rejects(generateWorkers(dir, { workers: [worker].flat() }, false), message);
    assert.equal(readFileSync(path.join(dir, "workspace/workers.json"), "utf8"), text);
  });

test("HR-128 a worker is found as a build finds it, and the field that counts is replaced", async (t) => {
  const dir = temporaryFolder(t);
  const text = '[{"HOST": " B ", "memory": "1 mb", "Memory": "2 mb", "cpu": "1 mhz"}]';
  makeWorkspace(dir, { files: { "workspace/workers.json": text } });
  await generateWorkers(dir, { workers: [{ worker: "B", facts: FACTS }] }, false);
  const entry = { HOST: " B ", memory: "1 mb", Memory: "512 mb", cpu: "2000 mhz" };
  assert.deepEqual(JSON.parse(readFileSync(path.join(dir, "workspace/workers.json"), "utf8")), [entry]);
});

test("what is up to date is not written again", async (t) => {
  const dir = temporaryFolder(t);
  const file = path.join(dir, "workspace/workers.json");
  makeWorkspace(dir, { workers: [{ host: "b" }] });
  const result = { workers: [{ worker: "b", facts: FACTS }] };
  assert.match(await generateWorkers(dir, result, false), /was written\n$/);
  const before = readFileSync(file, "utf8");
  assert.equal(before, '[\n  { "host": "b", "memory": "512 mb", "cpu": "2000 mhz" }\n]\n');
  assert.equal(await generateWorkers(dir, result, false), "workspace/workers.json is up to date\n");
});

test("a worker that tells what a terminal would obey, or no end of it, is harmless in the table", () => {
  const facts = { ...FACTS, hostname: "\x1b]0;t\x07\0\u009b2J", os: "x".repeat(253), arch: null, addresses: [], disks: [] };
  const text = factsTable({ workers: [{ worker: "a", outcome: "ok", error: null, facts }] });
  assert.match(text, /^[^\p{C}]*\n[^\p{C}]*\n$/u);
  for (const nothing of [null, {}, { problems: [] }]) assert.equal(factsTable(nothing), "");
});

test("sizes have one digit behind the point below ten of a unit, none of bytes", () => {
  const [disk, net] = [{ busy_pct: 1, read_bytes_per_s: 9, write_bytes_per_s: 9.5 * 1024 }, { rx_bytes_per_s: 20 * 1024 }];
  const memory = { mem_used_bytes: 0, mem_total_bytes: 0, mem_swap_used_bytes: 1, mem_swap_total_bytes: 2 ** 31 };
  const sysstat = { cpu_pct: 1, ...memory, disk: [disk], net: [{ ...net, tx_bytes_per_s: 1024 ** 2 - 1 }] };
  const text = sysstatTable({ workers: [{ worker: "a", outcome: "ok", error: null, sysstat }] });
  for (const size of ["9 B", "9.5 KiB", "20 KiB", "1024 KiB", "0 % of 2.0 GiB"])
    assert.match(text, new RegExp(`  ${size.replace(".", "\\.")}( |$)`, "m"), text);
});
