import assert from "node:assert/strict";
import { closeSync, mkdirSync, openSync, truncateSync, writeFileSync, writeSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { parseAuditLine } from "../../lib/audit/line.ts";
import { type AuditWanted, readAudit } from "../../lib/audit/read.ts";
import { auditBelow, chainFiles, writeMonths } from "../helpers/audit-log.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

async function all(folder: string, wanted: AuditWanted, limit: number): Promise<{ numbers: number[]; pages: number }> {
  const numbers: number[] = [];
  let pages = 0;
  for (let cursor: string | undefined; ; pages++) {
    const page = await readAudit(folder, wanted, limit, cursor);
    numbers.push(...page.items.map(({ n }) => n));
    if (page.next_cursor === null) return { numbers, pages: pages + 1 };
    cursor = page.next_cursor;
  }
}

test("pages go from the newest line to the first of all, over all files, and leave none out", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  await writeMonths(root, 3, 7);
  const folder = path.join(root, "audit");
  const expected = Array.from({ length: 21 }, (_, index) => 21 - index);
  for (const limit of [1, 2, 7, 20, 21, 100]) {
    const { numbers, pages } = await all(folder, {}, limit);
    assert.deepEqual([numbers, pages], [expected, Math.ceil(21 / limit)], `limit ${limit}`);
  }
  assert.deepEqual(await readAudit(path.join(root, "none"), {}, 5), { items: [], next_cursor: null });
});

test("lines are chosen by kind, person, address, bucket, run, request and time", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  let at = Date.UTC(2026, 4, 1);
  const { log } = auditBelow(root, () => at);
  const entries = [
    { what: "start", who: "alice", bucket: "b1", run: "r1", request: "q1" },
    { what: "outcome", who: "bob", bucket: "b2", from: "192.0.2.9" },
    { what: "alive" },
  ] as const;
  for (const entry of entries) {
    await log.append(entry);
    at += 60_000;
  }
  const asked: [AuditWanted, number[]][] = [
    [{ what: ["start", "alive"] }, [3, 1]],
    [{ who: "alice" }, [1]],
    [{ from: "192.0.2.9" }, [2]],
    [{ bucket: "b2" }, [2]],
    [{ run: "r1", request: "q1" }, [1]],
    [{ run: "r1", request: "q2" }, []],
    [{ since: "2026-05-01T00:01:00.000Z" }, [3, 2]],
    [{ until: "2026-05-01T00:01:00.000Z" }, [1]],
    [{ buckets: ["b1"] }, [1]],
  ];
  for (const [wanted, numbers] of asked)
    assert.deepEqual((await all(log.folder, wanted, 10)).numbers, numbers, JSON.stringify(wanted));
});

test("what was written before the time that is asked for is not read", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  await writeMonths(root, 2, 3);
  const folder = path.join(root, "audit");
  const { items } = await readAudit(folder, {}, 10);
  mkdirSync(path.join(folder, "2000-01.jsonl"));
  const since = items[2]?.at;
  assert.deepEqual((await all(folder, { since }, 10)).numbers, [6, 5, 4]);
  await assert.rejects(readAudit(folder, {}, 10), "a folder is no file of the audit");
});

test("a line that is being written, damaged bytes and long lines are no trouble for a reader", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root);
  await log.append({ what: "change", reason: "x".repeat(300_000) });
  const [file = ""] = await chainFiles(root);
  writeFileSync(file, "damaged\n", { flag: "a" });
  assert.deepEqual((await all(log.folder, {}, 10)).numbers, [1]);
  writeFileSync(file, Buffer.alloc(200_000, "y"), { flag: "a" });
  assert.deepEqual((await all(log.folder, {}, 10)).numbers, [1]);
});

/** A line with this number that has so many bytes with its newline. */
function lineOf(n: number, bytes: number): string {
  const line = (pad: string) => `${JSON.stringify({ audit: 1, n, at: "2026-01-01", prev: "", key: "", what: "alive", pad })}\n`;
  return line("x".repeat(bytes - line("").length));
}

test("lines are found whole wherever the pieces begin in which a file is read", async (t) => {
  const folder = temporaryFolder(t);
  const piece = 128 * 1024;
  for (const last of [piece - 199, piece - 2, piece - 1, piece, piece + 1, 3 * piece])
    for (const first of [100, 101, piece - 1, piece]) {
      writeFileSync(path.join(folder, "2026-01.jsonl"), lineOf(1, first) + lineOf(2, 100) + lineOf(3, last));
      const { items, next_cursor } = await readAudit(folder, {}, 2);
      assert.deepEqual([items.map(({ n }) => n), next_cursor], [[3, 2], `2026-01.jsonl:${first}`]);
      for (const limit of [1, 10]) assert.deepEqual((await all(folder, {}, limit)).numbers, [3, 2, 1], `${first} and ${last}`);
    }
  for (const text of [`\n${lineOf(1, 100)}`, `${lineOf(1, 100)}\n`]) {
    writeFileSync(path.join(folder, "2026-01.jsonl"), text);
    const { items } = await readAudit(folder, {}, 2);
    assert.deepEqual(items, [parseAuditLine(Buffer.from(lineOf(1, 100).trimEnd()))], "beside an empty line");
  }
  const unfinished = `${lineOf(2, 100).trimEnd()}x`;
  writeFileSync(path.join(folder, "2026-01.jsonl"), lineOf(1, 100) + unfinished);
  assert.deepEqual((await all(folder, {}, 1)).numbers, [1]);
});

test("a cursor is the file of a month and a place in it, and nothing else", async (t) => {
  const folder = temporaryFolder(t);
  writeFileSync(path.join(folder, "2026-02.jsonl"), lineOf(1, 100) + lineOf(2, 100));
  const numbers = async (cursor: string) => (await readAudit(folder, {}, 10, cursor)).items.map(({ n }) => n);
  assert.deepEqual(await numbers("2026-02.jsonl:100"), [1]);
  assert.deepEqual(await numbers("2026-02.jsonl:999999999999999"), [2, 1]);
  assert.deepEqual(await numbers("2026-03.jsonl:0"), [2, 1]);
  assert.deepEqual(await numbers("2026-01.jsonl:5"), []);
  for (const cursor of ["x", "", "2026-02.jsonl:", "x2026-02.jsonl:5", "2026-02.jsonl:5x", `2026-02.jsonl:1${"0".repeat(15)}`])
    await assert.rejects(readAudit(folder, {}, 10, cursor), {
      code: "invalid_request",
      message: "cursor: expected the next_cursor of an earlier answer",
    });
});

test("a page looks at 64 MiB, and says where to go on", async (t) => {
  const folder = temporaryFolder(t);
  const file = path.join(folder, "2026-01.jsonl");
  const [lines, size, first] = [64, 1024 * 1024, lineOf(1, 100)];
  for (const missing of [0, 1]) {
    // Of zeros, which take no room on the disk: they are no lines of an audit.
    writeFileSync(file, first);
    truncateSync(file, first.length + 2 * size);
    const end = (line: number) => first.length + 2 * size + line * size - (line > 0 ? missing : 0);
    truncateSync(file, end(lines));
    const handle = openSync(file, "r+");
    for (const at of [first.length + size, ...Array.from({ length: lines + 1 }, (_, line) => end(line))])
      writeSync(handle, "\n", at - 1);
    closeSync(handle);
    const { items, next_cursor } = await readAudit(folder, {}, 10);
    assert.deepEqual([items, next_cursor], [[], `2026-01.jsonl:${missing === 0 ? end(0) : first.length + size}`]);
  }
});
