import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { ops } from "../../scripts/local-server.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const hook = (demands?: object, events: string[] = ["cli"]) => ({ executed_on: events, ...(demands && { demands }) });

const JOBS: Record<string, Record<string, unknown>> = {
  alpha: {
    version: 3,
    selectors: ["front end"],
    min_allocations_count: -1,
    restart_policy: "sometimes",
    restart_globs: ["conf/[a"],
    resources: {
      memory: { min: "2 gb", max: "1 gb" },
      cpu: { max: "fast" },
      ports: { HTTP: {}, admin: 70_000, metrics: "9100", web_port: {} },
    },
    hooks: { seed: hook({ job: "beta", hook: "up", config: [] }, ["predeploy"]), "9lives": { executed_on: [] } },
    certs: { Server: {}, client: { key: "dsa" } },
    health_check: {
      checks: [
        { type: "udp" },
        { type: "tcp", port: "nope" },
        { type: "http", port: "web_port", path: "x", scheme: "ftp" },
        { type: "ssh" },
      ],
      timeout_seconds: "5",
    },
    on_failure: "panic",
    secret_mode: "0777",
    tolerate: { unreachable: "many" },
    lifecycle_timeout_seconds: 1e6,
    verison: "1.0.0",
  },
  beta: { version: "one.two", selectors: ["worker"], hooks: { up: hook({ job: "gamma" }) } },
  gamma: {
    version: "1.0.0",
    selectors: ["worker"],
    hooks: { up: hook({ job: "delta", hook: "nope" }), wait: hook({ job: "gamma", hook: "up" }) },
    resources: { ports: { shared: {}, one: 8080 } },
  },
  delta: {
    version: "2.0.0",
    selectors: ["worker"],
    min_allocations_count: 3,
    hooks: { up: hook({ job: "gamma", hook: "up", config: { min_version: "1.1.0" } }) },
    resources: { ports: { shared: {}, two: 8080, jobs: {} } },
  },
  epsilon: { selectors: ["worker"], hooks: { up: hook({ job: "nobody", hook: "up" }), down: hook({ hook: "x" }) } },
  zeta: { selectors: ["worker"], resources: { memory: { min: "1 gb", max: "2 gb" } } },
};

const FILES: Record<string, string | null> = {
  "ops.conf":
    'ssh_port = 70000\nssh_key = "kv.key"\nworker_root = "/"\nuse_sudo = 1\nssh_usr = "x"\n[ssh_options]\nProxyCommand = "x"\n',
  "workspace/bucket.conf": "port_min = 0\nlist = [1]\n",
  "workspace/bucket.jobs.conf": '[zeta]\nmemory = "4 gb"\ncpu = "2 parsecs"\n[omega]\na = 1\n[alpha]\nsize = 1979-05-27\n',
  "workspace/bucket.jobs.test.conf": "",
  "workspace/disabled.json": '{"workers": ["10.0.0.9"], "jobs": {"betta": {}, "beta": "all"}}',
  "workspace/jobs/alpha/vars.toml": "a = 1\na = 2\n",
  "workspace/jobs/alpha/_hooks/seed.py": null,
  "workspace/jobs/alpha/_hooks/9lives.py": null,
  "workspace/jobs/beta/_hooks/up.ts": "",
  "workspace/jobs/gamma/Makefile": null,
  "workspace/jobs/gamma/data/x": "",
  "workspace/jobs/eta/manifest.json": '{"version": "1.0.0",\n "selectors": ["worker"}',
  "workspace/jobs/theta/vars.toml": "",
  "workspace/jobs/zeta/app.conf.tpl": "port = {{ nosuch 1 }}",
  "workspace/jobs/zeta/README": "one",
  "workspace/jobs/zeta/readme": "two",
};

/** In the order of the report. */
const ERRORS = [
  'ErrInvalidOpsConf: ops.conf: ssh_usr: is not a known field; did you mean "ssh_user"?',
  "ErrInvalidOpsConf: ops.conf: ssh_key: must be another name: kv.key belongs to the bucket itself",
  "ErrInvalidOpsConf: ops.conf: ssh_port: expected a number from 0 to 65535, found 70000",
  "ErrInvalidOpsConf: ops.conf: ssh_options/ProxyCommand: expected one of KexAlgorithms, Ciphers, MACs, HostKeyAlgorithms, Compression, ConnectTimeout, ServerAliveInterval, ServerAliveCountMax as name",
  "ErrInvalidOpsConf: ops.conf: use_sudo: expected true or false, found 1",
  'ErrInvalidOpsConf: ops.conf: worker_root: expected an absolute path of letters, digits, dots, _ and -, without . or .. as a part, found "/"',
  "ErrInvalidJob: workspace/jobs/beta: passwd: a symbolic link is not allowed",
  "invalid_source: workspace: pipe: a special file is not allowed",
  "ErrInvalidJob: workspace/jobs/zeta: readme: it differs from workspace/jobs/zeta/README only in case or in how its letters are composed",
  "ErrInvalidBucketConf: workspace/bucket.conf: list: expected text, a number, true or false, found a list",
  'ErrInvalidPortRange: workspace/bucket.conf: port_min and port_max must be whole numbers with 1 <= port_min <= port_max <= 65535, found "0" and "39999"',
  'ErrInvalidWorkerJSON: workspace/workers.json: 0/labels/1: the label "x" is there twice',
  'ErrInvalidWorkerJSON: workspace/workers.json: 0/memory: Cannot read the memory size "1 kb": expected a number and one of mb, gb, tb',
  'ErrInvalidWorkerJSON: workspace/workers.json: 1/root: expected an absolute path of letters, digits, dots, _ and -, without . or .. as a part, found "../x"',
  "ErrInvalidWorkerJSON: workspace/workers.json: 1/ssh_port: expected a number from 1 to 65535, found 0",
  'ErrInvalidWorkerJSON: workspace/workers.json: 2/lables: is not a known field; did you mean "labels"?',
  'ErrInvalidWorkerJSON: workspace/workers.json: 2/host: expected an IP address or a host name, found "-oProxyCommand=x"',
  'ErrInvalidWorkerJSON: workspace/workers.json: 2/connection: expected one of ssh, local, found "telnet"',
  "ErrInvalidWorkerJSON: workspace/workers.json: 1/host: 10.0.0.1 is there twice",
  "ErrInvalidDisabledJSON: workspace/disabled.json: jobs/beta: expected an object, found a string",
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: verison: is not a known field; did you mean "version"?',
  "ErrInvalidManifest: workspace/jobs/alpha/manifest.json: version: expected a string, found an integer",
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: selectors/0: expected a name of small letters, digits, _ and -, the first a letter, at most 100, found "front end"',
  "ErrInvalidManifest: workspace/jobs/alpha/manifest.json: min_allocations_count: expected a number of at least 0, found -1",
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: restart_policy: expected one of always, reload, never, found "sometimes"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: restart_globs/0: the glob "conf/[a" has a [ or a \\ that is not complete',
  "ErrInvalidManifest: workspace/jobs/alpha/manifest.json: resources/memory: min 2048 is above max 1024",
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: resources/cpu/max: Cannot read the cpu frequency "fast": expected a number and one of mhz, ghz, thz',
  "ErrPortKeyFormat: workspace/jobs/alpha/manifest.json: resources/ports/HTTP: expected small letters, digits and _, the first a letter, at most 100, as name",
  "ErrInvalidManifestPort: workspace/jobs/alpha/manifest.json: resources/ports/admin: expected {} for a port from the pool, or a number from 1 to 65535, found 70000",
  'ErrInvalidManifestPort: workspace/jobs/alpha/manifest.json: resources/ports/metrics: expected {} for a port from the pool, or a number from 1 to 65535, found "9100"',
  'ErrInvalidHookConfiguration: workspace/jobs/alpha/manifest.json: hooks/seed/executed_on/0: expected one of post_build, pre_deploy, post_deploy, job_control, health_check, cli, after_allocation_started, after_allocation_stopped, found "predeploy"',
  "ErrInvalidHookConfiguration: workspace/jobs/alpha/manifest.json: hooks/seed/demands/config: expected an object, found a list",
  "ErrInvalidHookConfiguration: workspace/jobs/alpha/manifest.json: hooks/9lives/executed_on: expected at least 1 item, found 0",
  "ErrInvalidHookConfiguration: workspace/jobs/alpha/manifest.json: hooks/9lives: expected small letters, digits, _ and -, the first a letter, at most 100 as name",
  "ErrInvalidManifest: workspace/jobs/alpha/manifest.json: certs/Server: expected small letters, digits and _, the first a letter, at most 100 and not ca, as name",
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: certs/client/key: expected one of ec, rsa, found "dsa"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: health_check/timeout_seconds: expected an integer, found "5"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: health_check/checks/0/type: expected one of tcp, http, ssh, found "udp"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: health_check/checks/2/scheme: expected http or https, found "ftp"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: health_check/checks/2/path: must start with / and have no spaces, found "x"',
  "ErrInvalidManifest: workspace/jobs/alpha/manifest.json: health_check/checks/3/command: is missing",
  "ErrInvalidManifest: workspace/jobs/alpha/manifest.json: lifecycle_timeout_seconds: expected a number of at most 86400, found 1000000",
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: on_failure: expected one of stop, restore, found "panic"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: secret_mode: expected one of 0600, 0640, 0644, found "0777"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: tolerate/unreachable: expected a share such as 5%, found "many"',
  'ErrInvalidManifest: workspace/jobs/alpha/manifest.json: health_check/checks/1/port: "nope" is not a port of this job: declare it in resources/ports',
  "ErrHookFileNotFound: workspace/jobs/alpha/manifest.json: hooks/seed: there is no _hooks/seed.py, .ts or .js",
  'ErrInvalidJobVars: workspace/jobs/alpha/vars.toml: line 2, column 1: expected a new key, found "a", which is defined already',
  "ErrInvalidHookConfiguration: workspace/jobs/beta/manifest.json: hooks/up: has several scripts: _hooks/up.py, _hooks/up.ts",
  "ErrInvalidJobVars: workspace/jobs/delta/vars.toml: is not UTF-8 text",
  "ErrInvalidJob: workspace/jobs/eta: has no Makefile (or Makefile.tpl) with the targets start, stop and restart",
  "ErrInvalidManifest: workspace/jobs/eta/manifest.json: line 2, column 24: not valid JSON: Expected ',' or ']' after array element",
  "ErrInvalidJob: workspace/jobs/gamma: has no Makefile (or Makefile.tpl) with the targets start, stop and restart",
  "ErrInvalidJob: workspace/jobs/gamma: data: data is kept on the workers for the running service: use another name",
  'ErrInvalidTemplate: workspace/jobs/zeta/app.conf.tpl: line 1, column 11: function "nosuch" not defined',
  "ErrInvalidBucketConf: workspace/bucket.jobs.conf: alpha/size: expected text, a number, true or false, found 1979-05-27",
  'ErrInvalidJobVersion: workspace/jobs/beta/manifest.json: version: Invalid job version "one.two": expected a whole number, found "one"',
  "ErrInvalidJobVersion: workspace/jobs/epsilon/manifest.json: version: is missing: a job that demands another or is demanded needs a version",
  "ErrInvalidHookDemand: workspace/jobs/beta/manifest.json: hooks/up/demands/hook: is missing: job and hook belong together",
  "ErrHookDemandVersionMismatch: workspace/jobs/delta/manifest.json: hooks/up/demands/config: job gamma has version 1.0.0, below min_version 1.1.0",
  "ErrInvalidHookDemand: workspace/jobs/epsilon/manifest.json: hooks/down/demands/job: is missing: job and hook belong together",
  'ErrInvalidHookDemand: workspace/jobs/epsilon/manifest.json: hooks/up/demands/job: there is no job "nobody"',
  'ErrInvalidHookDemand: workspace/jobs/gamma/manifest.json: hooks/up/demands/hook: job delta has no hook "nope"',
  "ErrInvalidHookDemand: workspace/jobs/gamma/manifest.json: hooks/wait/demands/job: a job cannot demand itself",
  "ErrCircularHookDependency: workspace/jobs/gamma/manifest.json: hooks: jobs come after each other: gamma -> delta -> gamma",
  "ErrPortNameCollision: workspace/jobs/delta/manifest.json: resources/ports/jobs: the name is used by the bucket itself already",
  "ErrPortNameCollision: workspace/jobs/gamma/manifest.json: resources/ports/shared: the name is used by job delta already",
  "ErrPortCollision: workspace/jobs/gamma/manifest.json: resources/ports/one: number 8080 is already taken by port two of job delta",
  "ErrUnsupportedResourceConfiguration: workspace/bucket.jobs.conf: zeta/memory: 4 gb is outside what workspace/jobs/zeta/manifest.json allows (1024 to 2048)",
  'ErrInvalidBucketConf: workspace/bucket.jobs.conf: zeta/cpu: Cannot read the cpu frequency "2 parsecs": expected a number and one of mhz, ghz, thz',
  'build failed: ErrInvalidOpsConf: ops.conf: ssh_usr: is not a known field; did you mean "ssh_user"? (and 70 more problems)',
];

const WARNINGS = [
  "workspace/workers.json: 2/zone: is not a known field",
  "workspace: bucket.jobs.test.conf: not read: job_config_selector in ops.conf selects bucket.jobs.conf",
  "workspace: jobs/theta/vars.toml: not read: there is no manifest.json beside it",
  'workspace/bucket.jobs.conf: omega: there is no job "omega"',
];

test("CP-121 every mistake of a workspace is reported by one build, each with code, file, place, what was found and what was expected", async (t) => {
  const dir = path.join(temporaryFolder(t), "bucket");
  mkdirSync(dir);
  assert.equal((await ops(["init"], { cwd: dir })).code, 0);
  const workers = [
    { host: "10.0.0.1", memory: "1 kb", labels: ["x", "X"] },
    { host: "10.0.0.1", ssh_port: 0, root: "../x" },
    { host: "-oProxyCommand=x", connection: "telnet", lables: [], zone: "a" },
  ];
  makeWorkspace(dir, { workers, jobs: JOBS, files: FILES });
  symlinkSync("/etc/passwd", path.join(dir, "workspace/jobs/beta/passwd"));
  execFileSync("mkfifo", [path.join(dir, "workspace/pipe")]);
  writeFileSync(path.join(dir, "workspace/jobs/delta/vars.toml"), Buffer.from([0x61, 0xff]));
  const { code, stdout, stderr } = await ops(["build"], { cwd: dir });
  assert.equal(code, 1);
  const said = (kind: string) =>
    `${stdout}${stderr}`
      .replace(/^(error: build failed) after [\d.]+ s/m, "$1")
      .split("\n")
      .flatMap((line) => (line.startsWith(kind) ? [line.slice(kind.length)] : []));
  assert.deepEqual(said("error: "), ERRORS);
  assert.deepEqual(said("warning: "), WARNINGS);
});
