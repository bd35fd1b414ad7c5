import assert from "node:assert/strict";
import { chownSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { parseAuditLine } from "../../lib/audit/line.ts";
import { verifyAudit } from "../../lib/audit/verify.ts";
import { killAuditWriters } from "../helpers/audit-kills.ts";
import { auditBelow, chainFiles, entryOf, writeMonths } from "../helpers/audit-log.ts";
import { SEED } from "../helpers/random.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const linesIn = (file: string) =>
  readFileSync(file, "utf8")
    .trimEnd()
    .split("\n")
    .map((text) => parseAuditLine(Buffer.from(text)));

async function requireWhole(root: string, publicKey: string): Promise<void> {
  const { finding } = await verifyAudit(await chainFiles(root), { publicKey });
  assert.equal(finding, null);
}

test("lines that come at once keep their order, share writes, and hold together, in files for their owner alone", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root);
  let writes = 0;
  log.onWritten = () => writes++;
  const heads = await Promise.all(Array.from({ length: 200 }, (_, index) => log.append(entryOf(index))));
  assert.deepEqual(
    heads.map(({ n }) => n),
    Array.from({ length: 200 }, (_, index) => index + 1),
  );
  assert.ok(writes < 20, `${writes} writes`);
  const { publicKey } = await log.key();
  await requireWhole(root, publicKey);
  const [file = ""] = await chainFiles(root);
  assert.deepEqual(
    linesIn(file).map((line) => (line?.params as { note: string } | undefined)?.note),
    heads.map((_, index) => `entry ${index} – ünïcode`),
  );
  assert.deepEqual(await log.head(), heads.at(-1));
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.equal(statSync(path.dirname(file)).mode & 0o777, 0o700);
});

test("what root writes belongs to whom the root of the server belongs to", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root);
  // Only root can give a file away: for anybody else the server's own files are in question.
  const owner = process.getuid?.() === 0 ? 65_534 : (process.getuid?.() ?? 0);
  chownSync(root, owner, process.getuid?.() === 0 ? 65_534 : (process.getgid?.() ?? 0));
  await log.append(entryOf(0));
  const files = [path.join(root, "audit"), ...(await chainFiles(root))];
  assert.deepEqual(
    files.map((file) => statSync(file).uid),
    [owner, owner],
  );
});

test("a month has a file of its own, which goes on where the one before ends, and a clock that goes back opens no older one", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const publicKey = await writeMonths(root, 3, 2);
  const names = ["2026-01.jsonl", "2026-02.jsonl", "2026-03.jsonl"];
  assert.deepEqual(
    (await chainFiles(root)).map((file) => path.basename(file)),
    names,
  );
  const earlier = auditBelow(root, () => Date.UTC(2026, 1, 1));
  assert.equal((await earlier.log.append(entryOf(9))).n, 7);
  assert.deepEqual(
    (await chainFiles(root)).map((file) => path.basename(file)),
    names,
  );
  await requireWhole(root, publicKey);
});

test("an end that was only looked at, and was taken back since, is not gone on with", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  let at = Date.UTC(2026, 0, 1);
  const [{ log }, other, third] = [auditBelow(root, () => at), auditBelow(root, () => at), auditBelow(root, () => at)];
  await log.append(entryOf(0));
  const [file = ""] = await chainFiles(root);
  const before = readFileSync(file);
  await other.log.append(entryOf(1));
  assert.equal((await log.head()).n, 2);
  writeFileSync(file, before);
  at++;
  // As long as the one that is gone.
  await third.log.append(entryOf(1));
  assert.equal((await log.append(entryOf(2))).n, 3);
  await requireWhole(root, (await log.key()).publicKey);
});

test("CP-995 what a write left that was cut off goes with the next line, which says so", async (t) => {
  for (const torn of [Buffer.from('{"audit":1,"n":3,"at":"20'), Buffer.alloc(100_000)]) {
    const root = path.join(temporaryFolder(t), "root");
    const first = auditBelow(root);
    await first.log.append(entryOf(0));
    await first.log.append(entryOf(1));
    const { publicKey } = await first.log.key();
    const [file = ""] = await chainFiles(root);
    writeFileSync(file, torn, { flag: "a" });
    const { log } = auditBelow(root);
    assert.equal((await log.append(entryOf(2))).n, 3);
    await log.append(entryOf(3));
    await requireWhole(root, publicKey);
    assert.deepEqual(
      linesIn(file).map((line) => line?.torn?.bytes),
      [undefined, undefined, torn.length, undefined],
    );
  }
});

test("two writers of one chain go on behind each other's lines", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const [one, other] = [auditBelow(root).log, auditBelow(root).log];
  const heads = await Promise.all(Array.from({ length: 40 }, (_, index) => (index % 2 ? one : other).append(entryOf(index))));
  assert.equal(new Set(heads.map(({ n }) => n)).size, 40);
  await requireWhole(root, (await one.key()).publicKey);
});

test("CP-995 writers that are killed lose no line that was confirmed, and leave a chain that holds", async (t) => {
  const { killed, confirmed } = await killAuditWriters(path.join(temporaryFolder(t), "root"), 6, SEED);
  assert.ok(killed >= 6 && confirmed > 0);
});

test("where a line cannot be written, it is refused and not there; what may come later waits and says when it happened", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const { log, told } = auditBelow(root);
  await log.append(entryOf(0));
  const [file = ""] = await chainFiles(root);
  // A folder in the place of the file refuses to be written, to root too.
  renameSync(file, `${file}.kept`);
  mkdirSync(file);
  await assert.rejects(log.append(entryOf(1)), {
    code: "audit_unavailable",
    message: /^the audit cannot be written, so nothing is changed: /,
  });
  log.later({ what: "cancel", who: "late" });
  await until("the trouble to be told", () => told.length > 0);
  assert.match(told[0] ?? "", /^the audit cannot be written/);
  await assert.rejects(log.append(entryOf(1)), { code: "audit_unavailable" });
  assert.equal(told.length, 1, "the same trouble is told once");
  rmSync(file, { recursive: true });
  renameSync(`${file}.kept`, file);
  await log.append(entryOf(2));
  const lines = linesIn(file);
  assert.deepEqual(
    lines.map((line) => line?.what),
    ["change", "cancel", "change"],
  );
  assert.match(lines[1]?.happened ?? "", /^\d{4}-/);
  assert.equal(told.at(-1), "the audit can be written again");
  await requireWhole(root, (await log.key()).publicKey);
});

test("a full disk leaves no part of a line", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  const { log } = auditBelow(root);
  await log.append(entryOf(0));
  const [file = ""] = await chainFiles(root);
  const before = readFileSync(file);
  // What a write leaves behind when the disk is full, and nobody took it back.
  writeFileSync(file, Buffer.alloc(3_000, "x"), { flag: "a" });
  await log.append(entryOf(1));
  const after = readFileSync(file);
  assert.ok(after.subarray(0, before.length).equals(before));
  assert.equal(after.includes("xxx"), false);
  await requireWhole(root, (await log.key()).publicKey);
});

test("an audit whose last line was changed, or whose key is gone, is not gone on with", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  await auditBelow(root).log.append(entryOf(0));
  const key = path.join(root, "audit.key");
  const [file = ""] = await chainFiles(root);
  const kept = readFileSync(file);
  writeFileSync(file, kept.toString().replace("person-0", "person-1"));
  await assert.rejects(auditBelow(root).log.append(entryOf(1)), {
    message: /was changed, or another key has signed it: run `ops audit verify`/,
  });
  writeFileSync(file, kept);
  renameSync(key, `${key}.away`);
  await assert.rejects(auditBelow(root).log.append(entryOf(1)), { message: /audit\.key is missing: put it back/ });
  assert.equal(existsSync(key), false);
  renameSync(`${key}.away`, key);
  assert.equal((await auditBelow(root).log.append(entryOf(1))).n, 2);
});

test("a file with an empty first line is no file without a line", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  await auditBelow(root).log.append(entryOf(0));
  const [file = ""] = await chainFiles(root);
  writeFileSync(file, "\n");
  await assert.rejects(auditBelow(root).log.append(entryOf(1)), { message: /the last line of .* was changed/ });
});

test("of entries that wait without an end at most 1,000 are kept, and the others are counted", async (t) => {
  const root = path.join(temporaryFolder(t), "root");
  mkdirSync(root);
  writeFileSync(path.join(root, "audit"), "in the way");
  const { log, told } = auditBelow(root);
  for (let index = 0; index < 1_250; index++) log.later({ what: "alive", count: index });
  await until("the first failure", () => told.length > 0);
  rmSync(path.join(root, "audit"));
  await log.append(entryOf(0));
  await log.close();
  const lines = (await chainFiles(root)).flatMap(linesIn);
  const gaps = lines.filter((line) => line?.error === "audit_unavailable");
  assert.ok(lines.length <= 1_300);
  assert.equal(
    lines.filter((line) => line?.what === "alive").length + gaps.reduce((sum, line) => sum + (line?.count ?? 0), 0),
    1_250,
  );
});
