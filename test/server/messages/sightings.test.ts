import assert from "node:assert/strict";
import { test } from "node:test";
import type { Proposal } from "../../../lib/run/approval/proposal.ts";
import type { RunRecord } from "../../../lib/run/record.ts";
import { findingsOf, type KnownNow } from "../../../lib/server/messages/findings.ts";
import type { Sighting } from "../../../lib/server/messages/incidents.ts";

const NOTHING: KnownNow = { ended: [], forced: [], health: undefined, certs: undefined, due: new Map(), wanted: [] };
const [BEGUN, AT] = ["2026-11-26T09:00:00.000Z", "2026-11-26T10:00:00.000Z"];
const ID = "0198f3a2-0000-7000-8000-00000badc0de";

const seen = (known: Partial<KnownNow>, left: readonly string[] = []) => findingsOf({ ...NOTHING, ...known }, left);

function run(kind: string, status = "failed", more: object = {}): RunRecord {
  const rest = { params: {}, error: status === "failed" ? "because" : null, result: null, schedule: null, audit: [] };
  return { id: ID, kind, status, created_at: BEGUN, finished_at: AT, ...rest, ...more } as unknown as RunRecord;
}

const foundOf = (record: RunRecord, left?: readonly string[]) => seen({ ended: [record] }, left).found;
/** What is told of a run, in short: `!` before what is bad, `*` behind what is told once. */
const inShort = (record: RunRecord) =>
  foundOf(record).map(({ event, place, shown, isBad, isMoment }) => {
    return `${isBad ? "!" : ""}${event} ${place}${shown === place ? "" : ` (${shown})`}${isMoment ? "*" : ""}`;
  });

test("CP-861 a change of health is a finding about its place, of the group of its run", () => {
  const change = (aspect: string, state: string, worker: string, job = "web", reason = "why") =>
    ({ job, worker, aspect, state, reason, at: AT, run_id: "r1" }) as never;
  const changes = [change("health", "unhealthy", "h1"), change("health", "healthy", "h2"), change("load", "unhealthy", "h1", "")];
  const unwell = [
    change("reach", "unreachable", "h3", "", ""),
    change("health", "unreachable", "h3"),
    change("files", "drifted", "h4"),
    change("health", "unhealthy", "h5", "api"),
  ];
  const { found, complete } = seen({ health: { changes, unwell } });
  const of = (event: Sighting["event"], place: string, more: Partial<Sighting> = {}) => {
    return { event, place, isBad: true, group: "r1 ", job: "web", reason: `${place}: why`, run: "r1", at: AT, ...more };
  };
  assert.deepEqual(found, [
    of("allocation_unhealthy", "web@h1", { group: "r1 web" }),
    of("allocation_unhealthy", "web@h2", { group: "r1 web", isBad: false }),
    of("worker_unreachable", "h3", { job: null, reason: "" }),
    of("drift", "web@h4"),
    of("allocation_unhealthy", "api@h5", { group: "r1 api", job: "api" }),
  ]);
  assert.deepEqual(complete, [
    { events: ["schedule_missed"], bad: new Set() },
    { events: ["approval_wanted"], bad: new Set() },
    { events: ["allocation_unhealthy"], bad: new Set(["web@h3", "api@h5"]) },
    { events: ["worker_unreachable"], bad: new Set(["h3"]) },
    { events: ["drift"], bad: new Set(["web@h4"]) },
  ]);
});

const LOOKING = ["health_check", "drift", "worker_facts", "worker_uptime", "worker_sysstat"];

test("CP-861 a run that looks at workers has checked what it found bad there, and no other run has", () => {
  const jobs = [{ job: "web", allocations: ["failed", "ok"].map((outcome, at) => ({ worker: `h${at}`, outcome })) }];
  const workers = [
    { worker: "h2", outcome: "drifted", allocations: ["drifted", "in_sync"].map((outcome, at) => ({ job: `j${at}`, outcome })) },
    { worker: "h3", outcome: "unreachable" },
  ];
  const checksOf = (kind: string) => seen({ ended: [run(kind, "failed", { result: { jobs, workers } })] }).checks;
  for (const kind of LOOKING)
    assert.deepEqual(
      checksOf(kind),
      [
        { run: ID, event: "allocation_unhealthy", bad: new Set(["web@h0"]) },
        { run: ID, event: "drift", bad: new Set(["j0@h2"]) },
        { run: ID, event: "worker_unreachable", bad: new Set(["h3"]) },
      ],
      kind,
    );
  assert.deepEqual(checksOf("deploy"), []);
});

test("CP-862 the failure of a kind of runs is over with a success; a run of another kind is told once, by its id", () => {
  for (const kind of [...LOOKING, "build", "gc", "kv_rekey", "ca_rotate", "ssh_key_rotate"]) {
    assert.deepEqual(inShort(run(kind)), [`!run_failed ${kind}`]);
    assert.deepEqual(inShort(run(kind, "succeeded")), [`run_failed ${kind}`]);
    assert.deepEqual(inShort(run(kind, "cancelled")), []);
  }
  for (const kind of ["push", "rollback"])
    for (const [status, mark] of [
      ["failed", "!"],
      ["succeeded", ""],
    ] as const)
      assert.deepEqual(inShort(run(kind, status)), [`${mark}run_failed build (${kind})`]);
  assert.deepEqual(inShort(run("snapshot_create")), ["!snapshot_failed snapshot_create"]);
  for (const kind of ["run_command", "hooks", "snapshot_restore", "worker_trust", "job_restart"]) {
    assert.deepEqual(inShort(run(kind)), [`!run_failed ${kind} 0badc0de (${kind})*`]);
    assert.deepEqual(inShort(run(kind, "succeeded")), []);
  }
  const about = { reason: "because", group: ID, run: ID, at: AT };
  const gc = { event: "run_failed", place: "gc", shown: "gc", isBad: true, isMoment: false };
  assert.deepEqual(foundOf(run("gc")), [{ ...gc, ...about }]);
  assert.deepEqual(foundOf(run("gc", "failed", { error: null, finished_at: null })), [
    { ...gc, ...about, reason: "", at: undefined },
  ]);
});

test("CP-862 of a schedule's runs the place is that of the kind, or of the schedule where each run is for itself", () => {
  const schedule = { schedule: { name: "nightly" } };
  const dry = { params: { dry_run: true } };
  assert.deepEqual(inShort(run("gc", "failed", schedule)), ["!run_failed gc (gc of schedule nightly)"]);
  assert.deepEqual(inShort(run("hooks", "failed", schedule)), ["!run_failed hooks of schedule nightly"]);
  assert.deepEqual(inShort(run("hooks", "succeeded", schedule)), ["run_failed hooks of schedule nightly"]);
  assert.deepEqual(inShort(run("deploy", "failed", dry)), ["!run_failed deploy 0badc0de (dry run of deploy)*"]);
  assert.deepEqual(inShort(run("deploy", "succeeded", dry)), []);
  assert.deepEqual(inShort(run("deploy", "failed", { ...dry, ...schedule })), ["!run_failed deploy of schedule nightly"]);
  assert.deepEqual(inShort(run("gc", "failed", dry)), ["!run_failed gc"], "only a deploy has a dry run");
});

test("CP-862 a run that looked at workers has not failed where all that went wrong is told of them", () => {
  const isBad = (kind: string, result: object | null) => foundOf(run(kind, "failed", { result })).map((one) => one.isBad);
  const workers = (...outcomes: string[]) => ({ workers: outcomes.map((outcome) => ({ worker: "h", outcome })) });
  for (const [outcomes, bad] of [
    [["drifted", "in_sync"], false],
    [["unreachable"], false],
    [["in_sync"], true],
    [["drifted", "failed"], true],
    [["unreachable", "failed"], true],
    [[], true],
  ] as const)
    for (const kind of ["drift", "worker_facts"])
      assert.deepEqual(isBad(kind, workers(...outcomes)), [bad], `${kind} ${outcomes}`);
  assert.deepEqual(isBad("health_check", { jobs: [{ job: "web", allocations: [] }] }), [false]);
  assert.deepEqual(isBad("health_check", workers("ok")), [false]);
  for (const result of [null, { jobs: [], workers: [] }, { jobs: 1 }]) assert.deepEqual(isBad("health_check", result), [true]);
  assert.deepEqual(isBad("gc", workers("unreachable")), [true], "other runs look at nothing");
});

test("CP-862 a deploy fails job by job, and makes good what it deploys", () => {
  const about = { group: ID, run: ID, at: AT };
  const good = (place: string, event = "run_failed") => ({ event, place, isBad: false, ...about });
  const deploy = (status: string, outcomes: Record<string, string>, more: { params?: object; gate?: string } = {}) => {
    const jobs = Object.entries(outcomes).map(([job, outcome]) => ({
      job,
      outcome,
      gate_failed: job === more.gate,
      reason: "no",
    }));
    return run("deploy", status, { result: { jobs }, params: more.params ?? {} });
  };
  const outcomes = { web: "failed", api: "deployed", db: "skipped", cut: "not_started" };
  for (const [gate, event] of [
    ["web", "gate_failed"],
    ["api", "run_failed"],
  ] as const) {
    const bad = { event, place: "deploy of web", isBad: true, job: "web", reason: "web: no", ...about };
    const found = [good("deploy of api", event), good("deploy of db", event), bad];
    assert.deepEqual(foundOf(deploy("failed", outcomes, { gate })), found);
  }
  const left = ["deploy of old", "deploy", "gc"];
  const all = [good("deploy"), good("deploy of old")];
  assert.deepEqual(foundOf(deploy("succeeded", { web: "deployed" }), left), all);
  const some = { params: { jobs: ["web"] } };
  assert.deepEqual(foundOf(deploy("succeeded", { web: "deployed" }, some), left), [good("deploy"), good("deploy of web")]);
  assert.deepEqual(foundOf(run("deploy")), [{ event: "run_failed", place: "deploy", isBad: true, reason: "because", ...about }]);
  assert.deepEqual(foundOf(run("deploy", "failed", { error: null }))[0]?.reason, "");
  assert.deepEqual(foundOf(deploy("cancelled", outcomes)), []);
});

test("CP-873 a broken glass is told with who did it, when and why", () => {
  const audit = [{ at: BEGUN, action: "start", actor: { name: "ada", address: "::1", via: "bearer" }, request_id: null }];
  const forced = (more: object) => seen({ forced: [run("deploy", "running", { break_glass: "on fire", ...more })] }).found;
  const about = {
    event: "break_glass_used",
    place: "deploy 0badc0de",
    isBad: true,
    group: ID,
    run: ID,
    isMoment: true,
    at: BEGUN,
  };
  assert.deepEqual(forced({ audit }), [{ ...about, shown: "deploy by ada, bearer from ::1", reason: "on fire" }]);
  assert.deepEqual(forced({ break_glass: null }), [{ ...about, shown: "deploy by somebody", reason: "" }]);
});

test("CP-873 a due time that was missed or refused is told; until the next start the schedule is not well", () => {
  const due = (outcome: string, reason: string | null = "away") => ({ due: AT, outcome, reason, run_id: null, status: null });
  const states = { a: due("missed"), b: due("refused", null), c: due("skipped"), d: due("started") };
  const { found, complete } = seen({ due: new Map(Object.entries(states)) as never });
  const late = { event: "schedule_missed", isBad: true, group: "", run: null };
  assert.deepEqual(found, [
    { ...late, place: "a", shown: "a", reason: `a, due ${AT}: away` },
    { ...late, place: "b", shown: "b (refused)", reason: `b, due ${AT}: refused` },
  ]);
  assert.deepEqual(complete[0], { events: ["schedule_missed"], bad: new Set(["a", "b", "c"]) });
});

test("CP-873 a proposal tells who asks and how to approve it", () => {
  const of = (reason: string | null) => ({ id: ID, kind: "deploy", reason, proposed: { at: AT, by: { name: "ada" } } });
  const { found, complete } = seen({ wanted: [of("why"), of(null)] as unknown as Proposal[] });
  const how = "Look at it, then type: ops approve 0badc0de";
  const wanted = { event: "approval_wanted", place: "deploy 0badc0de", isBad: true, group: ID, run: null };
  assert.deepEqual(found, [
    { ...wanted, shown: "deploy by ada", reason: `why\n${how}`, at: AT },
    { ...wanted, shown: "deploy by ada", reason: how, at: AT },
  ]);
  assert.deepEqual(complete[1]?.bad, new Set(["deploy 0badc0de"]));
});

test("CP-873 a certificate tells when it ends, that of the authority too", () => {
  const ends = Date.parse(AT);
  const certs = [
    { job: "web", worker: "h1", cert: "tls", ends },
    { job: "", worker: "", cert: "ca", ends },
  ];
  const { found, complete } = seen({ certs });
  const one = (place: string, job: string | null) => {
    return {
      event: "certificate_ends",
      place,
      isBad: true,
      group: "",
      job,
      reason: `${place} ends ${AT}`,
      endsAt: ends,
      run: null,
    };
  };
  assert.deepEqual(found, [one("web@h1 tls", "web"), one("certificate authority", null)]);
  assert.deepEqual(complete[2], { events: ["certificate_ends"], bad: new Set(["web@h1 tls", "certificate authority"]) });
});
