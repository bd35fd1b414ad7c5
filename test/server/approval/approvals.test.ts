import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import type { Identity } from "../../../lib/auth/guard.ts";
import type { RootBucket } from "../../../lib/bucket/source/root.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { approved } from "../../../lib/run/approval/proposal.ts";
import { createRecord } from "../../../lib/run/record.ts";
import { Approvals } from "../../../lib/server/approval/approvals.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const DAY_MS = 86_400_000;
const RUN = "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10";
const PLAN = "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f11";
const [ADA, BEN] = [
  { name: "ada", token: "t1" },
  { name: "ben", token: "t2" },
];
const COMMAND = { kind: "run_command" as const, params: { command: "true" }, reason: null };
const NONE = { isGlassBroken: false };
const hasCode = (code: string, message: RegExp) => (error: Error & { code?: string }) => {
  assert.equal(error.code, code);
  assert.match(error.message, message);
  return true;
};

interface Token {
  role: string;
  buckets: string[] | null;
  expired?: true;
}

/** Approvals of a bucket, with what they ask others for in memory. */
async function setUp(t: TestContext, required = 1) {
  const { layout, bucketId } = await makeBucket(t);
  const bucket = { id: bucketId, layout, project: "p", name: "n", created_at: null } as RootBucket;
  const state = {
    now: Date.parse("2026-01-01T00:00:00.000Z"),
    required,
    basis: { build_seq: 1, hosts: ["a"] } as object | Error,
  };
  const tokens: Record<string, Token> = { t1: { role: "deploy", buckets: null }, t2: { role: "deploy", buckets: null } };
  const access = {
    approvalsOf: () => state.required,
    byId: (id: string) => tokens[id],
    isExpired: (token: Token) => token.expired === true,
  };
  const turns: string[] = [];
  const lines = {
    alone: async (name: string, _: AbortSignal, work: () => Promise<unknown>) => {
      turns.push(name);
      return await work();
    },
  };
  const beside = {
    async ask() {
      if (state.basis instanceof Error) throw state.basis;
      return Buffer.from(JSON.stringify(state.basis));
    },
  };
  const approvals = new Approvals({ access, lines, beside, now: () => state.now } as never);
  const approve = (id: string, by = BEN) => approvals.change(bucket, id, (proposal, now) => approved(proposal, by, now));
  const start = { kind: "run_command" as const, params: COMMAND.params, runId: RUN, by: { name: "eva" } as Identity };
  return { approvals, approve, bucket, layout, start, state, tokens, turns };
}

test("CP-524 a proposal keeps what is proposed, from what and by whom, and its parameters sealed", async (t) => {
  const { approvals, bucket, turns } = await setUp(t, 2);
  const { id, sealed, ...proposal } = await approvals.propose(bucket, { ...COMMAND, reason: "why" }, ADA);
  assert.deepEqual(proposal, {
    kind: "run_command",
    params: { command: "true" },
    ...{ revision: null, build_seq: 1, hosts: ["a"], reason: "why" },
    proposed: { at: "2026-01-01T00:00:00.000Z", by: ADA },
    ...{ required: 2, approvals: [], ended: null },
  });
  assert.ok(sealed?.startsWith("enc:"), String(sealed));
  assert.deepEqual(await approvals.paramsOf(bucket, "run_command", id.toUpperCase()), { command: "true" });
  const found = await approvals.find(bucket, id.toUpperCase());
  assert.deepEqual(await approvals.all(bucket), [found]);
  for (const unknown of [RUN, "x", "../x"])
    await assert.rejects(approvals.find(bucket, unknown), hasCode("proposal_not_found", /^proposal ".*" does not exist$/));
  assert.deepEqual(new Set(turns), new Set([`proposals of ${bucket.id}`]));
});

test("CP-524 at most 50 proposals are open in a bucket, and their parameters have at most 512 Ki characters", async (t) => {
  const { approvals, bucket, state } = await setUp(t);
  const most = 512 * 1024 - JSON.stringify({ command: "" }).length;
  await approvals.propose(bucket, { ...COMMAND, params: { command: "x".repeat(most) } }, ADA);
  const tooLong = approvals.propose(bucket, { ...COMMAND, params: { command: "x".repeat(most + 1) } }, ADA);
  await assert.rejects(tooLong, hasCode("invalid_request", /^params: expected at most 524288 characters of JSON$/));
  for (let count = 1; count < 50; count++) await approvals.propose(bucket, COMMAND, ADA);
  const one = () => approvals.propose(bucket, COMMAND, ADA);
  await assert.rejects(one(), hasCode("invalid_request", /^50 proposals are open in this bucket; decide or withdraw one first$/));
  state.now += DAY_MS;
  await one();
});

test("CP-526 a proposal ends for good where what it was made from has changed, with the reason", async (t) => {
  const { approvals, bucket, state, layout } = await setUp(t);
  const basis = state.basis;
  const ends = async (change: () => void) => {
    state.basis = basis;
    const { id } = await approvals.propose(bucket, COMMAND, ADA);
    change();
    const { ended, sealed } = await approvals.find(bucket, id);
    assert.deepEqual([ended?.how, ended?.by, ended?.run_id, sealed], ["stale", null, null, null]);
    for (const later of [{ build_seq: 3, hosts: [] }, basis]) {
      state.basis = later;
      assert.deepEqual((await approvals.find(bucket, id)).ended, ended, "also once all is as it was, or has changed again");
    }
    return ended?.why;
  };
  const set = (value: object) => () => {
    state.basis = value;
  };
  assert.equal(await ends(set({ build_seq: 2, hosts: ["a"] })), "the bucket was built again");
  assert.equal(await ends(set({ build_seq: 1, hosts: ["a", "b"] })), "it is about other workers now");
  for (const code of ["plan_stale", "run_not_found", "unknown_name", "invalid_request"] as const)
    assert.equal(await ends(set(new Failure(code, `why: ${code}`))), `why: ${code}`);
  const keyOther = () => writeFileSync(layout.kvKey, randomBytes(32));
  assert.equal(await ends(keyOther), "its parameters cannot be opened: the key of the bucket is another one");
  const { id } = await approvals.propose(bucket, COMMAND, ADA);
  const odd = Object.assign(new Error("no answer of ops"), { code: "plan_stale" });
  for (const error of [new Failure("database_busy", "busy"), new Error("odd"), odd]) {
    state.basis = error;
    await assert.rejects(approvals.find(bucket, id), error);
  }
  state.basis = basis;
  state.now += DAY_MS - 1;
  assert.equal((await approvals.find(bucket, id)).ended, null);
  state.now += 1;
  state.basis = new Error("is not asked any more");
  assert.equal((await approvals.find(bucket, id)).ended?.how, "expired");
});

test("CP-525 an approval counts while its person may start such a run in the bucket", async (t) => {
  const { approvals, bucket, tokens, state } = await setUp(t);
  const isEntitled = (token: string | null) => approvals.standing(bucket.id).isEntitled({ name: "x", token });
  assert.deepEqual([isEntitled(null), isEntitled("t1"), isEntitled("gone")], [true, true, false]);
  const cases: [Token, boolean][] = [
    [{ role: "operate", buckets: null }, false],
    [{ role: "admin", buckets: null }, true],
    [{ role: "deploy", buckets: null, expired: true }, false],
    [{ role: "deploy", buckets: [bucket.id] }, true],
    [{ role: "deploy", buckets: ["other"] }, false],
  ];
  for (const [token, expected] of cases) {
    tokens.t1 = token;
    assert.equal(isEntitled("t1"), expected, JSON.stringify(token));
  }
  assert.equal(approvals.standing(bucket.id).now, state.now);
  assert.equal(approvals.required(bucket.id), 1);
});

test("CP-522 a start needs an approved proposal where the bucket asks for approvals, and uses it once", async (t) => {
  const { approvals, approve, bucket, start, state, layout } = await setUp(t);
  const { id } = await approvals.propose(bucket, COMMAND, ADA);
  const mustHave = (asked: object) => approvals.mustHave(bucket, "run_command", COMMAND.params, { ...NONE, ...asked });
  const lacks = hasCode("approval_required", /^run_command in this bucket needs the approval of another person/);
  await assert.rejects(mustHave({}), lacks);
  await assert.rejects(approvals.take(bucket, start, NONE), lacks);
  await assert.rejects(mustHave({ proposal: id }), hasCode("approval_required", /lacks 1 of 1 approval/));
  await assert.rejects(mustHave({ proposal: RUN }), hasCode("proposal_not_found", /does not exist/));
  await mustHave({ isGlassBroken: true });
  assert.equal(await approvals.take(bucket, start, { isGlassBroken: true }), undefined);
  state.required = 0;
  await mustHave({});
  assert.equal(await approvals.take(bucket, start, NONE), undefined);
  state.required = 1;
  await approve(id);
  await mustHave({ proposal: id });
  const taken = (await approvals.take(bucket, start, { ...NONE, proposal: id })) ?? assert.fail();
  assert.deepEqual(taken.approval, { proposal: id, required: 1, by: ["ben"] });
  const { ended } = await approvals.find(bucket, id);
  assert.deepEqual([ended?.how, ended?.by, ended?.run_id], ["used", "eva", RUN]);
  await assert.rejects(approvals.take(bucket, start, { ...NONE, proposal: id }), hasCode("approval_required", /was used by run/));
  await assert.rejects(approvals.paramsOf(bucket, "run_command", id), hasCode("approval_required", /was used by run/));
  await taken.giveBack();
  assert.equal((await approvals.find(bucket, id)).ended, null);
  const again = (await approvals.take(bucket, start, { ...NONE, proposal: id })) ?? assert.fail();
  const actor = { name: "eva", address: "", via: "bearer" } as const;
  await createRecord(layout, {
    id: RUN,
    bucket_id: bucket.id,
    origin: "server",
    kind: "run_command",
    params: {},
    actor,
    requestId: null,
  });
  await again.giveBack();
  assert.equal((await approvals.find(bucket, id)).ended?.how, "used", "a run came of it");
});

test("CP-522 a deploy finds the approved proposal of its plan, whichever of them that is", async (t) => {
  const { approvals, approve, bucket, state } = await setUp(t);
  const deploy = { kind: "deploy" as const, params: { plan: PLAN }, reason: null };
  const first = await approvals.propose(bucket, deploy, ADA);
  await approvals.propose(bucket, deploy, ADA);
  await approvals.propose(bucket, { ...deploy, params: { plan: RUN } }, ADA);
  const start = { kind: "deploy" as const, params: { plan: PLAN }, runId: RUN, by: { name: "eva" } as Identity };
  const take = (plan: string) => approvals.take(bucket, { ...start, params: { plan } }, { ...NONE, plan });
  await assert.rejects(take(PLAN), hasCode("approval_required", /lacks 1 of 1 approval/));
  await assert.rejects(take("none"), hasCode("approval_required", /`ops propose deploy --plan none` asks for it$/));
  await approve(first.id);
  assert.equal((await take(PLAN))?.approval.proposal, first.id);
  await assert.rejects(approvals.paramsOf(bucket, "hooks", first.id), hasCode("invalid_request", /is one of the kind deploy$/));
  state.required = 0;
  const dry = { kind: "deploy" as const, params: { dry_run: true }, runId: RUN, by: start.by };
  assert.equal(await approvals.take(bucket, dry, NONE), undefined);
});

test("a change that changes nothing writes nothing", async (t) => {
  const { approvals, bucket, layout } = await setUp(t);
  const { id } = await approvals.propose(bucket, COMMAND, ADA);
  const file = `${layout.proposals}/${id}.json`;
  const text = JSON.stringify(await approvals.find(bucket, id));
  writeFileSync(file, text);
  await approvals.change(bucket, id, (proposal) => proposal);
  assert.equal(readFileSync(file, "utf8"), text);
  await approvals.change(bucket, id, (proposal) => ({ ...proposal, reason: "other" }));
  assert.equal(JSON.parse(readFileSync(file, "utf8")).reason, "other");
});
