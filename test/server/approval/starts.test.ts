import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf, runLayout } from "../../../lib/bucket/base/layout.ts";
import { APPROVAL_MS } from "../../../lib/run/approval/proposal.ts";
import { approvalServer, refusal, sourceOf } from "../../helpers/approval.ts";
import { until } from "../../helpers/temporary.ts";

const COMMAND = { command: "echo from $WORKER_IP" };
const LACKING = [403, "approval_required", 1];

test("CP-521 CP-522 where a bucket asks for approvals, what needs one is refused with what to type, and nothing starts", async (t) => {
  const { as, run, runs } = await approvalServer(t);
  const before = (await runs()).length;
  for (const [target, body, command] of [
    ["/deploy", {}, "ops propose deploy"],
    ["/deploy", { dry_run: true, with_hooks: true }, "ops propose deploy"],
    ["/deploy", { build: true }, "ops propose deploy"],
    ["/source/rollback", {}, "ops propose rollback"],
    ["/hooks", { hook: "look" }, "ops propose hooks"],
    ["/run_command", COMMAND, "ops propose run_command"],
  ] as const)
    for (const who of ["ada", "boss", "root"] as const) {
      const reply = await as(who, "POST", target, body);
      assert.deepEqual(refusal(reply), LACKING, `${target}: ${reply.text}`);
      assert.ok(reply.body.message.includes(`\`${command}\``), reply.body.message);
    }
  assert.equal((await runs()).length, before);
  for (const [target, body] of [
    ["/deploy", { dry_run: true }],
    ["/build", {}],
    ["/health_check", {}],
    ["/jobs/web/status", {}],
  ] as const)
    assert.equal((await run("ada", target, body)).approval, null, target);
});

test("CP-522 CP-523 an approved command runs once, with secrets that nobody is shown; the run says who approved it", async (t) => {
  const { as, approved, ended, bucket, layout, server } = await approvalServer(t);
  const secret = "correct-horse-battery";
  assert.equal((await server.call("PUT", `${bucket.path}/secrets/jobs/web/password`, { body: { value: secret } })).status, 204);
  const proposal = await approved("run_command", { command: `[ ${secret} = correct-horse-battery ] && echo well` });
  assert.deepEqual([proposal.state, proposal.missing, proposal.hosts], ["approved", 0, ["127.0.0.1", "127.0.0.2"]]);
  const kept = path.join(layout.proposals, `${proposal.id}.json`);
  assert.ok(!JSON.stringify(proposal).includes(secret) && !readFileSync(kept, "utf8").includes(secret));
  const changed = await as("ada", "POST", "/run_command", { proposal: proposal.id, command: "reboot" });
  assert.deepEqual([changed.status, changed.body.error], [400, "invalid_request"]);
  const other = await as("ada", "POST", "/hooks", { proposal: proposal.id });
  assert.deepEqual([other.status, other.body.error], [400, "invalid_request"]);
  const { body } = await as("ada", "POST", "/run_command", { proposal: proposal.id });
  const run = await ended(body.run_id);
  assert.deepEqual(
    [run.status, run.result.workers.map((one: { output: string }) => one.output)],
    ["succeeded", ["well\n", "well\n"]],
  );
  assert.deepEqual(run.approval, { proposal: proposal.id, required: 1, by: ["ben"] });
  assert.match(
    readFileSync(runLayout(layout, run.id).activity, "utf8"),
    /^run_command of .* by ada, bearer from \S+, approved by ben\n/,
  );
  const again = await as("ada", "POST", "/run_command", { proposal: proposal.id });
  assert.deepEqual(refusal(again), LACKING);
  assert.match(again.body.message, new RegExp(`was used by run ${run.id}; propose it anew`));
  const shown = (await as("ada", "GET", `/proposals/${proposal.id}`)).body;
  assert.deepEqual([shown.state, shown.ended.run_id, shown.ended.by], ["used", run.id, "ada"]);
  assert.equal(JSON.parse(readFileSync(kept, "utf8")).sealed, null);
});

test("CP-523 of twenty starts with one proposal at the same moment exactly one becomes a run", async (t) => {
  const { as, approved, runs, server } = await approvalServer(t);
  const { id } = await approved("run_command", COMMAND);
  const before = (await runs()).length;
  server.hold();
  const replies = await Promise.all(Array.from({ length: 20 }, () => as("ada", "POST", "/run_command", { proposal: id })));
  assert.equal(replies.filter(({ status }) => status === 202).length, 1);
  for (const { status, body } of replies)
    if (status !== 202) assert.ok(["bucket_busy", "approval_required"].includes(body.error), body.error);
  assert.equal((await runs()).length, before + 1);
});

test("CP-522 CP-524 a deploy is approved as its plan, by whichever name the start gives it; a plan that has moved is none", async (t) => {
  const { as, run, approve, propose, setApprovals } = await approvalServer(t, 2);
  const plain = await as("ada", "POST", "/proposals", { kind: "deploy", params: {} });
  assert.deepEqual([plain.status, plain.body.error], [400, "invalid_request"]);
  const plan = (await run("ada", "/deploy", { dry_run: true })).id;
  const lacking = await as("ada", "POST", "/deploy", { plan });
  assert.deepEqual([...refusal(lacking)], [403, "approval_required", 2]);
  assert.ok(lacking.body.message.includes(`\`ops propose deploy --plan ${plan}\``), lacking.body.message);
  const { id, hosts } = await propose("deploy", { plan });
  assert.deepEqual(hosts, ["127.0.0.1", "127.0.0.2"]);
  await approve(id, "ben");
  assert.deepEqual(refusal(await as("ada", "POST", "/deploy", { plan })), LACKING);
  assert.equal((await approve(id, "eva")).body.state, "approved");
  const deployed = await run("ada", "/deploy", { plan });
  assert.deepEqual([deployed.status, deployed.approval.by], ["succeeded", ["ben", "eva"]]);
  assert.match((await as("ada", "POST", "/deploy", { plan })).body.message, /was used by run/);
  await setApprovals(1);
  const next = (await run("ada", "/deploy", { dry_run: true, force: true })).id;
  const moved = await propose("deploy", { plan: next });
  await approve(moved.id);
  assert.equal((await run("ada", "/build")).status, "succeeded");
  const refused = await as("ada", "POST", "/deploy", { proposal: moved.id });
  assert.deepEqual(refusal(refused), LACKING);
  assert.match(refused.body.message, /does not hold any more: .*built again/);
  assert.equal((await as("ada", "GET", `/proposals/${moved.id}`)).body.state, "stale");
});

test("CP-524 hooks and rollbacks run as they were approved", async (t) => {
  const { as, run, approved, bucket, server } = await approvalServer(t);
  const hook = await approved("hooks", { hook: "look" });
  assert.deepEqual(hook.hosts, ["127.0.0.1", "127.0.0.2"]);
  assert.equal((await run("eva", "/hooks", { proposal: hook.id })).status, "succeeded");
  const archive = await sourceOf(bucket.folder);
  const push = (headers = {}) =>
    as("ada", "POST", "/push", archive, { headers: { "content-type": "application/x-tar", ...headers } });
  for (const note of ["one", "two"]) {
    const { status, body } = await push({ "Ops-Note": note });
    assert.equal(status, 202, body.message);
    await server.ended(bucket.path, body.run_id);
  }
  const [, first] = (await as("ada", "GET", "/source/revisions")).body.items;
  const back = await approved("rollback", { revision_id: first.id });
  assert.deepEqual(back.params, { revision: first.id });
  const rolled = await run("ada", "/source/rollback", { proposal: back.id });
  assert.deepEqual([rolled.status, rolled.revision], ["succeeded", first.id]);
});

test("CP-524 an approval ends with another source, another build, other workers or another key", async (t) => {
  const { as, run, approved, bucket, server, layout } = await approvalServer(t);
  const stale = async (id: string, why: RegExp) => {
    const reply = await as("ada", "POST", "/run_command", { proposal: id });
    assert.deepEqual(refusal(reply), LACKING);
    assert.match(reply.body.message, why);
  };
  const first = await approved("run_command", COMMAND);
  const archive = await sourceOf(bucket.folder);
  const pushed = await as("ada", "POST", "/push", archive, { headers: { "content-type": "application/x-tar" } });
  await server.ended(bucket.path, pushed.body.run_id);
  await stale(first.id, /the source is another revision/);
  const second = await approved("run_command", { ...COMMAND, workers: ["127.0.0.1"] });
  await run("ada", "/build");
  await stale(second.id, /the bucket was built again/);
  const third = await approved("run_command", COMMAND);
  const file = path.join(layout.proposals, `${third.id}.json`);
  writeFileSync(file, readFileSync(file, "utf8").replace('"127.0.0.1",', ""));
  await stale(third.id, /other workers/);
  const fourth = await approved("run_command", COMMAND);
  const key = readFileSync(layout.kvKey);
  writeFileSync(layout.kvKey, Buffer.alloc(32, 7));
  await stale(fourth.id, /the key of the bucket is another one/);
  writeFileSync(layout.kvKey, key);
  await stale(fourth.id, /the key of the bucket is another one/);
});

test("CP-523 an approval of one bucket is worth nothing in another one, not even as a file that was copied there", async (t) => {
  const { approved, server, layout, people } = await approvalServer(t);
  const { id } = await approved("run_command", { command: "echo x" });
  const other = await server.createBucket();
  const there = layoutOf(other.folder);
  await server.call("PUT", other.path, { body: { approvals: 1 } });
  const start = () =>
    server.call("POST", `${other.path}/run_command`, { authorization: people.ada.authorization, body: { proposal: id } });
  const missing = await start();
  assert.deepEqual([missing.status, missing.body.error], [404, "proposal_not_found"]);
  mkdirSync(there.proposals);
  copyFileSync(path.join(layout.proposals, `${id}.json`), path.join(there.proposals, `${id}.json`));
  assert.deepEqual(refusal(await start()), LACKING);
  assert.deepEqual((await server.call("GET", `${other.path}/runs`)).body.items, []);
});

test("CP-521 a start that waits in line is refused where the bucket asks for approvals by the time that it is its turn", async (t) => {
  const { as, setApprovals, server, bucket, runs } = await approvalServer(t, 0);
  server.hold();
  const holder = (await as("root", "POST", "/build", {})).body.run_id;
  const waiting = as("ada", "POST", "/run_command", COMMAND, { headers: { "Idempotency-Key": "one-in-line", "Ops-Wait": "60" } });
  const queue = async () => (await as("root", "GET", "/queue")).body.items;
  await until("a place in line", async () => (await queue()).length === 1);
  await setApprovals(1);
  server.release();
  await server.ended(bucket.path, holder);
  assert.deepEqual(refusal(await waiting), LACKING);
  assert.equal((await runs())[0].id, holder);
});

test("CP-525 an approval ends after a day", async (t) => {
  const { as, approved, server } = await approvalServer(t);
  const { id } = await approved("run_command", COMMAND);
  server.aheadMs = APPROVAL_MS + 1_000;
  const reply = await as("ada", "POST", "/run_command", { proposal: id });
  assert.deepEqual(refusal(reply), LACKING);
  assert.match(reply.body.message, /has expired/);
  server.aheadMs = 0;
  assert.equal((await as("ada", "GET", `/proposals/${id}`)).body.state, "expired", "a clock that goes back brings nothing back");
});

test("CP-526 the approval of a person whose token was revoked or has expired does not count, nor does a new token of that name", async (t) => {
  const { as, approved, people, server, propose } = await approvalServer(t);
  const { id } = await approved("run_command", COMMAND);
  assert.equal((await server.call("DELETE", `/api/tokens/${people.ben.id}`)).status, 204);
  await server.makeToken({ name: "ben", role: "deploy" });
  assert.deepEqual(refusal(await as("ada", "POST", "/run_command", { proposal: id })), LACKING);
  const { approvals, missing } = (await as("ada", "GET", `/proposals/${id}`)).body;
  assert.deepEqual([approvals[0].by, approvals[0].counts, missing], ["ben", false, 1]);
  const guest = await server.makeToken({ name: "guest", role: "deploy", lifetime_s: 3_600 });
  const next = await propose("run_command", COMMAND);
  assert.equal(
    (await as("root", "POST", `/proposals/${next.id}/approve`, {}, { authorization: guest.authorization })).status,
    200,
  );
  server.aheadMs = 3_600_001;
  assert.deepEqual(refusal(await as("ada", "POST", "/run_command", { proposal: next.id })), LACKING);
});

test("CP-527 a key, a place in line, a retry and a restart of the server are no ways around an approval", async (t) => {
  const { as, run, approved, ended, setApprovals, server } = await approvalServer(t);
  const keyed = (body: unknown, key: string, headers = {}) =>
    as("ada", "POST", "/run_command", body, { headers: { "Idempotency-Key": key, ...headers } });
  const { id } = await approved("run_command", COMMAND);
  const started = await keyed({ proposal: id }, "key-of-a-start");
  assert.equal(started.status, 202, started.text);
  assert.deepEqual((await keyed({ proposal: id }, "key-of-a-start")).body, started.body, "the same start again is no other run");
  await ended(started.body.run_id);
  assert.deepEqual((await keyed({ proposal: id }, "key-of-a-start")).body, started.body);
  assert.deepEqual(refusal(await keyed({ proposal: id }, "another-key")), LACKING);
  assert.deepEqual(refusal(await keyed(COMMAND, "another-key", { "Ops-Wait": "30" })), LACKING, "it need not wait to learn this");
  await setApprovals(0);
  const failed = await run("ada", "/run_command", { command: "exit 3" });
  await setApprovals(1);
  assert.deepEqual(refusal(await as("ada", "POST", "/run_command", { retry_of: failed.id })), LACKING);
  await server.stop();
  await server.open();
  assert.deepEqual(refusal(await keyed({ proposal: id }, "a-third-key")), LACKING);
});

test("CP-527 CP-528 what a schedule starts lacks an approval like anything else, be it started by hand; an admin breaks the glass", async (t) => {
  const { as, layout, run, runs } = await approvalServer(t);
  const schedules = [
    { name: "tidy", every: "1h", kind: "run_command", parameters: COMMAND },
    { name: "roll", every: "1h", kind: "deploy", deploy: true },
    { name: "try", every: "1h", kind: "deploy", parameters: { dry_run: true, with_hooks: true } },
    { name: "look", every: "1h", kind: "deploy", parameters: { dry_run: true } },
  ];
  {
    using db = openDatabase(layout.database);
    db.run("UPDATE bucket SET schedules = ?", JSON.stringify({ schedules }));
  }
  const headers = { "Ops-Break-Glass": "The%20site%20is%20down" };
  const before = (await runs()).length;
  for (const name of ["tidy", "roll", "try"]) {
    const target = `/schedules/${name}/run`;
    for (const who of ["ada", "boss", "root"] as const)
      assert.deepEqual(refusal(await as(who, "POST", target, {})), LACKING, `${who} ${name}`);
    const keyed = { "Idempotency-Key": `key-of-${name}`, "Ops-Wait": "0" };
    assert.deepEqual(refusal(await as("root", "POST", target, {}, { headers: keyed })), LACKING, name);
    assert.equal((await as("ada", "POST", target, {}, { headers })).body.error, "forbidden");
    assert.equal((await as("boss", "POST", target, { dry_run: true })).status, 400, "its parameters are the schedule's");
  }
  assert.equal((await runs()).length, before);
  assert.equal((await run("ada", "/schedules/look/run")).approval, null);
  const broken = await run("boss", "/schedules/tidy/run", {}, { headers });
  assert.deepEqual([broken.kind, broken.break_glass, broken.approval], ["run_command", "The site is down", null]);
});

test("CP-523 CP-527 a start that leaves no run leaves its approval, whatever its key is called", async (t) => {
  const { as, approved, ended, layout } = await approvalServer(t);
  const { id } = await approved("run_command", COMMAND);
  const start = () => as("ada", "POST", "/run_command", { proposal: id }, { headers: { "Idempotency-Key": "proposals" } });
  const aside = `${layout.runs}.aside`;
  renameSync(layout.runs, aside);
  writeFileSync(layout.runs, "in the way");
  assert.equal((await start()).status, 500);
  rmSync(layout.runs);
  renameSync(aside, layout.runs);
  const { status, body } = await start();
  assert.equal(status, 202, body.message);
  assert.equal((await ended(body.run_id)).status, "succeeded");
});

test("CP-527 a start that waits in line is judged when its turn comes", async (t) => {
  const { as, approved, server, runs } = await approvalServer(t);
  const { id } = await approved("run_command", COMMAND);
  server.hold();
  const { run_id } = (await as("root", "POST", "/build", {})).body;
  const waiting = as(
    "ada",
    "POST",
    "/run_command",
    { proposal: id },
    { headers: { "Idempotency-Key": "key-in-line", "Ops-Wait": "30" } },
  );
  await until("a start in line", async () => (await as("root", "GET", "/queue")).body.items.length === 1);
  assert.equal((await as("eva", "POST", `/proposals/${id}/reject`, { reason: "not today" })).status, 200);
  server.release();
  const reply = await waiting;
  assert.deepEqual(refusal(reply), LACKING);
  assert.match(reply.body.message, /was rejected by eva: not today/);
  assert.deepEqual(
    (await runs()).filter(({ kind }: { kind: string }) => kind === "run_command"),
    [],
  );
  await server.ended(`/api/buckets/${path.basename((await runs())[0].bucket_id)}`, run_id);
});

test("CP-527 a restored snapshot brings no approval back", async (t) => {
  const { as, run, approved, layout } = await approvalServer(t);
  const open = await approved("run_command", COMMAND);
  const spent = await approved("run_command", COMMAND);
  const { result } = await run("root", "/snapshots", {});
  assert.equal((await run("ada", "/run_command", { proposal: spent.id })).status, "succeeded");
  assert.equal((await as("ada", "DELETE", `/proposals/${open.id}`)).status, 204);
  const [{ name }] = (await as("root", "GET", "/snapshots")).body.items;
  assert.ok(result !== null && readdirSync(layout.proposals).length === 2);
  assert.equal((await run("root", `/snapshots/${name}/restore`)).status, "succeeded");
  for (const { id } of [open, spent])
    assert.deepEqual(refusal(await as("ada", "POST", "/run_command", { proposal: id })), LACKING);
});

test("CP-520 CP-528 an admin breaks the glass, with a reason that stays; nobody else can", async (t) => {
  const { as, ended, propose } = await approvalServer(t);
  const headers = { "Ops-Break-Glass": "The%20site%20is%20down" };
  const refused = await as("ada", "POST", "/run_command", COMMAND, { headers });
  assert.deepEqual([refused.status, refused.body.error], [403, "forbidden"]);
  const { body } = await as("boss", "POST", "/run_command", COMMAND, { headers });
  const run = await ended(body.run_id);
  assert.deepEqual([run.status, run.break_glass, run.approval], ["succeeded", "The site is down", null]);
  const { id } = await propose("run_command", COMMAND);
  const named = await as("boss", "POST", "/run_command", { proposal: id }, { headers });
  const second = await ended(named.body.run_id);
  assert.deepEqual([second.break_glass, second.approval], ["The site is down", { proposal: id, required: 0, by: [] }]);
  assert.equal((await as("ada", "GET", `/proposals/${id}`)).body.state, "used");
});
