import assert from "node:assert/strict";
import { chmodSync, mkdirSync, symlinkSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { HOOK_EVENTS } from "../../../lib/bucket/base/model.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { scanSource } from "../../../lib/bucket/source/source-rules.ts";
import { type JobSource, readJobs } from "../../../lib/bucket/workspace/jobs.ts";
import { schemaErrors } from "../../helpers/schema.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace, type WorkspaceSpec } from "../../helpers/workspace.ts";

const SIGNAL = new AbortController().signal;

async function jobsIn(dir: string) {
  const problems = new Problems();
  const layout = layoutOf(dir);
  const found = readJobs(layout, scanSource(layout, problems), problems, SIGNAL);
  return { ...found, errors: problems.errors.map(sentenceOf), warnings: problems.warnings.map(sentenceOf) };
}

async function jobs(t: TestContext, spec: WorkspaceSpec) {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, spec);
  return await jobsIn(dir);
}

/** The one job `web` with this manifest; its text where it is no object. */
async function web(t: TestContext, manifest: Record<string, unknown> | string, files: Record<string, string> = {}) {
  const text = typeof manifest === "string" ? manifest : JSON.stringify(manifest);
  const found = await jobs(t, {
    jobs: { web: typeof manifest === "string" ? {} : manifest },
    files: { "workspace/jobs/web/manifest.json": text, ...files },
  });
  return { ...found, job: found.jobs[0] as JobSource };
}

test("an empty manifest has the defaults", async (t) => {
  const { job, errors, warnings } = await web(t, {});
  assert.deepEqual([errors, warnings], [[], []]);
  assert.equal(job.name, "web");
  assert.equal(job.file, "workspace/jobs/web/manifest.json");
  assert.deepEqual(job.manifest, {
    version: "",
    after: [],
    selectors: ["web"],
    maxConcurrentUpgrades: 1,
    maxConcurrentStarts: 0,
    minAllocationsCount: 0,
    restartPolicy: "always",
    restartGlobs: [],
    driftIgnore: [],
    memory: { min: 0, max: 0 },
    cpu: { min: 0, max: 0 },
    ports: new Map(),
    hooks: [],
    certs: [],
    healthCheck: null,
    lifecycleTimeoutSeconds: 900,
    onFailure: "stop",
    secretMode: 0o600,
    tolerateUnreachable: 0,
  });
});

test("HR-159 HR-160 HR-161 every field is taken", async (t) => {
  const { job, errors, warnings } = await web(t, {
    version: " v1.2 ",
    after: ["DB", "cache"],
    selectors: ["Front", "", "front", "eu"],
    max_concurrent_upgrades: 3,
    max_concurrent_starts: 2,
    min_allocations_count: 1,
    restart_policy: "reload",
    restart_globs: ["conf/**"],
    drift_ignore: ["state.json", "conf/*"],
    resources: { memory: { min: "1 gb", max: "2 gb" }, cpu: { min: "500" }, ports: { http: {}, admin: 8080 } },
    hooks: {
      Zeta: { executed_on: ["cli", "pre_deploy", "cli"], demands: { job: "DB", hook: "Check", config: { a: [1] } } },
      alpha: { executed_on: ["health_check"] },
    },
    lifecycle_timeout_seconds: 60,
    on_failure: "restore",
    secret_mode: "0644",
    tolerate: { unreachable: "2.5%" },
  });
  assert.deepEqual([errors, warnings.length], [[], 0]);
  assert.ok(
    job.files.some((file) => file.path === "_hooks/zeta.py"),
    "a script is found without case",
  );
  const free = { demandJob: "", demandHook: "", demandConfig: {} };
  assert.deepEqual(job.manifest, {
    version: "v1.2",
    after: ["db", "cache"],
    selectors: ["front", "eu"],
    maxConcurrentUpgrades: 3,
    maxConcurrentStarts: 2,
    minAllocationsCount: 1,
    restartPolicy: "reload",
    restartGlobs: ["conf/**"],
    driftIgnore: ["state.json", "conf/*"],
    memory: { min: 1024, max: 2048 },
    cpu: { min: 500, max: 500 },
    ports: new Map<string, number | null>([
      ["http", null],
      ["admin", 8080],
    ]),
    hooks: [
      { name: "alpha", events: ["health_check"], ...free },
      { name: "zeta", events: ["pre_deploy", "cli"], demandJob: "db", demandHook: "check", demandConfig: { a: [1] } },
    ],
    certs: [],
    healthCheck: null,
    lifecycleTimeoutSeconds: 60,
    onFailure: "restore",
    secretMode: 0o644,
    tolerateUnreachable: 2.5,
  });
});

test("HR-163 probes of the three types are taken, each with its defaults", async (t) => {
  const { job, errors } = await web(t, {
    resources: { ports: { http: {} } },
    health_check: {
      checks: [
        { type: " TCP ", port: " http " },
        { type: "http", port: "http", timeout_seconds: 2 },
        { type: "http", port: "http", path: "/ok?x=1", expect_status: 204, scheme: "HTTPS", timeout_seconds: 0 },
        { type: "http", port: "http", expect_status: 100 },
        { type: "http", port: "http", expect_status: 999 },
        { type: "ssh", command: "true" },
      ],
      timeout_seconds: 9,
      wait: { attempts: 3 },
    },
  });
  assert.deepEqual(errors, []);
  assert.deepEqual(job.manifest.healthCheck, {
    checks: [
      { type: "tcp", port: "http", timeoutSeconds: 9 },
      { type: "http", port: "http", path: "/", expectStatus: 200, scheme: "http", timeoutSeconds: 2 },
      { type: "http", port: "http", path: "/ok?x=1", expectStatus: 204, scheme: "https", timeoutSeconds: 9 },
      { type: "http", port: "http", path: "/", expectStatus: 100, scheme: "http", timeoutSeconds: 9 },
      { type: "http", port: "http", path: "/", expectStatus: 999, scheme: "http", timeoutSeconds: 9 },
      { type: "ssh", command: "true", timeoutSeconds: 9 },
    ],
    timeoutSeconds: 9,
    wait: { attempts: 3, intervalSeconds: 1 },
  });
});

test("waiting values without checks are kept: they count for hooks too", async (t) => {
  const { job } = await web(t, { health_check: { wait: { attempts: 60, interval_seconds: 2 } } });
  assert.deepEqual(job.manifest.healthCheck, { checks: [], timeoutSeconds: 5, wait: { attempts: 60, intervalSeconds: 2 } });
});

test("HR-047 widths of 0 and less count as absent", async (t) => {
  const { job } = await web(t, { max_concurrent_upgrades: 0, max_concurrent_starts: -2, lifecycle_timeout_seconds: 0 });
  assert.equal(job.manifest.maxConcurrentUpgrades, 1);
  assert.equal(job.manifest.maxConcurrentStarts, 0);
  assert.equal(job.manifest.lifecycleTimeoutSeconds, 900);
});

test("where a field has its older and its present name, the present one counts in either order", async (t) => {
  const [old, present] = [{ Commands: { old: { executed_on: ["cli"] } } }, { hooks: { now: { executed_on: ["cli"] } } }];
  const scripts = { "workspace/jobs/web/_hooks/old.py": "", "workspace/jobs/web/_hooks/now.py": "" };
  for (const manifest of [
    { ...old, ...present, update_parallel_count: 2, max_concurrent_upgrades: 3 },
    { ...present, ...old, max_concurrent_upgrades: 3, update_parallel_count: 2 },
  ]) {
    const { job, errors, warnings } = await web(t, manifest, scripts);
    assert.deepEqual(errors, []);
    assert.deepEqual([job.manifest.hooks.map(({ name }) => name), job.manifest.maxConcurrentUpgrades], [["now"], 3]);
    const of = (text: string) => `workspace/jobs/web/manifest.json: ${text}, which is there too and counts`;
    assert.deepEqual(warnings.sort(), [
      of("Commands: is an older name of hooks"),
      of("update_parallel_count: is an older name of max_concurrent_upgrades"),
    ]);
  }
  const { job } = await web(t, { commands: { old: { executed_on: ["cli"] } }, hooks: null }, scripts);
  assert.deepEqual(
    job.manifest.hooks.map(({ name }) => name),
    ["old"],
  );
});

test("the older names of fields work, each with a warning", async (t) => {
  const { job, errors, warnings } = await web(
    t,
    {
      update_parallel_count: 4,
      deploy_parallel_count: 5,
      commands: { check: { executed_on: ["cli"], demands: { job: "db", command: "up" } } },
    },
    { "workspace/jobs/web/_modules/check.py": "", "workspace/jobs/web/_modules/lib.py": "x" },
  );
  assert.deepEqual(errors, []);
  assert.deepEqual([job.manifest.maxConcurrentUpgrades, job.manifest.maxConcurrentStarts], [4, 5]);
  assert.equal(job.manifest.hooks[0]?.demandHook, "up");
  assert.deepEqual(
    job.files.map((file) => file.path),
    ["Makefile", "_hooks/check.py", "_hooks/lib.py", "manifest.json"],
  );
  const manifest = "workspace/jobs/web/manifest.json: ";
  assert.deepEqual(warnings, [
    "workspace/jobs/web: _modules: is an older name of _hooks",
    `${manifest}update_parallel_count: is an older name of max_concurrent_upgrades`,
    `${manifest}deploy_parallel_count: is an older name of max_concurrent_starts`,
    `${manifest}commands: is an older name of hooks`,
    `${manifest}hooks/check/demands/command: is an older name of hook`,
  ]);
});

test("keys are read without case, the last of two wins, null is absent, unknown ones are warnings unless they are misspelt", async (t) => {
  const { job, errors, warnings } = await web(t, '{"Version": "1", "version": "2", "selectors": null, "conversion": 1}');
  assert.deepEqual(errors, []);
  assert.equal(job.manifest.version, "2");
  assert.deepEqual(job.manifest.selectors, ["web"]);
  assert.deepEqual(warnings, ['workspace/jobs/web/manifest.json: conversion: is not a known field; did you mean "version"?']);
});

test("a misspelt key is an error that names the right one, at every depth; others are warnings", async (t) => {
  const manifest = {
    Helth_Check: {},
    selector: [],
    comands: {},
    x_policy: 1,
    note: 1,
    resources: { prots: {}, memory: { mim: "1 gb", top: 1 } },
    certs: { server: { keys: "rsa", subject: { alt_name: [] } } },
    hooks: { go: { executed_on: ["cli"], demands: { jbo: "a", hok: "b", config: { joob: 1 } } } },
    health_check: { checks: [{ type: "tcp", prot: "p", host: "h" }], wait: { attempt: 1 } },
  };
  const { errors, warnings } = await web(t, JSON.stringify(manifest));
  const said = (path: string, meant?: string) =>
    `workspace/jobs/web/manifest.json: ${path}: is not a known field${meant === undefined ? "" : `; did you mean "${meant}"?`}`;
  assert.deepEqual(
    errors.filter((sentence) => sentence.includes("not a known")).map((sentence) => sentence.replace(/^Err\w+: /, "")),
    [
      said("Helth_Check", "health_check"),
      said("selector", "selectors"),
      said("comands", "hooks"),
      said("resources/prots", "ports"),
      said("resources/memory/mim", "min"),
      said("hooks/go/demands/jbo", "job"),
      said("hooks/go/demands/hok", "hook"),
      said("certs/server/keys", "key"),
      said("certs/server/subject/alt_name", "alt_names"),
      said("health_check/checks/0/prot", "port"),
      said("health_check/wait/attempt", "attempts"),
    ],
  );
  assert.deepEqual(warnings, [said("x_policy"), said("note"), said("resources/memory/top"), said("health_check/checks/0/host")]);
});

test("every field is acted on, and what is only not sent to workers is kept", async (t) => {
  const { job, warnings, errors } = await web(
    t,
    { on_failure: "restore", secret_mode: "0640", tolerate: { unreachable: "5%" } },
    { "workspace/jobs/web/prometheus.yml": "", "workspace/jobs/web/_prometheus/alerts/a.yaml": "" },
  );
  assert.deepEqual(errors, []);
  assert.deepEqual(warnings, []);
  assert.ok(job.files.some((file) => file.path === "_prometheus/alerts/a.yaml"));
});

const M = "ErrInvalidManifest";
const H = "ErrInvalidHookConfiguration";
const REFUSED: [name: string, manifest: Record<string, unknown> | string, code: string, place: string][] = [
  ["broken JSON", '{"version": }', M, "line 1, column 13: not valid JSON"],
  ["a list", "[]", M, "expected an object"],
  ["null", "null", M, "expected an object"],
  ["a version that is a number", { version: 1 }, M, "version"],
  ["a version with a line end", { version: "1\n2" }, M, "version"],
  ["a selector with a blank", { selectors: ["a b"] }, M, "selectors/0"],
  ["a negative min_allocations_count", { min_allocations_count: -1 }, M, "min_allocations_count"],
  ["an unknown restart_policy", { restart_policy: "Always" }, M, "restart_policy"],
  ["restart_globs without reload", { restart_globs: ["a"] }, M, "restart_globs"],
  ["a broken glob of what drift ignores", { drift_ignore: ["a", "[a"] }, M, "drift_ignore/1"],
  ["a broken glob", { restart_policy: "reload", restart_globs: ["[a"] }, M, "restart_globs/0"],
  ["an unknown unit", { resources: { memory: { min: "1 kb" } } }, M, "resources/memory/min"],
  ["min above max", { resources: { cpu: { min: "2", max: "1" } } }, M, "resources/cpu"],
  ["a port name in capitals", { resources: { ports: { HTTP: {} } } }, "ErrPortKeyFormat", "resources/ports/HTTP"],
  ["a port 0", { resources: { ports: { a: 0 } } }, "ErrInvalidManifestPort", "resources/ports/a"],
  ["a port above 65535", { resources: { ports: { a: 65_536 } } }, "ErrInvalidManifestPort", "resources/ports/a"],
  ["a port as text", { resources: { ports: { a: "80" } } }, "ErrInvalidManifestPort", "resources/ports/a"],
  ["a port with fields", { resources: { ports: { a: { x: 1 } } } }, "ErrInvalidManifestPort", "resources/ports/a"],
  ["a hook without events", { hooks: { x: { executed_on: [] } } }, H, "hooks/x/executed_on"],
  ["HR-313 a hook on an unknown event", { hooks: { x: { executed_on: ["deploy"] } } }, H, "hooks/x/executed_on/0"],
  ["a hook that says nothing", { hooks: { x: {} } }, H, "hooks/x/executed_on"],
  ["hooks as a list", { hooks: [] }, H, "hooks"],
  [
    "a demand config that is a list",
    { hooks: { x: { executed_on: ["cli"], demands: { config: [] } } } },
    H,
    "hooks/x/demands/config",
  ],
  ["a timeout over a day", { lifecycle_timeout_seconds: 86_401 }, M, "lifecycle_timeout_seconds"],
  ["an unknown on_failure", { on_failure: "panic" }, M, "on_failure"],
  ["an unknown secret_mode", { secret_mode: "0777" }, M, "secret_mode"],
  ["a share without a sign", { tolerate: { unreachable: "5" } }, M, "tolerate/unreachable"],
];

/** What takes more than a schema to see. */
const NOT_IN_SCHEMA = /JSON$|broken glob|min above max/;

for (const [name, manifest, code, place] of REFUSED)
  test(`${code}: ${name}`, async (t) => {
    const { errors, broken } = await web(t, manifest);
    assert.equal(errors.length, 1, errors.join("\n"));
    assert.ok(errors[0]?.startsWith(`${code}: workspace/jobs/web/manifest.json: ${place}`), errors[0]);
    assert.deepEqual([...broken], ["web"]);
    if (NOT_IN_SCHEMA.test(name)) return;
    const value: unknown = typeof manifest === "string" ? JSON.parse(manifest) : manifest;
    assert.notDeepEqual(schemaErrors("manifest", value), []);
  });

test("ErrInvalidManifest: what is no object is told, and what else is wrong with it", async (t) => {
  const { errors } = await web(t, { resources: 5, health_check: { checks: [{ type: "tcp", port: "http" }] } });
  assert.deepEqual(
    errors.map((error) => error.replace("ErrInvalidManifest: workspace/jobs/web/manifest.json: ", "")),
    [
      "resources: expected an object, found an integer",
      'health_check/checks/0/port: "http" is not a port of this job: declare it in resources/ports',
    ],
  );
});

const PROBES: [name: string, probe: Record<string, unknown>, place: string][] = [
  ["HR-163 of an unknown type", { type: "udp", port: "http" }, "type"],
  ["without a type", { port: "http" }, "type"],
  ["tcp without a port", { type: "tcp" }, "port"],
  ["for a port that is not declared", { type: "tcp", port: "nope" }, "port"],
  ["for a port by number", { type: "tcp", port: 80 }, "port"],
  ["with a path that does not start with /", { type: "http", port: "http", path: "x" }, "path"],
  ["with a path of more than 2,000 characters", { type: "http", port: "http", path: `/${"x".repeat(2_000)}` }, "path"],
  ["with a path that breaks the request", { type: "http", port: "http", path: "/a b" }, "path"],
  ["with an unknown scheme", { type: "http", port: "http", scheme: "ftp" }, "scheme"],
  ["with a status that is none", { type: "http", port: "http", expect_status: 99 }, "expect_status"],
  ["with a status above all", { type: "http", port: "http", expect_status: 1000 }, "expect_status"],
  ["ssh without a command", { type: "ssh" }, "command"],
];

for (const [name, probe, place] of PROBES)
  test(`ErrInvalidManifest: a probe ${name}`, async (t) => {
    const { errors } = await web(t, { resources: { ports: { http: {} } }, health_check: { checks: [probe] } });
    assert.equal(errors.length, 1, errors.join("\n"));
    assert.ok(
      errors[0]?.startsWith(`ErrInvalidManifest: workspace/jobs/web/manifest.json: health_check/checks/0/${place}: `),
      errors[0],
    );
    if (name !== "for a port that is not declared")
      assert.notDeepEqual(schemaErrors("manifest", { health_check: { checks: [probe] } }), []);
  });

test("an amount of 0 is as good as none", async (t) => {
  const { job, errors } = await web(t, { resources: { memory: { min: "0 mb" }, cpu: { min: "0" } } });
  assert.deepEqual([errors, job.manifest.memory, job.manifest.cpu], [[], { min: 0, max: 0 }, { min: 0, max: 0 }]);
});

test("HR-161 HR-313 all eight events are known", async (t) => {
  const { job, errors } = await web(t, { hooks: { x: { executed_on: [...HOOK_EVENTS] } } });
  assert.deepEqual(errors, []);
  assert.equal(job.manifest.hooks[0]?.events.length, 8);
});

test("a demand config that is nested too deep is refused, a hostile one too", async (t) => {
  const deep = `${"[".repeat(100_000)}${"]".repeat(100_000)}`;
  const { errors } = await web(t, `{"hooks": {"x": {"executed_on": ["cli"], "demands": {"config": {"a": ${deep}}}}}}`, {
    "workspace/jobs/web/_hooks/x.py": "",
  });
  assert.match(errors.join(), /^ErrInvalidHookConfiguration: .*hooks\/x\/demands\/config: is nested more than 32 levels$/);
});

test("a demand config may be nested 32 levels deep, and not one more", async (t) => {
  const errors = async (levels: number) => {
    const config = `${'{"a": '.repeat(levels)}1${"}".repeat(levels)}`;
    const manifest = `{"hooks": {"x": {"executed_on": ["cli"], "demands": {"job": "api", "config": ${config}}}}}`;
    return (await web(t, manifest, { "workspace/jobs/web/_hooks/x.py": "" })).errors.filter((one) => one.includes("nested"));
  };
  assert.deepEqual(await errors(32), []);
  assert.equal((await errors(33)).length, 1);
});

test("a hook needs exactly one script, which may be a template", async (t) => {
  const hooks = { a: { executed_on: ["cli"] }, b: { executed_on: ["cli"] }, c: { executed_on: ["cli"] } };
  const { errors } = await jobs(t, {
    jobs: { web: { hooks } },
    files: {
      "workspace/jobs/web/_hooks/a.py": null,
      "workspace/jobs/web/_hooks/b.ts": "",
      "workspace/jobs/web/_hooks/c.py": null,
      "workspace/jobs/web/_hooks/c.js.tpl": "",
    },
  });
  assert.deepEqual(errors, [
    "ErrHookFileNotFound: workspace/jobs/web/manifest.json: hooks/a: there is no _hooks/a.py, .ts or .js",
    "ErrInvalidHookConfiguration: workspace/jobs/web/manifest.json: hooks/b: has several scripts: _hooks/b.py, _hooks/b.ts",
  ]);
});

test("two hooks with one name in other capitals are refused", async (t) => {
  const { errors } = await web(t, '{"hooks": {"a": {"executed_on": ["cli"]}, "A": {"executed_on": ["cli"]}}}', {
    "workspace/jobs/web/_hooks/a.py": "",
  });
  assert.deepEqual(errors, [
    "ErrInvalidHookConfiguration: workspace/jobs/web/manifest.json: hooks/A: is there twice, in other capitals",
  ]);
});

test("HR-161 a hook named ops, whose script the helper library would replace, is refused", async (t) => {
  const { errors } = await web(t, '{"hooks": {"Ops": {"executed_on": ["cli"]}}}', { "workspace/jobs/web/_hooks/ops.py": "" });
  assert.deepEqual(errors, [
    "ErrInvalidHookConfiguration: workspace/jobs/web/manifest.json: hooks/Ops: " +
      "is the name of the library beside every script: use another name",
  ]);
});

const FOLDERS: [name: string, files: Record<string, string | null>, place: string][] = [
  ["without a Makefile", { "workspace/jobs/web/Makefile": null }, ": has no Makefile"],
  ["with a folder data", { "workspace/jobs/web/data/x": "" }, ": data: "],
  ["with a file logs", { "workspace/jobs/web/logs": "" }, ": logs: "],
  ["with a template bin.tpl", { "workspace/jobs/web/bin.tpl": "" }, ": bin.tpl: "],
  [
    "with prometheus.yml and its template",
    { "workspace/jobs/web/prometheus.yml": "", "workspace/jobs/web/prometheus.yml.tpl": "" },
    ": prometheus.yml: there is prometheus.yml.tpl too",
  ],
  [
    "with a template in the place of a folder",
    { "workspace/jobs/web/conf.tpl": "", "workspace/jobs/web/conf/a": "" },
    ": conf.tpl: it would be rendered in the place of a folder",
  ],
  ["with a template that has no name", { "workspace/jobs/web/.tpl": "" }, ": .tpl: it would be rendered"],
  ["with a template below that has no name", { "workspace/jobs/web/conf/.tpl": "" }, ": conf/.tpl: it would be rendered"],
  ["with _hooks and _modules", { "workspace/jobs/web/_hooks/a.py": "", "workspace/jobs/web/_modules/b.py": "" }, ": _modules: "],
  ["with a control character in a file name", { "workspace/jobs/web/a\nb": "" }, ': "a\\nb": '],
];

for (const [name, files, place] of FOLDERS)
  test(`ErrInvalidJob: a job ${name}`, async (t) => {
    const { errors } = await jobs(t, { jobs: { web: {} }, files });
    assert.equal(errors.length, 1, errors.join("\n"));
    assert.ok(errors[0]?.startsWith(`ErrInvalidJob: workspace/jobs/web${place}`), errors[0]);
  });

test("a Makefile.tpl is a Makefile, and reserved names are free further down", async (t) => {
  const { errors } = await jobs(t, {
    jobs: { web: {} },
    files: {
      "workspace/jobs/web/Makefile": null,
      "workspace/jobs/web/Makefile.tpl": "start:\n",
      "workspace/jobs/web/conf/data/x": "",
    },
  });
  assert.deepEqual(errors, []);
});

test("symbolic links are refused: a file, a folder, a job and the folder of jobs", async (t) => {
  for (const [at, target, wrong] of [
    ["web/link", "manifest.json", "workspace/jobs/web: "],
    ["web/folder", temporaryFolder(t), "workspace/jobs/web: "],
    ["other", "web", "workspace/jobs/other: "],
    ["web/manifest.json.tpl", "Makefile", "workspace/jobs/web: manifest.json.tpl: "],
  ] as const) {
    const dir = temporaryFolder(t);
    makeWorkspace(dir, { jobs: { web: {} } });
    symlinkSync(target, path.join(dir, "workspace/jobs", at));
    const { errors } = await jobsIn(dir);
    assert.equal(errors.length, 1, errors.join("\n"));
    assert.ok(errors[0]?.startsWith(`ErrInvalidJob: ${wrong}`), errors[0]);
    assert.match(errors[0] as string, /symbolic link/);
  }
  const dir = temporaryFolder(t);
  mkdirSync(path.join(dir, "workspace"));
  symlinkSync(temporaryFolder(t), path.join(dir, "workspace/jobs"));
  assert.deepEqual((await jobsIn(dir)).errors, ["ErrInvalidJob: workspace/jobs: a symbolic link is not allowed"]);
});

test("HR-038 files keep their content and execute bit; the four skipped folders are skipped at any depth", async (t) => {
  const dir = temporaryFolder(t);
  const below = "workspace/jobs/web";
  const skipped = [".venv", "venv", "node_modules", "__pycache__"];
  makeWorkspace(dir, {
    jobs: { web: {} },
    files: {
      [`${below}/run.sh`]: "#!/bin/sh\n",
      [`${below}/.hidden`]: "x",
      [`${below}/deep/er/a.txt`]: "ä\n",
      ...Object.fromEntries(
        skipped.flatMap((name) => [`${below}/${name}/x`, `${below}/deep/${name}/y`]).map((file) => [file, ""]),
      ),
    },
  });
  chmodSync(path.join(dir, below, ".hidden"), 0o600);
  chmodSync(path.join(dir, below, "run.sh"), 0o700);
  const { jobs: found, errors } = await jobsIn(dir);
  assert.deepEqual(errors, []);
  assert.deepEqual(
    found[0]?.files.map((file) => `${file.mode.toString(8)} ${file.path}`),
    ["644 .hidden", "644 Makefile", "644 deep/er/a.txt", "644 manifest.json", "755 run.sh"],
  );
  const deep = found[0]?.files.find((file) => file.path === "deep/er/a.txt");
  assert.equal(deep?.content.toString(), "ä\n");
  assert.equal(deep?.sha256, "ac6f010e65c9ea739dbdaa21427edd5ef60c6d461ef4d619c003e3ab62453a56");
});

test("a job is a folder with a manifest.json; names are stored in small letters", async (t) => {
  const { jobs: found, errors } = await jobs(t, {
    jobs: { Web_1: {}, api: {} },
    files: { "workspace/jobs/notes/README": "", "workspace/jobs/README": "" },
  });
  assert.deepEqual(errors, []);
  assert.deepEqual(
    found.map((job) => [job.name, job.file]),
    [
      ["web_1", "workspace/jobs/Web_1/manifest.json"],
      ["api", "workspace/jobs/api/manifest.json"],
    ],
  );
});

test("bad job names are refused, and two that differ in capitals only", async (t) => {
  const { errors } = await jobs(t, { jobs: { "1st": {}, web: {}, WEB: {} } });
  assert.deepEqual(errors, [
    "ErrInvalidJob: workspace/jobs/web: Makefile: workspace/jobs/web differs from workspace/jobs/WEB only in case or in how its letters are composed",
    "ErrInvalidJob: workspace/jobs/1st: a job's name has small letters, digits, _ and -, the first a letter, at most 100",
  ]);
});

test("without a folder of jobs there are none", async (t) => {
  assert.deepEqual((await jobsIn(temporaryFolder(t))).jobs, []);
});
