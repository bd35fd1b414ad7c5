import assert from "node:assert/strict";
import { test } from "node:test";
import type { Failure } from "../../../lib/core/errors.ts";
import { runHooks } from "../../../lib/operation/hooks/hooks.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { hooksOf, RECORD, traces } from "../../helpers/hooks.ts";

const [A, B] = HOSTS;
const WRITE = `${RECORD}ops.put_job_variable("wrote", "yes").raise_for_status()\n`;

test("HR-051 HR-306 HR-124 HR-316 the hooks command runs one hook of one job, and stores only what succeeded", async (t) => {
  const deploys = await Deploys.make(t);
  const { bucket } = deploys;
  const fails = `import sys\nif ops.allocation_ip() == "${B}": sys.exit("no")\n`;
  const web = { manifest: hooksOf({ go: ["cli"], other: ["cli"], fails: ["cli"] }) };
  await deploys.build(
    {
      web: { ...web, files: { "_hooks/go.py": WRITE, "_hooks/other.py": RECORD, "_hooks/fails.py": WRITE + fails } },
      idle: { manifest: { ...hooksOf({ rest: ["cli"] }), selectors: ["nobody"] } },
    },
    { hosts: [A, B] },
  );
  const wrote = () => bucket.kv().get("vars/job/web", "wrote");
  const failure = await Promise.resolve(runHooks(bucket.context("hooks"), { hook: "fails" })).catch((thrown) => thrown);
  assert.equal((failure as Failure).code, "ErrHookFailed");
  const { scripts } = (failure as Failure).details as { scripts: { worker: string; error: string | null }[] };
  assert.deepEqual(
    scripts.map(({ worker, error }) => [worker, error]),
    [
      [A, null],
      [B, "exit code 1: no"],
    ],
  );
  assert.equal(wrote(), undefined);
  assert.equal(traces(bucket.dir).length, 2);

  const result = (await runHooks(bucket.context("hooks"), { hook: "Go", job: "Web" })) as Record<string, unknown>;
  assert.deepEqual([result.job, result.hook], ["web", "go"]);
  assert.deepEqual(
    traces(bucket.dir).map((trace) => `${trace.HOOK} ${trace.EVENT}`),
    ["go cli", "go cli"],
  );
  assert.equal(wrote(), "yes");
  await assert.rejects(runHooks(bucket.context("hooks"), { hook: "go", job: "idle" }), { code: "unknown_name" });
  assert.deepEqual(await runHooks(bucket.context("hooks"), { hook: "rest" }), { job: "idle", hook: "rest", scripts: [] });
  assert.match(bucket.activity.at(-1) ?? "", /idle has no allocation to run the hook for/);
});

test("HR-069 a demand runs nothing of the job that it is on", async (t) => {
  const deploys = await Deploys.make(t);
  const { bucket } = deploys;
  const files = { "_hooks/go.py": RECORD, "_hooks/check.py": RECORD };
  const demands = { go: { executed_on: ["cli"], demands: { job: "base", hook: "go" } } };
  await deploys.build(
    { base: { manifest: hooksOf({ go: ["cli"] }), files }, app: { manifest: { hooks: demands }, files } },
    { hosts: [A] },
  );
  await runHooks(bucket.context("hooks"), { hook: "go", job: "app" });
  assert.deepEqual(
    traces(bucket.dir).map((trace) => `${trace.JOB} ${trace.HOOK}`),
    ["app go"],
  );
});
