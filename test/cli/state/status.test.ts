import assert from "node:assert/strict";
import { test } from "node:test";
import type { BucketAccess } from "../../../lib/cli/state/access.ts";
import { shortReason, showHealth, statusCommand } from "../../../lib/cli/state/status.ts";
import { parsed, printed } from "../../helpers/printed.ts";

const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const HOUR = 3_600_000;
const NOW = Date.parse("2026-11-24T12:00:00Z");
const hence = (hours: number) => new Date(NOW + hours * HOUR).toISOString();
const NONE = { items: [], total: 0 };
const QUIET = {
  ...{ built_at: null, workers: 0, jobs: 0, counts: { allocations: 0, promoted: 0, new: 0, update: 0, disabled: 0 } },
  ...{ problems: NONE, active_run: null, freezes: [], key_changes: [], last_deploy: null, drift: null, unwell: NONE },
  ...{ incidents: NONE, messages: { waiting: 0, failed: 0 }, certs: NONE, next_cert: null },
};

function bucketOf(summary: object, line: object = { waiting: [], holder: null }) {
  const answers = { summary: async () => ({ ...QUIET, ...summary }), line: async () => line, place: async () => "here" };
  return answers as unknown as BucketAccess;
}

test("the status of a bucket in which nothing has happened", async (t) => {
  t.mock.method(Date, "now", () => NOW);
  const { out } = await printed(t, () => statusCommand(bucketOf({}), parsed()));
  const lines = ["bucket       here", "fleet        nothing is built yet: ops build, or ops push to a server"];
  lines.push("running      nothing", "last deploy  none yet", "drift        not looked for yet: ops drift", "");
  assert.equal(out, lines.join("\n"));
  const json = JSON.parse((await printed(t, () => statusCommand(bucketOf({ jobs: 3 }), parsed({}, ["json"])))).out);
  assert.deepEqual([json.jobs, json.waiting, json.holder, json.place], [3, [], null, undefined]);
  const held = await printed(t, () => statusCommand(bucketOf({}, { waiting: [], holder: "held by a hook" }), parsed()));
  assert.match(held.out, /^running +held by a hook$/m);
});

test("each line of the status says what is there, how much of it, and what to do", async (t) => {
  t.mock.method(Date, "now", () => NOW);
  const line = async (name: string, summary: object, waiting: object[] = []) => {
    const { out } = await printed(t, () => statusCommand(bucketOf(summary, { waiting, holder: null }), parsed()));
    const found = new RegExp(`^${name} +(.*(?:\\n .*)*)`, "m").exec(out)?.[1];
    return found?.split("\n").map((one) => one.trim());
  };
  const counts = { allocations: 7, promoted: 1, new: 2, update: 3, disabled: 0 };
  const fleet = await line("fleet", { built_at: hence(-1), workers: 1, jobs: 2, counts });
  assert.deepEqual(fleet, ["1 worker, 2 jobs, 7 allocations: 1 promoted, 2 new, 3 update", "built 1 h ago"]);
  const empty = await line("fleet", { built_at: hence(-1), workers: 1, jobs: 2, counts: { ...QUIET.counts } });
  assert.equal(empty?.[0], "1 worker, 2 jobs, 0 allocations");
  assert.equal(
    (await line("fleet", { built_at: hence(-1), counts: { ...QUIET.counts, disabled: 4 } }))?.[0],
    "0 workers, 0 jobs, 0 allocations: 4 disabled",
  );
  const run = { id: ID, kind: "deploy", created_at: hence(-1), dry_run: false };
  assert.deepEqual(await line("running", { active_run: run }), ["deploy since 1 h: ops runs follow 8a3c5e70"]);
  const start = { position: 1, kind: "build", by: { name: "eve", address: "192.0.2.7" }, since: hence(-2) };
  const starts = Array.from({ length: 6 }, (_, index) => ({ ...start, position: index + 1 }));
  const queue = [1, 2, 3, 4, 5].map((position) => `${position}. build of eve, for 2 h`);
  assert.deepEqual(await line("in line", {}, starts), [...queue, "and 1 more"]);
  assert.deepEqual(await line("in line", {}, starts.slice(0, 5)), queue);
  const [from, to] = [hence(1), hence(2)];
  assert.deepEqual(await line("freeze", { freezes: [{ from, to, reason: "audit" }] }), [`from ${from} to ${to}: audit`]);
  assert.deepEqual(await line("freeze", { freezes: [{ from: hence(0), to, reason: "x" }] }), [`on until ${to}: x`]);
  assert.deepEqual(await line("freeze", { freezes: [{ from: hence(-1), to, reason: "audit" }] }), [`on until ${to}: audit`]);
  const change = { since: hence(-2), left: "left\x1b", next: "ops\x1b" };
  const keys = [
    { ...change, kind: "ca_rotate" },
    { ...change, kind: "ssh_key_rotate" },
  ];
  const rest = ["for 2 h; go on with: ops\\x1b", "left\\x1b"];
  assert.deepEqual(await line("key change", { key_changes: keys }), [`CA, ${rest[0]}`, rest[1], `ssh key, ${rest[0]}`, rest[1]]);
  assert.deepEqual(await line("key change", { key_changes: keys.slice(1) }), [`ssh key, ${rest[0]}`, rest[1]]);
  const ended = { id: ID, status: "failed", created_at: hence(-3), finished_at: null };
  assert.deepEqual(await line("last deploy", { last_deploy: ended }), ["failed, 3 h ago: ops runs show 8a3c5e70"]);
  assert.deepEqual(await line("messages", { messages: { waiting: 0, failed: 2 } }), ["2 given up: ops notify"]);
  const items = [
    { job: "web", worker: "w1", state: "degraded", at: hence(-1) },
    { job: "", worker: "w2", state: "unreachable", at: hence(-2) },
  ];
  assert.deepEqual(await line("not well", { unwell: { items, total: 3 } }), [
    ...["web@w1 degraded, 1 h ago", "w2 unreachable, 2 h ago", "and 1 more"],
  ]);
  const subject = { subject: "Run failed", opened_at: hence(-1) };
  assert.deepEqual(await line("incidents", { incidents: { items: [subject], total: 1 } }), [
    ...["Run failed, 1 h ago: ops notify incidents"],
  ]);
  const cert = { job: "web", worker: "w1", cert: "tls", not_after: hence(30) };
  assert.deepEqual(await line("certificates", { next_cert: cert }), ["in order; next: web@w1 tls ends in 30 h"]);
  const ca = { ...cert, job: null, not_after: hence(-5) };
  assert.deepEqual(await line("certificates", { certs: { items: [ca], total: 1 }, next_cert: cert }), [
    "the CA has ended 5 h ago",
  ]);
  for (const [at, told] of [
    [hence(0), "has ended 0.0 s ago"],
    [new Date(NOW + 1).toISOString(), "ends in 0.0 s"],
  ] as const)
    assert.deepEqual(await line("certificates", { certs: { items: [{ ...ca, not_after: at }], total: 1 } }), [`the CA ${told}`]);
  const drift = { ...ended, allocations: [], total: 0, workers: {} };
  assert.deepEqual(await line("drift", { drift }), ["nothing known, 3 h ago: ops runs show 8a3c5e70"]);
  assert.match((await line("drift", { drift: { ...drift, workers: { in_sync: 1 } } }))?.[0] ?? "", /^none, 3 h ago/);
  const found = { job: "web", worker: "w1", files: 1 };
  assert.deepEqual(
    await line("drift", { drift: { ...drift, allocations: [found], total: 2, workers: { drifted: 1, not_started: 1 } } }),
    [
      ...[
        "2 allocations changed by hand, 3 h ago: ops runs show 8a3c5e70",
        "web@w1: 1 file",
        "and 1 more",
        "1 worker not started",
      ],
    ],
  );
});

test("problems come first: ten of them, with what to do about each", async (t) => {
  const problem = { job: "web", action: "start", kind: "failed", workers: ["w1"], worker_count: 3, reason: "", run_id: ID };
  const show = async (count: number, more: object = {}) => {
    const items = Array.from({ length: Math.min(count, 11) }, () => ({ ...problem, ...more }));
    return (await printed(t, () => statusCommand(bucketOf({ problems: { items, total: count } }), parsed()))).out.split("\n");
  };
  const one = await show(1);
  assert.deepEqual(one.slice(0, 3), [
    ...["problem            reason  more", "web@w1 and 2 more  start   ops runs show 8a3c5e70", ""],
  ]);
  assert.equal((await show(1, { run_id: "", worker_count: 1 }))[1], "web@w1   start   ops deploy");
  const silent = await show(1, { job: null, kind: "unreachable", reason: "`x` failed: exit code 3: no route\nmore" });
  assert.equal(silent[1], "w1 and 2 more  unreachable: no route  ops runs show 8a3c5e70");
  const many = await show(12);
  assert.deepEqual(many.slice(11, 13), ["and 2 more: ops cat deployments --outcome failed,unreachable", ""]);
  assert.equal((await show(10))[11], "");
  assert.equal(shortReason("a failed: exit code 2: "), "exit code 2: ");
  assert.equal(shortReason("no answer\nb failed: c"), "no answer\nb failed: c");
});

test("the health of all places, since when it is so, and for how much of the time it was well", async (t) => {
  t.mock.method(Date, "now", () => NOW);
  const asked: unknown[] = [];
  const record = { job: "web", worker: "w1", aspect: "health", state: "not_well", at: hence(-2) };
  const rest = { changes: 3, good_percent: 99.5, reason: "slow", run_id: ID };
  const items = [
    { ...record, ...rest },
    { ...record, ...rest, job: "" },
  ];
  const bucketWith = (health: object[]) =>
    ({
      health: async (job?: string) => {
        asked.push(job);
        return health;
      },
      view: async (...words: unknown[]) => void asked.push(words),
    }) as unknown as BucketAccess;
  const { out } = await printed(t, () => showHealth(bucketWith(items), parsed({}, [], ["WEB"])));
  const head = "place   what    state     since    changes  well    reason  run";
  const end = "health  not well  2 h ago        3  99.5 %  slow    8a3c5e70";
  assert.equal(out, `${head}\nweb@w1  ${end}\nw1      ${end}\n`);
  const none = await printed(t, () => showHealth(bucketWith([]), parsed({}, [], ["web"])));
  assert.equal(none.out, "no run has looked yet: ops health_check, ops drift\n");
  await printed(t, () => showHealth(bucketWith([]), parsed()));
  assert.deepEqual(asked, ["web", "web", ["jobs", { jobs: ["web"] }], undefined]);
});
