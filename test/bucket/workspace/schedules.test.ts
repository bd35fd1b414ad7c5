import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { builtSchedules, NO_SCHEDULES, readSchedules, storedSchedules } from "../../../lib/bucket/workspace/schedules.ts";
import { build, checkWorkspace } from "../../../lib/operation/build/build.ts";
import { schemaErrors } from "../../helpers/schema.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

const FILE = "workspace/schedules.json";
const MINUTE_MS = 60_000;

async function read(t: TestContext, value: unknown) {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { [FILE]: JSON.stringify(value) } });
  const problems = new Problems();
  const { schedules, freeze } = await readSchedules(layoutOf(dir), problems);
  const errors = problems.errors.map(({ code, path, message }) => {
    assert.equal(code, "ErrInvalidSchedules");
    return `${path}: ${message}`;
  });
  return { schedules, freeze, errors };
}

const HOURLY = { name: "hourly", every: "1h", kind: "drift" };
const one = (fields: object) => ({ schedules: [{ ...HOURLY, ...fields }] });

test("CP-960 schedules.json names runs with their rhythms, and the windows of freezes", async (t) => {
  const value = {
    $schema: "../.ops/schemas/schedules.json",
    schedules: [
      HOURLY,
      {
        name: "Nightly",
        cron: "30 2 * * *",
        timezone: "Europe/Berlin",
        kind: "deploy",
        parameters: { dry_run: true },
        if_busy: "10m",
        jitter: "90s",
        catch_up: true,
      },
      { name: "real", every: "24h", kind: "deploy", deploy: true, if_busy: "skip" },
    ],
    freeze: [
      { from: "2026-12-20T18:00", to: "2027-01-04T06:00", timezone: "Europe/Berlin", reason: "holidays" },
      { cron: "0 17 * * fri", for: "62h", reason: "weekend" },
    ],
  };
  const { schedules, freeze, errors } = await read(t, value);
  assert.deepEqual(errors, []);
  assert.deepEqual(schemaErrors("schedules", value), []);
  const plain = { parameters: {}, waitMs: 5 * MINUTE_MS, jitterMs: 0, catchUp: false };
  assert.deepEqual(schedules, [
    { ...plain, name: "hourly", rhythm: { everyMs: 60 * MINUTE_MS }, kind: "drift" },
    {
      name: "nightly",
      rhythm: { cron: "30 2 * * *", timezone: "Europe/Berlin" },
      kind: "deploy",
      parameters: { dry_run: true },
      waitMs: 10 * MINUTE_MS,
      jitterMs: 90_000,
      catchUp: true,
    },
    { ...plain, name: "real", rhythm: { everyMs: 24 * 60 * MINUTE_MS }, kind: "deploy", waitMs: 0 },
  ]);
  assert.deepEqual(freeze, [
    { fromMs: Date.parse("2026-12-20T17:00Z"), toMs: Date.parse("2027-01-04T05:00Z"), reason: "holidays" },
    { rhythm: { cron: "0 17 * * fri", timezone: "UTC" }, forMs: 62 * 60 * MINUTE_MS, reason: "weekend" },
  ]);
});

test("CP-960 CP-961 what is wrong in schedules.json is told with its place", async (t) => {
  const cases: [value: unknown, error: RegExp][] = [
    [[], /^: expected an object/],
    [{ schedule: [] }, /^schedule: is not a known field; did you mean "schedules"\?/],
    [one({ Kind: "drift" }), /^schedules\/0\/Kind: is not a known field/],
    [one({ name: "a b" }), /^schedules\/0\/name: /],
    [{ schedules: [HOURLY, { ...HOURLY, name: "Hourly" }] }, /^schedules\/1\/name: the schedule "hourly" is there twice/],
    [one({ every: undefined }), /^schedules\/0: expected either every or cron/],
    [one({ cron: "* * * * *" }), /^schedules\/0: expected either every or cron/],
    [one({ every: "30s" }), /^schedules\/0\/every: expected a time from 1m to 744h/],
    [one({ every: 15 }), /^schedules\/0\/every: /],
    [one({ every: undefined, cron: "0 25 * * *" }), /^schedules\/0\/cron: hour: expected/],
    [one({ every: undefined, cron: "0 1 * * *", timezone: "Mars/Olympus" }), /^schedules\/0\/timezone: expected the name of/],
    [one({ kind: "push" }), /^schedules\/0\/kind: expected one of/],
    [one({ parameters: [] }), /^schedules\/0\/parameters: expected an object/],
    [one({ if_busy: "wait" }), /^schedules\/0\/if_busy: expected a time up to 24h/],
    [one({ jitter: "2h" }), /^schedules\/0\/jitter: must not be longer than every/],
    [one({ catch_up: "yes" }), /^schedules\/0\/catch_up: expected true or false/],
    [one({ kind: "deploy" }), /^schedules\/0: expected dry_run among the parameters of a deploy, or "deploy": true/],
    [one({ deploy: true }), /^schedules\/0\/deploy: goes only with a deploy that is no dry run/],
    [one({ kind: "deploy", deploy: true, parameters: { dry_run: true } }), /^schedules\/0\/deploy: goes only with/],
    [one({ kind: "deploy", deploy: true, parameters: { plan: "x" } }), /^schedules\/0\/parameters: plan and retry_of/],
    [{ schedules: [5, 5] }, /^schedules\/0: expected an object, found an integer/],
    [{ schedules: [{}, {}] }, /^schedules\/0\/name: is missing/],
    [{ freeze: [5] }, /^freeze\/0: expected an object, found an integer/],
    [{ freeze: [{ reason: "x" }] }, /^freeze\/0: expected from and to, or cron and for/],
    [{ freeze: [{ from: "2026-01-01T00:00", cron: "* * * * *", reason: "x" }] }, /^freeze\/0: expected from and to, or/],
    [{ freeze: [{ from: "2026-01-02T00:00", to: "2026-01-01T00:00", reason: "x" }] }, /^freeze\/0\/to: must be after from/],
    [{ freeze: [{ from: "2026-02-30T00:00", to: "2026-03-01T00:00", reason: "x" }] }, /^freeze\/0\/from: there is no time/],
    [{ freeze: [{ from: "tomorrow", to: "2026-03-01T00:00", reason: "x" }] }, /^freeze\/0\/from: expected a time such as/],
    [{ freeze: [{ cron: "0 0 * * *", for: "2h", reason: " " }] }, /^freeze\/0\/reason: must not be empty/],
  ];
  for (const [value, error] of cases) {
    const { errors } = await read(t, value);
    assert.match(errors[0] ?? "no error", error, JSON.stringify(value));
  }
});

const isTaken = (file: unknown) => storedSchedules(JSON.stringify(file)) !== NO_SCHEDULES;
const KINDS = "health_check drift worker_facts worker_uptime worker_sysstat snapshot_create gc run_command build deploy".split(
  " ",
);
const clocked = (fields: object) => one({ every: undefined, cron: "0 1 * * *", ...fields });
const frozen = (fields: object) => ({ freeze: [{ reason: "x", ...fields }] });
const ONCE = { from: "2026-01-01T00:00", to: "2026-01-01T00:01" };
const REPEATED = { cron: "0 0 * * *", for: "2h" };

test("CP-960 each amount in schedules.json goes from its least to its most, and no further", () => {
  const copies = (count: number, make: (index: number) => object) => Array.from({ length: count }, (_, index) => make(index));
  const schedules = (count: number) => ({ schedules: copies(count, (index) => ({ ...HOURLY, name: `s${index}` })) });
  const right = [
    ...[schedules(200), { freeze: copies(100, () => ({ ...ONCE, reason: "x" })) }],
    ...["1m", "744h", "90s", "1h30m"].map((every) => one({ every })),
    ...["0s", "24h"].flatMap((time) => [clocked({ jitter: time }), one({ if_busy: time })]),
    ...["1m", "744h"].map((time) => frozen({ ...REPEATED, for: time })),
    ...[one({ jitter: "1h" }), one({ name: "a".repeat(100) }), clocked({ cron: `0 0 * * ${" ".repeat(190)}*` })],
    ...[frozen({ ...ONCE, reason: "x".repeat(200) }), frozen({ ...ONCE, timezone: "Europe/Berlin" })],
    ...KINDS.map((kind) => one({ kind, parameters: { dry_run: true } })),
  ];
  const wrong = [
    ...[schedules(201), { freeze: copies(101, () => ({ ...ONCE, reason: "x" })) }],
    ...["59s", "744h1s", "1m0.5s", "1.5s", "", "60"].map((every) => one({ every })),
    ...["24h1s", "0.5s", "-1s"].flatMap((time) => [clocked({ jitter: time }), one({ if_busy: time })]),
    ...["59s", "744h1s"].map((time) => frozen({ ...REPEATED, for: time })),
    ...[one({ jitter: "1h1s" }), one({ name: "a".repeat(101) }), clocked({ cron: `0 0 * * ${" ".repeat(193)}*` })],
    ...[frozen({ ...ONCE, reason: "x".repeat(201) }), frozen({ ...ONCE, timezone: "Mars/Olympus" })],
  ];
  assert.deepEqual([right.filter((file) => !isTaken(file)), wrong.filter(isTaken)], [[], []]);
  // How long a time is takes more than a schema to see.
  const isSeen = (file: object) => schemaErrors("schedules", file).length > 0;
  assert.deepEqual([right.filter(isSeen), wrong.filter(isSeen).length], [[], 5]);
  for (const fields of [
    { every: 5 },
    { if_busy: 5 },
    { jitter: 5 },
    { cron: 5 },
    { parameters: 5 },
    { kind: "x" },
    { name: "1" },
  ])
    assert.ok(isSeen(one(fields)), JSON.stringify(fields));
  for (const fields of [
    { ...ONCE, from: "2026-01-01" },
    { ...REPEATED, for: 5 },
  ])
    assert.ok(isSeen(frozen(fields)));
});

test("CP-960 what belongs together stands together in schedules.json, and is all that stands there", () => {
  const deploy = (fields: object) => one({ kind: "deploy", ...fields });
  const right = [deploy({ parameters: { dry_run: true } }), deploy({ deploy: true }), deploy({ deploy: true, parameters: {} })];
  const wrong = [
    ...[
      { ...ONCE, cron: "0 0 * * *" },
      { ...ONCE, for: "2h" },
      { ...REPEATED, from: ONCE.from },
      { ...REPEATED, to: ONCE.to },
    ],
    ...[{ from: ONCE.from }, { to: ONCE.to }, { cron: "0 0 * * *" }, { for: "2h" }, { ...ONCE, to: ONCE.from }],
    ...["x2026-01-01T00:01", "2026-01-01T00:011", "2026-01-01T00:60", "2026-13-01T00:00", 5].map((to) => ({ ...ONCE, to })),
  ].map(frozen);
  const notReal = [{ parameters: { dry_run: false } }, { parameters: { dry_run: 1 } }, { deploy: false }].map(deploy);
  const ofOneRun = [{ plan: "x" }, { retry_of: "x" }].flatMap((parameters) => [
    one({ parameters }),
    deploy({ deploy: true, parameters }),
  ]);
  assert.deepEqual([right.filter((file) => !isTaken(file)), [...wrong, ...notReal, ...ofOneRun].filter(isTaken)], [[], []]);
});

test("CP-960 every mistake of a schedule is told once, beside those of others", async (t) => {
  const wrong = {
    schedules: [
      { ...HOURLY, parameters: 5 },
      { ...HOURLY, name: "b", if_busy: 5, jitter: "25h" },
    ],
    freeze: [frozen({ ...ONCE, from: 5 }).freeze[0], frozen({ ...ONCE, from: "x2026-01-01T00:00" }).freeze[0]],
  };
  const { errors } = await read(t, wrong);
  assert.deepEqual(errors.sort(), [
    "freeze/0/from: expected a string, found an integer",
    'freeze/1/from: expected a time such as 2026-12-20T18:00, found "x2026-01-01T00:00"',
    "schedules/0/parameters: expected an object",
    "schedules/1/if_busy: expected a time up to 24h in whole seconds, such as 15m or 1h30m",
    "schedules/1/jitter: expected a time up to 24h in whole seconds, such as 15m or 1h30m",
  ]);
});

test("CP-961 a build checks the parameters of each schedule as a start of its run would, and the names in them", async (t) => {
  const bucket = await makeBucket(t, {
    workers: ["10.0.0.1"],
    jobs: { web: {} },
    files: {
      [FILE]: JSON.stringify({
        schedules: [
          { name: "a", every: "5m", kind: "health_check", parameters: { jobs: ["wbe"] } },
          { name: "b", every: "5m", kind: "worker_uptime", parameters: { labels: ["edge"] } },
          { name: "c", every: "5m", kind: "drift", parameters: { workers: ["10.0.0.2"] } },
          { name: "d", every: "5m", kind: "run_command", parameters: { concurrency: 0 } },
          { name: "e", every: "5m", kind: "health_check", parameters: { job: "web" } },
          { name: "f", every: "5m", kind: "health_check", parameters: { jobs: ["Web"], wait: true } },
        ],
      }),
    },
  });
  const { problems } = await checkWorkspace(bucket.layout, new AbortController().signal);
  assert.deepEqual(problems.errors.map(sentenceOf), [
    `ErrInvalidSchedules: ${FILE}: schedules/0/parameters/jobs/0: there is no job "wbe"; did you mean "web"?`,
    `ErrInvalidSchedules: ${FILE}: schedules/1/parameters/labels/0: there is no label "edge"`,
    `ErrInvalidSchedules: ${FILE}: schedules/2/parameters/workers/0: there is no worker "10.0.0.2"; did you mean "10.0.0.1"?`,
    `ErrInvalidSchedules: ${FILE}: schedules/3/parameters/command: is missing`,
    `ErrInvalidSchedules: ${FILE}: schedules/3/parameters/concurrency: expected a number from 1 to 1024, found 0`,
    `ErrInvalidSchedules: ${FILE}: schedules/4/parameters/job: is not a known field; did you mean "jobs"?`,
  ]);
});

test("CP-962 the schedules of the last build that succeeded are in effect", async (t) => {
  const spec = (schedules: object) => ({
    jobs: { web: {} },
    workers: ["10.0.0.1"],
    files: { [FILE]: JSON.stringify(schedules) },
  });
  const bucket = await makeBucket(t, spec({ schedules: [HOURLY] }));
  const names = () => builtSchedules(bucket.db).schedules.map(({ name }) => name);
  assert.deepEqual(names(), []);
  await build(bucket.context(), {});
  assert.deepEqual(names(), ["hourly"]);
  makeWorkspace(bucket.dir, spec({ schedules: [{ ...HOURLY, kind: "nothing" }] }));
  await assert.rejects(build(bucket.context(), {}), { code: "ErrInvalidSchedules" });
  assert.deepEqual(names(), ["hourly"]);
  makeWorkspace(bucket.dir, { ...spec({}), files: { [FILE]: null } });
  await build(bucket.context(), {});
  assert.deepEqual(names(), []);
});

test("a stored text that this program does not understand schedules nothing", () => {
  assert.deepEqual(storedSchedules("{"), { schedules: [], freeze: [] });
  assert.deepEqual(storedSchedules('{"later": 1}'), { schedules: [], freeze: [] });
});
