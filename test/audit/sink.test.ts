import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, renameSync, rmdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { AuditLog } from "../../lib/audit/log.ts";
import { AuditSink } from "../../lib/audit/sink.ts";
import { verifyAudit } from "../../lib/audit/verify.ts";
import { sleep, within } from "../../lib/core/async.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import { patience } from "../../scripts/patience.ts";
import { auditBelow, chainFiles, entryOf } from "../helpers/audit-log.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

interface Sinking {
  folder: string;
  log: AuditLog;
  sink: AuditSink;
  told: string[];
}

function sinking(
  t: TestContext,
  commandOf: (folder: string) => string,
  { now, launcher = new Launcher(process.env) }: { now?: () => number; launcher?: Launcher } = {},
): Sinking {
  const folder = temporaryFolder(t);
  const { log } = auditBelow(path.join(folder, "root"), now);
  const told: string[] = [];
  const options = { command: commandOf(folder), audit: log, launcher, tell: (line: string) => told.push(line), pauseMs: 10 };
  return { folder, log, sink: new AuditSink(options), told };
}

const readLines = (file: string) => (existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(0, -1) : []);
const lineCount = (file: string) => readLines(file).length;

test("the command gets each line once it is written, also of later months, and what is left when the sink closes", async (t) => {
  let at = Date.UTC(2026, 0, 31, 23);
  const { folder, log, sink } = sinking(t, (place) => `cat > ${place}/copy`, { now: () => at });
  sink.start({ file: "", size: 0 });
  for (let index = 0; index < 5; index++, at += 3_600_000) await log.append(entryOf(index));
  await log.close();
  await sink.close();
  const files = await chainFiles(path.join(folder, "root"));
  assert.equal(files.length, 2);
  assert.equal(readFileSync(path.join(folder, "copy"), "utf8"), files.map((file) => readFileSync(file, "utf8")).join(""));
  const { publicKey } = await log.key();
  assert.equal((await verifyAudit([path.join(folder, "copy")], { publicKey })).ok, true, "the copy verifies");
});

test("a month that was written before the command began comes whole, however little the next one has", async (t) => {
  let at = Date.UTC(2026, 0, 31, 22);
  const { folder, log, sink } = sinking(t, (place) => `cat > ${place}/copy`, { now: () => at });
  for (let index = 0; index < 8; index++) await log.append(entryOf(index));
  at += 7_200_000;
  await log.append(entryOf(8));
  sink.start({ file: "2026-01.jsonl", size: 0 });
  await until("all lines to arrive", () => lineCount(path.join(folder, "copy")) === 9);
  await log.close();
  await sink.close();
});

test("a command that fails is told loudly, once, in the log and in the audit; it is started again and no line is missing", async (t) => {
  const { folder, log, sink, told } = sinking(t, (place) => `test -e ${place}/works || exit 3; cat >> ${place}/copy`);
  sink.start({ file: "", size: 0 });
  for (let index = 0; index < 4; index++) await log.append(entryOf(index));
  await until("the failure to be told", () => told.length > 0);
  assert.match(
    told[0] ?? "",
    /^warning: the command of --audit-sink fails, and no copy of the audit is kept: it ended with exit code 3$/,
  );
  writeFileSync(path.join(folder, "works"), "");
  const [file = ""] = await chainFiles(path.join(folder, "root"));
  await until("all lines to arrive", () => lineCount(path.join(folder, "copy")) >= 6);
  await log.close();
  await sink.close();
  const numbers = readFileSync(path.join(folder, "copy"), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line).n);
  assert.deepEqual(
    [...new Set(numbers)].sort((a, b) => a - b),
    [1, 2, 3, 4, 5, 6],
  );
  const kinds = readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line))
    .map(({ what, outcome }) => [what, outcome]);
  const ofSink = kinds.filter(([what]) => what === "sink");
  assert.deepEqual(ofSink, [
    ["sink", "failed"],
    ["sink", "done"],
  ]);
});

test("a command that takes lines and fails each time is told once, and never as working again", async (t) => {
  const { folder, log, sink, told } = sinking(t, (place) => `echo >> ${place}/starts; read line; sleep 0.2; exit 3`);
  sink.start({ file: "", size: 0 });
  await log.append(entryOf(0));
  await until("some more starts", () => lineCount(path.join(folder, "starts")) >= 4);
  assert.equal(told.length, 1, told.join("\n"));
  await log.close();
  await sink.close();
});

test("a command that reads nothing holds up neither lines nor the end", async (t) => {
  const { log, sink } = sinking(t, () => "exec sleep 1000");
  sink.start({ file: "", size: 0 });
  const long = { what: "change", reason: "x".repeat(50_000) } as const;
  for (let index = 0; index < 10; index++) await log.append(long);
  await log.close();
  await sink.close();
});

test("a command that is there only after the end of the sink has begun is ended, too", async (t) => {
  class Slow extends Launcher {
    override async start(...given: Parameters<Launcher["start"]>) {
      await sleep(3_000);
      return await super.start(...given);
    }
  }
  const { sink } = sinking(t, () => "exec sleep 1000", { launcher: new Slow(process.env) });
  sink.start({ file: "", size: 0 });
  assert.equal(
    await within(
      sink.close().then(() => true),
      patience(30_000),
    ),
    true,
  );
});

test("a command that closes its standard input is told and ended", async (t) => {
  const { folder, log, sink, told } = sinking(t, (place) => `echo $$ > ${place}/pid; exec 0<&-; exec sleep 1000`);
  t.after(() => sink.close());
  sink.start({ file: "", size: 0 });
  // A line that comes before the command has closed its standard input is in the pipe, and no failure.
  await until("the failure to be told", async () => {
    await log.append(entryOf(0));
    return told.length > 0;
  });
  assert.match(told[0] ?? "", /no copy of the audit is kept: it has closed its standard input$/);
  const [pid] = readFileSync(path.join(folder, "pid"), "utf8").split("\n");
  await until("the command to be gone", () => readFileSync(path.join(folder, "pid"), "utf8").trim() !== pid);
  assert.equal(existsSync(`/proc/${pid}`), false);
  await log.close();
});

test("while the audit cannot be read the command is told to fail, and none is left running beside the next one", async (t) => {
  const { folder, log, sink, told } = sinking(t, (place) => `echo $$ >> ${place}/pids; exec cat >> ${place}/copy`);
  await log.append(entryOf(0));
  const [file = ""] = await chainFiles(path.join(folder, "root"));
  renameSync(file, `${file}.away`);
  mkdirSync(file);
  sink.start({ file: path.basename(file), size: 0 });
  const pids = () => readLines(path.join(folder, "pids"));
  await until("some more starts", () => pids().length >= 3);
  assert.match(told[0] ?? "", /no copy of the audit is kept: .*\.jsonl/);
  rmdirSync(file);
  renameSync(`${file}.away`, file);
  await until("the line to arrive", () => lineCount(path.join(folder, "copy")) >= 1);
  assert.deepEqual(
    pids().filter((pid) => existsSync(`/proc/${pid}`)),
    pids().slice(-1),
  );
  await log.close();
  await sink.close();
});

test("a command that cannot be started at all is told", async (t) => {
  const folder = temporaryFolder(t);
  const { log } = auditBelow(path.join(folder, "root"));
  const told: string[] = [];
  const launcher = new Launcher({ PATH: "" });
  const sink = new AuditSink({
    command: "no-such-command-here",
    audit: log,
    launcher,
    tell: (line) => told.push(line),
    pauseMs: 10,
  });
  sink.start({ file: "", size: 0 });
  await log.append(entryOf(0));
  await until("the failure to be told", () => told.length > 0);
  assert.match(told[0] ?? "", /it ended with exit code 127/);
  await sink.close();
});
