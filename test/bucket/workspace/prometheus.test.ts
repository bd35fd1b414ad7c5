import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { prometheusRows, scrapeConfigs } from "../../../lib/bucket/prometheus/scrape.ts";
import type { JobSource } from "../../../lib/bucket/workspace/jobs.ts";
import {
  checkPrometheus,
  filesForPrometheus,
  isPrometheus,
  portNamed,
  runbookSlug,
  type ScrapeConfig,
  webPort,
  withJob,
} from "../../../lib/bucket/workspace/prometheus.ts";
import type { Failure } from "../../../lib/core/errors.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket, makeWorkspace, type TestBucket, type WorkspaceSpec } from "../../helpers/workspace.ts";

const WEB = { version: "1.2.0", selectors: ["worker"], resources: { ports: { metrics_port: 9100, web_admin: 9200 } } };
const OF = "workspace/jobs/web/_prometheus";
const SPEC = { workers: ["10.0.0.1", "fd00::2", "10.0.0.3"], jobs: { web: WEB } };
const SCRAPE = `- job_name: ops:job
  scrape_interval: 30s
  static_configs:
    - targets: ["ops:port/_implicit", "elsewhere:80"]
      labels: {job: ops:job, tier: front}
`;

async function built(t: TestContext, spec: WorkspaceSpec): Promise<TestBucket> {
  const bucket = await makeBucket(t, spec);
  await build(bucket.context(), {});
  return bucket;
}

const scraped = ({ db, kv }: TestBucket, options: { jobs?: string[]; reveal?: boolean } = {}) =>
  JSON.parse(JSON.stringify(scrapeConfigs(db, kv(), { reveal: false, ...options }))) as ScrapeConfig[];

test("the port of a Prometheus has a usual name, or is the only one of the job", () => {
  const cases: [ports: string[], port: string | undefined][] = [
    [["web"], "web"],
    [["web", "admin"], undefined],
    [[], undefined],
    [["prometheus_port_http", "my_watch_http", "my_watch_port_http"], "my_watch_port_http"],
    [["prometheus_port_http", "my_watch_http"], "my_watch_http"],
    [["web", "prometheus_port_http"], "prometheus_port_http"],
  ];
  for (const [ports, port] of cases) assert.equal(webPort("my-watch", ports), port, ports.join());
});

test("CP-111 the scrape configurations name each active allocation with its port", async (t) => {
  const bucket = await built(t, {
    ...SPEC,
    files: { [`${OF}/scrape.yaml`]: SCRAPE, "workspace/disabled.json": '{"jobs": {"web": {"allocations": ["10.0.0.3"]}}}' },
  });
  assert.deepEqual(scraped(bucket), [
    {
      job_name: "web",
      scrape_interval: "30s",
      static_configs: [{ targets: ["10.0.0.1:9100", "[fd00::2]:9100", "elsewhere:80"], labels: { job: "web", tier: "front" } }],
    },
  ]);
  assert.throws(() => scraped(bucket, { jobs: ["other"] }), { code: "unknown_name" });
});

test("a configuration without targets of its own gets none", async (t) => {
  const text = "- job_name: ops:job\n  scrape_interval: 30s\n";
  const configs = scraped(await built(t, { ...SPEC, files: { [`${OF}/scrape.yaml`]: text } }));
  assert.deepEqual(configs, [{ job_name: "web", scrape_interval: "30s" }]);
});

test("a label keeps the text that is written, as Prometheus reads it", async (t) => {
  const labels = '{a: 1.10, b: "2.0", c: 0x1F, d: True, e: 1e3, f: 007, "g": 1.0 }';
  const text = `\ufeff- job_name: a\r\n  static_configs: [{targets: [x], labels: ${labels}}]\r\n- job_name: b\n  static_configs:\n    - targets: [x]\n      labels:\n        v: 1.10 # as it is\n`;
  const configs = scraped(await built(t, { ...SPEC, files: { [`${OF}/scrape.yaml`]: text } }));
  const [flow, block] = configs.flatMap(({ static_configs: groups }) => groups as { labels: object }[]);
  assert.deepEqual(flow?.labels, { a: "1.10", b: "2.0", c: "0x1F", d: "True", e: "1e3", f: "007", g: "1.0" });
  assert.deepEqual(block?.labels, { v: "1.10" });
});

test("_implicit means the job's own metrics port where the job has one", async (t) => {
  const ports = { metrics_port: 9100, web_tls_metrics_port: 9300, other_metrics_port: 9400 };
  const manifest = { selectors: ["worker"], resources: { ports } };
  const file = "workspace/jobs/web-tls/_prometheus/scrape.yaml";
  const spec = { workers: ["10.0.0.1"], jobs: { "web-tls": manifest }, files: { [file]: `\ufeff${SCRAPE}` } };
  const [config] = scraped(await built(t, spec));
  assert.match(JSON.stringify(config), /"10\.0\.0\.1:9300"/);
});

test("a target may name the port and the worker; without an active allocation the job is left out", async (t) => {
  const scrape = "- job_name: a\n  static_configs: [{targets: ['ops:port/web_admin/10.0.0.3', 'ops:port/web_admin/10.0.0.9']}]\n";
  const files = { [`${OF}/scrape.yaml`]: scrape };
  const bucket = await built(t, { ...SPEC, files });
  assert.deepEqual(scraped(bucket), [{ job_name: "a", static_configs: [{ targets: ["10.0.0.3:9200"] }] }]);
  makeWorkspace(bucket.dir, { ...SPEC, files: { ...files, "workspace/disabled.json": '{"jobs": {"web": {}}}' } });
  await build(bucket.context(), {});
  assert.deepEqual(scraped(bucket), []);
});

test("a template is rendered for the job; its secrets show only when they are to", async (t) => {
  const template = `- job_name: {{ .Job }}-{{ .NewVersion }}-{{ get "ops/job/web" "workers_length" }}
  basic_auth: {username: ops, password: {{ getSecret "password" }}}
`;
  const bucket = await built(t, { ...SPEC, files: { [`${OF}/scrape.yaml.tpl`]: template } });
  assert.throws(() => scraped(bucket), {
    code: "ErrKeyMissing",
    message: /^Cannot render a template of job web: .*scrape\.yaml\.tpl.*key "password" is missing/,
  });
  const kv = bucket.kv();
  kv.put("secrets/job/web", "password", "sesame-sesame");
  kv.flush();
  const shown = (password: string) => [{ job_name: "web-1.2.0-3", basic_auth: { username: "ops", password } }];
  assert.deepEqual(scraped(bucket), shown("<secret>"));
  assert.deepEqual(scraped(bucket, { reveal: true }), shown("sesame-sesame"));
});

test("a template that renders to something else is refused by its name", async (t) => {
  const bucket = await built(t, { ...SPEC, files: { [`${OF}/scrape.yaml.tpl`]: "a: {{ .Job }}\n" } });
  assert.throws(() => scraped(bucket), {
    code: "ErrInvalidJob",
    message: "job web: _prometheus/scrape.yaml.tpl: expected a list, found an object",
  });
});

const ALERTS = `groups:
  - name: web
    rules:
      - alert: WebDown
        expr: up == 0
        annotations: {summary: "{{ $labels.instance }} is down", runbook: down.md}
      - record: web:up
        expr: sum(up)
`;

test("the list counts what each job has", async (t) => {
  const bucket = await built(t, {
    ...SPEC,
    jobs: { web: WEB, db: { selectors: ["worker"] } },
    files: {
      [`${OF}/scrape.yaml`]: SCRAPE,
      [`${OF}/alerts/web.yaml`]: ALERTS,
      [`${OF}/runbooks/down.md`]: "# Down\n",
      [`${OF}/dashboards/a.html`]: "",
      [`${OF}/dashboards/lib/b.html`]: "",
      [`${OF}/dashboards/c.js`]: "",
      [`${OF}/dashboards/.dashboardignore`]: "*.js\nlib/\n",
    },
  });
  assert.deepEqual(prometheusRows(bucket.db), [{ job: "web", scrape: "yes", alerts: 1, runbooks: 1, dashboards: 1 }]);
});

test("a build refuses files below _prometheus/ that are not UTF-8", async (t) => {
  for (const file of ["scrape.yaml", "alerts/a.yaml"]) {
    const bucket = await makeBucket(t, { ...SPEC, files: { [`${OF}/${file}`]: "" } });
    writeFileSync(path.join(bucket.dir, OF, file), Buffer.from([0x2d, 0xff]));
    const message = `ErrInvalidJob: workspace/jobs/web/_prometheus/${file}: is not UTF-8 text`;
    await assert.rejects(build(bucket.context(), {}), { code: "ErrInvalidJob", message });
  }
});

test("an alert may name its runbook with and without .md", async (t) => {
  const twice = ALERTS.replace("record: web:up", "alert: WebSlow\n        annotations: {runbook: down}");
  const files = { [`${OF}/alerts/a.yaml`]: twice, [`${OF}/runbooks/down.md`]: "# Down\n" };
  const bucket = await built(t, { ...SPEC, files });
  assert.equal(prometheusRows(bucket.db)[0]?.alerts, 2);
});

for (const [what, files, message] of [
  ["both scrape files", { "scrape.yaml": SCRAPE, "scrape.yaml.tpl": "" }, /scrape\.yaml: there is scrape\.yaml\.tpl too/],
  ["broken YAML", { "scrape.yaml": "- a: [1\n" }, /scrape\.yaml: line 2, column 1: expected , or \]/],
  ["an empty list", { "scrape.yaml": "[]\n" }, /scrape\.yaml: expected at least 1 item/],
  ["a configuration without a name", { "scrape.yaml": "- scheme: http\n" }, /scrape\.yaml: 0\/job_name: is missing/],
  ["a name twice", { "scrape.yaml": "- job_name: a\n- job_name: a\n" }, /job_name a is that of job web too/],
  ["discovery", { "scrape.yaml": "- job_name: a\n  dns_sd_configs: []\n" }, /dns_sd_configs: targets are known here/],
  [
    "an unknown port",
    { "scrape.yaml": "- job_name: a\n  static_configs: [{targets: ['ops:port/none']}]\n" },
    /ops:port\/none: the manifest declares no such port/,
  ],
  ["a group without a name", { "alerts/a.yaml": "groups: [{rules: []}]\n" }, /alerts\/a\.yaml: groups\/0\/name: is missing/],
  [
    "a rule that is neither",
    { "alerts/a.yaml": "groups: [{name: a, rules: [{expr: up}]}]\n" },
    /a rule has neither alert nor record/,
  ],
  [
    "a rule that is both",
    { "alerts/a.yaml": "groups: [{name: a, rules: [{expr: up, alert: a, record: b}]}]\n" },
    /excludes alert/,
  ],
  ["a rule without an expression", { "alerts/a.yaml": "groups: [{name: a, rules: [{alert: a}]}]\n" }, /expr: is missing/],
  [
    "an alert twice",
    { "alerts/a.yaml": ALERTS.replace("record: web:up", "alert: WebDown"), "runbooks/down.md": "" },
    /alert WebDown is one of job web too/,
  ],
  ["a runbook that is not there", { "alerts/a.yaml": ALERTS }, /alert WebDown: there is no runbooks\/down\.md/],
] as [string, Record<string, string>, RegExp][])
  test(`a build refuses ${what} below _prometheus/`, async (t) => {
    const own = Object.entries(files).map(([name, text]) => [`${OF}/${name}`, text]);
    const failure = await built(t, { ...SPEC, files: Object.fromEntries(own) }).catch((thrown) => thrown as Failure);
    assert.ok("code" in failure, "it was built");
    assert.equal(failure.code, "ErrInvalidJob");
    assert.match(failure.message, message);
    assert.match(failure.message, /^ErrInvalidJob: workspace\/jobs\/web\/_prometheus\//);
  });

test("the port that tells numbers has a usual name, or is the only one that ends so; any other is named", () => {
  const likely = (...ports: string[]) => portNamed("_implicit", ports, "my-web");
  assert.equal(likely("metrics_port", "my_web_metrics_port", "a_metrics_port"), "my_web_metrics_port");
  assert.equal(likely("a_metrics_port", "metrics_port"), "metrics_port");
  assert.equal(likely("web", "a_metrics_port"), "a_metrics_port");
  assert.deepEqual([likely("a_metrics_port", "b_metrics_port"), likely("web"), likely()], [undefined, undefined, undefined]);
  assert.deepEqual([portNamed("web", ["web"], "x"), portNamed("web", ["webs"], "x")], ["web", undefined]);
  assert.deepEqual(
    ["ops:job", "a-ops:job-ops:job", "ops:jobs"].map((text) => withJob(text, "web")),
    ["web", "a-web-web", "webs"],
  );
  assert.deepEqual(["a.md", "a", "a.md.md", "amd"].map(runbookSlug), ["a", "a", "a.md", "amd"]);
  const paths = ["prometheus.yml", "prometheus.yml.tpl", "prometheus.yaml", "conf/prometheus.yml", "xprometheus.yml"];
  assert.deepEqual(
    paths.map((path) => isPrometheus([{ path: "a" }, { path }])),
    [true, true, false, false, false],
  );
});

test("a target stands for a port, on all workers or one, and what only looks like it stays as it is", async (t) => {
  const targets = ["ops:port/web_admin", "ops:port/web_admin/fd00::2", "xops:port/web_admin", "a:1", "ops:port/"];
  const scrape = JSON.stringify([
    { job_name: "a", static_configs: [{ targets, labels: { of: "ops:job" } }, { targets: [] }], x: 1 },
    { job_name: "b", static_configs: [{ targets: ["b:1"] }] },
    { job_name: "c-ops:job" },
  ]);
  const bucket = await built(t, { ...SPEC, files: { [`${OF}/scrape.yaml`]: scrape } });
  const [a, b, c] = scraped(bucket, { jobs: ["WEB"] });
  assert.deepEqual(a, {
    job_name: "a",
    static_configs: [
      {
        targets: [
          "10.0.0.1:9200",
          "[fd00::2]:9200",
          "10.0.0.3:9200",
          "[fd00::2]:9200",
          "xops:port/web_admin",
          "a:1",
          "ops:port/",
        ],
        labels: { of: "web" },
      },
      { targets: [] },
    ],
    x: 1,
  });
  assert.deepEqual([b, c], [{ job_name: "b", static_configs: [{ targets: ["b:1"] }] }, { job_name: "c-web" }]);
  makeWorkspace(bucket.dir, {
    ...SPEC,
    files: { [`${OF}/scrape.yaml`]: scrape, "workspace/disabled.json": '{"jobs": {"web": {}}}' },
  });
  await build(bucket.context(), {});
  assert.deepEqual(
    scraped(bucket).map(({ job_name }) => job_name),
    ["b", "c-web"],
    "no target of these is an allocation",
  );
});

test("dashboards are listed but for hidden ones and those to ignore, and a job without files is left out", async (t) => {
  const files = {
    [`${OF}/dashboards/a.html`]: "",
    [`${OF}/dashboards/.hidden`]: "",
    [`${OF}/dashboards/.d/x.html`]: "",
    [`${OF}/dashboards/lib/x.html`]: "",
    [`${OF}/dashboards/.dashboardignore`]: "\n  lib/*  \n",
    [`${OF}/scrape.yaml.tpl`]: "",
    [`${OF}/alerts/a.yml`]: ALERTS.replace(", runbook: down.md", ""),
    [`${OF}/alerts/b.yamlx`]: "no rules",
    "workspace/jobs/db/_prometheus/dashboards/x": "",
  };
  const jobs = { web: WEB, db: { selectors: ["worker"] }, none: { selectors: ["worker"] } };
  const { db } = await built(t, { ...SPEC, jobs, files });
  const [ofDb, ofWeb] = [
    { job: "db", scrape: null, alerts: 0, runbooks: 0, dashboards: 1 },
    { job: "web", scrape: "yes", alerts: 1, runbooks: 0, dashboards: 1 },
  ];
  assert.deepEqual(prometheusRows(db), [ofDb, ofWeb]);
  assert.deepEqual(prometheusRows(db, ["Web", "none"]), [ofWeb]);
  assert.throws(() => prometheusRows(db, ["nope"]), { code: "unknown_name" });
});

/** What is wrong below `_prometheus/` of some jobs with these files, and with which of them. */
function wrongIn(jobs: Record<string, Record<string, string>>, ports: Record<string, number> = {}): string[] {
  const problems = new Problems();
  const sources = Object.entries(jobs).map(([name, files]) => {
    const own = Object.entries(files).map(([path, text]) => ({ path, mode: 0o644, sha256: "s", content: Buffer.from(text) }));
    return { name, file: `j/${name}/manifest.json`, manifest: { ports: new Map(Object.entries(ports)) }, files: own };
  });
  checkPrometheus(sources as unknown as JobSource[], problems);
  return [...problems.errors, ...problems.warnings].map((one) => sentenceOf(one).replace(/^ErrInvalidJob: /, ""));
}

const scrape = (...configs: object[]) => ({ "_prometheus/scrape.yaml": JSON.stringify(configs) });
const rules = (...all: object[]) => ({ "_prometheus/alerts/a.yaml": JSON.stringify({ groups: [{ name: "g", rules: all }] }) });

test("scrape files name each job once, in all jobs together, and ports that there are", () => {
  const at = "j/web/_prometheus/scrape.yaml: ";
  const target = (...targets: string[]) => ({ job_name: "a", static_configs: [{ targets }] });
  assert.deepEqual(wrongIn({ web: scrape(target("ops:port/x", "ops:port/x/w", "y:1")) }, { x: 1 }), []);
  assert.deepEqual(wrongIn({ web: scrape(target("ops:port/y", "ops:port/_implicit")) }, { x: 1 }), [
    `${at}ops:port/y: the manifest declares no such port`,
    `${at}ops:port/_implicit: the manifest declares no such port`,
  ]);
  assert.deepEqual(
    wrongIn({
      web: scrape({ job_name: "ops:job" }, { job_name: "a" }),
      db: scrape({ job_name: "ops:job" }, { job_name: "web" }),
    }),
    ["j/db/_prometheus/scrape.yaml: job_name web is that of job web too"],
  );
  assert.deepEqual(
    wrongIn({ web: scrape({ job_name: "a", dns_sd_configs: [], x_sd_config: 1 }, { job_name: "b", http_sd_configs: [] }) }),
    [...["dns_sd_configs", "http_sd_configs"].map((key) => `${at}${key}: targets are known here: use static_configs`)],
  );
  for (const [configs, problem] of [
    [[], "expected at least 1 item, found 0"],
    [[{ job_name: "" }], "0/job_name: must not be empty"],
    [[{ job_name: "a", static_configs: [{}] }], "0/static_configs/0/targets: is missing"],
    [
      [{ job_name: "a", static_configs: [{ targets: [1] }] }],
      "0/static_configs/0/targets/0: expected a string, found an integer",
    ],
  ] as const)
    assert.match(wrongIn({ web: scrape(...configs) }).join(), new RegExp(`^${at}${problem.slice(0, 30)}`));
  assert.deepEqual(wrongIn({ web: { ...scrape({ job_name: "a" }), "_prometheus/scrape.yaml.tpl": "{{" } }), [
    `${at}there is scrape.yaml.tpl too: keep one of them`,
  ]);
  assert.deepEqual(wrongIn({ web: { "_prometheus/scrape.yaml.tpl": "{{" } }), [], "a template is checked when it is rendered");
});

test("alerts have names of their own and runbooks that there are, records have neither", () => {
  const at = "j/web/_prometheus/alerts/a.yaml: ";
  const up = { expr: "up" };
  const book = { "_prometheus/runbooks/x.md": "" };
  const alert = (name: string, runbook?: string) => ({
    ...up,
    alert: name,
    annotations: { summary: "s", ...(runbook && { runbook }) },
  });
  assert.deepEqual(
    wrongIn({ web: { ...rules(alert("A", "x"), alert("B", "x.md"), alert("C"), { ...up, record: "a:b" }), ...book } }),
    [],
  );
  assert.deepEqual(
    wrongIn({
      web: { ...rules(alert("A", "y"), alert("A"), up), ...book },
      db: rules(alert("A"), { ...up, record: "a:b" }, { ...up, record: "a:b" }),
    }),
    [
      `${at}alert A: there is no runbooks/y.md`,
      `${at}alert A is one of job web too`,
      `${at}a rule has neither alert nor record`,
      "j/db/_prometheus/alerts/a.yaml: alert A is one of job web too",
    ],
  );
  const broken = {
    "_prometheus/alerts/b.yml": "groups: [",
    "_prometheus/alerts/c.txt": "groups: [",
    "_prometheus/x/alerts/d.yml": "[",
  };
  assert.equal(wrongIn({ web: broken }).length, 1);
  assert.match(wrongIn({ web: broken }).join(), /^j\/web\/_prometheus\/alerts\/b\.yml: line 1, column \d+: /);
  const reserved = "alerts/certs.yaml: ops writes rules of this name for a job ops: give the file another name";
  const certs = { "_prometheus/alerts/certs.yaml": "groups: []" };
  assert.deepEqual([wrongIn({ ops: certs }), wrongIn({ web: certs })], [[`j/ops/_prometheus/${reserved}`], []]);
});

test("a job of a Prometheus keeps off the folders that ops makes, and is told where its port is not known", () => {
  const own = { "prometheus.yml": "" };
  const taken = ["rules", "rules/ops", "consoles", "consoles/runbooks", "consoles/dashboards"].flatMap((name) => [
    name,
    `${name}.tpl`,
  ]);
  for (const name of taken)
    assert.deepEqual(
      wrongIn({ web: { ...own, [name]: "" } }, { x: 1 }),
      [`j/web: ${name}: ops makes a folder of this name for a Prometheus: use another name`],
      name,
    );
  for (const name of ["rules/x", "xrules", "rulesx", "consoles/x", "rules/ops/x", "consoles/dashboards.txt"])
    assert.deepEqual(wrongIn({ web: { ...own, [name]: "" } }, { x: 1 }), [], name);
  assert.deepEqual(wrongIn({ web: { rules: "" } }), [], "of any other job they are files like others");
  const unknown = "j/web: prometheus.yml: alerts get no runbook_url, since no port of the job is known as that of Prometheus";
  assert.deepEqual([wrongIn({ web: own }, { x: 1, y: 2 }), wrongIn({ web: own }, { x: 1 })], [[unknown], []]);
  const files = ["_prometheus/a", "_prometheus/b/c", "x_prometheus/d", "_prometheusx/e"].map((path) => ({
    path,
    mode: 0,
    sha256: "",
    content: Buffer.of(),
  }));
  assert.deepEqual([...filesForPrometheus(files).keys()], ["a", "b/c"]);
});
