import assert from "node:assert/strict";
import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { catalogWorkers } from "../../../lib/bucket/catalog/catalog.ts";
import { collectEvidence } from "../../../lib/operation/base/evidence.ts";
import { Fleet } from "../../../lib/operation/base/fleet.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

test("evidence is the last 20 lines of the three newest logs and of make status, or says what is not there", async (t) => {
  const root = temporaryFolder(t);
  const bucket = await makeBucket(t, { workers: [{ host: "w", connection: "local", root }], jobs: { web: {} } });
  await build(bucket.context("build"), {});
  const context = bucket.context("health_check");
  await using fleet = new Fleet(context, catalogWorkers(bucket.db));
  const look = async () => {
    bucket.activity.length = 0;
    const evidence = await collectEvidence(context, fleet, "web", "w");
    return { ...evidence, told: bucket.activity.map((line) => line.trimEnd().replace("web@w | ", "")) };
  };
  const nothing = await look();
  assert.deepEqual(nothing.logs, []);
  const why = "jobs/web is missing on this worker: deploy to it first";
  assert.deepEqual(nothing.told, ["no logs there", "make status: exit code 66", `  ${why}`]);

  const job = path.join(root, bucket.bucketId, "jobs/web");
  mkdirSync(path.join(job, "logs"), { recursive: true, mode: 0o755 });
  writeFileSync(path.join(job, "Makefile"), "status:\n\t@seq 1 30\n");
  for (const [age, name] of ["a", "b", "c", "d"].entries()) {
    const file = path.join(job, "logs", name);
    writeFileSync(file, Array.from({ length: 21 }, (_, line) => `${name} ${line + 1}\n`).join(""));
    utimesSync(file, 2_000_000_000 - age, 2_000_000_000 - age);
  }
  const { logs, status, errors, told } = await look();
  assert.deepEqual(
    logs.map(({ file, lines }) => [file, lines.length, lines[0], lines.at(-1)]),
    ["a", "b", "c"].map((name) => [name, 20, `${name} 2`, `${name} 21`]),
  );
  assert.deepEqual([status?.exit_code, status?.lines[0], status?.lines.length, errors], [0, "11", 20, []]);
  assert.deepEqual(
    [told.length, told[0], told[1], told[63], told[64]],
    [84, "end of logs/a:", "  a 2", "make status: exit code 0", "  11"],
  );

  writeFileSync(path.join(root, "blocked"), "");
  const lost = new Fleet(context, [{ ...fleet.worker("w"), root: path.join(root, "blocked") }]);
  const blocked = await collectEvidence(context, lost, "web", "w");
  assert.deepEqual([blocked.logs, blocked.status, blocked.errors.length], [[], null, 2]);
  await lost[Symbol.asyncDispose]();
  const cancelled = bucket.context("health_check", AbortSignal.abort());
  await assert.rejects(collectEvidence(cancelled, fleet, "web", "w"), { code: "cancelled" });
});

test("a status that does not end in time is told with its last line", async (t) => {
  const context = (await makeBucket(t, {})).context("health_check");
  const script = async () => ({
    reason: "timeout",
    exitCode: null,
    signal: null,
    stdout: "a\nwaiting\n",
    stderr: "",
    durationMs: 1,
  });
  const fleet = { open: async () => ({ worker: { host: "w" }, script }) } as unknown as Fleet;
  const { status, errors } = await collectEvidence(context, fleet, "web", "w");
  assert.equal(status, null);
  assert.ok(errors.includes("make status did not end within 10 s: waiting"), errors.join("\n"));
});
