import assert from "node:assert/strict";
import { readdirSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { approvalServer } from "../../helpers/approval.ts";

const COMMAND = { command: "true" };
const told = ({ status, body }: { status: number; body: { error?: string } | null }) => [status, body?.error];

test("CP-524 the proposer cannot approve, and one person counts once under a token and two sessions", async (t) => {
  const { as, approve, propose, people, server } = await approvalServer(t, 2);
  const { id } = await propose("run_command", COMMAND);
  assert.deepEqual(told(await approve(id, "ada")), [403, "forbidden"]);
  const own = await server.signInWith(people.ada.authorization);
  const target = `/proposals/${id}/approve`;
  assert.deepEqual(told(await as("root", "POST", target, {}, own.page)), [403, "forbidden"], "nor in a session");
  assert.equal((await approve(id, "ben")).body.missing, 1);
  for (const _ of [1, 2]) {
    const session = await server.signInWith(people.ben.authorization);
    const reply = await as("root", "POST", target, {}, session.page);
    assert.deepEqual([reply.status, reply.body.missing, reply.body.approvals.length], [200, 1, 1]);
  }
  assert.equal((await as("root", "POST", target, {})).body.state, "approved", "root is a person, too");
  assert.equal((await as("root", "POST", target, {})).body.approvals.length, 2);
});

test("CP-529 people who may not start a run may look, and neither propose, approve, reject nor withdraw", async (t) => {
  const { as, propose, server, bucket } = await approvalServer(t);
  const { id } = await propose("run_command", COMMAND);
  const other = await server.createBucket();
  const mate = await server.makeToken({ name: "mate", role: "operate" });
  const stranger = await server.makeToken({ name: "stranger", role: "admin", buckets: [other.id] });
  for (const { authorization } of [mate, stranger]) {
    for (const [method, target, body] of [
      ["POST", "/proposals", { kind: "run_command", params: COMMAND }],
      ["POST", `/proposals/${id}/approve`, {}],
      ["POST", `/proposals/${id}/reject`, { reason: "no" }],
      ["DELETE", `/proposals/${id}`, undefined],
    ] as const)
      assert.deepEqual(told(await as("root", method, target, body, { authorization })), [403, "forbidden"], target);
  }
  assert.equal((await as("root", "GET", "/proposals", undefined, { authorization: mate.authorization })).body.items.length, 1);
  assert.deepEqual(told(await server.call("PUT", bucket.path, { body: { approvals: 0 }, authorization: mate.authorization })), [
    403,
    "forbidden",
  ]);
  assert.equal((await as("ada", "PUT", "", { approvals: 0 })).body.error, "forbidden", "to lower the number takes an admin");
});

test("CP-529 a proposal is rejected with a reason, or withdrawn by its proposer or an admin, and that is its end", async (t) => {
  const { as, approve, propose } = await approvalServer(t);
  const [one, two, three] = [
    await propose("run_command", COMMAND),
    await propose("run_command", COMMAND),
    await propose("hooks", { hook: "look" }),
  ];
  assert.deepEqual(told(await as("ben", "POST", `/proposals/${one.id}/reject`, {})), [400, "invalid_request"]);
  const rejected = await as("ben", "POST", `/proposals/${one.id}/reject`, { reason: "not on a Friday" });
  assert.deepEqual(
    [rejected.body.state, rejected.body.ended.by, rejected.body.ended.why],
    ["rejected", "ben", "not on a Friday"],
  );
  assert.deepEqual(told(await as("ben", "DELETE", `/proposals/${two.id}`)), [403, "forbidden"]);
  assert.equal((await as("ada", "DELETE", `/proposals/${two.id}`)).status, 204);
  assert.equal((await as("boss", "DELETE", `/proposals/${three.id}`)).status, 204);
  for (const { id } of [one, two, three]) {
    assert.deepEqual(told(await approve(id, "eva")), [409, "proposal_ended"]);
    assert.deepEqual(told(await as("ada", "DELETE", `/proposals/${id}`)), [409, "proposal_ended"]);
  }
  const { items } = (await as("ada", "GET", "/proposals")).body;
  assert.deepEqual(
    items.map((one: { id: string; state: string }) => [one.id, one.state]),
    [
      [three.id, "withdrawn"],
      [two.id, "withdrawn"],
      [one.id, "rejected"],
    ],
  );
  const first = (await as("ada", "GET", "/proposals?limit=2")).body;
  assert.equal((await as("ada", "GET", `/proposals?cursor=${first.next_cursor}`)).body.items[0].id, one.id);
  assert.deepEqual(told(await approve(uuidV7())), [404, "proposal_not_found"]);
  assert.deepEqual(told(await as("ada", "GET", "/proposals/..%5Cx")), [404, "not_found"]);
  assert.deepEqual(told(await as("ada", "GET", "/proposals/x")), [404, "proposal_not_found"]);
});

test("CP-524 what is proposed is checked as at a start, and bounded in size and number", async (t) => {
  const { as, propose } = await approvalServer(t);
  const attempt = async (kind: string, params: unknown) => told(await as("ada", "POST", "/proposals", { kind, params }));
  assert.deepEqual(await attempt("build", {}), [400, "invalid_request"]);
  assert.deepEqual(await attempt("run_command", {}), [400, "invalid_request"]);
  assert.deepEqual(await attempt("run_command", { ...COMMAND, workers: ["10.9.9.9"] }), [400, "unknown_name"]);
  assert.deepEqual(await attempt("run_command", { ...COMMAND, retry_of: uuidV7() }), [400, "invalid_request"]);
  assert.deepEqual(await attempt("hooks", { hook: "none" }), [400, "unknown_name"]);
  assert.deepEqual(await attempt("deploy", { plan: uuidV7() }), [404, "run_not_found"]);
  assert.deepEqual(await attempt("deploy", { dry_run: true }), [400, "invalid_request"]);
  assert.deepEqual(await attempt("deploy", { dry_run: true, with_hooks: true, build: true }), [400, "invalid_request"]);
  assert.deepEqual(await attempt("rollback", {}), [404, "revision_not_found"]);
  assert.deepEqual(await attempt("rollback", { revision: uuidV7() }), [400, "invalid_request"]);
  const long = "x".repeat(250_000);
  assert.deepEqual(await attempt("run_command", { command: "\\".repeat(250_000), workers: ["127.0.0.1"] }), [201, undefined]);
  assert.deepEqual(await attempt("run_command", { command: `\u0001${long}` }), [201, undefined]);
  assert.deepEqual(await attempt("run_command", { command: "\\".repeat(262_144), workers: Array(900).fill("127.0.0.1") }), [
    400,
    "invalid_request",
  ]);
  for (let count = 2; count < 50; count++) await propose("run_command", COMMAND);
  assert.deepEqual(await attempt("run_command", COMMAND), [400, "invalid_request"]);
});

test("CP-522 a raised or lowered number of approvals counts from now on, and shows", async (t) => {
  const { as, approved, setApprovals, run } = await approvalServer(t);
  const { id } = await approved("run_command", COMMAND);
  await setApprovals(2);
  const shown = (await as("ada", "GET", `/proposals/${id}`)).body;
  assert.deepEqual([shown.state, shown.required, shown.required_first, shown.missing], ["open", 2, 1, 1]);
  assert.equal((await as("ada", "POST", "/run_command", { proposal: id })).body.error, "approval_required");
  await setApprovals(0);
  assert.equal((await as("root", "GET", "")).body.approvals, 0);
  assert.deepEqual((await run("ada", "/run_command", { proposal: id })).approval, { proposal: id, required: 0, by: ["ben"] });
  assert.equal((await run("ada", "/run_command", COMMAND)).approval, null);
});

test("CP-523 proposals are files for their owner alone; what a killed server left half-written or damaged is none", async (t) => {
  const { as, approved, layout, server } = await approvalServer(t);
  const { id } = await approved("run_command", COMMAND);
  const file = path.join(layout.proposals, `${id}.json`);
  assert.deepEqual([statSync(layout.proposals).mode & 0o777, statSync(file).mode & 0o777], [0o700, 0o600]);
  writeFileSync(path.join(layout.proposals, `.${uuidV7()}.json.tmp`), "{");
  const damaged = uuidV7();
  writeFileSync(path.join(layout.proposals, `${damaged}.json`), '{"id":');
  await server.stop();
  await server.open();
  const { items } = (await as("ada", "GET", "/proposals")).body;
  assert.deepEqual(
    items.map((one: { id: string; state: string }) => [one.id, one.state]),
    [[id, "approved"]],
  );
  assert.equal((await as("ada", "POST", "/run_command", { proposal: damaged })).status, 404);
  assert.ok(readdirSync(layout.proposals).length >= 2);
});
