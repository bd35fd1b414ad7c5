import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { test } from "node:test";
import type { BuildProblem } from "../../../lib/bucket/base/problems.ts";
import { Failure } from "../../../lib/core/errors.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket, makeWorkspace, type WorkspaceSpec } from "../../helpers/workspace.ts";

const JOB = { workers: ["10.0.0.1"], jobs: { web: { selectors: ["worker"] } } };
const SCHEDULES = "workspace/schedules.json";
const SETTINGS = "workspace/bucket.jobs.conf";

const schedules = (...parameters: object[]) => ({
  [SCHEDULES]: JSON.stringify({
    schedules: parameters.map((one, at) => ({ name: `s${at}`, every: "1h", kind: "drift", ...one })),
  }),
});

test("the parameters of a schedule and the amounts of a job are checked by a build", async (t) => {
  const bucket = await makeBucket(t, JOB);
  const found = async (files: WorkspaceSpec["files"]) => {
    makeWorkspace(bucket.dir, { ...JOB, ...(files && { files }) });
    const error = await build(bucket.context(), {}).catch((failure: Failure) => failure);
    if (!(error instanceof Failure)) return [];
    const { problems } = error.details as { problems: BuildProblem[] };
    return problems.map(({ code, file, path, message }) => [code, file, path, message.split("; ")[0]]);
  };
  const wrong = schedules({ parameters: { jobs: ["web", "wep"] } }, { parameters: { jobs: "web" } }, { parameters: {} });
  const places = (await found(wrong)).map(([code, file, path]) => [code, file, path]);
  assert.deepEqual(places, [
    ["ErrInvalidSchedules", SCHEDULES, "schedules/0/parameters/jobs/1"],
    ["ErrInvalidSchedules", SCHEDULES, "schedules/1/parameters/jobs"],
  ]);
  assert.deepEqual(await found(schedules({ parameters: { jobs: ["WEB"] } })), []);
  const none = { [SCHEDULES]: null };
  for (const amount of ["1000000000000", "-1"])
    assert.deepEqual(await found({ ...none, [SETTINGS]: `[web]\ncpu = ${amount}\n` }), [
      ["ErrInvalidBucketConf", SETTINGS, "web/cpu", "must be at least 0 and below 1e12"],
    ]);
});

test("what a Prometheus has to scrape is told as long as a job runs one", async (t) => {
  const prometheus = { selectors: ["worker"], resources: { ports: { prometheus_port_http: 9090 } } };
  const web = { selectors: ["worker"], resources: { ports: { metrics_port: 9100 } } };
  const files = {
    "workspace/jobs/prometheus/prometheus.yml.tpl": "scrape_configs:{{ scrapeConfigs }}\n",
    "workspace/jobs/web/_prometheus/scrape.yaml": "- job_name: ops:job\n  static_configs: [{targets: ['ops:port/_implicit']}]\n",
  };
  const bucket = await makeBucket(t, { workers: ["10.0.0.1"], jobs: { web, prometheus }, files });
  const told = async () => {
    await build(bucket.context(), {});
    const kv = bucket.kv();
    return [kv.keys("ops/prometheus"), kv.get("ops/prometheus", "scrape_jobs"), kv.get("ops/job/web", "job_name")];
  };
  assert.deepEqual(await told(), [["scrape/web", "scrape_configs", "scrape_jobs", "scrape_jobs_length"], "web", "web"]);
  makeWorkspace(bucket.dir, { workers: ["10.0.0.1"], jobs: { web } });
  assert.deepEqual(await told(), [[], undefined, undefined]);
});

test("a large content that no file has any more goes with the next build", async (t) => {
  const large = { "workspace/jobs/web/large.txt": "x".repeat(1024 * 1024 + 1) };
  const bucket = await makeBucket(t, { ...JOB, files: large });
  const kept = async () => {
    await build(bucket.context(), {});
    return readdirSync(bucket.db.contents).length;
  };
  assert.equal(await kept(), 1);
  makeWorkspace(bucket.dir, JOB);
  assert.equal(await kept(), 0);
});
