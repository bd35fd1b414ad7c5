import assert from "node:assert/strict";
import { appendFileSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf, runLayout } from "../../../lib/bucket/base/layout.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { openLog } from "../../../lib/run/log/log-lines.ts";
import { type LogQuery, searchLog } from "../../../lib/run/log/log-search.ts";
import { createRecord, saveRecord, settle } from "../../../lib/run/record.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

async function logOf(t: TestContext, content: string | Buffer) {
  const layout = layoutOf(temporaryFolder(t));
  const id = uuidV7();
  const actor = { address: "here", via: "cli" } as const;
  const start = { id, bucket_id: id, origin: "server", kind: "build", params: {}, actor, requestId: null } as const;
  const record = await createRecord(layout, start);
  const file = runLayout(layout, id).activity;
  writeFileSync(file, content);
  return {
    append: (text: string) => appendFileSync(file, text),
    async end() {
      settle(record, { exitCode: 0, signal: null, outcome: { ok: true, error: null, result: null } });
      await saveRecord(layout, record);
    },
    search: (text: string | undefined, more: Partial<LogQuery> = {}) =>
      searchLog(layout, id, { text, matchCase: false, limit: 50, ...more }),
  };
}

test("lines with the text are told by number, place and content", async (t) => {
  const { search, end } = await logOf(t, "first error\nsecond\nthird Error, and error again\n");
  await end();
  assert.deepEqual(await search("error"), {
    matches: [
      { line: 1, offset: 0, text: "first error" },
      { line: 3, offset: 19, text: "third Error, and error again" },
    ],
    next: "48.4",
    scanned_to: 48,
    done: true,
  });
  assert.deepEqual(
    (await search("Error", { matchCase: true })).matches.map(({ line }) => line),
    [3],
  );
  assert.deepEqual((await search("none")).matches, []);
});

for (const [text, line] of [
  ["a.b", "xa.bx"],
  ["(", "f(x)"],
  ["\\d+", "\\D+"],
  ["ÜBER", "über"],
  ["über", "ÜBER"],
  ["straße", "STRAße"],
  ["🙂", "a 🙂 b"],
  ["\t", "a\tb"],
  ["$^", "$^"],
] as const)
  test(`${JSON.stringify(text)} is literal text, its case does not matter`, async (t) => {
    const { search } = await logOf(t, `aab\n${line}\nd5\n`);
    assert.deepEqual((await search(text)).matches, [{ line: 2, offset: 4, text: line }]);
  });

test("letters that merely share bytes are not the same", async (t) => {
  const { search } = await logOf(t, "ã\n\u00c3\nÁ\n");
  assert.deepEqual((await search("é")).matches, []);
  assert.deepEqual(
    (await search("á")).matches.map(({ line }) => line),
    [3],
  );
});

test("bytes that are no text do not shift what follows", async (t) => {
  const { search } = await logOf(t, Buffer.concat([Buffer.from([0xff, 0xc3, 0x0a, 0x80]), Buffer.from("x\nneedle\n")]));
  assert.deepEqual((await search("needle")).matches, [{ line: 3, offset: 6, text: "needle" }]);
});

test("lines of a job or a worker are told by their beginning", async (t) => {
  const lines = {
    output: "web@10.0.0.7 | started",
    error: "web@10.0.0.7 ! warned",
    said: "web@10.0.0.7: in sync",
    coloured: "\x1b[1;31mweb@10.0.0.7 | failed",
    failed: "error: web@10.0.0.7: exit 1",
    doubted: "  warning: web@10.0.0.7: slow",
    ofJob: "web: batch 1 of 2",
    jobFailed: "error: web: 1 of 2 failed",
    ofWorker: "10.0.0.7 | of no job",
    workerError: "10.0.0.7 ! of no job",
    otherWorker: "web@10.0.0.70 | started",
    otherJob: "myweb@10.0.0.7 | started",
    capitals: "WEB@10.0.0.7 | started",
    quoted: "says web@10.0.0.7 | started",
    synced: "web: synced to 10.0.0.7: 5 changed",
    late: `${" ".repeat(600)}web@10.0.0.7 | too far from the beginning`,
    open: "web@10.0.0.7",
  };
  const { search } = await logOf(t, `\n${Object.values(lines).join("\n")}\n\n`);
  const found = async (more: Partial<LogQuery>, text?: string) => {
    const { matches } = await search(text, more);
    return matches.map(({ line }) => Object.keys(lines)[line - 2]);
  };
  const [job, worker] = ["web", "10.0.0.7"];
  const both = ["output", "error", "said", "coloured", "failed", "doubted"];
  assert.deepEqual(await found({ job, worker }), both);
  assert.deepEqual(await found({ job }), [...both, "ofJob", "jobFailed", "otherWorker", "synced"]);
  assert.deepEqual(await found({ worker }), [...both, "ofWorker", "workerError", "otherJob", "capitals"]);
  assert.deepEqual(await found({ job, worker }, "STARTED"), ["output"]);
  assert.deepEqual(await found({ job, worker, matchCase: true }, "STARTED"), []);
  assert.deepEqual(await found({ job: "we" }), []);
  assert.deepEqual(await found({ job: "error" }), [], "a mark is no name");
  assert.deepEqual(await found({ worker: "10.0.0.7 |" }), []);
});

test("what is of a job counts for the limit, and nothing else", async (t) => {
  const { search } = await logOf(t, "web: 1\ndb: of web\nweb: 2\ndb: of web\nweb: 3\n");
  const first = await search(undefined, { job: "web", limit: 2 });
  assert.deepEqual([first.matches.map(({ line }) => line), first.next], [[1, 3], "25.4"]);
  const second = await search(undefined, { job: "web", limit: 2, after: first.next });
  assert.deepEqual(
    second.matches.map(({ line }) => line),
    [5],
  );
});

test("`after` 0 searches from the beginning, like no `after`", async (t) => {
  const { search, end } = await logOf(t, "one hit\nmiss\nhit two\n");
  await end();
  assert.deepEqual(await search("hit", { after: "0" }), await search("hit"));
  assert.deepEqual(
    (await search("hit", { after: "0" })).matches.map(({ line }) => line),
    [1, 3],
  );
});

test("the answer is filled up to its limit, and the next one goes on behind it", async (t) => {
  const { search, end } = await logOf(t, Array.from({ length: 7 }, (_, index) => `hit ${index}\nmiss\n`).join(""));
  await end();
  const lines: number[] = [];
  let after: string | undefined;
  for (let done = false; !done; ) {
    const answer = await search("hit", { limit: 3, after });
    lines.push(...answer.matches.map(({ line }) => line));
    ({ next: after, done } = answer);
  }
  assert.deepEqual(lines, [1, 3, 5, 7, 9, 11, 13]);
});

test("only lines that end before a place are searched, so that any place has its line", async (t) => {
  const { search, end } = await logOf(t, "one\ntwo\nthree\n");
  await end();
  assert.deepEqual(await search("t", { until: 8 }), {
    matches: [{ line: 2, offset: 4, text: "two" }],
    next: "8.3",
    scanned_to: 8,
    done: false,
  });
  assert.equal((await search("none", { until: 7 })).next, "4.2");
  assert.equal((await search("none", { until: 2, after: "4.2" })).next, "4.2");
  assert.equal((await search("none", { until: 99 })).done, true);
});

test("a log that grows is searched line by line as they are completed, and to the end once the run has ended", async (t) => {
  const { search, append, end } = await logOf(t, "one needle\nhalf a nee");
  const first = await search("needle");
  assert.deepEqual([first.matches.length, first.scanned_to, first.done], [1, 11, false]);
  assert.deepEqual((await search("half")).matches, []);
  append("dle\nlast needle");
  const second = await search("needle", { after: first.next });
  assert.deepEqual(second.matches, [{ line: 2, offset: 11, text: "half a needle" }]);
  assert.deepEqual((await search("needle", { after: second.next })).matches, []);
  await end();
  const third = await search("needle", { after: second.next });
  assert.deepEqual([third.matches, third.done], [[{ line: 3, offset: 25, text: "last needle" }], true]);
  assert.deepEqual(await search("needle", { after: third.next }), { ...third, matches: [] });
});

test("one call looks at a bounded part, the next one goes on", async (t) => {
  const block = `${"x".repeat(1023)}\n`.repeat(1024);
  const { search, end } = await logOf(t, `${block.repeat(40)}needle\n`);
  await end();
  const first = await search("needle");
  assert.deepEqual([first.matches, first.done, first.scanned_to], [[], false, 32 * 1024 * 1024]);
  const second = await search("needle", { after: first.next });
  assert.deepEqual([second.matches.map(({ line }) => line), second.done], [[40 * 1024 + 1], true]);
});

test("a long line is shown around the text", async (t) => {
  const { search } = await logOf(t, `${"ä".repeat(3_000_000)}needle${"ö".repeat(3_000)}\n`);
  const [match] = (await search("needle")).matches;
  assert.match(match?.text ?? "", /^…ä+needleö+…$/);
  assert.ok(Buffer.byteLength(match?.text ?? "") < 2_100);
});

test("a line that is longer than a call may look at does not stop the search", async (t) => {
  const { search, end } = await logOf(t, `short\n${"x".repeat(40 * 1024 * 1024)}needle\n`);
  await end();
  let found = await search("needle");
  for (let calls = 0; !found.done && calls < 5; calls++) found = await search("needle", { after: found.next });
  assert.deepEqual([found.matches.length, found.done], [1, true]);
});

test("what cannot be searched for, or from, is refused", async (t) => {
  const { search } = await logOf(t, "x\n");
  for (const text of ["", "a\nb", "a\rb", "ä".repeat(101)])
    await assert.rejects(search(text), { code: "invalid_request", message: /^q: / });
  for (const after of ["x", "3.1", "-1.1", "0.0", "1.x", "9".repeat(16)])
    await assert.rejects(search("x", { after }), { code: "invalid_request", message: /^after: / });
  assert.equal((await search("ä".repeat(100))).matches.length, 0);
  await assert.rejects(search(undefined), { code: "invalid_request", message: /^q: .* a job or a worker/ });
});

test("a run that has said nothing yet has nothing to find", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  await assert.rejects(searchLog(layout, uuidV7(), { text: "x", matchCase: true, limit: 1 }), { code: "run_not_found" });
});

test("a log that is not there has said nothing; one that cannot be looked at is told", async (t) => {
  const folder = temporaryFolder(t);
  assert.equal(await openLog(`${folder}/none`), undefined);
  assert.equal(await openLog(folder), undefined);
  writeFileSync(`${folder}/file`, "");
  await assert.rejects(openLog(`${folder}/file/none`), { code: "ENOTDIR" });
});
