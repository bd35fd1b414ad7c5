import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { bytesOf } from "../../../lib/bucket/base/contents.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import type { CatalogFile, CatalogJob } from "../../../lib/bucket/base/model.ts";
import {
  renderForJob,
  stageAllocation,
  stageForScript,
  stagingFolder,
  writeStaging,
} from "../../../lib/bucket/catalog/staging.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket, TEMPLATE_FIELDS } from "../../helpers/workspace.ts";

const sha256 = (content: string | Buffer) => createHash("sha256").update(content).digest("hex");

function file(name: string, text: string | Buffer, mode = 0o644): CatalogFile {
  const content = Buffer.from(text as string);
  return { path: name, mode, sha256: sha256(content), content };
}

async function setUp(t: TestContext) {
  const kv = (await makeBucket(t)).kv();
  const stage = (files: CatalogFile[], upstream: string[] = [], secretMode = 0o600) =>
    stageAllocation(files, { fields: TEMPLATE_FIELDS, upstream, kv }, secretMode);
  const render = (text: string, upstream?: string[]) =>
    stage([file("out.tpl", text)], upstream)
      .files.find((one) => one.path === "out")
      ?.content.toString();
  return { kv, stage, render };
}

test("templates are rendered under their name without .tpl; hooks and scrape files are not sent", async (t) => {
  const { stage } = await setUp(t);
  const { files } = stage([
    file("z/run", "#!/bin/sh\n", 0o755),
    file("app.conf.tpl", "{{ .Job }} {{ .UpdateSeq }}", 0o755),
    ...[file("_hooks/check.py", ""), file("_prometheus/rules.yaml", ""), file("hooks.md", "")],
  ]);
  assert.deepEqual(
    files.map(({ path: name, mode, content }) => [name, mode.toString(8), content.toString()]),
    [
      ["app.conf", "755", "web 3"],
      ["hooks.md", "644", ""],
      ["z/run", "755", "#!/bin/sh\n"],
    ],
  );
  for (const one of files) assert.equal(one.sha256, sha256(bytesOf(one.content)));
});

test("the hash depends on path, mode and content of what is sent, and on nothing else", async (t) => {
  const { stage } = await setUp(t);
  const hash = (...files: CatalogFile[]) => stage(files).hash;
  const base = hash(file("a", "1"), file("b", "2"));
  assert.equal(hash(file("b", "2"), file("a", "1"), file("_hooks/x.py", "3")), base, "order and hooks");
  assert.equal(hash(file("a.tpl", "1"), file("b", "2")), base, "how it came to be");
  for (const other of [
    [file("a", "2"), file("b", "2")],
    [file("a", "1", 0o755), file("b", "2")],
    [file("c", "1"), file("b", "2")],
    [file("a", "1")],
  ])
    assert.notEqual(hash(...other), base);
  assert.deepEqual(stage([file("a", "1")]).digests, { a: `644:${sha256("1")}` });
});

test("templates read what the KV store has: missing keys are errors, unless they are optional", async (t) => {
  const { kv, render } = await setUp(t);
  kv.put("vars/job/web", "name", "shop");
  kv.put("ops/worker/10.0.0.1/tags", "rack", "r1");
  kv.put("ops/bucket", "jobs", "web,db");
  assert.equal(render('{{ get "vars/job/web" "name" }}'), "shop");
  assert.equal(render('{{ get "tags" "rack" }} {{ get "ops" "jobs" }}'), "r1 web,db");
  assert.equal(render('[{{ getOptional "vars/job/web" "none" }}]'), "[]");
  assert.equal(render('{{ range keys "vars/job/web" }}{{ . }};{{ end }}'), "name;");
  assert.throws(() => render('{{ get "vars/job/web" "none" }}'), {
    code: "ErrKeyMissing",
    message:
      /^Cannot render a template of job web on 10\.0\.0\.1: template: out\.tpl:1:.*"none" is missing in namespace vars\/job\/web/,
  });
});

test("a job reads its own namespaces and those of jobs it demands, no others", async (t) => {
  const { kv, render } = await setUp(t);
  for (const job of ["web", "db", "other"]) {
    kv.put(`vars/job/${job}`, "key", job);
    kv.put(`secrets/job/${job}`, "key", `secret of ${job}`);
  }
  assert.equal(render('{{ get "vars/job/db" "key" }}, {{ get "secrets/job/db" "key" }}', ["db"]), "db, secret of db");
  for (const namespace of ["vars/job/db", "secrets/job/other", "ops/worker/10.0.0.2", "ops/job/web/worker/10.0.0.2", "../vars"])
    for (const call of ["get", "getOptional"])
      assert.throws(() => render(`{{ ${call} "${namespace}" "key" }}`), {
        message: new RegExp(`namespace "${namespace.replaceAll(".", "\\.")}" may not be read by this job`),
      });
});

test("a file is its owner's alone when its template read a secret, by whatever function", async (t) => {
  const { kv, stage } = await setUp(t);
  kv.put("secrets/job/web", "password", "very secret");
  const modes = (text: string, secretMode?: number) =>
    stage([file("a.tpl", text), file("b.tpl", text, 0o755)], [], secretMode).files.map((one) => one.mode.toString(8));
  assert.deepEqual(modes('{{ getSecret "password" }}'), ["600", "700"]);
  assert.deepEqual(modes('{{ if get "secrets/job/web" "password" }}set{{ end }}'), ["600", "700"]);
  assert.deepEqual(modes('{{ getOptional "secrets/job/web" "none" }}'), ["600", "700"]);
  assert.deepEqual(modes("plain"), ["644", "755"]);
  assert.deepEqual(modes('{{ getSecret "password" }}', 0o640), ["640", "750"], "secret_mode relaxes it");
  assert.deepEqual(modes('{{ getSecret "password" }}', 0o644), ["644", "755"]);
});

test("a template that is not UTF-8 is refused, not changed", async (t) => {
  const { stage } = await setUp(t);
  assert.throws(() => stage([file("a.tpl", Buffer.from([0x61, 0xff]))]), { code: "failed", message: /job web on 10\.0\.0\.1/ });
  assert.deepEqual(stage([file("a", Buffer.from([0x61, 0xff]))]).files[0]?.content, Buffer.from([0x61, 0xff]));
});

test("HR-014 HR-102 T-103 T-100 writing the staging replaces that allocation's folder, for its owner alone, and touches no other", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const folder = stagingFolder(layout, "fd00::1", "web");
  assert.equal(folder, path.join(layout.tmp, "workers", "fd00::1", "jobs", "web"));
  const neighbour = path.join(path.dirname(folder), "db", "kept");
  for (const old of [path.join(folder, "gone"), neighbour]) {
    mkdirSync(path.dirname(old), { recursive: true });
    writeFileSync(old, "");
  }
  const staged = [file("a/b", "1", 0o644), file("run", "2", 0o755)].map((one) => ({ ...one, isSecret: false }));
  await writeStaging(folder, staged);
  assert.deepEqual(
    staged.map(({ path: name }) => [
      readFileSync(path.join(folder, name), "utf8"),
      statSync(path.join(folder, name)).mode & 0o777,
    ]),
    [
      ["1", 0o600],
      ["2", 0o700],
    ],
  );
  assert.deepEqual([existsSync(path.join(folder, "gone")), existsSync(neighbour)], [false, true]);
  assert.equal(statSync(folder).mode & 0o777, 0o700);
});

test("a rendered file tells which ids of this bucket are in it, and which secrets", async (t) => {
  const { kv, stage } = await setUp(t);
  for (const key of ["worker_id", "job_id", "a_label_id", "label_id", "my_worker_id"]) kv.put("ops/worker/10.0.0.1", key, key);
  kv.put("vars/job/web", "worker_id", "x");
  for (const key of ["b", "a"]) kv.put("secrets/job/web", key, `secret ${key}`);
  kv.put("secrets/job/web", "empty", "");
  const of = (text: string) => {
    const [{ own, secrets, isSecret } = assert.fail()] = stage([file("a.tpl", text)]).files;
    return { own, secrets, isSecret };
  };
  const get = (...keys: string[]) => keys.map((key) => `{{ get "ops/worker/10.0.0.1" "${key}" }}`).join("");
  const plain = { own: undefined, secrets: undefined, isSecret: false };
  assert.deepEqual(of("{{ .Job }} {{ .WorkerIP }}"), plain);
  assert.deepEqual(of("{{ .WorkerID }}{{ .UpdateSeq }}{{ .AllocationID }}").own, [".AllocationID", ".UpdateSeq", ".WorkerID"]);
  assert.deepEqual(of(get("worker_id", "job_id", "a_label_id", "label_id", "my_worker_id")).own, [
    "a_label_id",
    "job_id",
    "worker_id",
  ]);
  assert.deepEqual(of('{{ get "vars/job/web" "worker_id" }}'), plain, "what people set is theirs, and no secret");
  const told = of('{{ getSecret "b" }}{{ getSecret "a" }}{{ getSecret "a" }}{{ getSecret "empty" }}');
  assert.deepEqual(told, { own: undefined, secrets: ["secret b", "secret a"], isSecret: true });
});

test("certificates of an allocation lie in certs/, the keys for their owner alone, and no template reads a key", async (t) => {
  const { kv, stage, render } = await setUp(t);
  const own = "ops/job/web/worker/10.0.0.1";
  for (const [key, text] of Object.entries({ "certs/x.crt": "C", "certs/x.key": "K", version: "1.0.0" })) kv.put(own, key, text);
  kv.put("ops/job/web/worker/10.0.0.2", "certs/y.crt", "other");
  const placed = () =>
    stage([file("a", "1")]).files.map((one) => [one.path, one.mode.toString(8), String(one.content), one.isSecret]);
  const [plain, crt, key] = [
    ["a", "644", "1", false],
    ["certs/x.crt", "644", "C", false],
    ["certs/x.key", "600", "K", true],
  ];
  assert.deepEqual(placed(), [plain, crt, key]);
  kv.put("ops/worker", "certs/ca.crt", "CA");
  assert.deepEqual(placed(), [plain, ["certs/ca.crt", "644", "CA", false], crt, key]);
  assert.throws(() => render(`{{ get "${own}" "certs/x.key" }}`), /a private key is no value: use the file certs\/x\.key/);
  assert.equal(render(`{{ get "${own}" "certs/x.crt" }}`), "C");
  for (const call of ["ruleFiles", "scrapeConfigs"])
    assert.throws(() => render(`{{ ${call} }}`), {
      code: "failed",
      message: /only the files of a job with prometheus\.yml or prometheus\.yml\.tpl can call this/,
    });
});

test("a script of a hook has the job's files, _hooks/ and certificates; a template that cannot be rendered is missing, unless it is the script", async (t) => {
  const { kv } = await setUp(t);
  kv.put("ops/worker", "certs/ca.crt", "CA");
  kv.put("secrets/job/web", "k", "secret");
  const missing = '{{ getSecret "none" }}';
  const files = [
    ...[file("a", "1"), file("a.tpl", "2"), file("b.tpl", missing), file("s.tpl", '{{ getSecret "k" }}', 0o755)],
    ...[file("_hooks/x.py", ""), file("_hooks/y.ts.tpl", missing), file("_prometheus/p", ""), file("_hooks/xx.py.tpl", missing)],
  ];
  const staging = { fields: TEMPLATE_FIELDS, upstream: [], kv };
  const staged = stageForScript(files, staging, "x").map((one) => [one.path, String(one.content), one.mode.toString(8)]);
  assert.deepEqual(staged.sort(), [
    ["_hooks/certs/ca.crt", "CA", "644"],
    ["_hooks/x.py", "", "644"],
    ["a", "2", "644"],
    ["certs/ca.crt", "CA", "644"],
    ["s", "secret", "700"],
  ]);
  assert.throws(() => stageForScript(files, staging, "y"), { code: "ErrKeyMissing" });
  assert.throws(() => stageForScript(files, staging, "xx"), { code: "ErrKeyMissing" });
});

test("a template of a job has the job and its version, reads what its allocations may, and shows secrets only where it is to", async (t) => {
  const { kv } = await setUp(t);
  const job = { name: "web", version: "1.0.0", hooks: [{ demandJob: "db" }, { demandJob: "" }] } as unknown as CatalogJob;
  for (const name of ["web", "db", "other"]) {
    kv.put(`secrets/job/${name}`, "k", `secret of ${name}`);
    kv.put(`vars/job/${name}`, "k", name);
  }
  kv.put("ops/prometheus", "scrape_jobs", "web");
  const render = (text: string, reveal = true, secrets?: Set<string>) =>
    renderForJob(file("a.tpl", text), job, kv, { reveal, secrets });
  assert.equal(render("{{ .Job }} {{ .CurrentVersion }} {{ .NewVersion }}"), "web 1.0.0 1.0.0");
  kv.put("ops/job/web", "version", "2.0.0");
  assert.equal(render("{{ .NewVersion }} {{ .CurrentVersion }}"), "2.0.0 2.0.0");
  assert.equal(render('{{ get "vars/job/db" "k" }} {{ get "ops/prometheus" "scrape_jobs" }}'), "db web");
  const text = '{{ getSecret "k" }}, {{ get "secrets/job/db" "k" }}, {{ getOptional "secrets/job/web" "none" }}.';
  const secrets = new Set<string>();
  assert.equal(render(text, true, secrets), "secret of web, secret of db, .");
  assert.deepEqual([...secrets], ["secret of web", "secret of db"]);
  assert.equal(render(text, false), "<secret>, <secret>, .");
  assert.throws(() => render('{{ get "vars/job/other" "k" }}'), {
    code: "failed",
    message: /^Cannot render a template of job web: .*may not be read by this job/,
  });
  assert.throws(() => render('{{ getSecret "none" }}'), { code: "ErrKeyMissing" });
  assert.throws(() => render("{{ .WorkerIP }}"), { code: "failed" });
});
