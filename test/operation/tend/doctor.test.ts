import assert from "node:assert/strict";
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { hostname } from "node:os";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { SCHEMA_VERSION } from "../../../lib/bucket/base/schema.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { bootId, identify } from "../../../lib/core/process.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { examine } from "../../../lib/operation/tend/doctor.ts";
import { type Finding, judgeDisk } from "../../../lib/operation/tend/doctor-bucket.ts";
import { ops } from "../../../scripts/local-server.ts";
import { NEEDS_ROOT, NOBODY } from "../../helpers/other-user.ts";
import { SshFleet } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeBucket, type TestBucket } from "../../helpers/workspace.ts";

const never = new AbortController().signal;
/** A lock that a deploy on a host has left, at an earlier start of its machine. */
const lockOf = (host: string) =>
  JSON.stringify({ run_id: "r", command: "deploy", since: "s", boot_id: "other", host, holders: [], groups: [] });

/** A built bucket with one local worker. */
async function bucket(t: TestContext): Promise<{ bucket: TestBucket; worker: string }> {
  const root = temporaryFolder(t);
  const made = await makeBucket(t, {
    workers: [{ host: "127.0.0.1", connection: "local", root }],
    jobs: { web: { version: "1.0.0", selectors: ["worker"], certs: { web: {} } } },
  });
  await build(made.context("build"), {});
  return { bucket: made, worker: path.join(root, made.bucketId) };
}

function look(bucket: Pick<TestBucket, "layout">, environment = process.env): Promise<Finding[]> {
  return examine({ layout: bucket.layout, launcher: new Launcher(environment), signal: never });
}

/** What is not ok, as `<where>: <check>: <grade>: <message>`. */
function bad(findings: readonly Finding[]): string[] {
  return findings
    .filter(({ grade }) => grade !== "ok")
    .map(({ where, check, grade, message }) => `${where}: ${check}: ${grade}: ${message}`);
}

test("HR-354 folders of a local worker that the user of hooks cannot write are named, with what to do", {
  skip: NEEDS_ROOT,
}, async (t) => {
  const { bucket: made, worker } = await bucket(t);
  chmodSync(path.dirname(worker), 0o711);
  mkdirSync(path.join(worker, "jobs", "web"), { recursive: true });
  const found = async () => {
    const context = { layout: made.layout, launcher: new Launcher(process.env), signal: never, hookUser: NOBODY };
    return (await examine(context)).filter(({ where, grade }) => where === "worker 127.0.0.1" && grade !== "ok");
  };
  const [whole] = await found();
  assert.equal(whole?.check, "reach");
  assert.match(whole?.message ?? "", new RegExp(`must be a folder of nobody .*; run: chown -R nobody: ${worker}$`));
  chownSync(worker, NOBODY.uid, NOBODY.gid);
  assert.deepEqual(await found(), [
    {
      where: "worker 127.0.0.1",
      check: "folder",
      grade: "problem",
      message: `its user cannot write in jobs, jobs/web of ${worker}`,
      advice: `give it to the user that ops signs in as, or of --hook-user: chown -R <user>: ${worker}`,
    },
  ]);
});

test("a bucket in order has no finding but ok, and nothing is written to look at it", async (t) => {
  const { bucket: made, worker } = await bucket(t);
  const before = readdirSync(made.dir, { recursive: true }).sort();
  const findings = await look(made);
  assert.deepEqual(bad(findings), []);
  assert.deepEqual([...new Set(findings.map(({ where }) => where))], ["host", "bucket", "worker 127.0.0.1"]);
  for (const check of [
    "tools",
    "open files",
    "disk",
    "clock",
    "ops.conf",
    "lock",
    "journal",
    "rights",
    "CA",
    "schema",
    "kv.key",
    "certificates",
    "build",
    "deploy",
    "reach",
    "locks",
    "removed",
  ])
    assert.ok(
      findings.some((one) => one.check === check),
      check,
    );
  assert.deepEqual(readdirSync(made.dir, { recursive: true }).sort(), before);
  assert.ok(!existsSync(worker), "the folder on the worker is not made");
});

type Harm = (made: TestBucket, worker: string) => unknown;

/** What is done to a bucket, and what is found then. */
const HARMS: [name: string, harm: Harm, expected: RegExp[]][] = [
  [
    "a key that others may read",
    ({ layout }) => chmodSync(layout.kvKey, 0o644),
    [/^bucket: rights: problem: secrets\/kv\.key: others may read it$/],
  ],
  [
    "a folder that others may enter",
    ({ layout }) => chmodSync(layout.secrets, 0o755),
    [/^bucket: rights: problem: secrets\/: others may read it$/],
  ],
  [
    "an ops.conf with a mistake",
    ({ layout }) => writeFileSync(layout.opsConf, "ssh_port = true\n"),
    [/^bucket: ops\.conf: problem: ErrInvalidOpsConf: ops\.conf: ssh_port: /],
  ],
  [
    "an ops.conf with an unknown key",
    ({ layout }) => writeFileSync(layout.opsConf, "favourite_colour = 22\n"),
    [/^bucket: ops\.conf: warning: .*favourite_colour/],
  ],
  [
    "another kv.key",
    ({ layout }) => writeFileSync(layout.kvKey, Buffer.alloc(32)),
    [/^bucket: kv\.key: problem: it does not open 1 of 1 sealed values: ops\/job\/web\/worker\/127\.0\.0\.1 certs\/web\.key$/],
  ],
  ["no kv.key", ({ layout }) => rmSync(layout.kvKey), [/^bucket: kv\.key: problem: Cannot read secrets\/kv\.key: there is none/]],
  ["half a CA", ({ layout }) => rmSync(layout.caKey), [/^bucket: CA: problem: Cannot use the CA in /]],
  ["a journal", ({ layout }) => writeFileSync(layout.journal, "{}"), [/^bucket: journal: warning: /]],
  [
    "a lock of nobody",
    ({ layout }) => writeFileSync(layout.lock, lockOf(hostname())),
    [/^bucket: lock: warning: left by deploy \(run r\) on .*, which is gone$/],
  ],
  [
    "a lock of another host",
    ({ layout }) => writeFileSync(layout.lock, lockOf("elsewhere")),
    [
      /^bucket: lock: warning: held by deploy \(run r\) on elsewhere since s, another host$/,
      /^bucket: workers: warning: not examined: deploy \(run r\) is at work$/,
    ],
  ],
  [
    "a build that failed",
    ({ layout }) => {
      const revision = { created_at: "", run_id: "", size_bytes: 0, file_count: 0, sha256: "", build_status: "failed" };
      const id = uuidV7();
      writeFileSync(layout.revisionsFile, JSON.stringify({ current: id, revisions: [{ id, ...revision }] }));
    },
    [/^bucket: build: warning: the build of revision \S+ is failed$/],
  ],
  [
    "a lock that no ops wrote",
    ({ layout }) => writeFileSync(layout.lock, "x"),
    [/^bucket: lock: warning: .* is not one that ops wrote$/],
  ],
  [
    "a lock that is a folder",
    ({ layout }) => mkdirSync(layout.lock),
    [/^bucket: lock: problem: Cannot read .*: it is not a regular file$/],
  ],
  ["no table of workers", ({ db }) => db.run("DROP TABLE worker"), [/^bucket: schema: problem: no such table: worker$/]],
  ["no table of promotions", ({ db }) => db.run("DROP TABLE hash"), [/^bucket: deploy: problem: .*no such table: hash$/]],
  [
    "a certificate that has ended",
    ({ db }) => db.run("UPDATE job_certs SET not_after = 1000, expiring_from = 500 WHERE job = 'web'"),
    [/^bucket: certificates: problem: expired: web 127\.0\.0\.1 web \(1970-01-01T00:16:40Z\)$/],
  ],
  [
    "a certificate near its end",
    ({ db }) => db.run("UPDATE job_certs SET expiring_from = 500 WHERE job = 'web'"),
    [/^bucket: certificates: warning: near their end: web 127\.0\.0\.1 web /],
  ],
  [
    "a change half-way",
    ({ db }) =>
      db.run(
        "INSERT INTO hash (namespace, key, current_hash, previous_hash, current_files, previous_files, current_version, unfinished, gate) VALUES ('web_allocation', 'x', '', '', '', '', '', 1, 'failed')",
      ),
    [/^bucket: deploy: warning: 1 allocations were changed half-way, 1 have not passed their health check$/],
  ],
  [
    "a bucket that was never built",
    ({ db }) => db.run("UPDATE bucket SET built_at = NULL"),
    [/^bucket: build: warning: the bucket was never built$/],
  ],
  [
    "a newer schema",
    ({ db }) => db.run("UPDATE schema_version SET version = 99"),
    [new RegExp(`^bucket: schema: problem: the database has schema 99, this program knows ${SCHEMA_VERSION}; use a newer ops$`)],
  ],
  [
    "a large file that is lost",
    ({ db }) => db.run("UPDATE job_files SET content = NULL WHERE job = 'web' AND path = 'Makefile'"),
    [/^bucket: contents: problem: missing in data\/contents\/: [0-9a-f]{64}$/],
  ],
  [
    "a run of the future",
    ({ layout }) => mkdirSync(path.join(layout.runs, "ffffffff-0000-7000-8000-000000000000")),
    [/^host: clock: problem: \d+ s behind the start of the newest run$/],
  ],
  [
    "a worker with a file where the folder is to be",
    (_, worker) => writeFileSync(path.dirname(worker), "no folder"),
    [/^worker 127\.0\.0\.1: folder: problem: .* is no folder$/],
  ],
  [
    "locks and syncs that were left on a worker",
    (_, worker) => leaveLocks(worker),
    [
      /^worker 127\.0\.0\.1: locks: warning: \.runner\/busy\.lock: held by a process there, though no operation is at work$/,
      /^worker 127\.0\.0\.1: locks: warning: \.runner\/web\.lock, \.sync\/web\/: left by a command that was cut off$/,
    ],
  ],
];

function leaveLocks(worker: string): void {
  for (const folder of [".runner", ".sync/web"]) mkdirSync(path.join(worker, folder), { recursive: true });
  const self = identify(process.pid);
  symlinkSync(`${process.pid}.${self?.start_time}.${bootId()}.r`, path.join(worker, ".runner/busy.lock"));
  symlinkSync(`1.1.${bootId()}.r`, path.join(worker, ".runner/web.lock"));
}

for (const [name, harm, expected] of HARMS)
  test(`the doctor finds ${name}, and says what to do`, async (t) => {
    const { bucket: made, worker } = await bucket(t);
    if (name.startsWith("a worker with")) rmSync(path.dirname(worker), { recursive: true });
    await harm(made, worker);
    const findings = await look(made);
    const told = bad(findings);
    assert.equal(told.length, expected.length, told.join("\n"));
    for (const [index, pattern] of expected.entries()) assert.match(told[index] ?? "", pattern);
    for (const { grade, advice } of findings) assert.equal(advice === null, grade === "ok");
  });

test("tools that are missing here are named", async (t) => {
  const { bucket: made } = await bucket(t);
  const [first, ...others] = bad(await look(made, { PATH: temporaryFolder(t) }));
  assert.equal(first, "host: tools: problem: bash: not installed");
  assert.deepEqual(
    others.map((line) => line.split(":")[0]),
    ["worker 127.0.0.1"],
  );
});

test("tools that only a worker needs are named, too", async (t) => {
  const { bucket: made } = await bucket(t);
  const tools = temporaryFolder(t);
  const missing = ["setsid", "mkfifo", "readlink"];
  for (const name of readdirSync("/usr/bin").filter((one) => !missing.includes(one)))
    writeFileSync(path.join(tools, name), `#!/bin/sh\nexec '/usr/bin/${name}' "$@"\n`, { mode: 0o755 });
  const told = bad(await look(made, { PATH: tools }));
  assert.ok(told.includes("worker 127.0.0.1: tools: problem: setsid, mkfifo, readlink: not installed"), told.join("\n"));
});

test("clocks of workers that are apart are told: from 10 s as a warning, from 5 minutes as a problem", async (t) => {
  const { bucket: made } = await bucket(t);
  const tools = temporaryFolder(t);
  const told = async (aheadSeconds: number) => {
    const date = `#!/bin/sh\necho "$(($(/bin/date +%s) + ${aheadSeconds}))"\n`;
    writeFileSync(path.join(tools, "date"), date, { mode: 0o755 });
    return bad(await look(made, { ...process.env, PATH: `${tools}:${process.env.PATH}` })).join("\n");
  };
  assert.match(await told(100), /^worker 127\.0\.0\.1: clock: warning: \d\d s ahead of this host$/);
  assert.match(await told(-100), /^worker 127\.0\.0\.1: clock: warning: \d+ s behind this host$/);
  assert.match(await told(-1000), /^worker 127\.0\.0\.1: clock: problem: \d+ s behind this host$/);
});

test("less than 1 GiB of free disk is a warning, less than 0.1 GiB a problem", () => {
  const gib = 1024 ** 3;
  const grades = [gib, gib - 1, gib / 10, gib / 10 - 1].map((free) => judgeDisk(free, 20 * gib).grade);
  assert.deepEqual(grades, ["ok", "warning", "warning", "problem"]);
  assert.equal(judgeDisk(gib / 2, 20 * gib).message, "0.5 GiB of 20.0 GiB free");
});

test("while an operation is at work, its workers are left alone and its lock is named", async (t) => {
  const { bucket: made } = await bucket(t);
  const lock = await acquireLock(made.layout, uuidV7(), "deploy");
  t.after(() => lock.release());
  const findings = await look(made);
  assert.match(findings.find(({ check }) => check === "lock")?.message ?? "", /^held by deploy \(run /);
  assert.match(bad(findings).join("\n"), /^bucket: workers: warning: not examined: deploy \(run \S+\) is at work$/);
  assert.ok(!findings.some(({ where }) => where.startsWith("worker")));
});

test("a worker that is not examined within the limit is told as that; a cancel is none of it", async (t) => {
  const { bucket: made } = await bucket(t);
  const context = { layout: made.layout, launcher: new Launcher(process.env), signal: never };
  assert.deepEqual(bad(await examine(context, 0)), ["worker 127.0.0.1: reach: warning: not examined within 0 min"]);
  await assert.rejects(examine({ ...context, signal: AbortSignal.abort() }), { code: "cancelled" });
});

test("the keys of jump hosts have to be known, too, and what waits for a clean-up is counted", async (t) => {
  const workers = ["10.255.255.1", "10.255.255.2"].map((host) => ({ host, ssh_jump: "ops@gate.example:2222" }));
  const made = await makeBucket(t, { workers, jobs: { web: { selectors: ["worker"] } } });
  await build(made.context("build"), {});
  const message = async (check: string) => {
    const findings = await examine({ layout: made.layout, launcher: new Launcher(process.env), signal: never }, 0);
    return findings.find((one) => one.where === "bucket" && one.check === check)?.message;
  };
  assert.equal(await message("host keys"), "not known: 10.255.255.1, [gate.example]:2222, 10.255.255.2");
  assert.equal(await message("removed"), "none waits for `ops gc`");
  made.db.run("UPDATE allocations SET removed = 1 WHERE worker_ip = '10.255.255.1'");
  assert.equal(await message("removed"), "1 removed allocations wait for `ops gc`");
});

test("a folder that is no bucket is a problem, not a crash", async (t) => {
  const told = bad(await look({ layout: layoutOf(temporaryFolder(t)) }));
  assert.match(told.join("\n"), /^bucket: schema: problem: Cannot open .*: the bucket is not initialised$/m);
});

test("over ssh each worker is examined, whatever is wrong with the others", async (t) => {
  const fleet = await SshFleet.start(t);
  const made = await makeBucket(t, {
    workers: [
      ...fleet.hosts.map((host) => ({ host, root: path.join(fleet.folder, "roots", host) })),
      { host: "127.0.0.9", root: "/opt/worker" },
    ],
    files: { "ops.conf": `ssh_port = ${fleet.sshd.port}\nssh_user = "${fleet.sshd.user}"\nuse_sudo = false\n` },
  });
  await build(made.context("build"), {});
  const unready = bad(await look(made));
  assert.match(unready.join("\n"), /^bucket: ssh key: problem: .*worker\.key is missing$/m);
  assert.match(unready.join("\n"), /^bucket: host keys: problem: not known: \[127\.0\.0\.1\]:\d+, /m);
  copyFileSync(fleet.sshd.clientKey, path.join(made.layout.secrets, "worker.key"));
  chmodSync(path.join(made.layout.secrets, "worker.key"), 0o600);
  copyFileSync(fleet.knownHostsFile, made.layout.knownHosts);
  chmodSync(made.layout.knownHosts, 0o600);
  const findings = await look(made);
  assert.deepEqual(
    bad(findings).map((line) => line.replace(/(problem: ).*/, "$1…")),
    ["bucket: host keys: problem: …", "worker 127.0.0.9: reach: problem: …"],
  );
  for (const host of fleet.hosts) {
    const checks = findings.filter(({ where }) => where === `worker ${host}`).map(({ check }) => check);
    assert.deepEqual(checks, ["reach", "tools", "clock", "disk", "locks"]);
    assert.ok(!existsSync(path.join(fleet.folder, "roots", host)), "the folder on the worker is not made");
  }
});

test("ops doctor ends with 0, or with 1 where there is a problem; --json has the same findings", async (t) => {
  const { bucket: made } = await bucket(t);
  const fine = await ops(["doctor"], { cwd: made.dir });
  assert.equal(fine.code, 0, fine.stdout + fine.stderr);
  assert.match(fine.stdout, /^host\n {2}ok {7}tools /);
  assert.match(fine.stdout, /\n0 problems, 0 warnings, \d+ ok\n$/);
  chmodSync(made.layout.kvKey, 0o644);
  const sick = await ops(["doctor"], { cwd: made.dir });
  assert.equal(sick.code, 1);
  assert.match(sick.stdout, / {2}problem {2}rights +secrets\/kv\.key: others may read it\n +chmod go= secrets\/kv\.key\n/);
  const { grade, findings } = JSON.parse((await ops(["doctor", "--json", "--bucket-dir", made.dir])).stdout);
  assert.equal(grade, "problem");
  assert.deepEqual(Object.keys(findings[0]), ["where", "check", "grade", "message", "advice"]);
});
