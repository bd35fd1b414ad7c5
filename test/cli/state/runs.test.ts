import assert from "node:assert/strict";
import { test } from "node:test";
import type { BucketAccess } from "../../../lib/cli/state/access.ts";
import { showDifferences, showRevision, showRevisions } from "../../../lib/cli/state/revisions.ts";
import { cancelRun, followCommand, listRuns, parametersText, printLog, showRun } from "../../../lib/cli/state/runs.ts";
import { parsed, printed } from "../../helpers/printed.ts";

const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const OTHER = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c0001";
const AT = "2026-11-24T10:00:00.000Z";
const RUN = {
  ...{ id: ID, kind: "deploy", status: "succeeded", created_at: AT, finished_at: "2026-11-24T10:02:00.000Z" },
  ...{ duration_ms: 120_000, revision: null, error: null, break_glass: null, params: {}, result: null, progress: null },
  ...{ audit: [{ action: "create", at: AT, actor: { address: "root (process 12)", via: "cli" } }], log_size_bytes: 2_048 },
};

/** A bucket with these answers, in the form of a method each; it notes what is asked for. */
function bucketOf(answers: Record<string, unknown>) {
  const asked: unknown[][] = [];
  const answer = (name: string, value: unknown) => [
    name,
    async (...words: unknown[]) => {
      asked.push([name, ...words]);
      return typeof value === "function" ? value(...words) : value;
    },
  ];
  const named = { runNamed: (given: string) => `whole ${given}`, revisionNamed: (given: string) => `whole ${given}` };
  const bucket = Object.fromEntries(Object.entries({ ...named, ...answers }).map(([name, value]) => answer(name, value)));
  return { asked, bucket: bucket as unknown as BucketAccess };
}

test("a list of runs asks for 20, or for what the flags say", async (t) => {
  const list = async (runs: unknown[], flags: Record<string, string> = {}) => {
    const { asked, bucket } = bucketOf({ runs });
    return { ...(await printed(t, () => listRuns(bucket, parsed(flags)))), asked: asked[0]?.[1] };
  };
  const none = await list([]);
  assert.deepEqual([none.out, none.asked], ["there are no runs yet\n", { kind: undefined, status: undefined, limit: 20 }]);
  const some = await list([], { kind: "deploy", limit: "1000000" });
  assert.deepEqual([some.out, some.asked], ["there are no such runs\n", { kind: "deploy", status: undefined, limit: 1_000_000 }]);
  assert.equal((await list([], { status: "failed", limit: "1" })).out, "there are no such runs\n");
  await assert.rejects(list([], { limit: "0" }), { message: '--limit: expected a whole number from 1 to 1000000, found "0"' });
  const params = {
    ...{ commit: "0123456789abcdef", revision_id: OTHER, jobs: ["web", "db"], dry_run: true, force: false },
    ...{ note: " first\nsecond", percent: 5 },
  };
  const named = { ...RUN, params, break_glass: "fire", audit: [{ actor: { name: "eve", address: "192.0.2.1" } }] };
  const pushed = { ...RUN, audit: [], params: { revision: OTHER, commit: "0123456789abcdef" } };
  const text = (await list([RUN, named, pushed])).out.split("\n");
  assert.match(text[0] ?? "", /^id +kind +status +who +started +took +what$/);
  assert.match(text[1] ?? "", new RegExp(`^${ID}  deploy  succeeded  root  ${AT}  2 min$`));
  assert.ok(
    text[2]?.endsWith(`  eve   ${AT}  2 min  BREAK GLASS: fire; first; web,db; dry run; commit 01234567; revision id 8a3c0001`),
    text[2],
  );
  assert.match(text[3] ?? "", /succeeded {2}- {5}2026.* 2 min {2}revision 8a3c0001; commit 01234567$/);
});

test("a run is shown with all that is known of it, and with its result as its own command shows it", async (t) => {
  const show = async (run: object, ...operands: string[]) => {
    const { asked, bucket } = bucketOf({ runs: [RUN], run: { ...RUN, ...run } });
    return { asked, ...(await printed(t, () => showRun(bucket, parsed({}, [], operands)))) };
  };
  const whole = await show(
    {
      ...{ status: "running", progress: { phase: "rollout", done: 1, total: 3 }, error: "it broke", break_glass: "fire" },
      ...{ params: { jobs: ["web", "db"], dry_run: true, force: false, note: null, percent: 5 }, revision: OTHER },
      audit: [
        ...RUN.audit,
        { action: "cancel", at: "2026-11-24T10:01:00Z", actor: { name: "eve", via: "session", address: "192.0.2.1" } },
      ],
    },
    "given",
  );
  assert.deepEqual(whole.asked, [
    ["runNamed", "given"],
    ["run", "whole given"],
  ]);
  assert.equal(
    whole.out,
    [
      ...[`run          ${ID}`, "kind         deploy", "status       running: rollout, 1 of 3 done", "error        it broke"],
      ...["by           root (process 12) on the command line", "BREAK GLASS  fire", `started      ${AT}`],
      ...[
        "ended        2026-11-24T10:02:00.000Z, after 2 min",
        "cancelled    2026-11-24T10:01:00Z by eve, session from 192.0.2.1",
      ],
      ...["parameters   jobs: web, db", "             dry run: yes", "             percent: 5", `revision     ${OTHER}`],
      ...["log          2.0 KiB, ops runs log 8a3c5e70", ""],
    ].join("\n"),
  );
  const newest = await show({});
  assert.deepEqual(newest.asked, [
    ["runs", { limit: 1 }],
    ["run", ID],
  ]);
  const facts = ["run", "kind", "status", "by", "started", "ended", "log"];
  assert.deepEqual(
    newest.out.split("\n").map((line) => line.split(" ")[0]),
    [...facts, ""],
  );
  const workers = [{ outcome: "ok" }, { outcome: "not_started" }, { outcome: "ok" }, { outcome: 1 }, "x"];
  const graded = await show({ kind: "drift", result: { workers, jobs: [{ outcome: "failed" }] }, finished_at: null });
  assert.ok(graded.out.endsWith("\n\nworkers: 2 ok, 1 not started\njobs: 1 failed\n"), graded.out);
  assert.doesNotMatch(graded.out, /^ended/m);
  assert.ok((await show({ kind: "drift", result: { workers: [] } })).out.endsWith("8a3c5e70\n"));
  const { bucket } = bucketOf({ runs: [] });
  await assert.rejects(showRun(bucket, parsed()), { code: "run_not_found", message: "there are no runs yet" });
  assert.equal(parametersText({ a_b: ["x"], c: false, d: null, e: true, f: "g" }), "a b: x\ne: yes\nf: g");
});

test("the log of a run is printed from its beginning or from its last lines", async (t) => {
  const text = "one\ntwo\nerror: three";
  const print = async (values: Record<string, string> = {}, switches: string[] = []) => {
    const answers = {
      run: { ...RUN, kind: "run_command" },
      lines: (_: string, { tail, after, limit }: { tail?: true; after?: string; limit: number }) => {
        const all = ["one", "two", "error: three"].map((line, at) => ({ offset: text.indexOf(line), line, at }));
        const lines = tail ? all.slice(-limit) : after === undefined ? all : [];
        return { lines, next: String(text.length), size_bytes: text.length };
      },
      log: (_: string, after: number) => ({
        data: Buffer.from(text.slice(after, after + 5)),
        next: Math.min(after + 5, text.length),
      }),
    };
    const { asked, bucket } = bucketOf(answers);
    const told = await printed(t, () => printLog(bucket, parsed(values, switches, ["x"])));
    return { ...told, asked: asked.filter(([name]) => name === "lines").map(([, , wanted]) => wanted) };
  };
  const all = await print();
  assert.deepEqual([all.out, all.err, all.answer, all.asked], [`${text}\n`, "", 0, [{ tail: true, limit: 1 }]]);
  assert.equal((await print({ tail: "2" })).out, "two\nerror: three\n");
  const none = await print({ tail: "0" });
  assert.deepEqual([none.out, none.asked], ["", Array.from({ length: 2 }, () => ({ tail: true, limit: 1 }))]);
  const json = await print({ tail: "1" }, ["json"]);
  assert.deepEqual([json.out, json.asked], ['{"offset":8,"line":"error: three","at":2}\n', [{ tail: true, limit: 1 }]]);
  assert.deepEqual((await print({ tail: "0" }, ["json"])).asked, []);
  const every = await print({}, ["json"]);
  assert.equal(every.out.split("\n").length, 4);
  assert.deepEqual(every.asked, [
    { after: undefined, limit: 1_000 },
    { after: "20", limit: 1_000 },
  ]);
  await assert.rejects(print({ tail: "1001" }), { message: /^--tail: expected a whole number from 0 to 1000/ });
});

test("a result is shown as the command of its kind shows it", async (t) => {
  const worker = { worker: "w1", outcome: "failed", error: null };
  const shown: [kind: string, result: object, line: RegExp][] = [
    ["worker_facts", { workers: [{ ...worker, facts: null }] }, /^worker +outcome +hostname /],
    ["worker_uptime", { workers: [{ ...worker, uptime: null }] }, /^worker +outcome +load1 /],
    ["worker_sysstat", { workers: [{ ...worker, sysstat: null }] }, /^worker +outcome +cpu /],
    ["run_command", { workers: [{ ...worker, output: "x\n", output_sha256: "" }] }, /^--- w1: failed\nx\n$/],
    ["deploy", { jobs: [{ job: "web", outcome: "deployed", duration_ms: 0, allocations: [] }] }, /^job +outcome +actions /],
  ];
  for (const [kind, result, line] of shown) {
    const { bucket } = bucketOf({ runs: [RUN], run: { ...RUN, kind, result } });
    const { out } = await printed(t, () => showRun(bucket, parsed()));
    assert.match(out.split("\n\n")[1] ?? "", line, kind);
  }
});

test("a run is followed from its beginning or its last lines, and answers its exit code and what was not told", async (t) => {
  const follow = async (run: object, values: Record<string, string> = {}, ...switches: string[]) => {
    const answers = {
      run: { ...RUN, kind: "gc", ...run },
      lines: { lines: [{ offset: 4 }], next: "8" },
      log: (_: string, after: number) => ({ data: "one\ntwo\n".slice(after), next: 8, done: true }),
    };
    const { bucket } = bucketOf(answers);
    return await printed(t, () => followCommand(bucket, parsed(values, switches, ["x"])));
  };
  assert.deepEqual(await follow({}), { out: "one\ntwo\n", err: "", answer: 0 });
  assert.deepEqual(await follow({ status: "failed", error: "killed" }, { tail: "1" }), {
    out: "two\n",
    err: "error: killed\n",
    answer: 1,
  });
  assert.deepEqual(await follow({ status: "failed", error: "two" }), { out: "one\ntwo\n", err: "", answer: 1 });
  const json = await follow({ status: "cancelled" }, { tail: "0" }, "json");
  assert.deepEqual([JSON.parse(json.out).status, json.err, json.answer], ["cancelled", "", 130]);
  assert.equal((await follow({}, {}, "json")).err, "one\ntwo\n");
});

test("following fails as its log does, and leaves the run alone where somebody stops it", async (t) => {
  const log = () => {
    throw new Error("no log");
  };
  const { bucket } = bucketOf({ run: RUN, log });
  await assert.rejects(followCommand(bucket, parsed({}, [], ["x"])), { message: "no log" });
  const stopped = bucketOf({ run: RUN, log: () => process.emit("SIGINT") && log() });
  const left = await printed(t, () => followCommand(stopped.bucket, parsed({}, [], ["x"])));
  assert.equal(left.answer, 130);
  assert.equal(left.err, `run ${ID} is left alone; \`ops runs follow 8a3c5e70\` goes on with it\n`);
});

test("a cancelled run is told with how many of its commands are known to have ended", async (t) => {
  const cancel = async (run: object, ...switches: string[]) => {
    const { asked, bucket } = bucketOf({ run: { ...RUN, ...run }, cancel: undefined });
    const told = await printed(t, () => cancelRun(bucket, parsed({}, switches, ["x"])));
    assert.deepEqual(asked.slice(0, 2), [
      ["runNamed", "x"],
      ["cancel", "whole x"],
    ]);
    assert.equal(told.err, "asked run whole x to stop\n");
    return [told.answer, told.out];
  };
  const cancelled = { status: "cancelled", result: { cancelled: { workers: ["a", "b", "c"], unconfirmed: 1 } } };
  assert.deepEqual(await cancel(cancelled), [0, "run whole x is cancelled: 2 of 3 confirmed to have ended\n"]);
  assert.deepEqual(JSON.parse(String((await cancel(cancelled, "json"))[1])), {
    ...{ run_id: "whole x", status: "cancelled", confirmed: 2, total: 3 },
  });
  for (const result of [null, {}, { cancelled: { workers: [], unconfirmed: 0 } }, { cancelled: { workers: ["a"] } }])
    assert.deepEqual(await cancel({ status: "cancelled", result }), [0, "run whole x is cancelled\n"]);
  const running = () => process.emit("SIGINT") && { ...RUN, status: "running" };
  const { bucket } = bucketOf({ run: running, cancel: undefined });
  const left = await printed(t, () => cancelRun(bucket, parsed({}, [], ["x"])));
  const goesOn = "run whole x has not ended yet; `ops runs follow whole x` goes on with it\n";
  assert.deepEqual([left.answer, left.out], [130, goesOn]);
  assert.deepEqual(await cancel({}), [1, "run whole x succeeded before it could be cancelled\n"]);
});

test("revisions are listed with their marks, and shown with what they hold", async (t) => {
  const revision = {
    ...{ id: ID, created_at: AT, by: "eve", note: "why", commit: `${"0123456789".repeat(4)}-dirty`, build_status: "failed" },
    ...{ current: true, last_successful: true, run_id: OTHER, file_count: 2, size_bytes: 1_024, sha256: "ab" },
  };
  const plain = { ...revision, id: OTHER, current: false, last_successful: false, commit: null, note: null };
  const { bucket } = bucketOf({ revisions: [revision, plain] });
  const listed = (await printed(t, () => showRevisions(bucket, parsed()))).out.split("\n");
  assert.match(listed[0] ?? "", /^revision +pushed +build +commit +is +note$/);
  assert.equal(listed[1], `${ID}  ${AT}  failed  01234567-dirty  current, last successful  why`);
  assert.match(listed[2] ?? "", new RegExp(`^${OTHER}  ${AT}  failed  - +- +-$`));
  assert.match(
    (await printed(t, () => showRevisions(bucketOf({ revisions: [] }).bucket, parsed()))).out,
    /^there are no revisions/,
  );
  const { out } = await printed(t, () => showRevision(bucket, parsed({}, [], [ID.slice(-8)])));
  assert.equal(
    out,
    [
      ...[`revision  ${ID}`, `pushed    ${AT}`, "by        eve", "note      why", `commit    ${revision.commit}`],
      ...[
        "build     failed",
        "is        current, last successful",
        `run       ${OTHER}`,
        "holds     2 files, 1.0 KiB",
        "sha256    ab",
        "",
      ],
    ].join("\n"),
  );
});

test("differences of two revisions: what is gone, what is new, and what is changed and how", async (t) => {
  const show = async (diff: object, ...operands: string[]) => {
    const answer = { revision_id: ID, against: OTHER, added: [], removed: [], changed: [], ...diff };
    const { asked, bucket } = bucketOf({ diff: answer });
    return { asked, ...(await printed(t, () => showDifferences(bucket, parsed({}, [], operands)))) };
  };
  const same = await show({}, "a", "b");
  assert.equal(same.out, `${ID} has the same files as ${OTHER}\n`);
  assert.deepEqual(same.asked.at(-1), ["diff", "whole a", "whole b"]);
  const changed = [
    { path: "both", mode: { before: "644", after: "755" }, diff: "-a\n+b\n", omitted: null },
    { path: "image", mode: null, diff: null, omitted: "binary" },
    { path: "huge", mode: null, diff: null, omitted: "too_large" },
  ];
  assert.equal((await show({ added: ["new"], removed: ["old"] }, "a")).out, "removed: old\nadded: new\n");
  assert.equal(
    (await show({ removed: ["old"], changed: changed.slice(1, 2) }, "a")).out,
    "removed: old\nchanged: image, is no text\n",
  );
  const { out, asked } = await show({ added: ["new"], removed: ["old"], changed }, "a");
  assert.equal(
    out,
    [
      ...["removed: old", "added: new", "changed: both, mode 644 to 755", "-a", "+b", "changed: image, is no text"],
      ...["changed: huge, is too large to be shown", ""],
    ].join("\n"),
  );
  assert.deepEqual(asked.at(-1), ["diff", "whole a", undefined]);
  const { bucket } = bucketOf({ diff: { changed } });
  const json = await printed(t, () => showDifferences(bucket, parsed({}, ["json"], ["a"])));
  assert.deepEqual(JSON.parse(json.out), { changed });
});
