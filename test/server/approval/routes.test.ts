import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Identity } from "../../../lib/auth/guard.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import type { Answer } from "../../../lib/http/message.ts";
import type { Proposal } from "../../../lib/run/approval/proposal.ts";
import { PROPOSAL_ROUTES } from "../../../lib/server/approval/routes.ts";
import type { Context, ServerRoute } from "../../../lib/server/context.ts";
import { push } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e71";
const [LIST, PROPOSE, SHOW, APPROVE, REJECT, WITHDRAW] = PROPOSAL_ROUTES as ServerRoute[];
const AT = "2026-01-01T00:00:00.000Z";
const NOW = Date.parse(AT) + 1_000;
const person = (name: string) => ({ at: AT, by: { name, token: null } });

const PROPOSAL: Proposal = {
  ...{ id: ID, kind: "run_command", params: { command: "true" }, revision: null, build_seq: 1, hosts: ["a"], reason: null },
  ...{ sealed: "enc:x", proposed: person("ada"), required: 1, approvals: [], ended: null },
};

async function setUp(t: TestContext) {
  const root = temporaryFolder(t);
  await createBucket(
    root,
    { id: BUCKET, project: "p", name: "n" },
    async (dir, bucketId) => void (await initBucket(dir, { bucketId, source: false })),
  );
  const layout = layoutOf(`${root}/${BUCKET}`);
  const state = { proposal: PROPOSAL, required: 1, wishes: [] as unknown[] };
  const approvals = {
    required: () => state.required,
    standing: () => ({ now: NOW, isEntitled: ({ name }: { name: string }) => name !== "gone" }),
    all: async () => [state.proposal],
    find: async () => state.proposal,
    async propose(_: object, wish: object, by: object) {
      state.wishes.push([wish, by]);
      return state.proposal;
    },
    async change(_: object, id: string, act: (proposal: Proposal, now: number) => Proposal) {
      assert.equal(id, ID);
      state.proposal = act(state.proposal, NOW);
      return state.proposal;
    },
  };
  const ask = async (route: ServerRoute | undefined, call: object = {}, more: Partial<Identity> = {}) => {
    const identity = { name: "ben", role: "deploy", token: "t2", ...more };
    const handle = (route ?? assert.fail()).handle as (call: object, context: Context) => Promise<Answer>;
    const params = { bucket_id: BUCKET, proposal_id: ID };
    const { status, body } = await handle({ params, query: { limit: 5 }, body: {}, ...call }, {
      root,
      labels: "bucket.json",
      approvals,
      identity,
    } as never);
    return { status, value: body === undefined ? undefined : JSON.parse(String(body)) };
  };
  return { ask, layout, state };
}

test("CP-524 a proposal is shown with what its approvals are worth now, and without its sealed parameters", async (t) => {
  const { ask, state } = await setUp(t);
  const shown = async () => (await ask(SHOW)).value;
  const { sealed: _, proposed: __, required: ___, approvals: ____, ended: _____, ...asked } = PROPOSAL;
  const open = {
    ...asked,
    ...{ proposed_at: AT, proposed_by: "ada", state: "open", required: 1, required_first: 1, missing: 1, approvals: [] },
    ...{ expires_at: "2026-01-02T00:00:00.000Z", ended: null },
  };
  assert.deepEqual(await shown(), open);
  assert.deepEqual((await ask(LIST)).value, { items: [open], next_cursor: null });
  state.required = 2;
  state.proposal = { ...PROPOSAL, approvals: [person("ben"), person("gone"), person("Ada")] };
  const { approvals, missing, state: how, required, required_first } = await shown();
  assert.deepEqual([how, required, required_first, missing], ["open", 2, 1, 1]);
  assert.deepEqual(approvals, [
    { at: AT, by: "ben", counts: true },
    { at: AT, by: "gone", counts: false },
    { at: AT, by: "Ada", counts: false },
  ]);
  for (const [need, told] of [
    [1, ["approved", 0]],
    [0, ["approved", 0]],
  ] as const) {
    state.required = need;
    const { missing: left, state: now } = await shown();
    assert.deepEqual([now, left], told);
  }
  const end = { at: AT, how: "rejected" as const, by: "eva", why: "no", run_id: null };
  state.required = 2;
  state.proposal = { ...PROPOSAL, ended: end };
  const ended = await shown();
  assert.deepEqual([ended.state, ended.missing, ended.ended], ["rejected", 0, end]);
});

test("CP-524 what is proposed are the parameters of its run, checked; a deploy is its plan, or a dry run with hooks", async (t) => {
  const { ask, layout, state } = await setUp(t);
  const propose = async (kind: string, params: object, more: object = {}) => {
    assert.equal((await ask(PROPOSE, { body: { kind, params, ...more } })).status, 201);
    const [[wish, by]] = state.wishes.splice(0) as [[{ kind: string; params: object; reason: string | null }, object]];
    assert.deepEqual(by, { name: "ben", token: "t2" });
    return [wish.kind, { ...wish.params }, wish.reason];
  };
  assert.deepEqual(
    (await propose("run_command", { command: "true" }, { reason: "why" })).filter((one) => typeof one === "string"),
    ["run_command", "why"],
  );
  const [, , none] = await propose("deploy", { plan: ID });
  assert.equal(none, null);
  await propose("deploy", { dry_run: true, with_hooks: true });
  const asPlan = "params: a deploy is proposed as its plan: make a dry run, and name it as `plan`";
  for (const params of [{}, { dry_run: true }, { dry_run: false }, { dry_run: true, with_hooks: false }])
    await assert.rejects(propose("deploy", params), { code: "invalid_request", message: asPlan });
  const building = { dry_run: true, with_hooks: true, build: true };
  await assert.rejects(propose("deploy", building), { code: "invalid_request", message: "params: build first, then propose" });
  await assert.rejects(propose("run_command", { nothing: 1 }), { code: "invalid_request" });
  await assert.rejects(propose("rollback", {}), { code: "revision_not_found" });
  await assert.rejects(propose("rollback", { revision_id: 5 }), { code: "invalid_request", message: /^revision_id: / });
  const { id } = await push(layout, { "workspace/a": "1" });
  assert.deepEqual(await propose("rollback", { revision_id: id.toUpperCase() }), ["rollback", { revision: id }, null]);
});

test("CP-529 a proposal is approved, rejected with a reason, and withdrawn by its proposer or an admin", async (t) => {
  const { ask, state } = await setUp(t);
  const approved = (await ask(APPROVE)).value;
  assert.deepEqual(approved.approvals, [{ at: new Date(NOW).toISOString(), by: "ben", counts: true }]);
  assert.deepEqual(state.proposal.approvals[0]?.by, { name: "ben", token: "t2" });
  await ask(APPROVE, {}, { name: "root", token: undefined });
  assert.deepEqual(state.proposal.approvals[1]?.by, { name: "root", token: null });
  await assert.rejects(ask(APPROVE, {}, { name: "ADA" }), { code: "forbidden" });
  const refused = ask(WITHDRAW, {}, { name: "ben" });
  await assert.rejects(refused, { code: "forbidden", details: { role: "admin" } });
  for (const who of [{ name: "ADA" }, { name: "boss", role: "admin" as const }]) {
    state.proposal = PROPOSAL;
    assert.deepEqual(await ask(WITHDRAW, {}, who), { status: 204, value: undefined });
    const { ended, sealed } = state.proposal as Proposal;
    assert.deepEqual([ended?.how, ended?.by, ended?.why, sealed], ["withdrawn", who.name, null, null]);
  }
  state.proposal = PROPOSAL;
  const { ended } = (await ask(REJECT, { body: { reason: "not now" } })).value;
  assert.deepEqual(ended, { at: new Date(NOW).toISOString(), how: "rejected", by: "ben", why: "not now", run_id: null });
});
