import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { placedProblems } from "../../../lib/bucket/workspace/places.ts";
import { checkWorkspace } from "../../../lib/operation/build/build.ts";
import { ops } from "../../helpers/command-line.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

const SIGNAL = new AbortController().signal;

test("each finding of check has its file, line and column, whatever kind of file it is in", async (t) => {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, {
    jobs: { app: {} },
    workers: [{ host: "a", labels: ["web", "app"], memory: "1 gb" }],
    files: {
      "ops.conf": '# ä\nssh_port = "x"\n',
      "workspace/bucket.conf": "port_min = 1\nport_max\n",
      "workspace/bucket.jobs.conf": '[app]\nmemory = "9 kb"\n\n[none]\n',
      "workspace/disabled.json": '{\n  "jobs": { "nope": {} }\n}',
      "workspace/jobs/web/manifest.json":
        '{ "version": "1",\n  "Hooks": { "Up": {\n    "executed_on": ["cli",\n  "never"] } },\n  "resources": { "ports": { "ü": {} } } }',
      "workspace/jobs/web/conf.tpl": "first\n{{ nope }}\n",
      "workspace/jobs/app/_prometheus/alerts/a.yaml": "groups:\n\t- x\n",
      "workspace/jobs/web/data": "",
      "workspace/jobs/db/manifest.json": '{ "version": }',
    },
  });
  const { problems } = await checkWorkspace(layoutOf(dir), SIGNAL);
  const found = placedProblems(layoutOf(dir), problems);
  assert.deepEqual(
    found.map(({ file, line, column, path: at }) => `${file.replace("workspace/", "")}:${line}:${column} ${at}`),
    [
      "ops.conf:2:1 ssh_port",
      "bucket.conf:2:9 ",
      "bucket.jobs.conf:2:1 app/memory",
      "bucket.jobs.conf:4:1 none",
      "disabled.json:2:3 jobs",
      "jobs/app/_prometheus/alerts/a.yaml:2:1 ",
      "jobs/db:1:1 ",
      "jobs/db/manifest.json:1:14 ",
      "jobs/web:1:1 ",
      "jobs/web/conf.tpl:2:4 ",
      "jobs/web/data:1:1 ",
      "jobs/web/manifest.json:2:14 hooks/up",
      "jobs/web/manifest.json:4:3 hooks/Up/executed_on/1",
      "jobs/web/manifest.json:5:29 resources/ports/ü",
    ],
  );
  const severities = found.filter(({ severity, code }) => severity === "warning" && code === null).map(({ path: at }) => at);
  assert.deepEqual(severities, ["none", "jobs"]);
});

test("a byte order mark does not move what stands behind it on its line", async (t) => {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, {
    files: {
      "ops.conf": "\ufeffssh_usr = 1\n",
      "workspace/bucket.conf": "\ufeffa =\n",
      "workspace/jobs/web/manifest.json": '\ufeff{"verison": "1"}',
      "workspace/jobs/web/Makefile.tpl": "\ufeff# {{ nope }}",
    },
  });
  const { problems } = await checkWorkspace(layoutOf(dir), SIGNAL);
  assert.deepEqual(
    placedProblems(layoutOf(dir), problems).map(({ file, line, column }) => `${file}:${line}:${column}`),
    ["ops.conf:1:1", "workspace/bucket.conf:1:4", "workspace/jobs/web/Makefile.tpl:1:6", "workspace/jobs/web/manifest.json:1:2"],
  );
});

test("check needs no bucket, stores nothing, and exits with 1 for errors only", async (t) => {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { jobs: { web: { version: 1 } }, workers: ["10.0.0.1"] });
  const bad = await ops(["check"], { cwd: dir });
  const file = "workspace/jobs/web/manifest.json";
  assert.deepEqual(
    [bad.code, bad.stdout, bad.stderr],
    [1, `${file}:1:2: error: version: expected a string, found an integer [ErrInvalidManifest]\n`, "1 error\n"],
  );
  makeWorkspace(dir, { jobs: { web: {} }, workers: ["10.0.0.1"] });
  const good = await ops(["check", "--json", "--bucket-dir", dir], { cwd: path.dirname(dir) });
  const { problems, ...counts } = JSON.parse(good.stdout);
  assert.deepEqual([good.code, counts], [0, { ok: true, errors: 0, warnings: 1 }]);
  assert.deepEqual(problems, [
    {
      severity: "warning",
      code: null,
      file: `${path.basename(dir)}/${file}`,
      line: 1,
      column: 1,
      path: "selectors",
      message: "the job runs nowhere: there is no worker with the labels web",
    },
  ]);
  const none = await ops(["check", "--bucket-dir", path.join(dir, "workspace")]);
  assert.equal(none.code, 1);
  assert.match(none.stderr, /^ops: Cannot check .*: it has no folder workspace\//);
});

test("fmt formats the JSON files of a workspace, keeps their modes, and refuses what it cannot read, with its place", async (t) => {
  const dir = temporaryFolder(t);
  const manifest = path.join(dir, "workspace/jobs/web/manifest.json");
  makeWorkspace(dir, {
    jobs: { web: {} },
    files: {
      "workspace/jobs/web/manifest.json": '{"version":"1","selectors":["web"]}',
      "workspace/disabled.json": '{\n "workers": [x]}',
      "templates/plain/manifest.json": "{}\n",
    },
  });
  chmodSync(manifest, 0o640);
  const none = await ops(["fmt", "--bucket-dir", path.join(dir, "workspace")]);
  assert.deepEqual([none.code, /^ops: Cannot format .*: it has no folder workspace\//.test(none.stderr)], [1, true], none.stderr);
  const checked = await ops(["fmt", "--check"], { cwd: dir });
  const broken = "workspace/disabled.json:2:14: error: not valid JSON: Unexpected token 'x'\n";
  const files = "workspace/workers.json\nworkspace/jobs/web/manifest.json\n";
  assert.deepEqual([checked.code, checked.stdout, checked.stderr], [1, files, broken]);
  const { stdout } = await ops(["fmt", "--check", "--json"], { cwd: dir });
  const problem = { file: "workspace/disabled.json", line: 2, column: 14 };
  const { changed, problems } = JSON.parse(stdout);
  assert.deepEqual([changed.join("\n"), problems.length, { ...problems[0], ...problem }], [files.trimEnd(), 1, problems[0]]);
  const above = await ops(["fmt", "--check", "--bucket-dir", path.basename(dir)], { cwd: path.dirname(dir) });
  assert.equal(above.stderr, `${path.basename(dir)}/${broken}`);
  assert.equal(readFileSync(manifest, "utf8"), '{"version":"1","selectors":["web"]}');
  writeFileSync(path.join(dir, "workspace/disabled.json"), "{}\n");
  const left = [".ops-edit.tmp", "..ops-edit.tmp.0123456789ab.tmp"].map((name) => path.join(dir, "workspace", name));
  for (const file of left) writeFileSync(file, "what a kill has left");
  const written = await ops(["fmt"], { cwd: dir });
  assert.deepEqual([written.code, written.stdout, written.stderr], [0, files, ""]);
  assert.equal(readFileSync(manifest, "utf8"), '{\n  "version": "1",\n  "selectors": ["web"]\n}\n');
  assert.equal(statSync(manifest).mode & 0o777, 0o640);
  assert.deepEqual(left.filter(existsSync), []);
  assert.deepEqual(readdirSync(path.dirname(manifest)).sort(), ["Makefile", "manifest.json"], "nothing is written beside it");
  assert.deepEqual(await ops(["fmt", "--check"], { cwd: dir }), { code: 0, stdout: "", stderr: "" });
});
