import assert from "node:assert/strict";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { auditLine, parseAuditLine } from "../../lib/audit/line.ts";
import { verifyAudit } from "../../lib/audit/verify.ts";
import { signingKey } from "../../lib/core/signing-key.ts";
import { auditBelow, chainFiles, entryOf, writeMonths } from "../helpers/audit-log.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

async function written(t: Parameters<typeof temporaryFolder>[0]) {
  const root = path.join(temporaryFolder(t), "root");
  const publicKey = await writeMonths(root, 3, 4);
  const files = (await chainFiles(root)) as [string, string, string];
  const lineAt = (file: string, index: number) => readFileSync(file, "utf8").split("\n")[index] ?? "";
  const hashAt = (file: string, index: number) => parseAuditLine(Buffer.from(lineAt(file, index)))?.hash ?? "";
  return { root, publicKey, files, lineAt, hashAt };
}

test("a verification says up to which line and time the key vouches", async (t) => {
  const { publicKey, files, hashAt } = await written(t);
  const { ok, first, last, finding } = await verifyAudit(files, { publicKey });
  assert.deepEqual([ok, first, finding], [true, 1, null]);
  assert.deepEqual(last, { n: 12, at: "2026-03-18T00:00:00.000Z", hash: hashAt(files[2], 3) });
  assert.equal((await verifyAudit([], { publicKey })).ok, true);
});

test("a fault has its kind, its place and its reason", async (t) => {
  const { publicKey, files, lineAt } = await written(t);
  const [, second] = files;
  const lines = readFileSync(second, "utf8").split("\n");
  const [a = "", b = "", c = "", d = ""] = lines;
  const expected: [string, string[], string, number, RegExp][] = [
    ["a word changed", [a, b.replace("person", "nobody"), c, d], "changed", 2, /the signature is not that of this line/],
    ["a line removed", [a, c, d], "removed", 2, /line 6 is not there/],
    ["lines removed", [a, d], "removed", 2, /the lines 6 to 7 are not there/],
    ["a line put in", [a, "{}", b, c, d], "added", 2, /this is no line of an audit; line 6 follows in 2026-02\.jsonl:3/],
    [
      "an empty line at the beginning",
      ["", a, b, c, d],
      "added",
      1,
      /this is no line of an audit; line 5 follows in 2026-02\.jsonl:2/,
    ],
    ["a line twice", [a, b, b, c, d], "added", 3, /line 6 stands here again/],
    ["two lines swapped", [a, c, b, d], "reordered", 2, /line 7 stands here, and line 6 in 2026-02\.jsonl:3/],
    ["a line of another file", [a, lineAt(files[2], 0), b, c, d], "reordered", 2, /line 9 stands here/],
  ];
  for (const [what, now, fault, line, why] of expected) {
    writeFileSync(second, `${now.join("\n")}\n`);
    const { finding, last } = await verifyAudit(files, { publicKey });
    assert.deepEqual([finding?.fault, finding?.file, finding?.line], [fault, "2026-02.jsonl", line], what);
    assert.match(finding?.why ?? "", why, what);
    assert.equal(last?.n, 4 + line - 1, what);
  }
  writeFileSync(second, `${[a, b, c, d].join("\n")}`);
  assert.match((await verifyAudit(files, { publicKey })).finding?.why ?? "", /the line has no end/);
});

test("an end that was cut off shows against the head that was noted", async (t) => {
  const { publicKey, files, hashAt } = await written(t);
  const head = hashAt(files[2], 3);
  const two = files.slice(0, 2);
  assert.equal((await verifyAudit(two, { publicKey })).ok, true);
  const { ok, finding, last } = await verifyAudit(two, { publicKey, head });
  assert.deepEqual([ok, finding?.fault, finding?.n, last?.n], [false, "cut off", 9, 8]);
  // A head that was noted earlier is still there.
  assert.equal((await verifyAudit(files, { publicKey, head: hashAt(files[1], 0) })).ok, true);
  assert.equal((await verifyAudit(files, { publicKey, head })).ok, true);
});

test("CP-994 an audit that was written anew with the right key shows against each head that was noted, not against a forged one", async (t) => {
  const { root, publicKey, files, hashAt } = await written(t);
  const noted = [hashAt(files[0], 1), hashAt(files[1], 0), hashAt(files[2], 3)];
  // Who has the key signs other lines in the place of those from the second month on, and forges a head for them.
  for (const file of files.slice(1)) rmSync(file);
  let at = Date.UTC(2026, 1, 15);
  const { log } = auditBelow(root, () => at++);
  for (let index = 100; index < 112; index++) await log.append(entryOf(index));
  const forged = (await log.head()).hash;
  await log.close();
  const now = await chainFiles(root);
  const verdicts = await Promise.all([undefined, forged, ...noted].map((head) => verifyAudit(now, { publicKey, head })));
  assert.deepEqual(
    verdicts.map(({ ok, finding }) => (ok ? "holds" : finding?.fault)),
    ["holds", "holds", "holds", "cut off", "cut off"],
  );
});

test("files whose first ones are kept elsewhere hold against the hash where those end, and not without it", async (t) => {
  const { publicKey, files, hashAt } = await written(t);
  const later = files.slice(1);
  const { finding } = await verifyAudit(later, { publicKey });
  assert.deepEqual([finding?.fault, finding?.n], ["removed", 1]);
  assert.match(finding?.why ?? "", /the lines 1 to 4 are not there; where they are kept elsewhere, give --from/);
  const from = hashAt(files[0], 3);
  const verdict = await verifyAudit(later, { publicKey, from });
  assert.deepEqual([verdict.ok, verdict.first, verdict.last?.n], [true, 5, 12]);
  assert.equal((await verifyAudit(later, { publicKey, from: hashAt(files[0], 2) })).finding?.fault, "removed");
});

test("lines of another server are told from lines that were changed", async (t) => {
  const [own, other] = [await written(t), await written(t)];
  const { finding } = await verifyAudit(other.files, { publicKey: own.publicKey });
  assert.equal(finding?.fault, "added");
  assert.match(finding?.why ?? "", /signed with another key, SHA256:/);
  const line = { audit: 1, n: 1, at: "", prev: "0".repeat(64), key: "k".repeat(61) };
  writeFileSync(own.files[0], `${JSON.stringify(line)}\n`);
  const forged = await verifyAudit(own.files, { publicKey: own.publicKey });
  assert.equal(forged.finding?.why, `the line was signed with another key, ${"k".repeat(60)}`);
});

test("what is missing, cut off or put in is told with its place, and with where the right line stands", async (t) => {
  const { publicKey, files, lineAt, hashAt } = await written(t);
  const [one, two] = files;
  const verify = async (from?: string) => (await verifyAudit(files, { publicKey, from })).finding;
  const lines = [0, 1, 2, 3].map((index) => lineAt(one, index));
  writeFileSync(one, "");
  assert.deepEqual(await verify(), {
    fault: "removed",
    file: "2026-02.jsonl",
    line: 1,
    n: 1,
    why: "the lines 1 to 4 are not there; where they are kept elsewhere, give --from with the hash of the last of them",
  });
  assert.deepEqual(await verify("ab"), {
    fault: "removed",
    file: "2026-02.jsonl",
    line: 1,
    n: 1,
    why: "the first line is 5, and does not continue the line with the hash ab",
  });
  writeFileSync(one, `${lines.slice(0, 3).join("\n")}\n`);
  const { fault, why, n } = (await verify()) ?? {};
  assert.deepEqual([fault, why, n], ["removed", "line 4 is not there", 4]);
  writeFileSync(one, `${lines.join("\n")}\n`);
  const whole = readFileSync(two, "utf8");
  writeFileSync(two, whole.slice(0, -1));
  const cut = "the line has no end: it was cut off, or copied while it was written";
  assert.deepEqual(await verify(), { fault: "changed", file: "2026-02.jsonl", line: 4, n: 8, why: cut });
  writeFileSync(two, `${whole}x`);
  assert.deepEqual(await verify(), {
    fault: "added",
    file: "2026-02.jsonl",
    line: 5,
    n: 9,
    why: `${cut}; line 9 follows in 2026-03.jsonl:1`,
  });
  writeFileSync(two, `${whole}\n`);
  const put = "this is no line of an audit; line 9 follows in 2026-03.jsonl:1";
  assert.deepEqual(await verify(), { fault: "added", file: "2026-02.jsonl", line: 5, n: 9, why: put });
  writeFileSync(two, whole);
  const head = hashAt(one, 0).replace(/^./, "g");
  const { finding, ok, last } = await verifyAudit(files, { publicKey, head });
  const missing = `the line with the hash ${head} is not in these files: the end of the audit was cut off, or the hash is of another one`;
  assert.deepEqual([ok, last?.n], [false, 12]);
  assert.deepEqual(finding, { fault: "cut off", file: null, line: null, n: 13, why: missing });
});

test("a line that the key has signed, with the right number behind another line, is told as changed", async (t) => {
  const { root, publicKey, files } = await written(t);
  const key = await signingKey(path.join(root, "audit.key"));
  const { text } = auditLine({ what: "alive" }, { n: 4, at: "", hash: "f".repeat(64) }, "2026-01-31T00:00:00.000Z", key);
  writeFileSync(files[0], `${text}\n`, { flag: "a" });
  const why = "the line continues another line than the one before it";
  const { finding } = await verifyAudit(files, { publicKey });
  assert.deepEqual(finding, { fault: "changed", file: "2026-01.jsonl", line: 5, n: 5, why });
});

test("the head may be the line that the first one continues, and of nothing at all it is the line before the first", async (t) => {
  const { publicKey, files, hashAt } = await written(t);
  const from = hashAt(files[0], 3);
  assert.equal((await verifyAudit(files.slice(1), { publicKey, from, head: from })).ok, true);
  assert.equal((await verifyAudit(files, { publicKey, head: "0".repeat(64) })).ok, true);
  for (const proof of [{ head: from }, { head: from, from: hashAt(files[0], 2) }])
    assert.equal((await verifyAudit([], { publicKey, ...proof })).finding?.n, 1);
});

test("a line of 1 MiB may be one, and what goes on for longer without an end is no audit", async (t) => {
  const { publicKey, files } = await written(t);
  const longest = 1024 * 1024;
  const before = readFileSync(files[2]);
  writeFileSync(files[2], "x".repeat(longest), { flag: "a" });
  assert.equal((await verifyAudit(files, { publicKey })).finding?.line, 5);
  writeFileSync(files[2], Buffer.concat([before, Buffer.alloc(longest + 1, "x")]));
  const message = `${files[2]}:5 has more than 1048576 bytes: this is no audit`;
  await assert.rejects(verifyAudit(files, { publicKey }), { code: "failed", message });
});
