import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
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
  await assert.rejects(readAudit(log.folder, {}, 10, "x"), { code: "invalid_request" });
});
