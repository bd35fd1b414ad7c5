import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { bytesOf } from "../../../lib/bucket/base/contents.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { BUCKET_FUNCTIONS } from "../../../lib/bucket/kv/kv-access.ts";
import { scanSource } from "../../../lib/bucket/source/source-rules.ts";
import { checkTemplates, readJobs } from "../../../lib/bucket/workspace/jobs.ts";
import { readWorkspace } from "../../../lib/bucket/workspace/workspace.ts";
import type { Failure } from "../../../lib/core/errors.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

const WEB = "workspace/jobs/web";
const BROKEN = '{{ get "ops/bucket" "x" }}\nä {{ nosuch 1 }}\n';

test("a build names every template that can never be rendered, beside all else that is wrong", async (t) => {
  const bucket = await makeBucket(t, {
    workers: ["a"],
    jobs: { web: { selectors: ["worker"], port: 1 }, other: { max_concurrent_starts: "many" } },
    files: {
      [`${WEB}/conf/a.conf.tpl`]: BROKEN,
      [`${WEB}/Makefile.tpl`]: "start:\n\t{{ if .Job }}\n",
      [`${WEB}/_modules/go.py.tpl`]: "{{ else }}",
      [`${WEB}/_prometheus/scrape.yaml.tpl`]: "{{ $x }}",
      [`${WEB}/_prometheus/dashboards/page.tpl`]: "{{ of another language",
      "workspace/jobs/other/b.tpl": "{{ end }}",
    },
  });
  const failure = (await build(bucket.context(), {}).catch((error) => error)) as Failure;
  const { problems } = failure.details as { problems: Parameters<typeof sentenceOf>[0][] };
  assert.deepEqual(problems.map(sentenceOf), [
    "ErrInvalidTemplate: workspace/jobs/other/b.tpl: line 1, column 4: unexpected {{end}}",
    'ErrInvalidManifest: workspace/jobs/other/manifest.json: max_concurrent_starts: expected an integer, found "many"',
    `ErrInvalidTemplate: ${WEB}/Makefile.tpl: line 3, column 1: unexpected EOF: {{if}} of line 2 has no {{end}}`,
    `ErrInvalidTemplate: ${WEB}/_modules/go.py.tpl: line 1, column 4: unexpected {{else}}`,
    `ErrInvalidTemplate: ${WEB}/_prometheus/scrape.yaml.tpl: line 1, column 4: undefined variable "$x"`,
    `ErrInvalidTemplate: ${WEB}/conf/a.conf.tpl: line 2, column 6: function "nosuch" not defined`,
  ]);
});

test("text that is not UTF-8 is no template", () => {
  const problems = new Problems();
  const file = { path: "a.tpl", mode: 0o644, sha256: "1", content: Buffer.from([0xff]) };
  checkTemplates([file], "web", problems);
  assert.deepEqual(problems.errors.map(sentenceOf), ["ErrInvalidTemplate: web/a.tpl: is not UTF-8 text"]);
});

test("every function that a template has when it is rendered is known to the build", async (t) => {
  const all = [...BUCKET_FUNCTIONS, "split", "join", "add", "int", "printf", "and", "or", "call", "index"];
  const files = { [`${WEB}/a.tpl`]: all.map((name) => `{{ if false }}{{ ${name} }}{{ end }}`).join("") };
  const bucket = await makeBucket(t, { workers: ["a"], jobs: { web: {} }, files });
  await build(bucket.context(), {});
});

/** What is read of job web with these files besides its Makefile, and what is wrong. */
function read(t: TestContext, files: Record<string, string | null>, manifest: object = {}) {
  const layout = layoutOf(temporaryFolder(t));
  const own = Object.entries({ "_hooks/go.py": null, ...files }).map(([name, text]) => [`${WEB}/${name}`, text]);
  makeWorkspace(layout.root, { jobs: { web: { ...manifest } }, files: Object.fromEntries(own) });
  const problems = new Problems();
  const { jobs } = readJobs(layout, scanSource(layout, problems), problems, new AbortController().signal);
  const said = (list: typeof problems.warnings) =>
    list.map((one) => sentenceOf(one).replaceAll(`${WEB}/`, "").replaceAll(WEB, "web"));
  return {
    paths: jobs[0]?.files.map(({ path }) => path),
    job: jobs[0],
    errors: said(problems.errors),
    warnings: said(problems.warnings),
  };
}

test("HR-161 the script of a hook is a .py, .ts or .js of its name, in any case and perhaps a template", (t) => {
  const hooks = { go: { executed_on: ["cli"] } };
  for (const name of ["go.py", "GO.py", "Go.ts", "go.js", "go.py.tpl", "go.js.tpl"]) {
    const { paths = [], errors } = read(t, { [`_hooks/${name}`]: "" }, { hooks });
    assert.deepEqual([errors, paths.filter((path) => path.startsWith("_hooks/"))], [[], [`_hooks/go${name.slice(2)}`]], name);
  }
  const missing = ["ErrHookFileNotFound: manifest.json: hooks/go: there is no _hooks/go.py, .ts or .js"];
  for (const name of [
    "_hooks/go",
    "_hooks/go.sh",
    "_hooks/sub/go.py",
    "_hooks/go.pyx",
    "_hooks/xgo.py",
    "go.py",
    "_hooks/go.py.tpl.tpl",
  ])
    assert.deepEqual(read(t, { [name]: "" }, { hooks }).errors, missing, name);
  assert.deepEqual(
    read(t, { "_hooks/go.py": "", "_hooks/go.py.tpl": "" }, { hooks }).errors,
    [],
    "a script and its template are one",
  );
  const several = ["ErrInvalidHookConfiguration: manifest.json: hooks/go: has several scripts: _hooks/go.js, _hooks/go.ts"];
  assert.deepEqual(read(t, { "_hooks/go.js": "", "_hooks/go.ts.tpl": "" }, { hooks }).errors, several);
});

test("the earlier folder of hooks is taken under its present name, and both are one too many", (t) => {
  const old = read(t, { "_modules/b.py": "", "_modules/sub/_modules/c": "", a: "" });
  assert.deepEqual(old.paths, ["Makefile", "_hooks/b.py", "_hooks/sub/_modules/c", "a", "manifest.json"]);
  assert.deepEqual([old.errors, old.warnings], [[], ["web: _modules: is an older name of _hooks"]]);
  const both = read(t, { "_modules/go.py": "", "_hooks/go.js": "" }, { hooks: { go: { executed_on: ["cli"] } } });
  const why = "ErrInvalidJob: web: _modules: is an older name of _hooks, which is there too: keep only _hooks";
  assert.deepEqual([both.errors, both.warnings], [[why], []]);
  assert.deepEqual(read(t, { "x_modules/a": "", "_hooks/_modules/b": "" }).warnings, []);
});

test("a build that is cancelled reads no further job", (t) => {
  const layout = layoutOf(temporaryFolder(t));
  makeWorkspace(layout.root, { jobs: { web: {} } });
  const problems = new Problems();
  const tree = scanSource(layout, problems);
  assert.throws(() => readJobs(layout, tree, problems, AbortSignal.abort()), { code: "cancelled" });
});

test("names that are kept for others are refused, files and folders, at the top of a job alone", (t) => {
  for (const name of ["data", "logs", "bin"]) {
    const why = (at: string) => [
      `ErrInvalidJob: web: ${at}: ${name} is kept on the workers for the running service: use another name`,
    ];
    assert.deepEqual(read(t, { [name]: "" }).errors, why(name));
    assert.deepEqual(read(t, { [`${name}/x`]: "" }).errors, why(name));
    assert.deepEqual(read(t, { [`${name}.tpl`]: "" }).errors, why(`${name}.tpl`));
    assert.deepEqual(read(t, { [`a/${name}/x`]: "", [`${name}x`]: "" }).errors, []);
  }
  const certs = { certs: { x: {} } };
  for (const name of ["certs/x.key", "certs/ca.crt", "certs"])
    assert.deepEqual(read(t, { [name]: "" }, certs).errors, [
      `ErrInvalidJob: web: ${name}: a certificate is put there: use another name`,
    ]);
  assert.deepEqual(read(t, { "certs/y.key": "" }, certs).errors, []);
});

test("a file keeps its bytes and its right to run, a large one is read piece by piece", (t) => {
  const large = "x".repeat(1024 * 1024 + 1);
  const { job } = read(t, { run: "#!1", large, most: large.slice(1), "vars.toml": "a = 1\n" });
  const kept = (name: string) => job?.files.find(({ path }) => path === name) ?? assert.fail(name);
  assert.deepEqual([kept("run").mode, kept("large").mode], [0o755, 0o644]);
  assert.deepEqual([Buffer.isBuffer(kept("large").content), Buffer.isBuffer(kept("most").content)], [false, true]);
  assert.equal(String(bytesOf(kept("large").content)), large);
  assert.equal(kept("large").content.length, large.length);
  assert.deepEqual([...(job?.vars ?? [])], [["a", "1"]]);
  assert.equal(
    read(t, { "vars.toml": "a = []\n" }).errors[0],
    "ErrInvalidJobVars: vars.toml: a: expected text, a number, true or false, found a list",
  );
});

test("a workspace tells which files look like settings and are not read, and orders its workers", async (t) => {
  const layout = layoutOf(temporaryFolder(t));
  const read = async () => {
    const problems = new Problems();
    const workspace = await readWorkspace(layout, problems, new AbortController().signal);
    return { workspace, warnings: problems.warnings.map(sentenceOf), errors: problems.errors.map(sentenceOf) };
  };
  assert.deepEqual((await read()).warnings, ["workspace: is not there: nothing has been pushed yet"]);
  const other = "workspace/jobs/other/vars.toml";
  const workers = [{ host: "c" }, { host: "b", position: 0 }, { host: "a", position: 0 }, { host: "d", position: -1 }];
  const settings = {
    "workspace/bucket.jobs.conf": "",
    "workspace/bucket.jobs.x.conf": "",
    "workspace/xbucket.jobs.conf": "",
    "workspace/bucket.jobs.conf.d": "",
  };
  makeWorkspace(layout.root, {
    workers,
    jobs: { web: {} },
    files: {
      ...settings,
      "workspace/vars.toml": "",
      [other]: "",
      "workspace/jobs/web/vars.toml": "",
      "workspace/jobs/web/sub/vars.toml": "",
    },
  });
  const { workspace, warnings, errors } = await read();
  assert.deepEqual(errors, []);
  assert.deepEqual(warnings, [
    "workspace: bucket.jobs.x.conf: not read: job_config_selector in ops.conf selects bucket.jobs.conf",
    "workspace: jobs/other/vars.toml: not read: there is no manifest.json beside it",
    "workspace: vars.toml: not read: there is no manifest.json beside it",
  ]);
  assert.deepEqual(
    workspace.workers.map(({ host }) => host),
    ["d", "a", "b", "c"],
  );
  assert.ok(workspace.files.includes("jobs/other/vars.toml") && workspace.files.includes("workers.json"));
});
