import assert from "node:assert/strict";
import { readFileSync, symlinkSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import { loadOpsConf } from "../../../lib/bucket/workspace/settings.ts";
import {
  changeWorker,
  readDisabled,
  readWorkers,
  WORKER_ENTRY,
  warnAboutDisabledStrangers,
} from "../../../lib/bucket/workspace/workers.ts";
import { check } from "../../../lib/core/shape.ts";
import { schemaErrors } from "../../helpers/schema.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

async function workers(t: TestContext, text: string | null, opsConf: string | null = null) {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { "workspace/workers.json": text, "ops.conf": opsConf } });
  const problems = new Problems();
  const { settings } = await loadOpsConf(layoutOf(dir));
  const found = await readWorkers(layoutOf(dir), settings, problems);
  return { found, errors: problems.errors.map(sentenceOf), warnings: problems.warnings.map(sentenceOf) };
}

test("a worker that says nothing is reached over ssh with the settings of ops.conf", async (t) => {
  const opsConf = 'ssh_user = "deploy"\nssh_port = 2222\nssh_jump = "gate"\nworker_root = "/srv/w"\n';
  const { found, errors, warnings } = await workers(t, '[{"host": " 10.0.0.1 "}]', opsConf);
  assert.deepEqual([errors, warnings], [[], []]);
  assert.deepEqual(found, [
    {
      host: "10.0.0.1",
      hostname: null,
      connection: "ssh",
      root: "/srv/w",
      sshUser: "deploy",
      sshPort: 2222,
      sshJump: "gate",
      labels: ["worker"],
      memoryMb: 0,
      cpuMhz: 0,
      tags: new Map(),
      position: 0,
    },
  ]);
});

test("every field is taken: names in small letters, units in MB and MHz, its own ways to reach it", async (t) => {
  const entry = {
    host: "fe80::1",
    hostname: " db1 ",
    root: "/data/w",
    ssh_user: "root",
    ssh_port: 2200,
    ssh_jump: "a@b:1",
    labels: [" DB ", "worker"],
    memory: "1.5 gb",
    cpu: "2 GHz",
    tags: { " Zone ": " EU-West " },
    position: -3,
  };
  const { found, errors } = await workers(t, JSON.stringify([entry]));
  assert.deepEqual(errors, []);
  assert.deepEqual(found, [
    {
      host: "fe80::1",
      hostname: "db1",
      connection: "ssh",
      root: "/data/w",
      sshUser: "root",
      sshPort: 2200,
      sshJump: "a@b:1",
      labels: ["db", "worker"],
      memoryMb: 1536,
      cpuMhz: 2000,
      tags: new Map([["zone", "eu-west"]]),
      position: -3,
    },
  ]);
});

test("workers on this machine with one root are warned of; workers over ssh have a machine each", async (t) => {
  const local = '{"host": "127.0.0.1", "connection": "local"}';
  const one = await workers(t, `[{"host": "a"}, {"host": "b"}, ${local}]`);
  assert.deepEqual([one.found.map(({ root }) => root), one.warnings], [Array(3).fill("/opt/worker"), []]);
  const two = await workers(t, `[${local}, {"host": "b", "connection": "local", "root": "/srv/w"}]`, 'worker_root = "/srv/w"');
  const warning = "1/root: /srv/w is there twice: deploys to two workers in one folder of this machine fail";
  assert.deepEqual([two.errors, two.warnings], [[], [`workspace/workers.json: ${warning}`]]);
});

test("a local worker has no way to be reached over ssh", async (t) => {
  const { found } = await workers(t, '[{"host": "a"}, {"host": "127.0.0.1", "connection": "local", "root": "/srv/w1"}]');
  assert.deepEqual(found[1], {
    host: "127.0.0.1",
    hostname: null,
    connection: "local",
    root: "/srv/w1",
    labels: ["worker"],
    memoryMb: 0,
    cpuMhz: 0,
    tags: new Map(),
    position: 1,
  });
});

test("without workers.json, or with null in it, there are no workers", async (t) => {
  assert.deepEqual(await workers(t, null), { found: [], errors: [], warnings: [] });
  assert.deepEqual(await workers(t, "null"), { found: [], errors: [], warnings: [] });
});

test("keys are read without case, null is absent, an unknown key is a warning", async (t) => {
  const { found, errors, warnings } = await workers(t, '[{"HOST": "a", "Labels": null, "zone": "x"}]');
  assert.deepEqual(found[0]?.labels, ["worker"]);
  assert.deepEqual(errors, []);
  assert.deepEqual(warnings, ["workspace/workers.json: 0/zone: is not a known field"]);
});

const REFUSED: [name: string, text: string, sentence: RegExp][] = [
  ["a misspelt key", '[{"host": "a", "lables": []}]', /0\/lables: is not a known field; did you mean "labels"\?/],
  ["no list", "{}", /expected a list, found an object/],
  ["no host", '[{"labels": []}]', /0\/host: is missing/],
  ["an empty host", '[{"host": " "}]', /0\/host: expected an IP address or a host name/],
  ["a host that is an option", '[{"host": "-oProxyCommand=x"}]', /0\/host: /],
  ["a host with a shell character", '[{"host": "a;b"}]', /0\/host: /],
  ["an address with a zone", '[{"host": "fe80::1%eth0"}]', /0\/host: /],
  ["a host twice, in other capitals", '[{"host": "web"}, {"host": "WEB"}]', /1\/host: WEB is there twice/],
  ["an IPv6 address twice, written in two ways", '[{"host": "::1"}, {"host": "0:0::1"}]', /1\/host: 0:0::1 is there twice/],
  ["a label twice", '[{"host": "a", "labels": ["x", "X"]}]', /0\/labels\/1: the label "x" is there twice/],
  ["a label with a blank", '[{"host": "a", "labels": ["x y"]}]', /0\/labels\/0: expected a name/],
  ["an unknown connection", '[{"host": "a", "connection": "telnet"}]', /0\/connection: expected one of ssh, local/],
  ["a root that is not absolute", '[{"host": "a", "root": "x"}]', /0\/root: expected an absolute path/],
  ["port 0", '[{"host": "a", "ssh_port": 0}]', /0\/ssh_port: expected a number from 1 to 65535/],
  ["a port as text", '[{"host": "a", "ssh_port": "22"}]', /0\/ssh_port: expected an integer/],
  ["negative memory", '[{"host": "a", "memory": "-1"}]', /0\/memory: must be at least 0/],
  ["endless memory", '[{"host": "a", "memory": "inf"}]', /0\/memory: must be at least 0 and below/],
  ["an unknown unit", '[{"host": "a", "cpu": "1 kg"}]', /0\/cpu: Cannot read the cpu frequency "1 kg"/],
  ["memory as a number", '[{"host": "a", "memory": 512}]', /0\/memory: expected a string, found an integer/],
  ["a tag twice, in other capitals", '[{"host": "a", "tags": {"z": "1", "Z": "2"}}]', /0\/tags\/Z: is there twice/],
  ["a tag without a name", '[{"host": "a", "tags": {" ": "1"}}]', /0\/tags\/.*: expected text on one line as name/],
  [
    "a tag whose name has a line end",
    '[{"host": "a", "tags": {"a\\nb": "1"}}]',
    /0\/tags\/.*: expected text on one line as name/,
  ],
  ["a tag that is no text", '[{"host": "a", "tags": {"z": 1}}]', /0\/tags\/z: expected a string/],
  ["broken JSON, with its place", '[\n  {"host": x}\n]', /line 2, column 12: not valid JSON: Unexpected token 'x'$/],
  ["JSON that ends too early", '[{"host": "a"', /line 1, column 14: not valid JSON: Expected /],
  ["text behind the JSON", "[] x", /line 1, column 4: not valid JSON: Unexpected non-whitespace character after JSON$/],
  ["an empty file", "", /line 1, column 1: not valid JSON: Unexpected end of JSON input$/],
];

/** What takes more than a schema to see. */
const NOT_IN_SCHEMA = /twice|JSON|empty file|a tag w/;

for (const [name, text, sentence] of REFUSED)
  test(`ErrInvalidWorkerJSON: ${name}`, async (t) => {
    const { errors } = await workers(t, text);
    assert.equal(errors.length, 1, errors.join("\n"));
    assert.match(errors[0] as string, /^ErrInvalidWorkerJSON: workspace\/workers\.json: /);
    assert.match(errors[0] as string, sentence);
    if (!NOT_IN_SCHEMA.test(name)) assert.notDeepEqual(schemaErrors("workers", JSON.parse(text)), []);
  });

test("all mistakes of workers.json are found at once", async (t) => {
  const { errors } = await workers(
    t,
    '[{"host": "a", "memory": "1 kb", "tags": {"z": "1", "Z": "2"}}, {"host": "A", "labels": ["x", "x"], "root": "/"}, 3]',
  );
  assert.deepEqual(
    errors.map((line) => line.split(": ")[2]),
    ["0/tags/Z", "0/memory", "1/root", "1/labels/1", "2", "1/host"],
  );
});

test("a workers.json that is a symbolic link is refused", async (t) => {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { real: "[]", "workspace/workers.json": null } });
  symlinkSync(path.join(dir, "real"), path.join(dir, "workspace/workers.json"));
  const problems = new Problems();
  const { settings } = await loadOpsConf(layoutOf(dir));
  await readWorkers(layoutOf(dir), settings, problems);
  assert.match(problems.errors.map(sentenceOf).join(), /workers\.json: is not a regular file; symbolic/);
});

async function disabled(t: TestContext, text: string | null) {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files: { "workspace/disabled.json": text } });
  const problems = new Problems();
  const found = await readDisabled(layoutOf(dir), problems);
  const known = { jobs: new Set(["web"]), hosts: new Set(["10.0.0.1"]) };
  warnAboutDisabledStrangers(layoutOf(dir), found, known, problems);
  return { ...found, errors: problems.errors.map(sentenceOf), warnings: problems.warnings.map(sentenceOf) };
}

test("disabled.json names workers, whole jobs, and jobs on some workers", async (t) => {
  const text = '{"workers": ["10.0.0.1"], "jobs": {"Web": {}, "db": {"allocations": []}, "kv": {"allocations": ["h"]}}}';
  const { workers: hosts, jobs, errors } = await disabled(t, text);
  assert.deepEqual(errors, []);
  assert.deepEqual(hosts, new Set(["10.0.0.1"]));
  assert.deepEqual(
    jobs,
    new Map<string, unknown>([
      ["web", "all"],
      ["db", "all"],
      ["kv", new Set(["h"])],
    ]),
  );
});

test("a job twice in disabled.json, in other capitals, is an error", async (t) => {
  const { errors } = await disabled(t, '{"jobs": {"web": {"allocations": ["10.0.0.1"]}, "Web": {}}}');
  assert.deepEqual(errors, ["ErrInvalidDisabledJSON: workspace/disabled.json: jobs/Web: is there twice, in other capitals"]);
});

test("unknown workers and jobs in disabled.json are warnings that name the nearest", async (t) => {
  const text = '{"workers": ["10.0.0.2"], "jobs": {"wbe": {}, "web": {"allocations": ["x"]}}}';
  const { warnings, errors } = await disabled(t, text);
  assert.deepEqual(errors, []);
  assert.deepEqual(warnings, [
    'workspace/disabled.json: workers: there is no worker "10.0.0.2"; did you mean "10.0.0.1"?',
    'workspace/disabled.json: jobs: there is no job "wbe"; did you mean "web"?',
    'workspace/disabled.json: jobs/web/allocations: there is no worker "x"',
  ]);
});

test("without disabled.json nothing is disabled; a broken one is an error", async (t) => {
  assert.deepEqual(await disabled(t, null), { workers: new Set(), jobs: new Map(), errors: [], warnings: [] });
  assert.match((await disabled(t, '{"workers": "all"}')).errors.join(), /^ErrInvalidDisabledJSON: .*expected a list/);
});

test("what workers.json may hold goes up to its limit and no further", async (t) => {
  const host = (more: object) => [{ host: "a", ...more }];
  const longest = `${`${"a".repeat(61)}.`.repeat(4)}bcdef`;
  const right = [
    ...[{ ssh_port: 1 }, { ssh_port: 65_535 }, { hostname: "h".repeat(253) }, { labels: ["a".repeat(100)] }].map(host),
    ...[{ tags: { ["t".repeat(200)]: "v".repeat(1_000) } }, { memory: "999999999999" }, { position: 0 }, { host: longest }].map(
      host,
    ),
    ...[{ connection: "local" }, { connection: "ssh" }, { hostname: "" }].map(host),
  ];
  const wrong = [
    ...[{ ssh_port: 65_536 }, { hostname: "h".repeat(254) }, { labels: ["a".repeat(101)] }, { host: `${longest}f` }].map(host),
    ...[{ tags: { a: "v".repeat(1_001) } }, { memory: "1e12" }, { position: 1.5 }, { position: "1" }, { tags: [] }].map(host),
    ...[{ tags: { "a\u0000": "b" } }, { tags: { "\u0085a": "b" } }, { ssh_user: "Root" }, { ssh_jump: "a:0" }].map(host),
  ];
  for (const list of right) assert.deepEqual((await workers(t, JSON.stringify(list))).errors, [], JSON.stringify(list));
  for (const list of wrong) assert.equal((await workers(t, JSON.stringify(list))).errors.length, 1, JSON.stringify(list));
});

test("a worker of workers.json is replaced, added behind the others or removed; what a build would refuse changes nothing", async (t) => {
  const dir = temporaryFolder(t);
  const before = [{ host: "B", labels: ["x"] }, { host: "::1" }, { host: "c" }];
  makeWorkspace(dir, { files: { "workspace/workers.json": JSON.stringify(before) } });
  const layout = layoutOf(dir);
  const file = () => JSON.parse(readFileSync(layout.workersJson, "utf8"));
  await changeWorker(layout, "b", { host: "B", position: 7 });
  await changeWorker(layout, "0:0::1");
  await changeWorker(layout, undefined, { host: "d" });
  const after = [{ host: "B", position: 7 }, { host: "c" }, { host: "d" }];
  assert.deepEqual(file(), after);
  const text = readFileSync(layout.workersJson, "utf8");
  assert.ok(text.endsWith("\n") && text.includes("\n  {"), text);
  const refused = (code: string, message: RegExp) => (error: { code?: string; message: string }) => {
    assert.equal(error.code, code);
    assert.match(error.message, message);
    return true;
  };
  await assert.rejects(
    changeWorker(layout, "e", { host: "e" }),
    refused("not_found", /^there is no worker "e" in workspace\/workers\.json$/),
  );
  await assert.rejects(changeWorker(layout, undefined, { host: "C" }), refused("invalid_source", /3\/host: C is there twice$/));
  await assert.rejects(
    changeWorker(layout, "c", { host: "a b" }),
    refused("invalid_source", /^workspace\/workers\.json: 1\/host: /),
  );
  assert.deepEqual(file(), after);
  makeWorkspace(dir, { files: { "workspace/workers.json": '[{"host": 1}]' } });
  await assert.rejects(changeWorker(layout, undefined, { host: "d" }), refused("invalid_source", /0\/host: /));
  makeWorkspace(dir, { files: { "workspace/workers.json": null } });
  await changeWorker(layout, undefined, { host: "d" });
  assert.deepEqual(file(), [{ host: "d" }]);
});

test("an entry in a request is checked as one of the file is, and stays as it is written", () => {
  const entry = { HOST: " A ", labels: ["X"] };
  const checked = check(WORKER_ENTRY, entry);
  assert.equal(checked.ok && checked.value, entry);
  for (const wrong of [{}, { host: "a", ssh_port: 0 }, { host: "a", lables: [] }, [], "a"])
    assert.equal(check(WORKER_ENTRY, wrong).ok, false, JSON.stringify(wrong));
  assert.equal(WORKER_ENTRY.schema.additionalProperties, false);
});
