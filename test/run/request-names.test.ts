import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "../../lib/operation/build/build.ts";
import { RUN_KINDS, type RunKind } from "../../lib/run/protocol.ts";
import { canName, catalogBasis, requireNames } from "../../lib/run/request.ts";
import { makeBucket } from "../helpers/workspace.ts";

test("a run of names that are not in the catalog is refused before it is made, each list by itself", async (t) => {
  const bucket = await makeBucket(t, { workers: ["10.0.0.1"], jobs: { web: { selectors: ["worker"] } } });
  await build(bucket.context("build"), {});
  const look = (kind: RunKind, params: Record<string, unknown>) => requireNames(bucket.db, kind, params);
  for (const [kind, params] of [
    ["deploy", { jobs: ["wep"] }],
    ["deploy", { force_only: ["web@10.0.0.2"] }],
    ["drift", { workers: ["10.0.0.2"] }],
    ["job_stop", { jobs: ["web"], allocations: ["10.0.0.2"] }],
    ["run_command", { workers: ["10.0.0.2"] }],
    ["run_command", { labels: ["nowhere"] }],
  ] as const)
    assert.throws(() => look(kind, params), { code: "unknown_name" }, `${kind} ${JSON.stringify(params)}`);
  for (const [kind, params] of [
    ["deploy", {}],
    ["deploy", { jobs: ["wep"], build: true }],
    ["drift", { workers: ["10.0.0.1"] }],
    ["job_stop", { jobs: ["web"] }],
    ["run_command", { labels: ["worker"] }],
  ] as const)
    look(kind, params);
});

test("the kinds whose parameters hold jobs or workers can name what is not there", () => {
  const without = [
    "push",
    "rollback",
    "build",
    "gc",
    "snapshot_create",
    "snapshot_restore",
    "kv_rekey",
    "ca_rotate",
    "ssh_key_rotate",
  ];
  assert.deepEqual(
    RUN_KINDS.filter((kind) => !canName(kind)),
    without,
  );
});

test("what a run would work with is the number of the build, and each of its workers once", async (t) => {
  const hook = (name: string) => ({ [name]: { executed_on: ["cli"] } });
  const jobs = {
    web: { selectors: ["worker"], hooks: { ...hook("own"), ...hook("both") } },
    db: { selectors: ["worker"], hooks: hook("both") },
  };
  const files = ["web/_hooks/own", "web/_hooks/both", "db/_hooks/both"].map((file) => [`workspace/jobs/${file}.py`, "pass\n"]);
  const bucket = await makeBucket(t, { workers: ["10.0.0.1", "10.0.0.2"], jobs, files: Object.fromEntries(files) });
  const basis = (kind: RunKind, params: Record<string, unknown>) =>
    catalogBasis(bucket.db, { layout: bucket.layout, kind, params });
  assert.deepEqual(basis("rollback", { revision: "x" }), { build_seq: 0, hosts: [] });
  await build(bucket.context("build"), {});
  const both = ["10.0.0.1", "10.0.0.2"];
  for (const [kind, params, hosts] of [
    ["deploy", {}, both],
    ["deploy", { jobs: ["web"] }, both],
    ["hooks", { hook: "own" }, both],
    ["hooks", { hook: "both", job: "db" }, both],
    ["run_command", { command: "true" }, both],
    ["run_command", { command: "true", workers: ["10.0.0.2"] }, ["10.0.0.2"]],
    ["run_command", { command: "true", labels: ["worker"] }, both],
    ["rollback", { revision: "x" }, []],
  ] as const)
    assert.deepEqual(basis(kind, params), { build_seq: 1, hosts }, `${kind} ${JSON.stringify(params)}`);
  bucket.db.run("UPDATE allocations SET removed = 1 WHERE job = 'db' AND worker_ip = '10.0.0.2'");
  assert.deepEqual(basis("deploy", { jobs: ["db"] }).hosts, ["10.0.0.1"]);
  for (const [kind, params, code] of [
    ["hooks", { hook: "both" }, "invalid_request"],
    ["hooks", { hook: "none" }, "unknown_name"],
    ["hooks", { hook: "own", job: "db" }, "unknown_name"],
    ["deploy", { force_only: ["web@10.0.0.9"] }, "unknown_name"],
    ["deploy", { plan: "0198f3a2-7b44-7c02-8e11-2a9d4c6b8f10" }, "run_not_found"],
  ] as const)
    assert.throws(() => basis(kind, params), { code }, JSON.stringify(params));
  assert.throws(() => basis("drift", { workers: ["10.0.0.9"] }), { code: "unknown_name" });
});
