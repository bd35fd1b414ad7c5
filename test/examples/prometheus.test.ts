import assert from "node:assert/strict";
import { chmodSync, cpSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { catalogPorts } from "../../lib/bucket/catalog/catalog.ts";
import { build } from "../../lib/operation/build/build.ts";
import { deploy } from "../../lib/operation/deploy/deploy.ts";
import { Example } from "../../scripts/example.ts";
import { carryOut } from "../helpers/operations.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";
import { makeBucket, type TestBucket } from "../helpers/workspace.ts";

/** A job that runs a Prometheus with the service script of the example. */
const PROMETHEUS: Record<string, string> = {
  "manifest.json": JSON.stringify({
    version: "1.0.0",
    selectors: ["edge"],
    after: ["hello"],
    restart_policy: "reload",
    resources: { ports: { prometheus_port_http: {} } },
    health_check: { checks: [{ type: "http", port: "prometheus_port_http", path: "/-/ready" }] },
  }),
  Makefile: "start stop restart reload status:\n\t@sh ./service $@\n",
  "program.sh.tpl": `RELOAD_SIGNAL=HUP
port={{ get "ops" "prometheus_port_http" }}
run() {
  exec prometheus --config.file=prometheus.yml --storage.tsdb.path=data/tsdb --web.console.templates=consoles \\
    --web.listen-address={{ .WorkerIP }}:$port
}
ready() { listens "$port"; }
`,
  "prometheus.yml.tpl": "global: {scrape_interval: 1s}\n{{ ruleFiles }}\nscrape_configs:{{ scrapeConfigs }}\n",
};
const MONITORING: Record<string, string> = {
  "scrape.yaml": "- job_name: ops:job\n  static_configs: [{targets: ['ops:port/hello_http'], labels: {greets: ops:job}}]\n",
  "alerts/hello.yaml": `groups:
  - name: hello
    rules: [{alert: HelloDown, expr: 'up{job="hello"} == 0', annotations: {runbook: down}}]
`,
  "runbooks/down.md": "# Hello is down\n\n| See | `{{ $value }}` |\n|---|---|\n| <b> | [the rest](https://example.org/) |\n",
  "dashboards/up.html": '<title>Up</title>{{ range query "up" }}{{ .Value }}{{ end }}',
};

function write(folder: string, files: Record<string, string>): void {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(folder, name)), { recursive: true });
    writeFileSync(path.join(folder, name), text);
  }
}

/** The example hello with a Prometheus on its first worker. */
async function helloWithPrometheus(t: TestContext): Promise<{ bucket: TestBucket; jobs: string }> {
  let stop = async (): Promise<unknown> => undefined;
  t.after(() => stop());
  const example = await Example.copy("hello", temporaryFolder(t), 3);
  const bucket = await makeBucket(t);
  stop = () => example.stop(bucket.bucketId);
  cpSync(example.source, bucket.dir, { recursive: true });
  const jobs = path.join(bucket.dir, "workspace", "jobs");
  write(path.join(jobs, "prometheus"), PROMETHEUS);
  cpSync(path.join(jobs, "hello", "service"), path.join(jobs, "prometheus", "service"));
  chmodSync(path.join(jobs, "prometheus", "service"), 0o755);
  write(path.join(jobs, "hello", "_prometheus"), MONITORING);
  return { bucket, jobs };
}

test("a Prometheus that is deployed scrapes the example hello, has its rules and shows its runbooks; a change of them is its own", async (t) => {
  const { bucket, jobs } = await helloWithPrometheus(t);
  const run = async (params: object = {}) => {
    await carryOut(bucket, "build", build);
    const { error, result, text } = await carryOut(bucket, "deploy", deploy, { ...params });
    assert.equal(error, undefined, text);
    return result;
  };
  await run();
  const url = `http://127.0.0.1:${catalogPorts(bucket.db).get("prometheus")?.get("prometheus_port_http")}`;
  const get = async (place: string) => (await fetch(url + place)).text();
  const ask = async (what: string) => JSON.parse(await get(`/api/v1/${what}`)).data;
  type Scraped = { health: string; labels: Record<string, string> };
  let targets: Scraped[] = [];
  await until("all targets are up", async () => {
    targets = (await ask("targets")).activeTargets;
    return targets.length === 3 && targets.every(({ health }) => health === "up");
  });
  assert.deepEqual(
    targets.map(({ labels }) => `${labels.job} ${labels.greets}`),
    Array(3).fill("hello hello"),
  );
  const { groups } = await ask("rules");
  assert.deepEqual(groups.map(({ name }: { name: string }) => name).sort(), ["hello", "ops-certs"]);
  const [rule] = groups.find(({ name }: { name: string }) => name === "hello").rules;
  const page = rule.annotations.runbook_url;
  assert.equal(page, `${url}/consoles/runbooks/hello/down.html`);
  const html = await get(new URL(page).pathname);
  assert.match(html, /<h1 id="hello-is-down">Hello is down<\/h1>\n<table>\n<tr><th>See<\/th><th><code>&#123;&#123; \$value/);
  assert.match(html, /<td>&lt;b&gt;<\/td><td><a href="https:\/\/example\.org\/">the rest<\/a>/);
  assert.match(await get("/consoles/runbooks/index.html"), /<a href="hello\/down\.html">Hello is down<\/a>/);
  assert.match(await get("/consoles/dashboards/index.html"), /<a href="hello\/up\.html">Up<\/a>/);
  write(path.join(jobs, "hello", "_prometheus"), {
    "alerts/hello.yaml": MONITORING["alerts/hello.yaml"]?.replace("HelloDown", "HelloGone") ?? "",
  });
  const planned = await carryOut(bucket, "deploy", deploy, { dry_run: true, build: true });
  assert.match(planned.text, /rules\/hello\/hello\.yaml/);
  const outcome = (result: { jobs: { job: string; outcome: string }[] }) =>
    Object.fromEntries(result.jobs.map(({ job, outcome }) => [job, outcome]));
  assert.deepEqual(outcome(await run()), { hello: "skipped", gateway: "skipped", prometheus: "deployed" });
  await until("the new rule is loaded", async () => JSON.stringify(await ask("rules")).includes("HelloGone"));
});
