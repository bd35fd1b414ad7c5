import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_NOTIFY, type Notify } from "../../../lib/bucket/notify/notify.ts";
import type { Proposal } from "../../../lib/run/approval/proposal.ts";
import type { RunRecord } from "../../../lib/run/record.ts";
import { findingsOf, type KnownNow } from "../../../lib/server/messages/findings.ts";
import { noteFindings, noteMessages } from "../../../lib/server/messages/incidents.ts";
import type { MessageState } from "../../../lib/server/messages/state.ts";

const DAY_MS = 86_400_000;
const NOTHING: KnownNow = { ended: [], forced: [], health: undefined, certs: undefined, due: new Map(), wanted: [] };
const AT = "2026-11-26T10:00:00.000Z";
const EVENTS = ["run_failed", "allocation_unhealthy", "worker_unreachable", "drift", "certificate_ends", "recovered"] as const;

function notify(rule: Partial<Notify["send"][number]> = {}): Notify {
  const target = {
    webhook: "https://hook.example/",
    command: undefined,
    headers: {},
    sign: undefined,
    body: "json",
    isPrivate: false,
  };
  const all = [...EVENTS, "gate_failed", "snapshot_failed", "schedule_missed", "approval_wanted", "break_glass_used"] as const;
  const events = [...all] as Notify["send"][number]["events"];
  return { ...NO_NOTIFY, targets: { hook: target }, send: [{ to: ["hook"], events, after: 1, days: 14, ...rule }] };
}

let last = 0;
function run(kind: string, status: string, more: object = {}): RunRecord {
  const rest = { params: {}, error: status === "failed" ? "because" : null, result: null, schedule: null, break_glass: null };
  const audit = [{ at: AT, action: "start", actor: { name: "ada", address: "", via: "bearer" }, request_id: null }];
  return { id: `run-${++last}`, kind, status, created_at: AT, finished_at: AT, audit, ...rest, ...more } as unknown as RunRecord;
}

/** What is kept of incidents and messages after look after look. */
function stateAfter(looks: readonly Partial<KnownNow>[], rule?: Partial<Notify["send"][number]>, now = Date.parse(AT)) {
  const state: MessageState = { runs: [], change: 0, incidents: [], messages: [] };
  for (const look of looks) {
    const left = state.incidents.flatMap((one) => (one.over_at === null ? one.left : []));
    noteFindings(state, findingsOf({ ...NOTHING, ...look }, left), now);
    noteMessages(state, notify(rule), now);
    // All of them are sent at once.
    for (const one of state.messages) Object.assign(one, { state: "sent", attempts: 1 });
  }
  return state;
}

/** The subjects of the messages that look after look brings. */
function messagesOf(...looks: Parameters<typeof stateAfter>): string[] {
  return stateAfter(...looks).messages.map(({ subject }) => subject);
}

const ended = (...all: RunRecord[]): Partial<KnownNow> => ({ ended: all });
const deploy = (status: string, jobs: Record<string, string>, more: object = {}) => {
  const parts = Object.entries(jobs).map(([job, outcome]) => ({ job, outcome, reason: outcome, ...more, allocations: [] }));
  return ended(run("deploy", status, { result: { jobs: parts } }));
};

const RUNS: [what: string, looks: Partial<KnownNow>[], subjects: string[]][] = [
  ["a run that fails again and again", [1, 2, 3].map(() => ended(run("gc", "failed"))), ["Run failed: gc"]],
  ["a success", [ended(run("gc", "failed")), ended(run("gc", "succeeded"))], ["Run failed: gc", "Over: Run failed: gc"]],
  [
    "a push that a build makes good",
    [ended(run("push", "failed")), ended(run("build", "succeeded"))],
    ["Run failed: push", "Over: Run failed: push"],
  ],
  ["a cancelled run", [ended(run("gc", "cancelled"))], []],
  ["a snapshot", [ended(run("snapshot_create", "failed"))], ["Snapshot failed: snapshot_create"]],
  [
    "commands, each for itself",
    [ended(run("run_command", "failed"), run("run_command", "failed"))],
    ["Run failed: run_command", "Run failed: run_command"],
  ],
  ["a command that succeeds", [ended(run("run_command", "succeeded"))], []],
  [
    "a command of a schedule",
    ["failed", "failed", "succeeded"].map((status) => ended(run("run_command", status, { schedule: { name: "tidy" } }))),
    ["Run failed: run_command of schedule tidy", "Over: Run failed: run_command of schedule tidy"],
  ],
  [
    "a health check that has found something",
    [ended(run("health_check", "failed", { result: { jobs: [], workers: [{ outcome: "failed" }] } }))],
    [],
  ],
  ["a health check that was killed", [ended(run("health_check", "failed"))], ["Run failed: health_check"]],
  [
    "a deploy, job by job",
    [
      deploy("failed", { web: "failed", api: "failed", db: "deployed" }),
      deploy("failed", { web: "deployed", api: "failed", db: "skipped" }),
      deploy("failed", { db: "failed" }),
      deploy("succeeded", {}),
    ],
    [
      "Run failed: deploy of web, deploy of api",
      "Run failed: deploy of db",
      "Over: Run failed: deploy of web, deploy of api",
      "Over: Run failed: deploy of db",
    ],
  ],
  ["a gate", [deploy("failed", { web: "failed" }, { gate_failed: true })], ["Health gate failed: deploy of web"]],
  [
    "a deploy without a result",
    [ended(run("deploy", "failed")), deploy("succeeded", { web: "deployed" })],
    ["Run failed: deploy", "Over: Run failed: deploy"],
  ],
];

for (const [what, looks, subjects] of RUNS)
  test(`CP-862 what is told of ${what}`, () => assert.deepEqual(messagesOf(looks).sort(), subjects.toSorted()));

const change = (aspect: string, state: string, worker = "h1", job = "web") => {
  return { job, worker, aspect, state, reason: "why", at: AT, run_id: `run-${last}` } as never;
};
const health = (changes: never[], unwell: never[], more: Partial<KnownNow> = {}): Partial<KnownNow> => ({
  health: { changes, unwell },
  ...more,
});

test("CP-861 an unhealthy allocation is told once as many checks have found it as the rule says, or not at all", () => {
  const bad = change("health", "unhealthy");
  const found = { result: { jobs: [{ job: "web", allocations: [{ worker: "h1", outcome: "failed" }] }], workers: [] } };
  const check = () => [run("health_check", "failed", found)];
  const looks = [health([bad], [bad]), health([], [bad], { ended: check() }), health([], [bad], { ended: check() })];
  const over = health([change("health", "healthy")], []);
  assert.deepEqual(messagesOf([...looks, over], { after: 3 }), ["Unhealthy: web@h1", "Over: Unhealthy: web@h1"]);
  assert.deepEqual(messagesOf([...looks.slice(0, 2), over], { after: 3 }), []);
});

test("CP-861 CP-873 a dead worker is one incident, and no unhealthy job; drift is told; what is gone is over", () => {
  const lost = [
    change("reach", "unreachable", "h1", ""),
    change("health", "unreachable"),
    change("health", "unreachable", "h1", "api"),
  ];
  const drifted = change("files", "drifted", "h2");
  const told = messagesOf([health([...lost, drifted], [...lost, drifted]), health([], [])]);
  assert.deepEqual(told, ["Worker unreachable: h1", "Drift: web@h2", "Over: Worker unreachable: h1", "Over: Drift: web@h2"]);
});

test("CP-861 an incident that began and ended between two looks is told with one message", () => {
  const looks = [health([change("health", "unhealthy"), change("health", "healthy")], [])];
  assert.deepEqual(messagesOf(looks), ["Over: Unhealthy: web@h1"]);
  assert.deepEqual(messagesOf(looks, { events: ["allocation_unhealthy"] }), ["Unhealthy: web@h1"]);
});

const PROPOSAL = {
  id: "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f11",
  kind: "deploy",
  reason: "why",
  proposed: { at: AT, by: { name: "ada" } },
} as unknown as Proposal;

test("CP-861 a place has a name: a run or a proposal that has none is named by its kind and the end of its id", () => {
  const [id, forced] = ["0198f3a2-0000-7000-8000-00000badc0de", "0198f3a2-0000-7000-8000-0000c0ffee00"];
  const looks: Partial<KnownNow>[] = [
    { wanted: [PROPOSAL], ended: [run("hooks", "failed", { id })] },
    { wanted: [PROPOSAL], forced: [run("deploy", "running", { id: forced, break_glass: "on fire" })] },
    { wanted: [] },
  ];
  const { incidents } = stateAfter(looks);
  assert.deepEqual(
    incidents.map(({ event, places, over_at: over }) => [event, places, over !== null]),
    [
      ["run_failed", ["hooks 0badc0de"], true],
      ["approval_wanted", ["deploy 4c6b8f11"], true],
      ["break_glass_used", ["deploy c0ffee00"], true],
    ],
  );
});

test("CP-873 schedules, proposals and a broken glass are told", () => {
  const due = (outcome: string) => ({ due: AT, outcome, reason: "away", run_id: null, status: null }) as never;
  const schedules = (one: string, other: string): Partial<KnownNow> => ({
    due: new Map([
      ["a", due(one)],
      ["b", due(other)],
    ]),
  });
  assert.deepEqual(
    messagesOf([schedules("missed", "refused"), schedules("skipped", "started"), schedules("started", "started")]),
    ["Schedule missed: a, b (refused)", "Over: Schedule missed: a, b (refused)"],
  );
  assert.deepEqual(messagesOf([{ wanted: [PROPOSAL] }, {}]), [
    "Approval wanted: deploy by ada",
    "Over: Approval wanted: deploy by ada",
  ]);
  const forced = [run("deploy", "running", { break_glass: "on fire" })];
  assert.deepEqual(messagesOf([{ forced }, { forced }, ended()]), ["Break-glass used: deploy by ada, bearer from "]);
});

test("CP-873 a certificate is told so many days before its end as the rule says, and over once it is renewed", () => {
  const cert = { job: "web", worker: "h1", cert: "tls", ends: Date.parse(AT) + 10 * DAY_MS };
  const looks = [{ certs: [cert] }, { certs: [] }];
  assert.deepEqual(messagesOf(looks, { days: 9 }), []);
  assert.deepEqual(messagesOf(looks, { days: 10 }), ["Certificate ends: web@h1 tls", "Over: Certificate ends: web@h1 tls"]);
  assert.deepEqual(messagesOf([{ certs: [{ ...cert, job: "", worker: "" }] }]), ["Certificate ends: certificate authority"]);
});
