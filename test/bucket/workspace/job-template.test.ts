import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import fsp from "node:fs/promises";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type Layout, layoutOf } from "../../../lib/bucket/base/layout.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { createJob, writeOwnMetrics } from "../../../lib/bucket/workspace/job-template.ts";
import { formatJson } from "../../../lib/codec/config/json.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { failing } from "../../helpers/faults.ts";
import { HookScripts } from "../../helpers/hook-scripts.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

async function bucket(t: TestContext): Promise<Layout> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { source: true });
  return layout;
}

/** A template with a program, a hook, and a folder that is never part of a source. */
function writeTemplate(layout: Layout, manifest = '{"version": "2.0", "selectors": ["db"]}'): string {
  const folder = path.join(layout.templates, "database");
  mkdirSync(path.join(folder, "_hooks", ".venv"), { recursive: true });
  writeFileSync(path.join(folder, "manifest.json"), manifest);
  writeFileSync(path.join(folder, "Makefile"), "start stop restart:\n\t@./run $@\n");
  writeFileSync(path.join(folder, "run"), "#!/bin/sh\n", { mode: 0o755 });
  writeFileSync(path.join(folder, "_hooks", "check.py"), "print(1)\n");
  writeFileSync(path.join(folder, "_hooks", ".venv", "python3"), "");
  return folder;
}

test("a job to begin with has a manifest, a Makefile and a hook", async (t) => {
  const layout = await bucket(t);
  const files = await createJob(layout, { name: "web" });
  assert.deepEqual(
    files,
    ["Makefile", "_hooks/example.py", "manifest.json"].map((name) => `workspace/jobs/web/${name}`),
  );
  const read = (file: string) => readFileSync(path.join(layout.root, file), "utf8");
  assert.match(read(files[2] as string), /^\{\n {2}"\$schema": .*\n\}\n$/s);
  assert.deepEqual(JSON.parse(read(files[2] as string)), {
    $schema: "../../../.ops/schemas/manifest.json",
    version: "1.0",
    selectors: ["web"],
    hooks: { example: { executed_on: ["cli"] } },
  });
  for (const target of ["start", "stop", "restart", "reload", "status"])
    assert.match(read(files[0] as string), new RegExp(`^${target}:`, "m"));
  assert.match(read(files[1] as string), /^import ops$/m);
  assert.deepEqual(readdirSync(layout.tmp), []);
});

test("a job that cannot get its name leaves nothing", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  failing(t, fsp, "rename", "EIO");
  await assert.rejects(createJob(layout, { name: "web", selectors: undefined, template: undefined }), { code: "EIO" });
  assert.deepEqual([readdirSync(layout.tmp), readdirSync(layout.jobs)], [[], []]);
});

test("the targets of the first Makefile succeed, and the example of a hook runs", async (t) => {
  const layout = await bucket(t);
  await createJob(layout, { name: "web" });
  const folder = path.join(layout.jobs, "web");
  for (const target of ["start", "stop", "restart", "reload", "status"]) {
    const made = await new Launcher(process.env).run(["make", "-s", "-C", folder, target]);
    assert.deepEqual([made.exitCode, made.stderr], [0, ""], target);
  }
  const scripts = new HookScripts(t, path.join(folder, "_hooks"));
  const env = { JOB: "web", ALLOCATION_IP: "127.0.0.1", ALLOCATION_INDEX: "0" };
  const { stdout, stderr } = await scripts.runFile("example.py", env);
  assert.deepEqual([stdout, stderr], ["web on 127.0.0.1, allocation 0\n", ""]);
});

test("selectors replace the job's name, or those of the template", async (t) => {
  const layout = await bucket(t);
  writeTemplate(layout);
  const manifestOf = (name: string) => JSON.parse(readFileSync(path.join(layout.jobs, name, "manifest.json"), "utf8"));
  await createJob(layout, { name: "one", selectors: ["edge", "ssd"] });
  assert.deepEqual(manifestOf("one").selectors, ["edge", "ssd"]);
  const text = readFileSync(path.join(layout.jobs, "one", "manifest.json"), "utf8");
  assert.equal(text, formatJson(text));
  assert.equal(manifestOf("one").$schema, "../../../.ops/schemas/manifest.json");
  await createJob(layout, { name: "two", template: "database", selectors: ["edge"] });
  assert.deepEqual(manifestOf("two"), { version: "2.0", selectors: ["edge"] });
});

test("a template is copied as it is, with the modes of its files and without folders that are no source", async (t) => {
  const layout = await bucket(t);
  const folder = writeTemplate(layout);
  const files = await createJob(layout, { name: "db_1", template: "database" });
  assert.deepEqual(
    files,
    ["Makefile", "_hooks/check.py", "manifest.json", "run"].map((name) => `workspace/jobs/db_1/${name}`),
  );
  for (const file of files) {
    const [made, template] = [path.join(layout.root, file), path.join(folder, file.slice(20))];
    assert.deepEqual(readFileSync(made), readFileSync(template), file);
    assert.equal(statSync(made).mode & 0o111, statSync(template).mode & 0o111, file);
  }
  assert.deepEqual(readdirSync(path.join(layout.jobs, "db_1", "_hooks")), ["check.py"]);
});

test("a template of ops gets the job's name; a folder of templates/ with its name goes before it", async (t) => {
  const layout = await bucket(t);
  const files = await createJob(layout, { name: "my-web", template: "service", selectors: ["edge"] });
  const texts = files.map((file) => readFileSync(path.join(layout.root, file), "utf8"));
  assert.deepEqual(
    files.filter((_, index) => texts[index]?.includes("@job@") || texts[index]?.includes("@port@")),
    [],
  );
  const manifest = JSON.parse(texts[files.indexOf("workspace/jobs/my-web/manifest.json")] ?? "");
  assert.deepEqual([manifest.selectors, Object.keys(manifest.resources.ports)], [["edge"], ["my_web_http"]]);
  const longest = "a".repeat(100);
  const [file = ""] = (await createJob(layout, { name: longest, template: "service" })).filter((one) => /manifest/.test(one));
  const { ports } = JSON.parse(readFileSync(path.join(layout.root, file), "utf8")).resources;
  assert.deepEqual(Object.keys(ports), [`${"a".repeat(95)}_http`]);
  renameSync(writeTemplate(layout), path.join(layout.templates, "service"));
  assert.ok((await createJob(layout, { name: "db", template: "service" })).includes("workspace/jobs/db/run"));
});

const REFUSED: [string, Parameters<typeof createJob>[1], string, (layout: Layout) => void][] = [
  ["a name in capitals", { name: "Web" }, 'Cannot use "Web" as a name', () => {}],
  ["a path as a name", { name: "../web" }, 'Cannot use "../web" as a name', () => {}],
  ["a selector with a blank", { name: "web", selectors: ["a b"] }, 'Cannot use "a b" as a name', () => {}],
  [
    "a job that exists, in other letters too",
    { name: "web" },
    "Cannot make job web: there is workspace/jobs/WEB already",
    ({ jobs }) => mkdirSync(path.join(jobs, "WEB")),
  ],
  [
    "a link in the job's place",
    { name: "web" },
    "Cannot make job web: there is workspace/jobs/web already",
    ({ jobs }) => symlinkSync("/nowhere", path.join(jobs, "web")),
  ],
  [
    "a link instead of the folder of jobs",
    { name: "web" },
    "Cannot use workspace/jobs: it is not a folder",
    ({ jobs, tmp }) => {
      rmSync(jobs, { recursive: true });
      symlinkSync(tmp, jobs);
    },
  ],
  [
    "a template that is not there",
    { name: "web", template: "none" },
    'there is no template "none"; ops has compose, service, systemd; templates/ has database',
    (layout) => writeTemplate(layout),
  ],
  [
    "a template outside of templates/",
    { name: "web", template: "../workspace" },
    'there is no template "../workspace"; ops has compose, service, systemd; templates/ has none',
    () => {},
  ],
  [
    "a template that is a link",
    { name: "web", template: "database" },
    "it is not a folder",
    (layout) => {
      mkdirSync(layout.templates, { recursive: true });
      symlinkSync(layout.tmp, path.join(layout.templates, "database"));
    },
  ],
  [
    "a template with a link in it",
    { name: "web", template: "database" },
    "a symbolic link is not allowed",
    (layout) => symlinkSync("/etc/passwd", path.join(writeTemplate(layout), "users")),
  ],
  [
    "selectors for a template without a manifest",
    { name: "web", template: "database", selectors: ["edge"] },
    "Cannot set selectors: the template database has no manifest.json",
    (layout) => rmSync(path.join(writeTemplate(layout), "manifest.json")),
  ],
  [
    "selectors for a template whose manifest is no JSON",
    { name: "web", template: "database", selectors: ["edge"] },
    "Cannot set selectors in manifest.json of the template: ",
    (layout) => writeTemplate(layout, "{"),
  ],
];

for (const [what, job, message, prepare] of REFUSED)
  test(`${what} is refused, and nothing is made`, async (t) => {
    const layout = await bucket(t);
    prepare(layout);
    const before = readdirSync(layout.workspace, { recursive: true });
    await assert.rejects(createJob(layout, job), (error: Error) => error.message.includes(message));
    assert.deepEqual(readdirSync(layout.workspace, { recursive: true }), before);
    assert.deepEqual(readdirSync(layout.tmp), []);
  });

test("what a Prometheus needs to watch ops is written beside the files that are there, which stay", async (t) => {
  const layout = await bucket(t);
  await assert.rejects(writeOwnMetrics(layout, "watch", "h:1"), {
    code: "usage",
    message: 'Cannot write files of job "watch": it is not in workspace/jobs/; make it first',
  });
  await createJob(layout, { name: "watch" });
  await assert.rejects(writeOwnMetrics(layout, "../watch", "h:1"), { code: "usage" });
  const own = path.join(layout.jobs, "watch/_prometheus");
  mkdirSync(path.join(own, "alerts"), { recursive: true });
  writeFileSync(path.join(own, "alerts/ops.yaml"), "mine\n");
  const { written, kept } = await writeOwnMetrics(layout, "watch", "ops.example:9090");
  const below = "workspace/jobs/watch/_prometheus";
  assert.deepEqual(kept, [`${below}/alerts/ops.yaml`]);
  assert.equal(written.length, 8);
  assert.ok(written.includes(`${below}/scrape.yaml.tpl`) && written.includes(`${below}/runbooks/ops-drift.md`), written.join());
  assert.equal(readFileSync(path.join(own, "alerts/ops.yaml"), "utf8"), "mine\n");
  for (const file of written) {
    const text = readFileSync(path.join(layout.root, file), "utf8");
    assert.ok(!/@job@|@target@/.test(text), file);
    assert.equal(statSync(path.join(layout.root, file)).mode & 0o777, 0o644);
  }
  assert.ok(readFileSync(path.join(own, "scrape.yaml.tpl"), "utf8").includes("ops.example:9090"));
  const again = await writeOwnMetrics(layout, "watch", "other:1");
  assert.deepEqual([again.written, again.kept.length], [[], 9]);
  await createJob(layout, { name: "plain" });
  const plain = path.join(layout.jobs, "plain/_prometheus");
  mkdirSync(plain);
  writeFileSync(path.join(plain, "scrape.yaml"), "[]\n");
  const second = await writeOwnMetrics(layout, "plain", "h:1");
  assert.deepEqual([second.kept, second.written.length], [["workspace/jobs/plain/_prometheus/scrape.yaml.tpl"], 8]);
  assert.equal(readdirSync(plain).includes("scrape.yaml.tpl"), false, "one of the two scrape files is enough");
  await createJob(layout, { name: "linked" });
  symlinkSync(plain, path.join(layout.jobs, "linked/_prometheus"));
  await assert.rejects(writeOwnMetrics(layout, "linked", "h:1"), {
    code: "invalid_source",
    message: "Cannot use workspace/jobs/linked/_prometheus: it is not a folder",
  });
});
