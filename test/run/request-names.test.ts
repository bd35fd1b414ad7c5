import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "../../lib/operation/build/build.ts";
import type { RunKind } from "../../lib/run/protocol.ts";
import { requireNames } from "../../lib/run/request.ts";
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
