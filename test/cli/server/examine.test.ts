import assert from "node:assert/strict";
import { chmodSync, chownSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, type TestContext, test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { createBucket, serverLock } from "../../../lib/bucket/source/root.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { examineServer } from "../../../lib/cli/server/examine.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import type { Finding } from "../../../lib/operation/tend/doctor-bucket.ts";
import { ops } from "../../helpers/command-line.ts";
import { certificateFor } from "../../helpers/http.ts";
import { mayMount, onMachine } from "../../helpers/machine.ts";
import { NEEDS_ROOT } from "../../helpers/other-user.ts";
import { snapshotFile } from "../../helpers/snapshots.ts";
import { temporaryFolder, until, writeFiles } from "../../helpers/temporary.ts";
import { SECRET_TEXT } from "../../helpers/totp.ts";

const ID = "993265d4-fa08-4d67-a6de-ffb45de617eb";

const CERTIFICATE = certificateFor({
  after: (work) => after(() => work?.call(undefined as never, undefined as never, () => {})),
});

/** A root with one bucket, and the files that a server is started with. */
async function made(t: TestContext) {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  mkdirSync(root, { mode: 0o700 });
  const labels = { id: ID, project: "shop", name: "production" };
  const { layout } = await createBucket(root, labels, async (dir, bucketId) => {
    await initBucket(dir, { bucketId, source: false });
  });
  await snapshotFile(layout);
  const files = { token: path.join(folder, "token"), totp: path.join(folder, "totp") };
  writeFileSync(files.token, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFG\n", { mode: 0o600 });
  writeFileSync(files.totp, `${SECRET_TEXT}\n`, { mode: 0o600 });
  const { certFile, keyFile } = await CERTIFICATE;
  const tls = { "tls-cert": certFile, "tls-key": keyFile };
  return { root, layout, files, settings: { "token-file": files.token, "totp-secret-file": files.totp, ...tls } };
}

/** The programs of a host that has all of them, with a clock as told. */
function host(t: TestContext, synchronised = "yes"): Launcher {
  const tools = Object.fromEntries(["bash", "ssh", "python3", "make"].map((name) => [name, `#!/bin/sh\necho "${name} 1.0"\n`]));
  const folder = writeFiles(temporaryFolder(t), { ...tools, timedatectl: `#!/bin/sh\necho ${synchronised}\n` });
  for (const name of [...Object.keys(tools), "timedatectl"]) chmodSync(path.join(folder, name), 0o755);
  return new Launcher({ PATH: folder });
}

/** What is not ok, as `<where>: <check>: <grade>: <message>`; certificates of the tests are valid for a few days only. */
function bad(findings: readonly Finding[]): string[] {
  return findings
    .filter(({ grade, check }) => grade !== "ok" && check !== "certificate")
    .map(({ where, check, grade, message }) => `${where}: ${check}: ${grade}: ${message}`);
}

test("a server in order has no finding but ok, for each part of it and each bucket", async (t) => {
  const { root, settings } = await made(t);
  const findings = await examineServer(root, settings, host(t));
  assert.deepEqual(bad(findings), []);
  assert.deepEqual(
    findings.map(({ where, check }) => `${where} ${check}`),
    [
      ..."root,running,token,certificate,TOTP,open files,processes,disk,node,bash,ssh,python3,make,clock"
        .split(",")
        .map((check) => `server ${check}`),
      ...["rights", "owner", "schema", "snapshot"].map((check) => `bucket ${ID} ${check}`),
    ],
  );
  const message = (check: string) => findings.find((one) => one.check === check)?.message ?? "";
  assert.match(message("certificate"), /^valid until \d{4}-/);
  assert.match(message("ssh"), /^ssh 1\.0$/);
  assert.match(message("clock"), /; synchronised$/);
  assert.equal(message("running"), "no server has the root");
});

test("a TOTP secret of 128 bits is long enough", async (t) => {
  const { root, settings, files } = await made(t);
  writeFileSync(files.totp, "GEZDGNBVGY3TQOJQGEZDGNBVGY\n");
  assert.deepEqual(bad(await examineServer(root, settings, host(t))), []);
});

type Made = Awaited<ReturnType<typeof made>>;

/** What is done to a root, and what is found then. */
const HARMS: [name: string, harm: (made: Made) => unknown, expected: RegExp][] = [
  [
    "a root that others may look into",
    ({ root }) => chmodSync(root, 0o755),
    /^server: root: warning: .*: others may look into it$/,
  ],
  ["a root that others may write", ({ root }) => chmodSync(root, 0o777), /^server: root: problem: others may write the root /],
  [
    "a token that can be guessed",
    ({ files }) => writeFileSync(files.token, "secret"),
    /^server: token: problem: its 6 characters can be guessed$/,
  ],
  [
    "a token of few letters",
    ({ files }) => writeFileSync(files.token, "ab".repeat(20)),
    /^server: token: warning: its 40 characters have less/,
  ],
  [
    "a token file of others",
    ({ files }) => chmodSync(files.token, 0o644),
    /^server: token: problem: --token-file .* lets others use it/,
  ],
  ["a TOTP secret of others", ({ files }) => chmodSync(files.totp, 0o644), /^server: TOTP: problem: .* lets others use it/],
  ["a short TOTP secret", ({ files }) => writeFileSync(files.totp, "GEZDGNBVGY3TQOJQ\n"), /^server: TOTP: warning: 80 bits$/m],
  [
    "a secret of 120 bits",
    ({ files }) => writeFileSync(files.totp, "GEZDGNBVGY3TQOJQGEZDGNBV\n"),
    /^server: TOTP: warning: 120 bits$/m,
  ],
  ["no TOTP secret", ({ files }) => writeFileSync(files.totp, "x"), /^server: TOTP: problem: /],
  [
    "a key that others may read",
    ({ layout }) => chmodSync(layout.kvKey, 0o644),
    /^bucket .*: rights: problem: secrets\/kv\.key: /,
  ],
  [
    "an older schema",
    ({ layout }) => setSchema(layout.database, 4),
    /^bucket .*: schema: warning: the database has schema 4; run `ops init`, or POST …\/init, to upgrade it$/,
  ],
  [
    "a newer schema",
    ({ layout }) => setSchema(layout.database, 99),
    /^bucket .*: schema: problem: the database has schema 99, .*; use a newer ops$/,
  ],
];

function setSchema(file: string, version: number): void {
  using db = openDatabase(file);
  db.run("UPDATE schema_version SET version = ?", version);
}

for (const [name, harm, expected] of HARMS)
  test(`the doctor of a server finds ${name}, and says what to do`, async (t) => {
    const all = await made(t);
    await harm(all);
    const findings = await examineServer(all.root, all.settings, host(t));
    const told = bad(findings);
    assert.equal(told.length, 1, told.join("\n"));
    assert.match(told[0] ?? "", expected);
    for (const { grade, advice } of findings) assert.equal(advice === null, grade === "ok");
  });

test("a certificate that ends soon, has ended, or has another key is found", async (t) => {
  const { root } = await made(t);
  const { certFile, keyFile } = await CERTIFICATE;
  const other = await certificateFor(t);
  const gradeOf = async (settings: Record<string, string>) => {
    const findings = await examineServer(root, settings, host(t));
    return findings.find(({ check }) => check === "certificate");
  };
  assert.match(
    (await gradeOf({ "tls-cert": certFile, "tls-key": other.keyFile }))?.message ?? "",
    /does not belong to the certificate/,
  );
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() });
  const days = (count: number) => t.mock.timers.tick(count * 86_400_000);
  const { message = "" } = (await gradeOf({ "tls-cert": certFile, "tls-key": keyFile })) ?? {};
  const until = Date.parse(message.replace(/^valid until (\S+Z).*/, "$1"));
  t.mock.timers.setTime(until - 86_400_000);
  assert.equal((await gradeOf({ "tls-cert": certFile, "tls-key": keyFile }))?.grade, "warning");
  days(3);
  assert.match((await gradeOf({ "tls-cert": certFile, "tls-key": keyFile }))?.message ?? "", /^it ended at /);
  t.mock.timers.setTime(0);
  assert.match((await gradeOf({ "tls-cert": certFile, "tls-key": keyFile }))?.message ?? "", /^not valid before /);
});

test("a snapshot that is old, or none, and a clock that is wrong or not set from the network, are found", async (t) => {
  const { root, layout } = await made(t);
  const look = async (launcher = host(t)) => bad(await examineServer(root, {}, launcher)).join("\n");
  assert.match(await look(host(t, "no")), /^server: clock: warning: .*; not synchronised$/);
  t.mock.timers.enable({ apis: ["Date"], now: Date.now() + 8 * 86_400_000 });
  assert.match(await look(), /^bucket .*: snapshot: warning: the newest is 8 days old$/);
  t.mock.timers.reset();
  const snapshots = readdirSync(layout.snapshots).map((name) => path.join(layout.snapshots, name));
  for (const file of snapshots) writeFileSync(file, "no snapshot");
  assert.match(await look(), /^bucket .*: snapshot: problem: /);
  for (const file of snapshots) rmSync(file);
  assert.match(await look(), /^bucket .*: snapshot: warning: there is none$/);
  mkdirSync(path.join(layout.runs, "ffffffff-0000-7000-8000-000000000000"));
  assert.match(await look(), /^server: clock: problem: \d+ s behind the start of the newest run$/m);
});

test("missing programs are found: one that the server needs is a problem, one that some need a warning", async (t) => {
  const { root } = await made(t);
  const told = bad(await examineServer(root, {}, new Launcher({ PATH: temporaryFolder(t) })));
  assert.deepEqual(told, [
    "server: bash: problem: not installed",
    "server: ssh: warning: not installed; workers over ssh need it",
    "server: python3: warning: not installed; hooks in Python need it",
    "server: make: warning: not installed; local workers need it",
  ]);
});

test("a program that does not work is found, and a clock that timedatectl cannot ask about has no answer", async (t) => {
  const { root } = await made(t);
  const fails = "#!/bin/sh\necho yes\nexit 127\n";
  const names = ["bash", "ssh", "python3", "make", "timedatectl"];
  const folder = writeFiles(temporaryFolder(t), Object.fromEntries(names.map((name) => [name, fails])));
  for (const name of names) chmodSync(path.join(folder, name), 0o755);
  const findings = await examineServer(root, {}, new Launcher({ PATH: folder }));
  assert.deepEqual(bad(findings).slice(0, 2), [
    "server: bash: problem: `bash --version` does not work",
    "server: ssh: warning: `ssh -V` does not work; workers over ssh need it",
  ]);
  assert.doesNotMatch(findings.find(({ check }) => check === "clock")?.message ?? "", /synchronised/);
});

test("a cancel ends the examination and the program that it waits for", async (t) => {
  const { root } = await made(t);
  const folder = writeFiles(temporaryFolder(t), { bash: "#!/bin/sh\nexec /bin/sleep 60\n" });
  chmodSync(path.join(folder, "bash"), 0o755);
  const launcher = new Launcher({ PATH: folder });
  const stop = new AbortController();
  const examined = assert.rejects(examineServer(root, {}, launcher, stop.signal), { code: "cancelled" });
  await until("bash has started", () => launcher.groups.length > 0);
  const started = performance.now();
  stop.abort();
  await examined;
  assert.ok(performance.now() - started < 9_000, "it waited for the limit of the program");
});

test("CP-660 the user of hooks is tried, and one who can enter the root is a problem", { skip: NEEDS_ROOT }, async (t) => {
  const { root } = await made(t);
  const look = async () => {
    const findings = await examineServer(root, { "hook-user": "nobody" }, host(t));
    return findings.find(({ check }) => check === "hook user");
  };
  assert.deepEqual([(await look())?.grade, (await look())?.message], ["ok", "nobody: scripts can run as it"]);
  for (const place of [path.dirname(root), root]) chmodSync(place, 0o755);
  const found = await look();
  assert.equal(found?.grade, "problem");
  assert.match(found?.message ?? "", /^--hook-user "nobody": this user can open /);
});

test("a server at work is named, with its own limits; a bucket of another user is found", async (t) => {
  const { root, layout } = await made(t);
  mkdirSync(path.join(root, ".server"));
  const lock = await acquireLock(serverLock(root), ID, "server");
  t.after(() => lock.release());
  const findings = await examineServer(root, {}, host(t));
  assert.equal(findings.find(({ check }) => check === "running")?.message, `process ${process.pid} has the root`);
  assert.match(findings.find(({ check }) => check === "open files")?.message ?? "", new RegExp(`of process ${process.pid}$`));
  if (process.getuid?.() !== 0) return;
  chownSync(layout.root, 12_345, 0);
  const found = [`bucket ${ID}: owner: problem: not that of the root`];
  assert.deepEqual(bad(await examineServer(root, {}, host(t))), found);
  chownSync(layout.database, 12_345, 0);
  assert.deepEqual(bad(await examineServer(root, {}, host(t))), found, "one that is another's altogether");
});

test("with --root, ops doctor --server needs nothing of a unit that somebody else wrote", { skip: !mayMount }, () => {
  const out = onMachine(`echo '[Service]' > /etc/systemd/system/ops.service; mkdir -m 700 /var/lib/root
     ops doctor --server --root /var/lib/root | grep -o ' root \\| systemd-notify '; ops doctor --server`);
  assert.match(out, /^ root \n systemd-notify \nops: Cannot use \/etc\/systemd\/system\/ops\.service: /);
});

test("ops doctor --server ends with 0, or with 1 where there is a problem; its flags go with --server", async (t) => {
  const { root, settings } = await made(t);
  const flags = Object.entries({ root, ...settings }).flatMap(([name, value]) => [`--${name}`, value]);
  const fine = await ops(["doctor", "--server", ...flags]);
  assert.deepEqual([fine.code, fine.stderr], [0, ""], fine.stdout);
  assert.match(fine.stdout, /^server\n {2}ok {7}root +/);
  chmodSync(root, 0o777);
  const sick = await ops(["doctor", "--server", "--json", ...flags]);
  assert.equal(sick.code, 1);
  assert.equal(JSON.parse(sick.stdout).grade, "problem");
  const both = await ops(["doctor", "--server", "--bucket-dir", root, ...flags]);
  assert.deepEqual([both.code, both.stderr], [2, "ops: --bucket-dir does not go with --server (see `ops doctor --help`)\n"]);
  const none = await ops(["doctor", "--server"], { env: { OPS_SERVE_ROOT: "" } });
  assert.deepEqual(
    [none.code, none.stderr],
    [2, "ops: no root: give --root, or set OPS_SERVE_ROOT to the folder of the buckets\n"],
  );
  const misused = await ops(["doctor", "--root", root]);
  assert.deepEqual([misused.code, misused.stderr], [2, "ops: --root goes with --server (see `ops doctor --help`)\n"]);
});
