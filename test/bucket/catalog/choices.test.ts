import assert from "node:assert/strict";
import { test } from "node:test";
import type { CatalogJob } from "../../../lib/bucket/base/model.ts";
import { jobOfHook } from "../../../lib/bucket/catalog/choices.ts";

const job = (name: string, hooks: Record<string, string[]>) =>
  ({ name, hooks: Object.entries(hooks).map(([hook, events]) => ({ name: hook, events })) }) as unknown as CatalogJob;

const JOBS = [
  job("api", { status: ["cli"], only: ["cli"], prepare: ["pre_deploy"] }),
  job("redis", { status: ["cli", "post_deploy"] }),
  job("web", {}),
];

const CHOSEN: [hook: string, job: string | undefined, expected: string][] = [
  ["only", undefined, "api"],
  ["ONLY", "API", "api"],
  ["status", "redis", "redis"],
];

const REFUSED: [hook: string, job: string | undefined, message: RegExp, code?: string][] = [
  ["status", undefined, /^Cannot run hook status: name one of the jobs that have it: api, redis$/, "invalid_request"],
  ["status", "web", /^Cannot run hook status: job web has no such hook for cli$/],
  ["status", "redys", /^Cannot run hook status: there is no job "redys"; did you mean "redis"\?$/],
  ["prepare", undefined, /^Cannot run hook prepare: no job has such a hook for cli$/],
  ["prepare", "api", /^Cannot run hook prepare: job api has no such hook for cli$/],
];

for (const [hook, name, expected] of CHOSEN)
  test(`HR-051 the job of hook ${hook} of ${name ?? "no named job"} is ${expected}`, () =>
    assert.equal(jobOfHook(JOBS, hook, name).name, expected));

for (const [hook, name, message, code = "unknown_name"] of REFUSED)
  test(`HR-051 hook ${hook} of ${name ?? "no named job"} is refused as ${code}`, () =>
    assert.throws(() => jobOfHook(JOBS, hook, name), { code, message }));
