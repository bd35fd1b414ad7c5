import assert from "node:assert/strict";
import { test } from "node:test";
import { type ScriptFacts, scriptEnvironment } from "../../lib/hook/environment.ts";

const FACTS: ScriptFacts = {
  allocation: {
    id: "5f0e8c6c-0000-5000-8000-000000000001",
    worker: "10.0.0.2",
    job: "redis",
    disabled: false,
    newVersion: "1.3.0",
  },
  allocationIndex: 1,
  currentVersion: "1.2.0",
  event: "pre_deploy",
  hook: "join",
  phase: "pre_deploy",
  batch: {
    workers: ["10.0.0.2", "10.0.0.1"],
    index: 0,
    count: 2,
    order: { workers: ["10.0.0.2", "10.0.0.1", "10.0.0.3"], source: "kv" },
  },
  api: { host: "127.0.0.1", port: 8080 },
  bucketRoot: "/srv/bucket",
  sshConfig: "/srv/ssh-1/config",
  workersFile: "/srv/bucket/tmp/workers.json",
  variables: {},
};

test("HR-129 HR-130 HR-131 HR-132 HR-133 HR-134 HR-135 HR-137 HR-138 HR-139 HR-140 HR-148 HR-149 HR-150 HR-151 HR-152 HR-153 T-29 a script is told exactly this", () => {
  assert.deepEqual(scriptEnvironment({}, FACTS), {
    ALLOCATION_ID: "5f0e8c6c-0000-5000-8000-000000000001",
    ALLOCATION_IP: "10.0.0.2",
    ALLOCATION_INDEX: "1",
    JOB: "redis",
    EVENT: "pre_deploy",
    COMMAND: "join",
    HOOK: "join",
    DISABLED: "0",
    CURRENT_VERSION: "1.2.0",
    NEW_VERSION: "1.3.0",
    BATCH_ALLOCATIONS: "10.0.0.2,10.0.0.1",
    BATCH_INDEX: "0",
    BATCH_COUNT: "2",
    DEPLOY_PHASE: "pre_deploy",
    ROLLOUT_ORDER: "10.0.0.2,10.0.0.1,10.0.0.3",
    ROLLOUT_ORDER_SOURCE: "kv",
    HOOK_API_HOST: "127.0.0.1",
    HOOK_API_PORT: "8080",
    BUCKET_ROOT: "/srv/bucket",
    OPS_SSH_CONFIG: "/srv/ssh-1/config",
    OPS_WORKERS_FILE: "/srv/bucket/tmp/workers.json",
  });
});

test("HR-136 a disabled allocation is told so", () => {
  const facts = { ...FACTS, allocation: { ...FACTS.allocation, disabled: true } };
  assert.equal(scriptEnvironment({}, facts).DISABLED, "1");
});

test("HR-155 HR-156 HR-157 HR-158 only its event gives a script the variables of an event", () => {
  const ours = { TARGET: "ours", NEW_ALLOCATIONS: "ours", UPDATED_ALLOCATIONS: "ours", DRY_RUN: "ours" };
  const variables = { NEW_ALLOCATIONS: "a", UPDATED_ALLOCATIONS: "b,c" };
  const given = scriptEnvironment(ours, { ...FACTS, variables });
  assert.equal(given.NEW_ALLOCATIONS, "a");
  assert.equal(given.UPDATED_ALLOCATIONS, "b,c");
  assert.equal(given.TARGET, undefined);
  assert.equal(given.DRY_RUN, undefined);
  for (const name of Object.keys(ours)) assert.ok(!(name in scriptEnvironment(ours, FACTS)), name);
});

const inherited: [name: string, isKept: boolean][] = [
  ["PATH", true],
  ["HOME", true],
  ["LC_ALL", true],
  ["https_proxy", true],
  ["OPS_SERVE_TOKEN", false],
  ["OPS_SERVE_TOTP_SECRET_FILE", false],
  ["OPS_WRAPPED", false],
  ["OPS_SSH_CONFIG", false],
  ["NODE_COMPILE_CACHE", false],
  ["NODE_CHANNEL_FD", false],
  ["PWD", false],
  ["OLDPWD", false],
  ["PWD_OF_MINE", true],
  ["MY_OPS_NAME", true],
];

for (const [name, isKept] of inherited)
  test(`of our environment a script ${isKept ? "gets" : "does not get"} ${name}`, () => {
    const given = scriptEnvironment({ [name]: "ours" }, { ...FACTS, sshConfig: undefined });
    assert.equal(given[name], isKept ? "ours" : undefined);
    assert.ok(!("OPS_SSH_CONFIG" in given), "where nothing is reached over ssh");
  });

test("what a script is told is never taken from our environment", () => {
  const told = scriptEnvironment({}, FACTS);
  const ours = Object.fromEntries(Object.keys(told).map((name) => [name, "ours"]));
  assert.deepEqual(scriptEnvironment(ours, FACTS), told);
});
