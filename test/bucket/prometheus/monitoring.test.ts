import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { type TestContext, test } from "node:test";
import { bytesOf } from "../../../lib/bucket/base/contents.ts";
import { catalogFiles, catalogJobs } from "../../../lib/bucket/catalog/catalog.ts";
import { type StagedTree, stageAllocation, stageForScript, writeStaging } from "../../../lib/bucket/catalog/staging.ts";
import { monitoringFor } from "../../../lib/bucket/prometheus/monitoring.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket, makeWorkspace, TEMPLATE_FIELDS, type TestBucket, type WorkspaceSpec } from "../../helpers/workspace.ts";

const PROMETHEUS = { selectors: ["worker"], resources: { ports: { prometheus_port_http: 9090 } } };
const WEB = { version: "1.2.0", selectors: ["worker"], resources: { ports: { metrics_port: 9100 } } };
const JOBS = "workspace/jobs";
const CONFIG = `global: {}
{{ ruleFiles }}
scrape_configs:{{ scrapeConfigs }}
`;
const ALERTS = `# A comment.
groups:
  - name: web
    limit: 5
    rules:
      - alert: WebDown
        expr: up{job="web"} == 0
        for: 5m
        keep_firing_for: 1m
        labels: {severity: page, release: 1.10, enabled: True} # as written
        annotations: {summary: "{{ $labels.instance }} is down", runbook: down.md}
      - alert: WebSlow
        expr: |
          sum(up)
            < 1
        annotations: {runbook: down, runbook_url: "https://elsewhere/x"}
      - record: web:up
        expr: sum(up)
`;
const FILES = {
  [`${JOBS}/prometheus/prometheus.yml.tpl`]: CONFIG,
  [`${JOBS}/web/_prometheus/scrape.yaml`]:
    "- static_configs: [{targets: ['ops:port/_implicit']}]\n  job_name: ops:job\n  params: {release: [1.10, True]}\n",
  [`${JOBS}/web/_prometheus/alerts/web.yaml`]: ALERTS,
  [`${JOBS}/web/_prometheus/alerts/more/plain.yml`]: "groups: # as it is\n  - {name: plain, rules: [{record: a:b, expr: up}]}\n",
  [`${JOBS}/web/_prometheus/runbooks/down.md`]: "# Web is <down>@body@\n\nSee {{ that }} in [more](more.md).\n",
  [`${JOBS}/web/_prometheus/dashboards/web.html`]: '<title>Web &amp; {{ x }}</title>{{ query "up" }}\n',
  [`${JOBS}/web/_prometheus/dashboards/lib/part.html`]: "part\n",
  [`${JOBS}/web/_prometheus/dashboards/.dashboardignore`]: "lib/\n",
};
const SPEC = { workers: ["10.0.0.1", "10.0.0.2"], jobs: { prometheus: PROMETHEUS, web: WEB }, files: FILES };

async function built(t: TestContext, spec: WorkspaceSpec = SPEC): Promise<TestBucket> {
  const bucket = await makeBucket(t, spec);
  await build(bucket.context(), {});
  return bucket;
}

/** The files of a job on a worker. */
function staged({ db, kv: open }: TestBucket, name = "prometheus", worker = "10.0.0.1"): StagedTree {
  const job = catalogJobs(db).find((one) => one.name === name) ?? assert.fail(name);
  const [files, kv] = [catalogFiles(db, name), open()];
  const fields = { ...TEMPLATE_FIELDS, Job: name, WorkerIP: worker };
  return stageAllocation(files, { fields, upstream: [], kv, monitoring: monitoringFor(db, kv, job, files) }, 0o600);
}

const textsOf = ({ files }: StagedTree) => new Map(files.map(({ path, content }) => [path, bytesOf(content).toString()]));
const generated = (tree: StagedTree) => [...textsOf(tree).keys()].filter((path) => /^(rules|consoles)\//.test(path));

/** What promtool says to this of a tree. */
async function promtool(t: TestContext, tree: StagedTree): Promise<string> {
  const folder = `${temporaryFolder(t)}/staged`;
  await writeStaging(folder, tree.files);
  const { status, stdout, stderr } = spawnSync("promtool", ["check", "config", `${folder}/prometheus.yml`], { encoding: "utf8" });
  assert.equal(status, 0, stdout + stderr);
  return stdout + stderr;
}

test("a Prometheus gets the scrape configurations, rules, runbooks and dashboards of all jobs, and promtool takes them", async (t) => {
  const tree = staged(await built(t));
  const texts = textsOf(tree);
  assert.equal(
    texts.get("prometheus.yml"),
    `global: {}
rule_files:
  - rules/ops/certs.yaml
  - rules/web/more/plain.yml
  - rules/web/web.yaml
scrape_configs:
  - job_name: web
    params:
      release:
        - 1.10
        - True
    static_configs:
      - targets:
          - "10.0.0.1:9100"
          - "10.0.0.2:9100"
`,
  );
  assert.deepEqual(generated(tree), [
    "consoles/dashboards/index.html",
    "consoles/dashboards/web/lib/part.html",
    "consoles/dashboards/web/web.html",
    "consoles/runbooks/index.html",
    "consoles/runbooks/web/down.html",
    "rules/ops/certs.yaml",
    "rules/web/more/plain.yml",
    "rules/web/web.yaml",
  ]);
  const said = await promtool(t, tree);
  assert.match(said, /SUCCESS: 3 rule files found/);
  assert.match(said, /certs\.yaml\n {2}SUCCESS: 2 rules found/);
});

test("without runbooks and dashboards there are no pages", async (t) => {
  const config = `${JOBS}/prometheus/prometheus.yml.tpl`;
  const tree = staged(await built(t, { ...SPEC, files: { [config]: CONFIG } }));
  assert.deepEqual(generated(tree), ["rules/ops/certs.yaml"]);
});

test("a rule names the page of its runbook, and nothing else of it changes", async (t) => {
  const texts = textsOf(staged(await built(t)));
  const url = "http://10.0.0.1:9090/consoles/runbooks/web/down.html";
  assert.equal(texts.get("rules/web/web.yaml"), ALERTS.replace("runbook: down.md", `runbook_url: "${url}"`));
  const own = FILES[`${JOBS}/web/_prometheus/alerts/more/plain.yml`];
  assert.equal(texts.get("rules/web/more/plain.yml"), own, "a file without runbooks stays as it is");
});

test("a runbook is found however it is written, and a slug with any characters leads to its page", async (t) => {
  const slug = "a #1? 50%/b";
  const forms = [
    `"${slug}"`,
    `'${slug}.md' # here`,
    `|-\n            ${slug}`,
    `>-\n            ${slug}.md\n`,
    `\n            "${slug}"`,
  ];
  const alerts = (text: (form: string) => string) =>
    `groups:\n- name: web\n  rules:\n${forms.map((form, index) => `  - alert: A${index}\n    expr: up # runbook: x\n    annotations:\n      say: "runbook: x"\n      ${text(form)}\n      last: y\n`).join("")}`;
  const files = {
    ...FILES,
    [`${JOBS}/web/_prometheus/alerts/web.yaml`]: `\ufeff${alerts((form) => `runbook: ${form}`)}`.replaceAll("\n", "\r\n"),
    [`${JOBS}/web/_prometheus/runbooks/${slug}.md`]: "```\n# no title\n```\n# Title\n",
  };
  const tree = staged(await built(t, { ...SPEC, files }));
  const texts = textsOf(tree);
  const place = "web/a%20%231%3F%2050%25/b.html";
  const rest = (form: string) => /( # here|(?<=md)\n)$/.exec(form)?.[0] ?? "";
  const url = `runbook_url: "http://10.0.0.1:9090/consoles/runbooks/${place}"`;
  assert.equal(
    texts.get("rules/web/web.yaml"),
    alerts((form) => `${url}${rest(form)}`),
  );
  assert.ok(texts.has(`consoles/runbooks/${decodeURIComponent(place)}`));
  assert.ok(texts.get("consoles/runbooks/index.html")?.includes(`<li><a href="${place}">Title</a></li>`));
  await promtool(t, tree);
});

test("runbooks and dashboards are pages with an index; text of people is escaped, templates of dashboards stay", async (t) => {
  const texts = textsOf(staged(await built(t)));
  assert.match(
    texts.get("consoles/runbooks/web/down.html") ?? "",
    /<h1 id="web-is-downbody">Web is &lt;down&gt;@body@<\/h1>\n<p>See &#123;&#123; that/,
  );
  assert.match(
    texts.get("consoles/runbooks/index.html") ?? "",
    /<li><a href="web\/down\.html">Web is &lt;down&gt;@body@<\/a><\/li>/,
  );
  const dashboards = texts.get("consoles/dashboards/index.html") ?? "";
  assert.match(
    dashboards,
    /<h2>web<\/h2>\n<ul>\n<li><a href="web\/web\.html">Web &amp; &#123;&#123; x &#125;&#125;<\/a><\/li>\n<\/ul>/,
  );
  assert.equal(texts.get("consoles/dashboards/web/web.html"), FILES[`${JOBS}/web/_prometheus/dashboards/web.html`]);
  for (const [path, text] of texts) if (/index|runbooks/.test(path)) assert.ok(!text.includes("{{"), path);
});

test("of several allocations the first active one has the pages; a second Prometheus gets the whole set for itself", async (t) => {
  const second = { selectors: ["worker"], resources: { ports: { watch_http: 9091, other: 9092 } } };
  const bucket = await built(t, {
    ...SPEC,
    jobs: { ...SPEC.jobs, watch: second },
    files: {
      ...FILES,
      [`${JOBS}/watch/prometheus.yml`]: "rule_files: [rules/*/*.yaml]\n",
      "workspace/disabled.json": '{"jobs": {"prometheus": {"allocations": ["10.0.0.1"]}}}',
    },
  });
  const [own, other] = [staged(bucket), staged(bucket, "watch", "10.0.0.2")];
  assert.match(textsOf(own).get("rules/web/web.yaml") ?? "", /"http:\/\/10\.0\.0\.2:9090\/consoles/);
  assert.match(textsOf(other).get("rules/web/web.yaml") ?? "", /"http:\/\/10\.0\.0\.1:9091\/consoles/);
  assert.deepEqual(generated(other), generated(own));
  assert.deepEqual(generated(staged(bucket, "web")), [], "another job gets nothing");
});

test("a change of a job's monitoring is a change of the Prometheus job, and of no other", async (t) => {
  const bucket = await built(t);
  const hashes = () => ["prometheus", "web"].map((job) => staged(bucket, job).hash);
  const before = hashes();
  makeWorkspace(bucket.dir, { ...SPEC, files: { ...FILES, [`${JOBS}/web/_prometheus/runbooks/down.md`]: "# Down\n" } });
  await build(bucket.context(), {});
  const [prometheus, web] = hashes();
  assert.deepEqual([prometheus === before[0], web === before[1]], [false, true]);
});

test("scripts of hooks find the whole set in the job's folder, and their templates may put it out", async (t) => {
  const file = `${JOBS}/prometheus/_hooks/rules.txt.tpl`;
  const { db, kv } = await built(t, { ...SPEC, files: { ...FILES, [file]: "{{ ruleFiles }}" } });
  const [job, files] = [
    catalogJobs(db).find(({ name }) => name === "prometheus") ?? assert.fail(),
    catalogFiles(db, "prometheus"),
  ];
  const found = stageForScript(
    files,
    { fields: TEMPLATE_FIELDS, upstream: [], kv: kv(), monitoring: monitoringFor(db, kv(), job, files) },
    "x",
  );
  const texts = new Map(found.map(({ path, content }) => [path, bytesOf(content).toString()]));
  assert.match(texts.get("_hooks/rules.txt") ?? "", /^rule_files:\n {2}- rules\/ops\/certs\.yaml\n/);
  assert.ok(texts.has("consoles/runbooks/web/down.html"));
});

test("a file of the job's own goes before one that ops makes", async (t) => {
  const files = {
    ...FILES,
    [`${JOBS}/prometheus/consoles/runbooks/index.html.tpl`]: "{{ .Job }}",
    [`${JOBS}/prometheus/rules/ops/certs.yaml`]: "groups: []\n",
  };
  const texts = textsOf(staged(await built(t, { ...SPEC, files })));
  assert.deepEqual(
    ["consoles/runbooks/index.html", "rules/ops/certs.yaml"].map((path) => texts.get(path)),
    ["prometheus", "groups: []\n"],
  );
});

test("T-100 what is rendered with a secret of a scrape configuration is its owner's alone, and a missing one stops the job", async (t) => {
  const template = '- job_name: web\n  basic_auth: {username: ops, password: {{ getSecret "password" }}}\n';
  const { [`${JOBS}/web/_prometheus/scrape.yaml`]: _, ...files } = FILES;
  const bucket = await built(t, { ...SPEC, files: { ...files, [`${JOBS}/web/_prometheus/scrape.yaml.tpl`]: template } });
  assert.match(bucket.activity.join(""), /key "password" is missing in .*; ops\/prometheus has nothing of the job until/);
  assert.equal(bucket.kv().get("ops/prometheus", "scrape_jobs_length"), "0");
  assert.throws(() => staged(bucket), {
    code: "ErrKeyMissing",
    message: /job prometheus on 10\.0\.0\.1.*key "password" is missing/,
  });
  const kv = bucket.kv();
  kv.put("secrets/job/web", "password", "sesame-sesame");
  kv.flush();
  const config = staged(bucket).files.find(({ path }) => path === "prometheus.yml");
  assert.deepEqual([config?.mode, config?.isSecret, config?.secrets], [0o600, true, ["sesame-sesame"]]);
  assert.match(bytesOf(config?.content ?? Buffer.of()).toString(), /password: sesame-sesame/);
  await build(bucket.context(), {});
  const entries = [...bucket.kv().entries("ops/prometheus").values()].join("");
  assert.ok(entries.includes("<secret>") && !entries.includes("sesame"), entries);
});

test("ops/prometheus has what is to be scraped as it is written; without a Prometheus it is empty", async (t) => {
  const bucket = await built(t);
  const web = '[{"static_configs":[{"targets":["ops:port/_implicit"]}],"job_name":"ops:job","params":{"release":[1.1,true]}}]';
  assert.deepEqual(Object.fromEntries(bucket.kv().entries("ops/prometheus")), {
    scrape_configs: web,
    "scrape/web": web,
    scrape_jobs: "web",
    scrape_jobs_length: "1",
  });
  const { version: before } = bucket.kv().entry("ops/job/web", "job_name") ?? {};
  await build(bucket.context(), {});
  const names = ["web", "prometheus"].map((job) => bucket.kv().get(`ops/job/${job}`, "job_name"));
  assert.deepEqual([names, bucket.kv().entry("ops/job/web", "job_name")?.version], [["web", undefined], before]);
  makeWorkspace(bucket.dir, { ...SPEC, files: { ...FILES, [`${JOBS}/prometheus/prometheus.yml.tpl`]: null } });
  await build(bucket.context(), {});
  assert.equal(bucket.kv().entries("ops/prometheus").size, 0);
  assert.equal(bucket.kv().get("ops/job/web", "job_name"), undefined);
});

test("templates of all jobs may read ops/prometheus, but only a Prometheus has the two functions", async (t) => {
  const use = (text: string) => built(t, { ...SPEC, files: { ...FILES, [`${JOBS}/web/a.tpl`]: text } });
  const reads = await use('{{ get "ops/prometheus" "scrape_jobs" }}');
  assert.equal(textsOf(staged(reads, "web")).get("a"), "web");
  const calls = await use("{{ ruleFiles }}");
  assert.throws(() => staged(calls, "web"), { code: "failed", message: /only the files of a job with prometheus\.yml/ });
});

test("a file of a Prometheus job cannot be where ops makes a folder for it", async (t) => {
  for (const file of ["rules", "rules/ops", "consoles.tpl", "consoles/runbooks"]) {
    const taken = await makeBucket(t, { ...SPEC, files: { ...FILES, [`${JOBS}/prometheus/${file}`]: "" } });
    const message = `ErrInvalidJob: ${JOBS}/prometheus: ${file}: ops makes a folder of this name for a Prometheus: use another name`;
    await assert.rejects(build(taken.context(), {}), { code: "ErrInvalidJob", message });
  }
  const elsewhere = { [`${JOBS}/web/rules`]: "", [`${JOBS}/prometheus/rules/own.yaml`]: "groups: []\n" };
  await built(t, { ...SPEC, files: { ...FILES, ...elsewhere } });
});

test("a Prometheus whose port is not known gets no runbook_url, and the build says so; job ops keeps off the rules of ops", async (t) => {
  const jobs = { ...SPEC.jobs, prometheus: { selectors: ["worker"], resources: { ports: { one: 1001, two: 1002 } } } };
  const bucket = await built(t, { ...SPEC, jobs });
  assert.match(bucket.activity.join(""), /jobs\/prometheus: prometheus\.yml: alerts get no runbook_url/);
  const tree = staged(bucket);
  assert.equal(textsOf(tree).get("rules/web/web.yaml"), ALERTS);
  await promtool(t, tree);
  const files = { ...FILES, [`${JOBS}/ops/_prometheus/alerts/certs.yaml`]: "groups: []\n" };
  const taken = await makeBucket(t, { ...SPEC, jobs: { ...SPEC.jobs, ops: {} }, files });
  await assert.rejects(build(taken.context(), {}), { code: "ErrInvalidJob", message: /alerts\/certs\.yaml: ops writes rules/ });
});
