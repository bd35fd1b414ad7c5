import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { onFaultPoint } from "../../lib/core/self.ts";
import { auditBelow, auditLines, chainFiles, entryOf } from "../helpers/audit-log.ts";
import { diskSteps, linesOf } from "../helpers/disk-record.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const PREFIX = "the audit cannot be written, so nothing is changed: ";

test("a line is on the disk before it is confirmed, and its file's name with the first", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root, () => Date.UTC(2026, 0, 1));
  await log.key();
  const flushes = async () =>
    linesOf(await diskSteps(root, () => log.append(entryOf(0)))).filter((line) => !line.includes(".db"));
  assert.deepEqual(await flushes(), ["flush audit/2026-01.jsonl", "flush audit"]);
  assert.deepEqual(await flushes(), ["flush audit/2026-01.jsonl"]);
});

test("the chain ends before the line that is just being written", async (t) => {
  t.after(() => onFaultPoint(() => {}));
  const { log } = auditBelow(path.join(temporaryFolder(t), "root"));
  await log.append(entryOf(0));
  let asked: Promise<{ n: number }> | undefined;
  onFaultPoint((point) => {
    if (point === "audit: written") asked = log.head();
  });
  assert.equal((await log.append(entryOf(1))).n, 2);
  assert.deepEqual([(await asked)?.n, (await log.head()).n], [1, 2]);
});

test("who has written the last line does not read it again", async (t) => {
  const { log } = auditBelow(path.join(temporaryFolder(t), "root"));
  await log.append(entryOf(0));
  await using handle = await open(path.join(log.folder, ".."));
  const read = t.mock.method(Object.getPrototypeOf(handle), "read");
  assert.equal((await log.append(entryOf(1))).n, 2);
  assert.equal(read.mock.callCount(), 0);
});

test("a write that fails on its way leaves nothing, and the next line has its number", async (t) => {
  t.after(() => onFaultPoint(() => {}));
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root);
  await log.append(entryOf(0));
  const [file = ""] = await chainFiles(root);
  const before = readFileSync(file);
  const points: string[] = [];
  onFaultPoint((point) => {
    points.push(point);
    if (point === "audit: written") throw new Error("no space left");
  });
  await assert.rejects(log.append(entryOf(1)), (error: Error & { code?: string }) => {
    assert.deepEqual([error.code, error.message], ["audit_unavailable", `${PREFIX}no space left`]);
    return true;
  });
  assert.deepEqual(readFileSync(file), before);
  assert.equal(log.written, undefined);
  onFaultPoint((point) => points.push(point));
  assert.equal((await log.append(entryOf(2))).n, 2);
  assert.deepEqual(points, ["audit: opened", "audit: written", "audit: opened", "audit: written", "audit: flushed"]);
  assert.equal((await auditLines(root)).length, 2);
});

test("what is put in the place of a file right before it is opened is no file of the audit", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const file = path.join(root, "audit", "2026-01.jsonl");
  const { log } = auditBelow(root, () => {
    if (!existsSync(file)) execFileSync("mkfifo", [file]);
    return Date.UTC(2026, 0, 1);
  });
  await assert.rejects(log.append(entryOf(0)), { message: `${PREFIX}${file} is not a regular file` });
  assert.ok(statSync(file).isFIFO());
});

test("whoever asks for the key or for the end of a damaged audit is told once that nothing can be written", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  await auditBelow(root).log.append(entryOf(0));
  const [file = ""] = await chainFiles(root);
  const whole = readFileSync(file, "utf8");
  writeFileSync(file, whole.replace("person-0", "person-1"));
  const asked = auditBelow(root).log;
  const changed = `${PREFIX}the last line of ${file} was changed, or another key has signed it: run \`ops audit verify\`, and move the folder away to begin a new audit`;
  for (const ask of [() => asked.head(), () => asked.end(), () => asked.append(entryOf(1))])
    await assert.rejects(ask(), { code: "audit_unavailable", message: changed });
  writeFileSync(file, whole);
  writeFileSync(path.join(root, "audit.key"), "no key");
  const other = auditBelow(root).log;
  for (const ask of [() => other.key(), () => other.end(), () => other.append(entryOf(1))])
    await assert.rejects(ask(), (error: Error & { code?: string }) => {
      assert.equal(error.code, "audit_unavailable");
      assert.match(error.message, /^the audit cannot be written, so nothing is changed: Cannot use .*audit\.key: /);
      return true;
    });
});
