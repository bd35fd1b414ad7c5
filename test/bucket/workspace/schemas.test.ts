import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { SCHEMA_NAMES, type SchemaName, schemaOf } from "../../../lib/bucket/workspace/schemas.ts";
import { PROGRAM_ROOT } from "../../../lib/core/self.ts";
import { isObject, type Schema } from "../../../lib/core/shape.ts";
import { schemaErrors } from "../../helpers/schema.ts";

// What the schemas refuse stands beside the same cases of a build, in manifest.test.ts and workers.test.ts.

const EXAMPLES: [file: string, name: SchemaName][] = [
  ["hello/workspace/workers.json", "workers"],
  ["hello/workspace/jobs/hello/manifest.json", "manifest"],
  ["hello/workspace/jobs/gateway/manifest.json", "manifest"],
  ["redis/workspace/workers.json", "workers"],
  ["redis/workspace/jobs/redis/manifest.json", "manifest"],
];

for (const [file, name] of EXAMPLES)
  test(`the schema accepts examples/${file}`, () => {
    assert.deepEqual(schemaErrors(name, JSON.parse(readFileSync(`${PROGRAM_ROOT}/examples/${file}`, "utf8"))), []);
  });

test("the schema accepts every field of a manifest, $schema and the older names", () => {
  const manifest = {
    $schema: "../../../.ops/schemas/manifest.json",
    version: "1.2",
    selectors: ["a", ""],
    update_parallel_count: 2,
    restart_policy: "reload",
    restart_globs: ["conf/**"],
    resources: { memory: { min: "1.5 GB", max: "" }, cpu: { min: "500" }, ports: { a_http: {}, b: 80 } },
    hooks: { Check: { executed_on: ["cli"], demands: { job: "db", hook: "up", config: { min_version: 1 } } } },
    certs: { web: { subject: { alt_names: ["*.example.org", "::1"] } } },
    health_check: {
      checks: [
        { type: "http", port: "b", expect_status: 0 },
        { type: "ssh", command: "true" },
      ],
      wait: {},
    },
    tolerate: { unreachable: "5%" },
  };
  assert.deepEqual(schemaErrors("manifest", manifest), []);
  const worker = { host: "fe80::1", ssh_jump: "a@[::1]:22", root: "/opt/a.b", tags: { z: "1" }, memory: "4 gb", cpu: "1e3" };
  assert.deepEqual(schemaErrors("workers", [worker]), []);
  const disabled = { $schema: "x", workers: ["a"], jobs: { web: { allocations: ["b"] }, db: {} } };
  assert.deepEqual(schemaErrors("disabled", disabled), []);
});

test("the schema of disabled.json refuses what a build refuses", () => {
  for (const value of [[], { workers: "a" }, { jobs: [] }, { jobs: { a: { allocation: [] } } }, { worker: [] }])
    assert.notDeepEqual(schemaErrors("disabled", value), [], JSON.stringify(value));
});

test("every key of every schema has a description", () => {
  const bare = (schema: Schema, path: string): string[] => {
    const own = Object.entries((schema.properties ?? {}) as Record<string, Schema>);
    const inner = [...own, ["0", schema.items], ["*", schema.additionalProperties]] as [string, Schema][];
    return [
      ...own.filter(([, one]) => one.description === undefined).map(([key]) => `${path}/${key}`),
      ...inner.filter(([, one]) => isObject(one)).flatMap(([key, one]) => bare(one, `${path}/${key}`)),
    ];
  };
  for (const name of SCHEMA_NAMES) assert.deepEqual(bare(schemaOf(name), name), []);
});
