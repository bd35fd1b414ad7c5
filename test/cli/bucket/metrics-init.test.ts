import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { prometheusRows, scrapeConfigs } from "../../../lib/bucket/prometheus/scrape.ts";
import { PROGRAM_ROOT } from "../../../lib/core/self.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { deploy } from "../../../lib/operation/deploy/deploy.ts";
import { ops } from "../../helpers/command-line.ts";
import { carryOut } from "../../helpers/operations.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const OWN = "workspace/jobs/watch/_prometheus";
const PROMETHEUS = { selectors: ["worker"], resources: { ports: { watch_http: 9090 } } };
const CONFIG = "{{ ruleFiles }}\nscrape_configs:{{ scrapeConfigs }}\n";

async function watched(t: TestContext) {
  const root = temporaryFolder(t);
  const bucket = await makeBucket(t, {
    workers: [{ host: "127.0.0.1", connection: "local", root }],
    jobs: { watch: PROMETHEUS },
    files: { "workspace/jobs/watch/prometheus.yml.tpl": CONFIG },
  });
  const init = (...words: string[]) => ops(["metrics", "init", ...words, "--bucket-dir", bucket.dir]);
  return { bucket, init, folder: path.join(root, bucket.bucketId, "jobs", "watch") };
}

test("what metrics init writes builds, is deployed with a Prometheus, and promtool takes it", async (t) => {
  const { bucket, init, folder } = await watched(t);
  const { code, stdout, stderr } = await init("watch", "--target", "ops.example:8443");
  assert.deepEqual([code, stderr], [0, ""]);
  const files = stdout.trimEnd().split("\n");
  assert.ok(files.includes(`${OWN}/scrape.yaml.tpl`) && files.includes(`${OWN}/alerts/ops.yaml`), stdout);
  assert.equal((await carryOut(bucket, "build", build)).error, undefined);
  const [row] = prometheusRows(bucket.db);
  assert.deepEqual(row, { job: "watch", scrape: "yes", alerts: 8, runbooks: files.length - 2, dashboards: 0 });
  const refused = await carryOut(bucket, "deploy", deploy);
  assert.match(refused.text, /key "ops_api_token" is missing in namespace secrets\/job\/watch/);
  const kv = bucket.kv();
  kv.put("secrets/job/watch", "ops_api_token", 'a "token"\\ #1\n');
  kv.flush();
  const deployed = await carryOut(bucket, "deploy", deploy);
  assert.equal(deployed.error, undefined, deployed.text);
  const [config] = scrapeConfigs(bucket.db, bucket.kv(), { reveal: true });
  const { authorization, static_configs } = JSON.parse(JSON.stringify(config));
  assert.deepEqual([authorization, static_configs], [{ credentials: 'a "token"\\ #1' }, [{ targets: ["ops.example:8443"] }]]);
  const checked = spawnSync("promtool", ["check", "config", path.join(folder, "prometheus.yml")], { encoding: "utf8" });
  assert.equal(checked.status, 0, checked.stdout + checked.stderr);
  assert.match(checked.stdout + checked.stderr, /ops\.yaml\n {2}SUCCESS: 8 rules found/);
  const rules = readFileSync(path.join(folder, "rules/watch/ops.yaml"), "utf8");
  const [, page = ""] = /runbook_url: "?http:\/\/127\.0\.0\.1:9090\/([^"\n]+)/.exec(rules) ?? [];
  assert.ok(existsSync(path.join(folder, page)), page);
});

/** Lets promtool test the rules of ops. */
function testsRules(t: TestContext, text: string): void {
  const folder = temporaryFolder(t);
  cpSync(path.join(PROGRAM_ROOT, "lib/bucket/prometheus/files"), folder, { recursive: true });
  writeFileSync(path.join(folder, "test.yaml"), text);
  const { status, stdout, stderr } = spawnSync("promtool", ["test", "rules", "test.yaml"], { cwd: folder, encoding: "utf8" });
  assert.equal(status, 0, stdout + stderr);
}

/** A test of promtool: each alert fires for one series; deploys have begun to fail within the last 15 minutes. */
const RULE_TEST = `rule_files: [metrics/alerts/ops.yaml, certs.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'up{job="ops"}', values: 1 0x60}
      - {series: process_start_time_seconds, values: 0x60}
      - {series: 'ops_bucket_readable{bucket="b"}', values: 0x60}
      - {series: 'ops_runs_total{kind="deploy",status="failed"}', values: _x29 2x31}
      - {series: 'ops_runs_total{kind="build",status="failed"}', values: 3x60}
      - {series: 'ops_starts_waiting{bucket="b"}', values: 1x60}
      - {series: 'ops_allocations_in_trouble{outcome="failed"}', values: 1x60}
      - {series: 'ops_allocations{state="unsettled",bucket_id="1"}', values: 1x60}
      - {series: 'ops_allocations{state="unsettled",bucket_id="2"}', values: 1x60}
      - {series: 'ops_bucket_runs_active{bucket_id="1"}', values: 0x60}
      - {series: 'ops_bucket_runs_active{bucket_id="2"}', values: 1x60}
      - {series: 'ops_drifted_allocations{bucket="b"}', values: 1x60}
      - {series: 'ops_event_loop_delay_seconds{of="p99"}', values: 1x60}
      - {series: 'ops_cert_not_after_seconds{cert="a",status="expiring"}', values: 4000x60}
      - {series: 'ops_cert_not_after_seconds{cert="b",status="ok"}', values: 4000x60}
      - {series: 'ops_cert_not_after_seconds{cert="c",status="expired"}', values: 60x60}
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{alertstate="firing"})
        eval_time: 40m
        exp_samples:
NAMES
`;

test("every alert of ops fires for what it is about, and for nothing else", (t) => {
  const names = ["ServerDown", "BucketUnreadable", "RunsFail", "StartsWait", "AllocationsInTrouble", "AllocationsUnsettled"];
  const all = [...names, "Drift", "EventLoopSlow", "CertificateEndsSoon", "CertificateEnded"];
  const samples = all.map((name) => `          - {labels: '{alertname="Ops${name}"}', value: 1}`).join("\n");
  testsRules(t, RULE_TEST.replace("NAMES", samples));
});

/** A test of promtool: the server of each instance starts anew after 20 minutes, and a run fails soon. */
const RESTART_TEST = `rule_files: [metrics/alerts/ops.yaml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'process_start_time_seconds{job="ops",instance="a"}', values: 0x19 1200x40}
      - {series: 'process_start_time_seconds{job="ops",instance="b"}', values: 0x19 1200x40}
      - {series: 'ops_runs_total{job="ops",instance="a",kind="build",status="failed"}', values: 5x19 stale stale 1x38}
      - {series: 'ops_runs_total{job="ops",instance="b",kind="build",status="failed"}', values: 1x19 1x40}
    promql_expr_test:
TIMES
`;

test("runs that fail after a restart of the server raise their alert, however many failed before it", (t) => {
  const times = [19, 24, 30, 38].map((minute) => {
    const samples = minute === 24 || minute === 30 ? "[{labels: '{}', value: 2}]" : "[]";
    return `      - {expr: 'count(ALERTS{alertname="OpsRunsFail"})', eval_time: ${minute}m, exp_samples: ${samples}}`;
  });
  testsRules(t, RESTART_TEST.replace("TIMES", times.join("\n")));
});

test("metrics init writes into a folder with only the source of a bucket on a server", async (t) => {
  const folder = temporaryFolder(t);
  mkdirSync(path.join(folder, "workspace/jobs/watch"), { recursive: true });
  writeFileSync(path.join(folder, "workspace/jobs/watch/manifest.json"), "{}");
  const before = process.umask(0);
  const { code, stderr } = await ops(["metrics", "init", "watch", "--bucket-dir", folder]).finally(() => process.umask(before));
  assert.deepEqual([code, stderr], [0, ""]);
  const modes = [OWN, `${OWN}/alerts`, `${OWN}/alerts/ops.yaml`].map((name) => statSync(path.join(folder, name)).mode & 0o777);
  assert.deepEqual(modes, [0o755, 0o755, 0o644], "whatever the umask allows");
  assert.ok(existsSync(path.join(folder, OWN, "scrape.yaml.tpl")));
  assert.ok(!existsSync(path.join(folder, "data")));
});

test("metrics init leaves what is there, and writes neither for a job that is not there nor through a link", async (t) => {
  const { bucket, init } = await watched(t);
  const place = (name: string) => path.join(bucket.dir, OWN, name);
  mkdirSync(place("alerts"), { recursive: true });
  for (const name of ["scrape.yaml", "alerts/ops.yaml"]) writeFileSync(place(name), "mine");
  const { code, stdout } = await init("watch", "--json");
  const { job, written, kept } = JSON.parse(stdout);
  assert.deepEqual([code, job, kept], [0, "watch", [`${OWN}/alerts/ops.yaml`, `${OWN}/scrape.yaml.tpl`]]);
  assert.ok(written.length > 0 && written.every((file: string) => file.startsWith(`${OWN}/runbooks/`)), stdout);
  assert.equal(readFileSync(place("alerts/ops.yaml"), "utf8"), "mine");
  assert.ok(!existsSync(place("scrape.yaml.tpl")));
  assert.match((await init("watch")).stdout, /runbooks\/ops-drift\.md was there and stays\n/);
  const elsewhere = temporaryFolder(t);
  mkdirSync(path.join(bucket.dir, "workspace/jobs/linked"));
  writeFileSync(path.join(bucket.dir, "workspace/jobs/linked/manifest.json"), "{}");
  symlinkSync(elsewhere, path.join(bucket.dir, "workspace/jobs/linked/_prometheus"));
  for (const [words, message] of [
    [["none"], /job "none": it is not in workspace\/jobs/],
    [["../watch"], /it is not in workspace\/jobs/],
    [["linked"], /workspace\/jobs\/linked\/_prometheus: it is not a folder/],
    [["watch", "--target", "http://x:1/"], /--target "http:\/\/x:1\/": expected HOST:PORT/],
  ] as const) {
    const refused = await init(...words);
    assert.notEqual(refused.code, 0);
    assert.match(refused.stderr, message);
  }
});
