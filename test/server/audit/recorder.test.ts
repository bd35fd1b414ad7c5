import assert from "node:assert/strict";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { AuditEntry } from "../../../lib/audit/line.ts";
import type { AuditLog } from "../../../lib/audit/log.ts";
import type { Identity } from "../../../lib/auth/guard.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { object, secret, string } from "../../../lib/core/shape.ts";
import { signingKey } from "../../../lib/core/signing-key.ts";
import { type Answer, type HttpRequest, json } from "../../../lib/http/message.ts";
import type { EventLog } from "../../../lib/run/events.ts";
import type { RunRecord } from "../../../lib/run/record.ts";
import { AuditRecorder, auditKindOf } from "../../../lib/server/audit/recorder.ts";
import { FoldedRefusals } from "../../../lib/server/audit/refusals.ts";
import type { Context, ServerRoute } from "../../../lib/server/context.ts";
import { ROUTES } from "../../../lib/server/routes/table.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const RUN = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e71";
const ADA = { name: "ada", role: "deploy", address: "192.0.2.1", via: "bearer", totp: false } as Identity;
const WHO = { who: "ada", via: "bearer", role: "deploy", from: "192.0.2.1", request: "r1" };
const REQUEST = { id: "r1", method: "POST", peer: "192.0.2.1", noted: {} } as HttpRequest;

/** A recorder whose lines are kept in a list; `later` marks those that could be written only then. */
async function setUp(t: TestContext) {
  const root = temporaryFolder(t);
  const key = await signingKey(path.join(root, "audit.key"));
  const lines: (AuditEntry & { later?: true })[] = [];
  const state = { broken: false, closed: 0 };
  const log = {
    async append(entry: AuditEntry) {
      if (state.broken) throw new Failure("audit_unavailable", "the disk is full");
      lines.push(entry);
      return { n: lines.length, at: "", hash: "" };
    },
    later: (entry: AuditEntry) => void lines.push({ ...entry, later: true }),
    key: async () => key,
    close: async () => void state.closed++,
  };
  const recorder = new AuditRecorder(log as unknown as AuditLog, { root, now: () => 0 });
  /** The lines of a request, without fields that say nothing. */
  const asked = async (
    route: Partial<ServerRoute>,
    call: { params?: object; query?: object; headers?: object; body?: unknown } = {},
    answer: () => Promise<Answer> = async () => ({ status: 204 }),
    identity = ADA,
  ) => {
    const plain = { method: "POST", path: "/api/x", handle: answer, ...route } as unknown as ServerRoute;
    const { handle } = recorder.recorded(plain, identity);
    const whole = { request: REQUEST, params: {}, query: {}, headers: {}, ...call } as never;
    const answered = await handle(whole, {} as Context).catch((error: unknown) => error);
    return { answered, told: structuredClone(lines.splice(0)).map(withoutNothing) };
  };
  return { recorder, lines, state, asked };
}

function withoutNothing(entry: object): Record<string, unknown> {
  return Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== undefined));
}

test("CP-990 a request is told with who, from where and what, and then with its outcome", async (t) => {
  const { asked } = await setUp(t);
  const body = { shape: object({ note: string(), key: secret(string()) }) };
  const { told, answered } = await asked(
    { method: "PUT", path: "/api/buckets/{bucket_id}/x/{job}/{run_id}", body: body.shape },
    {
      params: { bucket_id: BUCKET.toUpperCase(), job: "web", run_id: RUN },
      query: { forget: true },
      headers: { "Ops-Break-Glass": "fire", "Idempotency-Key": "k", "Ops-Note": "n" },
      body: { note: "why", key: "secret", command: "true", reason: "r" },
    },
    async () => json(202, { run_id: "other", id: "made" }),
  );
  assert.equal((answered as Answer).status, 202);
  const [entry, outcome] = told as [Record<string, unknown>, Record<string, unknown>];
  const { params, reason, ...rest } = entry;
  const action = "PUT /api/buckets/{bucket_id}/x/{job}/{run_id}";
  assert.deepEqual(rest, { what: "change", ...WHO, action, bucket: BUCKET, run: RUN });
  const { key, note, command, reason: other, "Ops-Note": header, ...others } = params as Record<string, unknown>;
  for (const hidden of [key, note, command, other, header, reason])
    assert.match(String(hidden), /^hmac:/, "there is no bucket whose secrets could be masked");
  assert.deepEqual(others, { job: "web", forget: true, "Idempotency-Key": "k" });
  const [plain] = (await asked({}, { headers: { "Ops-Break-Glass": "fire" }, body: { note: "why", command: "true" } })).told;
  assert.deepEqual([plain?.reason, plain?.params], ["fire", { note: "why", command: "true" }]);
  assert.deepEqual(outcome, { what: "outcome", of: 1, ...WHO, action, bucket: BUCKET, run: "other", outcome: "done", code: 202 });
});

test("CP-990 what is no id is a parameter, the earlier name of a bucket's id counts, and a second factor shows", async (t) => {
  const { asked } = await setUp(t);
  const [long] = (await asked({}, { params: { bucket_id: "x", run_id: `${RUN}0` } })).told;
  assert.deepEqual([long?.bucket, long?.run, long?.params], [undefined, undefined, { bucket_id: "x", run_id: `${RUN}0` }]);
  const session = { ...ADA, via: "session", totp: true } as Identity;
  const [earlier, outcome] = (await asked({ method: "DELETE" }, { params: { env_id: BUCKET } }, undefined, session)).told;
  assert.deepEqual([earlier?.bucket, earlier?.via, earlier?.what], [BUCKET, "session+totp", "delete"]);
  assert.equal(Object.hasOwn(earlier ?? {}, "params"), false, "nothing was given");
  assert.deepEqual([outcome?.outcome, outcome?.code, outcome?.of], ["done", 204, 1]);
  const get = { method: "GET", handle: async () => ({ status: 200 }) } as unknown as ServerRoute;
  const { recorder } = await setUp(t);
  assert.equal(recorder.recorded(get, ADA), get, "a reading is not told");
});

test("CP-990 an outcome tells the status, the error and the id of what was made", async (t) => {
  const { asked } = await setUp(t);
  const outcomeOf = async (answer: () => Promise<Answer>, call: object = {}) => {
    const { outcome, code, error, run, facts } = (await asked({}, call, answer)).told.at(-1) ?? {};
    return withoutNothing({ outcome, code, error, run, facts });
  };
  const made = { facts: { made: "m" } };
  assert.deepEqual(await outcomeOf(async () => json(201, { id: "m" })), { outcome: "done", code: 201, ...made });
  assert.deepEqual(await outcomeOf(async () => json(399, {})), { outcome: "done", code: 399 });
  assert.deepEqual(await outcomeOf(async () => json(400, { error: "e", id: 5 })), { outcome: "refused", code: 400, error: "e" });
  assert.deepEqual(await outcomeOf(async () => json(499, {})), { outcome: "refused", code: 499 });
  assert.deepEqual(await outcomeOf(async () => json(500, { error: "" })), { outcome: "failed", code: 500 });
  assert.deepEqual(await outcomeOf(async () => json(200, { run_id: RUN })), { outcome: "done", code: 200, run: RUN });
  const ofRun = { outcome: "done", code: 200, run: RUN };
  assert.deepEqual(await outcomeOf(async () => json(200, { id: "m" }), { params: { run_id: RUN } }), ofRun);
  for (const body of ["[]", "text", Buffer.from("{}")])
    assert.deepEqual(await outcomeOf(async () => ({ status: 200, body })), { outcome: "done", code: 200 });
  const fails = (error: Error) => async () => {
    throw error;
  };
  const busy = new Failure("bucket_busy", "busy", { details: { run_id: RUN } });
  assert.deepEqual(await outcomeOf(fails(busy)), { outcome: "refused", code: 409, error: "bucket_busy", run: RUN });
  assert.deepEqual(await outcomeOf(fails(new Error("odd"))), { outcome: "failed", code: 500, error: "internal" });
  const { answered } = await asked({}, {}, fails(busy));
  assert.equal(answered, busy);
});

test("CP-992 of an upload the size and the sum of what was read are told, and of nothing that was read nothing", async (t) => {
  const { asked } = await setUp(t);
  const upload = async (...pieces: string[]) => {
    const { told } = await asked({ upload: ["application/x-tar"] }, {}, async () => {
      for (const piece of pieces) REQUEST.onBody?.(Buffer.from(piece));
      return { status: 202 };
    });
    return told.at(-1)?.facts;
  };
  const sha256 = "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603";
  assert.deepEqual(await upload("a", "b"), { upload: { size_bytes: 2, sha256 } });
  assert.equal(await upload(), undefined);
});

test("CP-991 where no line can be written nothing is done but a cancel, and an outcome is written later", async (t) => {
  const { asked, state } = await setUp(t);
  state.broken = true;
  let done = 0;
  const act = async () => {
    done++;
    return { status: 200 };
  };
  const { answered, told } = await asked({}, { body: {} }, act);
  assert.deepEqual([(answered as Failure).code, told, done], ["audit_unavailable", [], 0]);
  const cancel = await asked({ path: "/api/buckets/{bucket_id}/runs/{run_id}/cancel" }, { params: { run_id: RUN } }, act);
  assert.equal(done, 1);
  assert.deepEqual(
    cancel.told.map(({ what, later, of, run }) => [what, later, of, run]),
    [
      ["cancel", true, undefined, RUN],
      ["outcome", true, undefined, RUN],
    ],
  );
  state.broken = false;
  const half = await asked({}, {}, async () => {
    state.broken = true;
    return { status: 200 };
  });
  assert.deepEqual(
    half.told.map(({ what, later }) => [what, later]),
    [
      ["change", undefined],
      ["outcome", true],
    ],
  );
});

test("CP-990 the server's start, the end of a run, the runs that it starts itself and its stop have their lines", async (t) => {
  const { recorder, lines, state } = await setUp(t);
  const events = {} as EventLog;
  await recorder.start({ root: "/r" }, events);
  const [{ facts, ...first }] = lines.splice(0) as [AuditEntry];
  assert.deepEqual(first, { what: "server_start", via: "server" });
  const { version, commit, ...process_ } = facts as Record<string, unknown>;
  assert.deepEqual(process_, { node: process.versions.node, pid: process.pid, root: "/r" });
  assert.deepEqual([typeof version, commit === undefined || commit === null || typeof commit === "string"], ["string", true]);
  const record = {
    id: RUN,
    bucket_id: BUCKET,
    kind: "build",
    status: "cancelled",
    audit: [{ action: "start", actor: { name: "ada" } }],
  };
  const killed = { ...record, audit: [...record.audit, { action: "force_kill", actor: { name: "bob" } }] };
  for (const one of [record, killed]) events.onChange?.("ended", one as unknown as RunRecord);
  events.onChange?.("started", record as unknown as RunRecord);
  const end = {
    what: "run_ended",
    via: "server",
    who: "ada",
    bucket: BUCKET,
    run: RUN,
    kind: "build",
    outcome: "cancelled",
    later: true,
  };
  assert.deepEqual(lines.splice(0).map(withoutNothing), [end, { ...end, facts: { killed: true } }]);
  const actor = { name: "schedule:nightly", address: "", via: "schedule" } as never;
  const wanted = { bucket: BUCKET, run: RUN, kind: "drift" as const, params: {}, actor };
  await recorder.started(wanted, async () => {});
  await assert.rejects(
    recorder.started({ ...wanted, params: { jobs: ["web"] } }, async () => {
      throw new Failure("bucket_busy", "busy");
    }),
  );
  const who = { who: "schedule:nightly", via: "schedule", bucket: BUCKET, run: RUN, kind: "drift" };
  assert.deepEqual(lines.splice(0).map(withoutNothing), [
    { what: "start", ...who },
    { what: "outcome", of: 1, ...who, outcome: "done" },
    { what: "start", ...who, params: { jobs: ["web"] } },
    { what: "outcome", of: 3, ...who, outcome: "refused", error: "bucket_busy" },
  ]);
  recorder.exchanged({ request: REQUEST, status: 403 } as never);
  recorder.exchanged({ request: REQUEST, status: 404 } as never);
  await recorder.stop();
  assert.deepEqual(
    lines.map(({ what, later, count, facts }) => [what, later, count, (facts as { since?: string } | undefined)?.since]),
    [
      ["refused", true, 1, "1970-01-01T00:00:00.000Z"],
      ["server_stop", true, undefined, undefined],
    ],
  );
  assert.equal(state.closed, 1);
});

test("CP-993 a refused request that has lines of its own is not folded", async (t) => {
  const { recorder, asked, lines } = await setUp(t);
  await asked({}, {}, async () => ({ status: 403 }));
  recorder.exchanged({ request: REQUEST, status: 403 } as never);
  await recorder.stop();
  assert.deepEqual(
    lines.map(({ what }) => what),
    ["server_stop"],
  );
});

test("CP-993 32 addresses have a line each, all others share one; ten names are told, and the first request is the example", () => {
  const folded = new FoldedRefusals();
  const note = (
    peer: string,
    more: { status?: number; name?: string; method?: string; route?: string; refused?: string } = {},
  ) => {
    const { status = 401, name, method = "GET", route, refused } = more;
    folded.note(
      { request: { id: `of ${peer}`, method, peer, noted: { name, route, refused } } as HttpRequest, status },
      `at ${peer}`,
    );
  };
  assert.deepEqual([400, 401, 402, 403, 404, 429, 503].map(FoldedRefusals.has), [false, true, false, true, false, true, false]);
  for (let index = 0; index < 34; index++) note(`10.0.0.${index}`);
  note("10.0.0.31");
  const counts = folded.take().map(({ from, count }) => [from, count]);
  assert.deepEqual([counts.length, counts[0], counts[31], counts[32]], [33, ["10.0.0.0", 1], ["10.0.0.31", 2], ["others", 2]]);
  for (let index = 0; index < 11; index++) note("fd00::1:0:0:0:1", { name: `n${index}` });
  note("fd00::1:0:0:0:2", { status: 429, route: "/api/x" });
  const [one, ...others] = folded.take();
  assert.deepEqual(others, []);
  const { names, ...facts } = (one as AuditEntry).facts as { names: string[] };
  assert.deepEqual(facts, { since: "at fd00::1:0:0:0:1", by_status: { 401: 11, 429: 1 }, example: "not allowed" });
  assert.deepEqual(
    names,
    Array.from({ length: 10 }, (_, index) => `n${index}`),
  );
  assert.deepEqual([one?.count, one?.who, one?.outcome, one?.what], [12, undefined, "refused", "refused"]);
  assert.deepEqual([one?.request, one?.action], ["of fd00::1:0:0:0:1", "GET an unknown path"]);
  const shown = (method: string) => {
    note("a", { method, route: "/r", refused: "missing" });
    const [line] = folded.take();
    return [line?.action, ((line as AuditEntry).facts as { example?: string }).example];
  };
  for (const method of ["POST", "A", "ABCDEFGHIJ"]) assert.deepEqual(shown(method), [`${method} /r`, "missing"]);
  for (const method of ["", "get", "ABCDEFGHIJK", "GET\n", "G-T"]) assert.deepEqual(shown(method), ["- /r", "missing"]);
});

test("CP-990 every route that changes something has the kind that people look for", () => {
  const kinds = Map.groupBy(
    ROUTES.filter(({ method }) => method !== "GET"),
    auditKindOf,
  );
  const told = Object.fromEntries(
    [...kinds].map(([kind, routes]) => [kind, routes.map(({ method, path: at }) => `${method} ${at}`)]),
  );
  const { start = [], ...others } = told;
  const shortened = Object.entries(others).map(([kind, list]) => {
    return [kind, list.map((one) => one.replace("/api/buckets/{bucket_id}", "…").replace("/api/", "")).sort()];
  });
  assert.deepEqual(Object.fromEntries(shortened), KINDS);
  assert.ok(start.every((one) => one.startsWith("POST /api/buckets/{bucket_id}/")));
  const kindOf = (address: string, headers = {}) => {
    const [method = "", place = ""] = address.split(" ");
    return auditKindOf({ method, path: place, headers } as never);
  };
  assert.deepEqual(
    ["POST /signin", "DELETE /signin", "POST /signin/x", "DELETE /x", "POST /x", "POST /xrestore"].map((one) => kindOf(one)),
    [...["sign_in", "sign_out", "change", "delete", "change", "change"]],
  );
  for (const [address, kind] of [
    ["POST /x/cancel", "cancel"],
    ["POST /x/cancel/y", "change"],
    ["PUT /x/tokens/{token}", "token"],
    ["PUT /x/tokensy", "change"],
    ["PUT /sessions", "token"],
    ["POST /x/proposals", "approval"],
    ["POST /x/reject", "approval"],
    ["POST /x/secrets/y", "key"],
    ["POST /x/secrets", "change"],
    ["POST /x/import", "key"],
    ["POST /x/trust", "key"],
    ["POST /x/ca", "key"],
    ["POST /x/cat", "change"],
    ["POST /x/restore/y", "change"],
    ["POST /DELETE /x", "change"],
  ] as const)
    assert.equal(kindOf(address), kind, address);
  assert.equal(kindOf("POST /x", { "Idempotency-Key": 1 }), "start");
});

const KINDS = {
  sign_in: ["POST auth/session", "POST auth/totp/verify"],
  sign_out: ["DELETE auth/session"],
  token: ["DELETE sessions/{session_id}", "DELETE tokens/{token}", "POST tokens"],
  change: [
    "POST buckets",
    "POST …/init",
    "POST …/messages/test",
    "POST …/messages/{message_id}/retry",
    "POST …/schedules/{schedule}/pause",
    "POST …/schedules/{schedule}/resume",
    "POST …/snapshots/{name}/verify",
    "PUT …",
  ],
  delete: ["DELETE …", "DELETE …/queue/{start_key}", "DELETE …/snapshots/{name}"],
  key: [
    "DELETE …/secrets/jobs/{job}/{key}",
    "DELETE …/secrets/notify/{key}",
    "DELETE …/secrets/ssh_key",
    "POST …/ca/rotate",
    "POST …/kv/rekey",
    "POST …/secrets/ssh_key/rotate",
    "POST …/workers/trust",
    "PUT …/secrets/jobs/{job}/{key}",
    "PUT …/secrets/notify/{key}",
    "PUT …/secrets/ssh_key",
  ],
  approval: [
    "DELETE …/proposals/{proposal_id}",
    "POST …/proposals",
    "POST …/proposals/{proposal_id}/approve",
    "POST …/proposals/{proposal_id}/reject",
  ],
  restore: ["POST …/snapshots/{name}/restore"],
  cancel: ["POST …/runs/{run_id}/cancel"],
};

test("CP-990 the server says every hour that it lives, and tells every minute what it has refused, until it stops", async (t) => {
  t.mock.timers.enable({ apis: ["setInterval"] });
  const { recorder, lines } = await setUp(t);
  await recorder.start({}, {} as EventLog);
  lines.length = 0;
  t.mock.timers.tick(59_999);
  recorder.exchanged({ request: REQUEST, status: 401 } as never);
  assert.deepEqual(lines, []);
  t.mock.timers.tick(1);
  assert.deepEqual(
    lines.splice(0).map(({ what }) => what),
    ["refused"],
  );
  t.mock.timers.tick(3_600_000 - 60_001);
  assert.deepEqual(lines, []);
  t.mock.timers.tick(1);
  assert.deepEqual(lines.splice(0), [{ what: "alive", via: "server", later: true }]);
  await recorder.stop();
  lines.length = 0;
  t.mock.timers.tick(7_200_000);
  assert.deepEqual(lines, []);
});
