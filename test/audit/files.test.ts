import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import path from "node:path";
import { test } from "node:test";
import { auditFiles, auditPlace, auditTail, isAuditFile, readSpan, sizeOf } from "../../lib/audit/files.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("the audit of a server is in files of months beside its key, the oldest first; what has another name is none of it", async (t) => {
  const root = temporaryFolder(t);
  const folder = path.join(root, "audit");
  assert.deepEqual(auditPlace(root), { folder, key: path.join(root, "audit.key"), lock: path.join(folder, ".turns.db") });
  assert.deepEqual(await auditFiles(folder), []);
  mkdirSync(folder);
  const months = ["2025-12.jsonl", "2026-01.jsonl", "2026-11.jsonl"];
  const others = ["x2026-11.jsonl", "2026-11.jsonl.away", "20266-11.jsonl", "2026-1.jsonl", "2026-111.jsonl", "2026-11xjsonl"];
  for (const name of [...months].reverse().concat(others)) writeFileSync(path.join(folder, name), "abc");
  assert.deepEqual(await auditFiles(folder), months);
  assert.deepEqual([...months, ...others].filter(isAuditFile), months);
  assert.deepEqual([await sizeOf(path.join(folder, "2026-01.jsonl")), await sizeOf(path.join(folder, "none"))], [3, undefined]);
});

test("the end of a file is its last whole line and what stands behind it, however long they are", async (t) => {
  const file = path.join(temporaryFolder(t), "file");
  const look = 64 * 1024;
  const long = (size: number) => "x".repeat(size);
  const cases: [whole: string, last: string | undefined, torn: string][] = [
    ["", undefined, ""],
    ["", undefined, "torn"],
    ["\n", "", ""],
    ["\n", "", "torn"],
    ["a\n", "a", ""],
    ["a\nbc\n", "bc", "torn"],
    ["\n\n", "", ""],
    ["a\n\n", "", ""],
    [`a\n${long(look)}\n`, long(look), ""],
    [`a\n${long(20 * look)}\n`, long(20 * look), "torn"],
    ["", undefined, long(3 * look)],
    ...[look - 1, look, look + 1].map((size): [string, string, string] => [`${long(size)}\n`, long(size), ""]),
    // The window that is looked at first begins with a newline, and just before and behind one.
    ...[look - 2, look - 1, look].map((size): [string, string, string] => ["a\nbc\n", "bc", long(size)]),
    ...[look - 2, look - 1, look].map((size): [string, string, string] => [`a\n${long(size)}\n`, long(size), ""]),
  ];
  for (const [whole, last, torn] of cases) {
    writeFileSync(file, whole + torn);
    const found = await auditTail(file);
    const told = { size: found.size, last: found.last?.toString(), torn: found.torn.toString() };
    assert.ok(told.last === last && told.torn === torn && told.size === whole.length, `${whole.length} + ${torn.length}`);
  }
});

test("a span of a file is read whole, though each read gives less than was asked for, and ends with the file", async (t) => {
  const file = path.join(temporaryFolder(t), "file");
  writeFileSync(file, "0123456789");
  await using handle = await open(file);
  const slow = {
    read: (bytes: Buffer, offset: number, length: number, position: number) =>
      handle.read(bytes, offset, Math.min(length, 3), position),
  } as unknown as FileHandle;
  for (const [from, to, expected] of [
    [0, 10, "0123456789"],
    [2, 9, "2345678"],
    [4, 4, ""],
    [7, 20, "789"],
    [12, 20, ""],
  ] as const)
    for (const one of [handle, slow]) assert.equal((await readSpan(one, from, to)).toString(), expected);
});
