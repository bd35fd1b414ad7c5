import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { catalogFiles, catalogJobs } from "../../../lib/bucket/catalog/catalog.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { Deploys, HOSTS } from "../../helpers/deploys.ts";
import { RECORD, traces } from "../../helpers/hooks.ts";
import { until } from "../../helpers/temporary.ts";

const [A, B] = HOSTS;
const TWO = { hosts: [A, B] };
const WRITE = `ops.put_job_variable("built", "yes").raise_for_status()\n`;

/** A job with a hook for post_build that follows `demands`. */
function job(script: string, demands?: string) {
  const up = { executed_on: ["post_build"], ...(demands && { demands: { job: demands, hook: "up" } }) };
  return { manifest: { hooks: { up } }, files: { "_hooks/up.py": RECORD + script } };
}

test("HR-050 HR-120 HR-121 HR-315 post_build follows the stored catalog, by deployment_seq and name, and is stored at the end", async (t) => {
  const deploys = await Deploys.make(t);
  const { bucket } = deploys;
  const look = `import sqlite3
print("jobs", [row[0] for row in sqlite3.connect("data/ops.db").execute("SELECT name FROM job ORDER BY name")])
print("stored", sqlite3.connect("data/ops.db").execute("SELECT COUNT(*) FROM key_value WHERE key = 'built'").fetchone())
`;
  await deploys.build({ a: job(WRITE, "c"), b: job(WRITE), c: job(WRITE + look) }, { ...TWO, disabled: { b: [B] } });
  assert.deepEqual(
    traces(bucket.dir).map((trace) => [trace.JOB, trace.ALLOCATION_IP, trace.DISABLED, trace.DEPLOY_PHASE].join(" ")),
    [
      ...[`b ${A} 0 post_build`, `b ${B} 1 post_build`, `c ${A} 0 post_build`, `c ${B} 0 post_build`],
      ...[`a ${A} 0 post_build`, `a ${B} 0 post_build`],
    ],
  );
  const said = bucket.activity.join("");
  assert.match(said, /\| jobs \['a', 'b', 'c'\]/);
  assert.match(said, /\| stored \(0,\)/);
  const kv = bucket.kv();
  assert.deepEqual(
    ["a", "b", "c"].map((name) => kv.get(`vars/job/${name}`, "built")),
    ["yes", "yes", "yes"],
  );
});

test("HR-122 a failing hook fails the build: all jobs have their turn, none is stored, the catalog stays", async (t) => {
  const deploys = await Deploys.make(t);
  const { bucket } = deploys;
  const fails = `raise SystemExit("no " + ops.job_name())\n`;
  const building = deploys.build({ a: job(WRITE), b: job(fails), c: job(fails) }, { hosts: [A] });
  await assert.rejects(building, {
    code: "ErrHookFailed",
    message:
      `the catalog is stored, but not the values that hooks wrote: hook up (post_build) of job b failed on 1 worker: ${A}: exit code 1: no b; ` +
      `hook up (post_build) of job c failed on 1 worker: ${A}: exit code 1: no c`,
  });
  assert.deepEqual(
    catalogJobs(bucket.db).map(({ name }) => name),
    ["a", "b", "c"],
  );
  assert.equal(bucket.kv().get("vars/job/a", "built"), undefined);
});

test("CP-133 a cancelled post_build stores nothing, and what was built stays", async (t) => {
  const deploys = await Deploys.make(t);
  const { bucket } = deploys;
  const wait = `${WRITE}import subprocess\nif os.path.exists("wait"):\n    print("waits", flush=True)\n    subprocess.run(["sleep", "600"])\n`;
  await deploys.build({ a: job(wait) }, { hosts: [A] });
  const kv = bucket.kv();
  kv.delete("vars/job/a", "built");
  kv.flush();
  writeFileSync(path.join(bucket.dir, "wait"), "");
  writeFileSync(path.join(bucket.dir, "workspace/jobs/a/new"), "");
  const cancel = new AbortController();
  t.after(() => cancel.abort());
  const building = build(bucket.context("build", cancel.signal), {});
  building.catch(() => {});
  await until("the script to wait", () => /\| waits/.test(bucket.activity.join("")));
  cancel.abort();
  await assert.rejects(building, { code: "cancelled" });
  assert.equal(bucket.kv().get("vars/job/a", "built"), undefined);
  assert.ok(catalogFiles(bucket.db, "a").some((file) => file.path === "new"));
});
