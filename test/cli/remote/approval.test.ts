import assert from "node:assert/strict";
import { test } from "node:test";
import { approvalServer } from "../../helpers/approval.ts";
import { ops } from "../../helpers/command-line.ts";

/** Commands of three people, and of an admin, on a bucket that asks for approval. */
async function commandLines(t: Parameters<typeof approvalServer>[0]) {
  const setting = await approvalServer(t, 0);
  const { server, bucket, people } = setting;
  const as = async (who: keyof typeof people, ...args: string[]) => {
    const env = { OPS_SERVE_TOKEN: people[who].token, OPS_SERVER: server.url, OPS_BUCKET: bucket.id };
    return await ops(args, { env, cwd: bucket.folder });
  };
  return { ...setting, as };
}

test("CP-530 three people at their command lines: proposed, refused to the proposer, approved, started, used", async (t) => {
  const { as } = await commandLines(t);
  const set = await as("boss", "buckets", "set", "n", "--approvals", "2");
  assert.equal(set.stdout, "bucket p/n asks for 2 approvals; before: 0\n", set.stderr);
  assert.equal((await as("boss", "buckets", "set", "n")).stderr, "ops: --approvals: expected 0, 1 or 2\n");
  const refused = await as("ada", "run_command", "echo here");
  assert.equal(refused.code, 1);
  assert.equal(
    refused.stderr,
    "ops: run_command in this bucket needs the approval of 2 other people: `ops propose run_command` asks for it\n",
  );
  const proposed = await as("ada", "propose", "run_command", "echo here", "--workers", "127.0.0.2", "--reason", "to see");
  const id = proposed.stdout.trim();
  const short = id.slice(-8);
  assert.equal(proposed.stderr, `it lacks 2 approvals: somebody else types \`ops approve ${short}\`\n`);
  assert.match((await as("ada", "approve", short)).stderr, /somebody else has to approve it/);
  const first = await as("ben", "approve", short);
  assert.match(first.stdout, /kind +run_command\n[\s\S]*workers +127\.0\.0\.2\n[\s\S]*reason +to see\n[\s\S]*is approved\n$/);
  const early = await as("ada", "proposals", "start", short);
  assert.match(
    early.stderr,
    new RegExp(`lacks 1 of 2 approvals: somebody other than ada and ben types \`ops approve ${short}\``),
  );
  assert.equal((await as("eva", "approve", short)).stderr, `it is approved: \`ops proposals start ${short}\` starts it\n`);
  assert.match((await as("ada", "proposals")).stdout, /run_command +approved +ada .*echo here; 1 worker/);
  const started = await as("ada", "proposals", "start", short);
  assert.equal(started.code, 0, started.stderr);
  assert.match(started.stdout, /127\.0\.0\.2 \| here/);
  assert.match((await as("eva", "runs", "show")).stdout, /by +ada, bearer from \S+, approved by ben and eva\n/);
  assert.equal((await as("ada", "proposals")).stdout, "nothing is proposed\n");
  assert.match((await as("ada", "proposals", "--all")).stdout, /used/);
});

test("CP-530 a deploy is proposed with the dry run that the command makes, and started by its plan or its proposal", async (t) => {
  const { as, setApprovals } = await commandLines(t);
  await setApprovals(1);
  const built = await as("ada", "propose", "deploy", "--build");
  assert.equal(built.stderr, "ops: --build does not go with a proposal: build first, with `ops build`\n");
  const proposed = await as("ada", "propose", "deploy", "--jobs", "web", "--json");
  assert.equal(proposed.code, 0, proposed.stderr);
  const proposal = JSON.parse(proposed.stdout);
  assert.match(proposed.stderr, /PLAN: a dry run/);
  const plan = proposal.params.plan as string;
  const lacking = await as("ada", "deploy", "--plan", plan);
  assert.match(lacking.stderr, /lacks 1 of 1 approval: somebody other than ada types `ops approve/);
  assert.match(
    (await as("ben", "proposals", "show", proposal.id)).stdout,
    new RegExp(`plan +ops runs log ${plan.slice(-8)} shows it`),
  );
  assert.equal((await as("ben", "approve", proposal.id)).code, 0);
  const deployed = await as("ada", "deploy", "--plan", plan);
  assert.equal(deployed.code, 0, deployed.stderr);
  assert.match((await as("ada", "proposals", "start", proposal.id)).stderr, /was used by run/);
});

test("CP-530 a proposal is rejected with a reason or withdrawn; an admin breaks the glass", async (t) => {
  const { as, setApprovals } = await commandLines(t);
  await setApprovals(1);
  const one = (await as("ada", "propose", "hooks", "look")).stdout.trim();
  assert.equal((await as("ben", "reject", one)).code, 2);
  const long = await as("ada", "propose", "hooks", "look", "--reason", "one\ntwo");
  assert.deepEqual([long.code, long.stderr], [2, "ops: --reason: expected one line of at most 200 characters\n"]);
  const rejected = await as("ben", "reject", one, "--reason", "not today");
  assert.deepEqual(rejected, { code: 0, stdout: `proposal ${one.slice(-8)} is rejected\n`, stderr: "" });
  assert.match((await as("ada", "proposals", "start", one)).stderr, /was rejected by ben: not today; propose it anew/);
  const two = (await as("ada", "propose", "hooks", "look")).stdout.trim();
  assert.match((await as("ben", "withdraw", two)).stderr, /needs the role admin/);
  assert.equal((await as("ada", "withdraw", two)).stdout, `proposal ${two.slice(-8)} is withdrawn\n`);
  assert.match((await as("ada", "hooks", "look", "--break-glass", "all is down")).stderr, /needs the role admin/);
  const broken = await as("boss", "hooks", "look", "--break-glass", "all is down");
  assert.equal(broken.code, 0, broken.stderr);
  assert.match(broken.stderr, /BREAK GLASS: run \w{8} went past what holds runs back: all is down\n$/);
  const back = await as("ada", "propose", "rollback");
  assert.match(back.stderr, /no revision of this bucket was ever built successfully/);
});
