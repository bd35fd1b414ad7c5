import assert from "node:assert/strict";
import { readFileSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { type BuildProblem, Problems, sentenceOf } from "../../../lib/bucket/base/problems.ts";
import {
  BUCKET_CONF_FILE,
  jobResources,
  OPS_CONF_FILE,
  readBucketConf,
  readJobSettings,
  settingsView,
  valuesIn,
  warnAboutStrangers,
  writeSettings,
} from "../../../lib/bucket/workspace/bucket-conf.ts";
import { loadOpsConf } from "../../../lib/bucket/workspace/settings.ts";
import { newIdentity } from "../../../lib/codec/crypto/seal-key.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

function bucketWith(t: TestContext, files: Record<string, string>) {
  const dir = temporaryFolder(t);
  makeWorkspace(dir, { files });
  return layoutOf(dir);
}

function opsConf(t: TestContext, text: string) {
  return loadOpsConf(bucketWith(t, { "ops.conf": text }));
}

const RECIPIENT = newIdentity().recipient;
const SLIP = RECIPIENT.replace(/.$/, (last) => (last === "A" ? "B" : "A"));

test("CP-348 without an ops.conf the settings are those of the file that init writes", async (t) => {
  const { settings, warnings } = await loadOpsConf(layoutOf(temporaryFolder(t)));
  assert.deepEqual(settings, {
    sshUser: "agent",
    sshKey: "worker.key",
    sshPort: 22,
    sshJump: undefined,
    sshOptions: {},
    sshConcurrency: 32,
    sshKeepSeconds: 60,
    sshReattachSeconds: 60,
    useSudo: true,
    workerRoot: "/opt/worker",
    certsTtl: 60,
    certsRenewalBuffer: 0,
    jobConfigSelector: "",
    logFormat: "kv",
    logRunRetentionCount: 200,
    logRunRetentionDays: 30,
    runOutputLimit: 64 * 1024 * 1024,
    snapshotKeep: 0,
    snapshotRecipient: undefined,
  });
  assert.deepEqual(warnings, []);
});

test("an ops.conf below a file instead of a folder is as good as none", async (t) => {
  const layout = bucketWith(t, { "ops.conf": "" });
  const { settings } = await loadOpsConf(layoutOf(layout.opsConf));
  assert.equal(settings.useSudo, true);
});

test("every setting can be given, and what is not given has its default", async (t) => {
  const { settings } = await opsConf(
    t,
    `ssh_user = "deploy"\nssh_key = "id_ed25519"\nssh_port = 0\nssh_jump = "ops@bastion:2222"\nssh_concurrency = 4\nssh_keep_seconds = 0
ssh_reattach_seconds = 0
worker_root = "/srv/ops"\ncerts_ttl = 0\njob_config_selector = " prod "\nlog_format = "JSONL"
log_run_retention_count = 0\nlog_run_retention_days = 0\nrun_output_limit = "3 GiB"\nsnapshot_keep = 14\nsnapshot_recipient = "${RECIPIENT}"\n[ssh_options]\nCompression = "yes"\nConnectTimeout = 5\n`,
  );
  assert.deepEqual(settings, {
    sshUser: "deploy",
    sshKey: "id_ed25519",
    sshPort: 22,
    sshJump: "ops@bastion:2222",
    sshOptions: { Compression: "yes", ConnectTimeout: "5" },
    sshConcurrency: 4,
    sshKeepSeconds: 0,
    sshReattachSeconds: 0,
    useSudo: false,
    workerRoot: "/srv/ops",
    certsTtl: 60,
    certsRenewalBuffer: 0,
    jobConfigSelector: "prod",
    logFormat: "json",
    logRunRetentionCount: 0,
    logRunRetentionDays: 0,
    runOutputLimit: 3 * 1024 * 1024 * 1024,
    snapshotKeep: 14,
    snapshotRecipient: RECIPIENT,
  });
});

test("an unknown key is a warning that names the nearest one", async (t) => {
  const { warnings } = await opsConf(t, 'the_ssh_user = "x"\nca = 1\n');
  assert.deepEqual(warnings, [
    { file: "ops.conf", path: "the_ssh_user", message: 'is not a known field; did you mean "ssh_user"?' },
    { file: "ops.conf", path: "ca", message: "is not a known field" },
  ]);
});

const REFUSED: [name: string, text: string, sentence: RegExp][] = [
  ["a misspelt key", 'ssh_usr = "x"', /ops\.conf: ssh_usr: is not a known field; did you mean "ssh_user"\?$/],
  ["a wrong type", "use_sudo = 1", /ops\.conf: use_sudo: expected true or false/],
  ["a user that is an option", 'ssh_user = "-oProxyCommand=x"', /ssh_user: expected a user name/],
  ["a key outside secrets/", 'ssh_key = "../id"', /ssh_key: expected the name of a file/],
  ["a key that is a folder", 'ssh_key = ".."', /ssh_key: /],
  ["a port above 65535", "ssh_port = 65536", /ssh_port: expected a number from 0 to 65535/],
  ["a time below 0", "ssh_reattach_seconds = -1", /ssh_reattach_seconds: expected a number from 0 to 3600/],
  ["another time below 0", "ssh_keep_seconds = -1", /ssh_keep_seconds: expected a number from 0 to 86400/],
  ["a port of a jump host above 65535", 'ssh_jump = "bastion:65536"', /ssh_jump: expected a host/],
  ["a float", "ssh_port = 22.0", /ssh_port: expected an integer, found 22\.0$/],
  ["a date", "ssh_options = 1979-05-27", /ssh_options: expected an object, found 1979-05-27$/],
  ["a relative root", 'worker_root = "opt"', /worker_root: expected an absolute path/],
  ["the root folder", 'worker_root = "/"', /worker_root: /],
  ["a root with ..", 'worker_root = "/opt/../etc"', /worker_root: /],
  ["a root with a blank", 'worker_root = "/opt/a b"', /worker_root: /],
  ["a jump host with options", 'ssh_jump = "a -o b"', /ssh_jump: expected a host/],
  ["a jump host with port 0", 'ssh_jump = "a:0"', /ssh_jump: /],
  ["an ssh option that is not allowed", '[ssh_options]\nProxyCommand = "x"', /ssh_options\/ProxyCommand: /],
  ["an ssh option with a line end", '[ssh_options]\nCiphers = "a\\nProxyCommand x"', /ssh_options\/Ciphers: /],
  ["a selector that leaves the workspace", 'job_config_selector = "../x"', /job_config_selector: /],
  ["a recipient with a slip in it", `snapshot_recipient = "${SLIP}"`, /snapshot_recipient: expected a public key as/],
  ["a size without its unit", 'run_output_limit = "64"', /run_output_limit: expected a whole number of KiB, MiB or GiB, /],
  ["a size of nothing", 'run_output_limit = "0MiB"', /run_output_limit: expected a whole number/],
  ["a size as a number", "run_output_limit = 64", /run_output_limit: expected a string/],
  ["broken TOML, with its line", 'ssh_user = "x"\nssh_port 22\n', /ops\.conf: line 2/],
];

for (const [name, text, sentence] of REFUSED)
  test(`ErrInvalidOpsConf: ${name}`, async (t) => {
    await assert.rejects(opsConf(t, text), (error: Error & { code: string }) => {
      assert.equal(error.code, "ErrInvalidOpsConf");
      assert.match(error.message, sentence);
      return true;
    });
  });

test("a number of ops.conf goes up to its limit and no further", async (t) => {
  for (const [name, least, most] of [
    ["ssh_port", 0, 65_535],
    ["ssh_concurrency", 1, 1_024],
    ["ssh_keep_seconds", 0, 86_400],
    ["ssh_reattach_seconds", 0, 3_600],
    ["certs_ttl", 0, 36_500],
    ["snapshot_keep", 0, 10_000],
    ["log_run_retention_count", 0, undefined],
    ["log_run_retention_days", 0, undefined],
  ] as const) {
    for (const value of [least, most ?? 1_000_000]) await opsConf(t, `${name} = ${value}`);
    for (const value of [least - 1, ...(most === undefined ? [] : [most + 1])])
      await assert.rejects(opsConf(t, `${name} = ${value}`), new RegExp(`${name}: expected a number`), `${name} ${value}`);
  }
});

test("a text of ops.conf is of its form from the first to the last character", async (t) => {
  const option = (text: string) => `[ssh_options]\nCiphers = ${JSON.stringify(text)}`;
  const right = [
    ...["a", "x".repeat(500), "aes256-ctr,aes*", "a@b.c:1+^_"].map(option),
    ...["akv.key", "kv.keys", "ca.crt.old", "xca.key"].map((name) => `ssh_key = "${name}"`),
    ...["1KiB", "64 MiB", "2GiB"].map((size) => `run_output_limit = "${size}"`),
    '[server]\nurl = "https://a"\nbucket = "a/b"\nca_file = "ca.crt"',
    "[ssh_options]\nServerAliveInterval = 5\nServerAliveCountMax = 2\nMACs = 'a'\nKexAlgorithms = 'b'\nHostKeyAlgorithms = 'c'",
  ];
  const wrong = [
    ...["", "x".repeat(501), "a b", " a", "a;", "$a"].map(option),
    ...["kv.key", "ca.crt", "ca.key", "ca.new"].map((name) => `ssh_key = "${name}"`),
    ...["x1KiB", "1KiBx", "1 kb", "-1MiB", ""].map((size) => `run_output_limit = "${size}"`),
    ...["XCiphers", "Ciphersx", "ProxyJump"].map((name) => `[ssh_options]\n${name} = "a"`),
    ...["[server]\nbucket = 'a'", "[server]\nurl = 'a'\nbukcet = 'b'", "server = 'a'", "[ssh_options]\nCiphers = true"],
    'snapshot_recipient = "x25519:"',
  ];
  for (const text of right) assert.deepEqual((await opsConf(t, text)).warnings, [], text);
  for (const text of wrong) await assert.rejects(opsConf(t, text), { code: "ErrInvalidOpsConf" }, text);
  const formats = ["json", "JSON", "jsonl", "kv", "jsonll", "xjson", ""];
  const read = await Promise.all(formats.map((format) => opsConf(t, `log_format = "${format}"`)));
  assert.equal(read.map(({ settings }) => settings.logFormat).join(" "), "json json json kv kv kv kv");
});

test("certificates are renewed only some time after they were issued", async (t) => {
  const { settings } = await opsConf(t, "certs_ttl = 10\ncerts_renewal_buffer = 9");
  assert.deepEqual([settings.certsTtl, settings.certsRenewalBuffer], [10, 9]);
  const refused = /certs_renewal_buffer: must be less than certs_ttl \((10|60)\), or every build would renew every certificate/;
  for (const text of ["certs_ttl = 10\ncerts_renewal_buffer = 10", "certs_renewal_buffer = 60"])
    await assert.rejects(opsConf(t, text), refused);
});

test("jump hosts may be names and addresses of both kinds, with user and port", async (t) => {
  for (const jump of ["bastion", "10.0.0.1", "::1", "[::1]:22", "u@[fe80::1]:2222", "u@h.example:22"])
    assert.equal((await opsConf(t, `ssh_jump = "${jump}"`)).settings.sshJump, jump);
});

test("an ops.conf that is a symbolic link is refused", async (t) => {
  const layout = bucketWith(t, { other: "" });
  symlinkSync(path.join(layout.root, "other"), layout.opsConf);
  await assert.rejects(loadOpsConf(layout), /ErrInvalidOpsConf: ops\.conf: is not a regular file; symbolic links/);
});

test("an ops.conf that is not UTF-8 is refused", async (t) => {
  const layout = bucketWith(t, {});
  writeFileSync(layout.opsConf, Buffer.from([0x61, 0xff]));
  await assert.rejects(loadOpsConf(layout), /ErrInvalidOpsConf: ops\.conf: is not UTF-8 text/);
});

test("several problems are one failure that lists all of them", async (t) => {
  await assert.rejects(
    opsConf(t, 'ssh_port = "x"\nuse_sudo = 3\ncerts_ttl = -1\n'),
    (error: Error & { details: { problems: BuildProblem[] } }) => {
      assert.match(error.message, /\(and 2 more problems\)$/);
      assert.deepEqual(error.details.problems.map((one) => one.path).sort(), ["certs_ttl", "ssh_port", "use_sudo"]);
      return true;
    },
  );
});

async function bucketConf(t: TestContext, text: string) {
  const problems = new Problems();
  const conf = await readBucketConf(bucketWith(t, { "workspace/bucket.conf": text }), problems);
  return { ...conf, errors: problems.errors.map(sentenceOf) };
}

test("bucket.conf takes texts, numbers and booleans: integers as plain decimals, floats as they are written", async (t) => {
  const { values, ports, errors } = await bucketConf(
    t,
    'name = " blank "\nempty = ""\ncount = 1_048_576\nhuge = 9223372036854775807\nhexadecimal = 0x1F\nsigned = +7\nversion = 1.10\nbig = 1e21\nlong = 1_000.50\nnone = inf\non = true\nport_min = 31000\nport_max = " 32000 "\n',
  );
  assert.deepEqual(errors, []);
  assert.deepEqual(Object.fromEntries(values), {
    name: " blank ",
    empty: "",
    count: "1048576",
    huge: "9223372036854775807",
    hexadecimal: "31",
    signed: "7",
    version: "1.10",
    big: "1e21",
    long: "1000.50",
    none: "inf",
    on: "true",
    port_min: "31000",
    port_max: " 32000 ",
  });
  assert.deepEqual(ports, { min: 31_000, max: 32_000 });
});

test("without a bucket.conf the ports are 30000 to 39999", async (t) => {
  const problems = new Problems();
  const { values, ports } = await readBucketConf(layoutOf(temporaryFolder(t)), problems);
  assert.deepEqual([values.size, ports, problems.errors], [0, { min: 30_000, max: 39_999 }, []]);
});

test("the ports of a bucket.conf go from 1 to 65535, and one alone goes with the usual other", async (t) => {
  const told = async (text: string) => (await bucketConf(t, text)).ports;
  assert.deepEqual(await told("port_min = 1\nport_max = 65535"), { min: 1, max: 65_535 });
  assert.deepEqual(await told("port_min = 7\nport_max = 7"), { min: 7, max: 7 });
  assert.deepEqual(await told("port_min = 39999"), { min: 39_999, max: 39_999 });
  assert.deepEqual(await told("port_max = 30000"), { min: 30_000, max: 30_000 });
  const usual = { min: 30_000, max: 39_999 };
  for (const text of ["port_min = 40000", "port_max = 29999", 'port_min = "00001 "\nport_max = "x1"', 'port_min = "000001"'])
    assert.deepEqual(await told(text), usual, text);
});

const BAD_BUCKET_CONF: [text: string, sentence: RegExp][] = [
  ["a = [1]", /^ErrInvalidBucketConf: workspace\/bucket\.conf: a: expected text, a number/],
  ["[a]\nb = 1", /^ErrInvalidBucketConf: workspace\/bucket\.conf: a: /],
  ["a = 1979-05-27", /^ErrInvalidBucketConf: .*: expected text, .*, found 1979-05-27$/],
  ["a = 1\na = 2", /^ErrInvalidBucketConf: workspace\/bucket\.conf: line 2/],
  ["port_min = 0", /^ErrInvalidPortRange: /],
  ["port_max = 65536", /^ErrInvalidPortRange: /],
  ["port_min = 5\nport_max = 4", /^ErrInvalidPortRange: /],
  ['port_min = "many"', /^ErrInvalidPortRange: /],
  ["port_min = 1.5", /^ErrInvalidPortRange: /],
];

for (const [text, sentence] of BAD_BUCKET_CONF)
  test(`a bucket.conf with ${JSON.stringify(text)} is refused`, async (t) => {
    const { errors } = await bucketConf(t, text);
    assert.equal(errors.length, 1);
    assert.match(errors[0] as string, sentence);
  });

test("the settings of jobs come from the selected file only, names without case, empty values kept", async (t) => {
  const layout = bucketWith(t, {
    "workspace/bucket.jobs.conf": "[web]\nmemory = 1\n",
    "workspace/bucket.jobs.prod.conf": '[Web]\nmemory = "2 gb"\nextra = ""\n',
  });
  const read = async (selector: string) => {
    const problems = new Problems();
    const { file, jobs } = await readJobSettings(layout, selector, problems);
    return [file, [...(jobs.get("web") ?? [])], problems.errors.length, problems.warnings.map(sentenceOf)];
  };
  assert.deepEqual(await read(""), ["workspace/bucket.jobs.conf", [["memory", "1"]], 0, []]);
  assert.deepEqual(await read("prod"), [
    "workspace/bucket.jobs.prod.conf",
    [
      ["memory", "2 gb"],
      ["extra", ""],
    ],
    0,
    [],
  ]);
  assert.deepEqual(await read("test"), [
    "workspace/bucket.jobs.test.conf",
    [],
    0,
    ["ops.conf: job_config_selector: there is no workspace/bucket.jobs.test.conf"],
  ]);
});

test("settings outside a table are refused", async (t) => {
  const problems = new Problems();
  await readJobSettings(bucketWith(t, { "workspace/bucket.jobs.conf": "memory = 1\n" }), "", problems);
  assert.deepEqual(problems.errors.map(sentenceOf), [
    "ErrInvalidBucketConf: workspace/bucket.jobs.conf: memory: expected a table with the settings of a job",
  ]);
});

test("a vars.toml with a list is ErrInvalidJobVars", () => {
  const problems = new Problems();
  const bytes = Buffer.from("ok = 1\nbad = [1]\n");
  assert.deepEqual([...valuesIn(bytes, problems.in("web/vars.toml", "ErrInvalidJobVars"))], [["ok", "1"]]);
  assert.deepEqual(problems.errors.map(sentenceOf), [
    "ErrInvalidJobVars: web/vars.toml: bad: expected text, a number, true or false, found a list",
  ]);
});

test("a settings file is shown with its text, its values as JSON and what is wrong with it", async (t) => {
  const text = 'a = "b"\nbig = 9007199254740993\nhalf = 1.50\nmore = inf\non = true\nday = 2026-01-02\n';
  const layout = bucketWith(t, {
    "workspace/bucket.conf": text,
    "workspace/bucket.jobs.prod.conf": "[web]\nlist = [1, { x = 2.5 }]\n",
  });
  const none = { content: "", values: {}, problem: null };
  assert.deepEqual(await settingsView(layout, OPS_CONF_FILE), { path: "ops.conf", ...none });
  const { values, ...conf } = await settingsView(layout, BUCKET_CONF_FILE);
  const problem = "workspace/bucket.conf: day: expected text, a number, true or false, found 2026-01-02";
  assert.deepEqual([conf, values], [{ path: "workspace/bucket.conf", content: text, problem }, null]);
  const plain = text.replace(/day.*\n/, "");
  writeFileSync(layout.bucketConf, plain);
  const shown = await settingsView(layout, BUCKET_CONF_FILE);
  assert.deepEqual(shown.values, { a: "b", big: "9007199254740993", half: 1.5, more: "inf", on: true });
  const jobs = await settingsView(layout, jobResources("prod"));
  assert.match(String(jobs.problem), /^workspace\/bucket\.jobs\.prod\.conf: web\/list: expected text, /);
  writeFileSync(`${layout.workspace}/bucket.jobs.prod.conf`, "[web]\na = 1\n");
  assert.deepEqual((await settingsView(layout, jobResources("prod"))).values, { web: { a: 1 } });
  assert.deepEqual(await settingsView(layout, jobResources("default")), { path: "workspace/bucket.jobs.conf", ...none });
  await assert.rejects(settingsView(layout, jobResources("none")), { code: "file_not_found" });
  for (const selector of ["../x", "", "a/b", ".."]) assert.throws(() => jobResources(selector), { code: "file_not_found" });
  writeFileSync(layout.bucketConf, "#".repeat(1024 * 1024));
  assert.equal((await settingsView(layout, BUCKET_CONF_FILE)).problem, null);
  writeFileSync(layout.bucketConf, "#".repeat(1024 * 1024 + 1));
  assert.equal((await settingsView(layout, BUCKET_CONF_FILE)).problem, "workspace/bucket.conf: has more than 1048576 bytes");
});

test("a settings file is replaced by a text that a build would take, and by no other", async (t) => {
  const layout = bucketWith(t, { "workspace/bucket.conf": "a = 1\n" });
  const text = "port_min = 5\nport_max = 6\n";
  const written = await writeSettings(layout, BUCKET_CONF_FILE, text);
  assert.deepEqual(written, {
    path: "workspace/bucket.conf",
    content: text,
    values: { port_min: 5, port_max: 6 },
    problem: null,
  });
  for (const [kind, wrong, message] of [
    [
      BUCKET_CONF_FILE,
      "port_min = 7\nport_max = 6\n",
      /^workspace\/bucket\.conf: port_min and port_max must be .*, found "7" and "6"$/,
    ],
    [OPS_CONF_FILE, "certs_ttl = 5\ncerts_renewal_buffer = 5\n", /^ops\.conf: certs_renewal_buffer: must be less than certs_ttl/],
    [jobResources("x"), "a = 1\n", /^workspace\/bucket\.jobs\.x\.conf: a: expected a table/],
    [BUCKET_CONF_FILE, "=", /^workspace\/bucket\.conf: line 1/],
  ] as const)
    await assert.rejects(writeSettings(layout, kind, wrong), { code: "invalid_source", message });
  assert.equal(readFileSync(layout.bucketConf, "utf8"), text);
  await writeSettings(layout, OPS_CONF_FILE, "use_sudo = false\n");
  assert.equal((await loadOpsConf(layout)).settings.useSudo, false);
});

test("settings of a job that is there twice, or of none, are told", async (t) => {
  const layout = bucketWith(t, { "workspace/bucket.jobs.conf": "[web]\na = 1\n[WEB]\n[wep]\n[other]\n" });
  const problems = new Problems();
  const settings = await readJobSettings(layout, "", problems);
  warnAboutStrangers(settings, new Set(["web"]), problems);
  const file = "workspace/bucket.jobs.conf";
  assert.deepEqual(problems.errors.map(sentenceOf), [`ErrInvalidBucketConf: ${file}: WEB: is there twice, in other capitals`]);
  assert.deepEqual(problems.warnings.map(sentenceOf), [
    `${file}: wep: there is no job "wep"; did you mean "web"?`,
    `${file}: other: there is no job "other"`,
  ]);
});
