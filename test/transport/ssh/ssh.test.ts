import assert from "node:assert/strict";
import { createHash, randomUUID } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, chown, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from "node:fs/promises";
import { userInfo } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { identify, type ProcessIdentity, signalProcess } from "../../../lib/core/process.ts";
import { probe } from "../../../lib/transport/ask/probes.ts";
import { lastTarget, runTarget } from "../../../lib/transport/ask/runner.ts";
import type { ScriptOptions, Transport } from "../../../lib/transport/base/transport.ts";
import { compareTrees } from "../../../lib/transport/files/compare.ts";
import { syncTree } from "../../../lib/transport/files/sync.ts";
import { patience } from "../../../scripts/patience.ts";
import { NEEDS_ROOT } from "../../helpers/other-user.ts";
import { BUCKET_ID, SshFleet } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { busyboxFolder, contentOf, installJob, numberedTree, syncFile } from "../../helpers/worker.ts";

const HOSTILE = ["a b", "$(touch x)", `'"; exit 9 #`, "-e", "\\n", "ü\n", "", "*", "!!", "%h", "~", "a\n\n'b\n"];

/** A script over a channel of its own, and one over the kept shell. */
const WAYS: [string, ScriptOptions][] = [
  ["a channel of its own", {}],
  ["the kept shell", { isShort: true }],
];

for (const [way, more] of WAYS)
  test(`over ${way} arguments, environment and input reach the script as they are, and it tells how it ended`, async (t) => {
    const one = await (await SshFleet.start(t)).one(t);
    for (const input of ["in", "", "two\nlines", "x".repeat(40_000), "nul \0 ü\n", "ü\n".repeat(40_000)]) {
      const outcome = await one.script('printf "%s|" "$@" "$VALUE"; cat', {
        args: HOSTILE,
        env: { VALUE: "`id`\n$x" },
        input,
        ...more,
      });
      assert.deepEqual(
        [outcome.reason, outcome.exitCode, outcome.stderr, outcome.stdout],
        ["exit", 0, "", [...HOSTILE, "`id`\n$x", input].join("|")],
      );
    }
    const lines: string[] = [];
    const failed = await one.script("pwd; printf err >&2; exit 3", {
      onLine: (line, stream) => lines.push(`${stream}: ${line}`),
      ...more,
    });
    assert.deepEqual([failed.exitCode, failed.stdout, failed.stderr], [3, `${one.folder}\n`, "err"]);
    assert.deepEqual(lines.sort(), ["stderr: err", `stdout: ${one.folder}`]);
    assert.equal((await one.script("if", more)).exitCode, 2, "what is no script is an exit code");
    assert.equal((await one.script("cat", more)).stdout, "", "standard input is empty without input");
    assert.deepEqual((await one.script('kill -9 "$$"')).exitCode, 137);
  });

for (const userland of ["system", "busybox"] as const)
  test(`what a script leaves of its input is never taken for commands (${userland})`, async (t) => {
    const PATH = userland === "busybox" ? await busyboxFolder(t) : (process.env.PATH ?? "");
    const one = await (await SshFleet.start(t, { env: { PATH } })).one(t);
    const commands = `in\n${": >ran; echo ran; echo ran >&2\n".repeat(4_000)}: >ran`;
    for (const [text, code, said] of [
      ["cat >all; stat -c %s all; rm all", 0, undefined],
      ["IFS= read -r line; echo $line", 0, "in\n"],
      ["head -c 70000 >/dev/null; exit 3", 3, ""],
      ["exec sleep 0", 0, ""],
      ["if", 2, ""],
    ] as const) {
      for (const input of [commands, Buffer.from(commands), commands.slice(0, 60_000)]) {
        const { exitCode, stdout } = await one.script(text, { input, isShort: true });
        assert.deepEqual([exitCode, stdout], [code, said ?? `${input.length}\n`], text);
      }
    }
    assert.equal((await one.script("echo next", { isShort: true })).stdout, "next\n");
    assert.deepEqual(await readdir(one.folder), []);
  });

test("a script for the kept shell where that is free waits for no other script, and needs no session where it is", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  const shell = async (isShort: ScriptOptions["isShort"]) => (await one.script("echo $$", { isShort })).stdout;
  const begun = path.join(temporaryFolder(t), "begun");
  const apart = await shell("where_free");
  const kept = await shell(true);
  assert.notEqual(apart, kept, "no shell is opened for it");
  assert.equal(await shell("where_free"), kept);
  const waiting = one.script(`while [ ! -e ${begun} ]; do sleep 0.05; done; echo $$`, { isShort: true });
  const other = await shell("where_free");
  assert.notEqual(other, kept);
  await writeFile(begun, "");
  assert.equal((await waiting).stdout, kept);
});

test("the kept shell runs many scripts again and again", async (t) => {
  const one = await (await SshFleet.start(t)).one(t);
  for (const round of ["one", "two"])
    for (let number = 0; number < 20; number++) {
      const text = `echo "${number} '\n'" "$1"`;
      const { stdout } = await one.script(text, { args: [round], isShort: true });
      assert.equal(stdout, `${number} '\n' ${round}\n`);
    }
});

test("the folder is made with its parents; one that others may write to is refused by one sentence", async (t) => {
  const fleet = await SshFleet.start(t);
  const { transports } = await fleet.connect(t);
  const [one, two, three] = transports as [Transport, Transport, Transport];
  assert.equal((await one.script("pwd")).stdout, `${one.folder}\n`);
  assert.equal((await stat(one.folder)).mode & 0o777, 0o755);
  await mkdir(two.folder, { recursive: true });
  await chmod(two.folder, 0o777);
  const rule = /^Cannot use the folder on worker 127\.0\.0\.2: .+ must be a folder of the user who runs commands/;
  await assert.rejects(two.script("true"), { code: "failed", message: rule });
  await chmod(two.folder, 0o755);
  assert.equal((await two.script("true")).exitCode, 0);
  await writeFile(path.join(fleet.folder, "roots", "127.0.0.3"), "");
  await assert.rejects(three.script("true"), {
    code: "failed",
    message: /^Cannot use the folder on worker 127\.0\.0\.3: mkdir: .*Not a directory$/,
  });
});

test("a folder of another user is refused", { skip: NEEDS_ROOT }, async (t) => {
  const fleet = await SshFleet.start(t);
  const [one] = (await fleet.connect(t)).transports as [Transport];
  await mkdir(one.folder, { recursive: true });
  await chown(one.folder, 65_534, 65_534);
  const message = /: .+ must be a folder of the user who runs commands there \(number 0\), with mode 0755 or less$/;
  await assert.rejects(one.script("true"), { code: "failed", message });
});

test("there is one connection per worker and run, whatever runs over it, and none is left", async (t) => {
  const fleet = await SshFleet.start(t);
  const { connections, transports } = await fleet.connect(t);
  const [one] = transports as [Transport];
  assert.equal((await stat(path.dirname(connections.configFile))).mode & 0o777, 0o700);
  assert.equal((await stat(connections.configFile)).mode & 0o777, 0o600);
  const work = Array.from({ length: 12 }, (_, index) => one.script("sleep 0.2; echo $1", { args: [`${index}`] }));
  const short = Array.from({ length: 30 }, (_, index) => one.script("echo $1", { args: [`${index}`], isShort: true }));
  const said = (await Promise.all([...work, ...short])).map((outcome) => outcome.stdout);
  assert.deepEqual(
    said,
    [...work, ...short].map((_, index) => `${index < 12 ? index : index - 12}\n`),
  );
  assert.equal(fleet.logins, 1);
  assert.equal(fleet.launcher.groups.length, 1, "the connection; what runs over it costs no process here");
  await connections.close();
  assert.deepEqual(fleet.launcher.groups, []);
  await until("the worker's side is gone", () => fleet.sessions.length === 0);
  await assert.rejects(stat(connections.configFile), { code: "ENOENT" });
});

test("output can hold anything, comes whole and in order, and is never kept beyond what was asked for", async (t) => {
  const one = await (await SshFleet.start(t)).one(t);
  const script = `head -c 20000000 /dev/urandom | tee "$1"; printf 'ops- \\n ops-' | tee -a "$1"`;
  const digest = createHash("sha256");
  const file = path.join(one.folder, "random");
  const outcome = await one.script('head -c 3000000 /dev/urandom | base64 >"$1"; cat "$1"; printf last', {
    args: [file],
    keepBytes: 10,
    onLine: (line) => digest.update(line === "last" ? "" : `${line}\n`),
  });
  assert.equal(outcome.stdout.length, 10);
  assert.equal(
    digest.digest("hex"),
    createHash("sha256")
      .update(await readFile(file))
      .digest("hex"),
  );
  const raw = await one.script(script, { args: [file], keepBytes: 30_000_000 });
  const kept = Buffer.from(await readFile(file)).toString();
  assert.ok(raw.stdout === kept, "binary output is that of the file");
});

test("large input streams to the worker: no more of it is in memory than a few chunks", async (t) => {
  const one = await (await SshFleet.start(t)).one(t);
  const size = 200 * 1024 * 1024;
  const chunk = Buffer.alloc(64 * 1024, "x");
  let [made, most] = [0, 0];
  async function* source() {
    for (; made < size; made += chunk.length) {
      most = Math.max(most, process.memoryUsage().rss);
      yield chunk;
    }
  }
  await one.script("true");
  const before = process.memoryUsage().rss;
  const outcome = await one.script("wc -c", { input: source() });
  assert.equal(outcome.stdout.trim(), `${size}`);
  assert.ok(most - before < 60 * 1024 * 1024, `${(most - before) / 1024 / 1024} MiB more`);
});

const LOGINS: [string, string][] = [
  ["sh, with login files that talk", 'exec sh -c "$SSH_ORIGINAL_COMMAND"'],
  ["bash", 'exec bash -c "$SSH_ORIGINAL_COMMAND"'],
  ["tcsh", 'exec tcsh -c "$SSH_ORIGINAL_COMMAND"'],
  ["busybox", 'exec busybox sh -c "$SSH_ORIGINAL_COMMAND"'],
];

for (const [shell, exec] of LOGINS)
  test(`a login shell that is ${shell} makes no difference`, async (t) => {
    const noise = "echo 'ops- welcome'; printf 'no newline' >&2; umask 077; export LC_ALL=C;";
    const one = await (await SshFleet.start(t, { login: `${noise} ${exec}` })).one(t);
    for (const [, more] of WAYS) {
      const outcome = await one.script('printf "%s|" "$@"; echo err >&2; exit 4', { args: HOSTILE, ...more });
      assert.deepEqual(
        [outcome.exitCode, outcome.stdout, outcome.stderr],
        [4, HOSTILE.map((arg) => `${arg}|`).join(""), "err\n"],
      );
    }
  });

test("a login that ends at once gives one sentence with what it said", async (t) => {
  const fleet = await SshFleet.start(t, { login: "echo 'This account is currently not available.'; exit 1" });
  await assert.rejects((await fleet.one(t)).script("true"), {
    code: "failed",
    message: "Cannot run commands on worker 127.0.0.1: This account is currently not available",
  });
});

test("a daemon neither holds the channel nor dies with it", async (t) => {
  const fleet = await SshFleet.start(t);
  const { connections, transports } = await fleet.connect(t);
  const [one] = transports as [Transport];
  const outcome = await one.script("setsid sh -c 'while :; do echo noise; sleep 0.05; done' & echo $!; exit 0");
  assert.equal(outcome.reason, "exit");
  const later = await one.script("setsid sleep 300 </dev/null >/dev/null 2>&1 & echo $!");
  await connections.close();
  await until("the sessions have ended", () => fleet.sessions.length === 0);
  const pid = Number(later.stdout);
  assert.ok(fleet.processes.includes(pid));
  signalProcess(pid, "SIGKILL");
});

test("a connection or a control socket that is gone is noticed and replaced", async (t) => {
  const fleet = await SshFleet.start(t);
  const { connections, transports } = await fleet.connect(t);
  const [one] = transports as [Transport];
  await one.script("true");
  const [master] = fleet.launcher.groups;
  signalProcess(master?.pgid as number, "SIGKILL");
  await until("its end is noticed", () => fleet.launcher.groups.length === 0);
  for (const [, more] of WAYS) assert.equal((await one.script("echo 1", more)).stdout, "1\n");
  assert.equal(fleet.logins, 2);
  await rm(path.join(path.dirname(connections.configFile), "s0"));
  assert.equal((await one.script("echo 2")).stdout, "2\n");
  assert.equal(fleet.logins, 3);
});

test("an sshd that allows two sessions in a connection gets no more", async (t) => {
  const fleet = await SshFleet.start(t, { sshd: ["MaxSessions 2"] });
  const one = await fleet.one(t);
  const all = await Promise.all(Array.from({ length: 6 }, (_, index) => one.script(`sleep 0.05; echo ${index}`)));
  assert.deepEqual(
    all.map((outcome) => outcome.stdout),
    ["0\n", "1\n", "2\n", "3\n", "4\n", "5\n"],
  );
  const cut = await one.script("sleep 300", { timeoutMs: 50 });
  assert.deepEqual([cut.reason, cut.receipt], ["timeout", "stopped"]);
  assert.equal((await one.script("echo on", { isShort: true })).stdout, "on\n");
  assert.equal(fleet.logins, 1);
});

test("an sshd that allows one session only takes one command at a time; beside the kept shell it is named", async (t) => {
  const one = await (await SshFleet.start(t, { sshd: ["MaxSessions 1"] })).one(t);
  for (const said of ["1\n", "2\n"]) assert.equal((await one.script("cat", { input: said })).stdout, said);
  await one.script("true", { isShort: true });
  await assert.rejects(one.script("true"), {
    code: "failed",
    message: /^Cannot run commands on worker 127\.0\.0\.1: its sshd allows only one session .+ set MaxSessions/,
  });
});

/** A `sudo` that notes how it was called, and an `id` for which this user is not root. */
async function fakeSudo(folder: string, script: string): Promise<string> {
  const bin = path.join(folder, "bin");
  await mkdir(bin);
  await writeFile(path.join(bin, "id"), "#!/bin/sh\necho 1000\n", { mode: 0o755 });
  await writeFile(path.join(bin, "sudo"), `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return `${bin}:${process.env.PATH}`;
}

test("with use_sudo everything runs through `sudo -n`, kills too, and nothing of a script is in its arguments", async (t) => {
  const folder = temporaryFolder(t);
  const log = path.join(folder, "log");
  const rest = `echo "$*" >>'${log}'; [ "$1" = -n ] && shift; PATH=\${PATH#*:} IS_ROOT=1 exec "$@"`;
  const PATH = await fakeSudo(folder, rest);
  const one = await (await SshFleet.start(t, { env: { PATH } })).one(t, { useSudo: true });
  for (const [, more] of WAYS)
    assert.equal((await one.script('echo "$IS_ROOT $SECRET"', { env: { SECRET: "s3" }, ...more })).stdout, "1 s3\n");
  const cut = await one.script("sleep 300", { timeoutMs: 50 });
  assert.equal(cut.receipt, "stopped");
  const calls = (await readFile(log, "utf8")).trim().split("\n");
  assert.equal(calls.length, 4, "the kept shell, two scripts, and the shell that ended one");
  for (const call of calls) assert.match(call, /^-n sh -c IFS= read -r ops_line; eval "\$ops_line"$/);
});

test("a sudo that wants a password is named", async (t) => {
  const PATH = await fakeSudo(temporaryFolder(t), "echo 'sudo: a password is required' >&2; exit 1");
  const fleet = await SshFleet.start(t, { env: { PATH } });
  await assert.rejects((await fleet.one(t, { useSudo: true })).script("true"), {
    message: "Cannot run commands on worker 127.0.0.1: sudo: a password is required",
  });
});

test("with use_sudo, root needs no sudo", { skip: process.getuid?.() !== 0 }, async (t) => {
  const folder = temporaryFolder(t);
  const PATH = await fakeSudo(folder, "exit 1");
  await rm(path.join(folder, "bin", "id"));
  const fleet = await SshFleet.start(t, { env: { PATH } });
  assert.equal((await (await fleet.one(t, { useSudo: true })).script("echo fine")).stdout, "fine\n");
});

test("behind a jump host the workers are reached through it, each by one connection", async (t) => {
  const fleet = await SshFleet.start(t);
  const bastion = await SshFleet.start(t, { hosts: ["127.0.0.9"] });
  fleet.trustAlso(bastion);
  const sshJump = `${bastion.sshd.user}@127.0.0.9:${bastion.sshd.port}`;
  const letIn = await readFile(`${fleet.sshd.clientKey}.pub`, "utf8");
  await writeFile(`${bastion.sshd.clientKey}.pub`, letIn);
  const workers = fleet.hosts.map((host) => fleet.worker(host, { sshJump }));
  const { transports } = await fleet.connect(t, {}, workers);
  const said = await Promise.all(transports.map((one) => one.script("pwd")));
  assert.deepEqual(
    said.map((outcome) => outcome.stdout),
    transports.map((one) => `${one.folder}\n`),
  );
  assert.deepEqual([bastion.logins, fleet.logins], [3, 3]);
  await bastion.sshd.stop();
  for (const one of transports) await one.close();
  await assert.rejects((await fleet.connect(t, {}, workers)).transports[0]?.script("true") as Promise<unknown>, {
    message: /^Cannot connect to the jump host 127\.0\.0\.9 of worker 127\.0\.0\.1: nothing listens on port \d+ there/,
  });
});

for (const userland of ["system", "busybox"] as const)
  test(`sync, the runner and its record work over ssh (${userland})`, async (t) => {
    const PATH = userland === "busybox" ? await busyboxFolder(t) : (process.env.PATH ?? "");
    const fleet = await SshFleet.start(t, { env: { PATH } });
    const one = await fleet.one(t);
    for (const number of [1, 2]) {
      const result = await syncTree(one, numberedTree(number));
      assert.ok(result.changed.length > 5);
      const found = await contentOf(path.join(one.folder, "jobs", "web"));
      assert.deepEqual(found, await expected(numberedTree(number)));
      assert.equal((await syncTree(one, numberedTree(number))).sentBytes, 0);
    }
    assert.equal((await stat(path.join(one.folder, "jobs/web/run/even"))).mode & 0o777, 0o755);
    await installJob({ transport: one, launcher: fleet.launcher, folder: one.folder }, "db", "start:\n\t@echo $$WHO\n");
    const lines: string[] = [];
    const order = { job: "db", target: "start", runId: "r1", hash: "h1", timeoutMs: patience(20_000), env: { WHO: "me" } };
    const outcome = await runTarget(one, { ...order, onLine: (line) => lines.push(line) });
    assert.deepEqual([outcome.exitCode, lines], [0, ["me"]]);
    assert.deepEqual(await lastTarget(one, "db"), { hash: "h1", target: "start" });
  });

async function expected(tree: ReturnType<typeof numberedTree>): Promise<Record<string, string>> {
  const content: Record<string, string> = {};
  for (const file of tree.files) for await (const chunk of file.open()) content[file.path] = Buffer.from(chunk).toString();
  return content;
}

test("file names full of shell metacharacters arrive as they are", async (t) => {
  const one = await (await SshFleet.start(t)).one(t);
  const names = ["$(touch x)", "a b", "'; rm -rf .", '"`id`"', "-rf", "*", "a|b&c", "#", "~", "\\", "ü", "%s", "a;b/c>d"];
  const files = names.map((name) => syncFile(name, name));
  await syncTree(one, { name: "web", folder: "jobs/web", files });
  const found = await contentOf(path.join(one.folder, "jobs", "web"));
  assert.deepEqual(found, Object.fromEntries(names.map((name) => [name, name])));
  assert.deepEqual(await readdir(one.folder), [".sync", "jobs"].sort());
  assert.equal((await syncTree(one, { name: "web", folder: "jobs/web", files })).sentBytes, 0);
});

test("HR-063 a probe of type ssh runs its command on the worker, and its time limit holds", async (t) => {
  const one = await (await SshFleet.start(t)).one(t);
  const target = { type: "ssh", transport: one, timeoutMs: patience(10_000) } as const;
  assert.equal((await probe({ ...target, command: "test -d ." })).ok, true);
  const failed = await probe({ ...target, command: "echo broken; exit 1" });
  assert.deepEqual([failed.ok, failed.evidence], [false, "command on 127.0.0.1: exit code 1"]);
  assert.deepEqual(
    failed.said?.shown((text) => text),
    ["broken"],
  );
  const slow = await probe({ ...target, command: "sleep 300", timeoutMs: 300 });
  assert.match(slow.evidence, /no answer within 0\.3 s/);
});

test("what runs of this bucket left behind when they were killed is removed, and nothing else", async (t) => {
  const fleet = await SshFleet.start(t);
  const { pid, start_time } = identify(process.pid) as ProcessIdentity;
  const make = async (what: string, known: string, mode = 0o700) => {
    const folder = `/tmp/ops-ssh-${what}-${randomUUID().slice(0, 6)}`;
    await mkdir(folder, { mode });
    t.after(() => rm(folder, { recursive: true, force: true }));
    await symlink(known, path.join(folder, "known_hosts"));
    return folder;
  };
  const ours = path.resolve(fleet.knownHostsFile);
  const dead = `${2 ** 22 - 1}-1`;
  const gone = [await make(dead, ours), await make(`${pid}-1`, ours)];
  const kept = [
    await make(`${pid}-${start_time}`, ours),
    await make(dead, `${ours}-of-another-bucket`),
    await make(dead, ours, 0o755),
  ];
  await fleet.connect(t);
  assert.deepEqual([...gone, ...kept].filter(existsSync), kept);
});

test("a run without a private key, or for a worker nobody knows, is refused before anything connects", async (t) => {
  const fleet = await SshFleet.start(t);
  await assert.rejects(fleet.connect(t, { keyFile: path.join(fleet.folder, "worker.key") }), {
    code: "failed",
    message:
      "Cannot reach workers over ssh: there is no private key secrets/worker.key; make one: `ops ssh-key create`, or store yours: `ops ssh-key set`",
  });
  const { connections } = await fleet.connect(t);
  assert.throws(() => connections.transport(fleet.worker("127.0.0.8"), BUCKET_ID), { code: "internal" });
  assert.equal(fleet.logins, 0);
});

test("where the folder is optional, none is made: the script runs at home; where there is one, in it", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  for (const isShort of [true, false])
    assert.equal((await one.script("pwd", { isFolderOptional: true, isShort })).stdout, `${userInfo().homedir}\n`);
  const look = () => compareTrees(one, new Map([["web", {}]]), new AbortController().signal);
  const nothing = new Map([["web", { files: [], isUnsettled: false }]]);
  assert.deepEqual(await look(), nothing, "where nothing is expected the home is not taken for the folder");
  assert.equal(existsSync(one.folder), false);
  await one.script("mkdir -p jobs/web; touch jobs/web/a");
  assert.equal((await one.script("pwd", { isFolderOptional: true })).stdout, `${one.folder}\n`);
  assert.deepEqual(
    (await look()).get("web")?.files.map(({ path }) => path),
    ["a"],
  );
});
