import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { PublicKey } from "../../../lib/codec/crypto/ssh-key.ts";
import type { CommandOptions, CommandOutcome, Launcher } from "../../../lib/core/spawn.ts";
import { type ScanTools, scanBehind, scanHost } from "../../../lib/transport/trust/host-keys.ts";
import { makeKey, publicPart } from "../../../scripts/private-sshd.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const folder = temporaryFolder({ after: (done) => process.on("exit", done as () => void) });
const [type = "", base64 = ""] = publicPart(makeKey(folder, "ed25519", "-t", "ed25519")).split(" ");
const KEY = { type, base64 } as PublicKey;
const HOST = { host: "10.0.0.7", port: 2222 };
const HOP = { user: "ada", host: "gate", port: 22 };
const GREETING = "# 10.0.0.7:2222 SSH-2.0-OpenSSH_9.9\n";

type Answer = Partial<CommandOutcome> & { found?: string };

/** Tools whose programs answer so, one after the other; the last answer is that of all later ones. */
function tools(t: TestContext, ...answers: Answer[]) {
  // No pause between attempts.
  t.mock.method(Math, "random", () => -1);
  const asked: { argv: string[]; options: CommandOptions; files: Record<string, string> }[] = [];
  const launcher = {
    async run(argv: string[], options: CommandOptions) {
      const { cwd } = options;
      const read = (name: string) =>
        (name.endsWith("key") ? readlinkSync : (file: string) => readFileSync(file, "utf8"))(path.join(cwd as string, name));
      const files = cwd === undefined ? {} : Object.fromEntries(readdirSync(cwd).map((name) => [name, read(name)]));
      asked.push({ argv, options, files });
      const { found, ...answer } = (answers.length > 1 ? answers.shift() : answers[0]) as Answer;
      if (found !== undefined) writeFileSync(path.join(cwd as string, "found"), found);
      return { reason: "exit", exitCode: 0, signal: null, stdout: "", stderr: "", durationMs: 5, ...answer };
    },
  };
  const { signal } = new AbortController();
  const given: ScanTools = {
    launcher: launcher as unknown as Launcher,
    signal,
    keyFile: path.join(folder, "ed25519"),
    options: {},
  };
  return { asked, given };
}

test("a host is asked for each kind of key, one after the other, and no longer than the programs' own limits", async (t) => {
  const key = { stdout: `10.0.0.7 ${type} ${base64}\n` };
  const { asked, given } = tools(t, key, { stderr: GREETING }, { stdout: GREETING });
  assert.deepEqual(await scanHost(HOST, given), [KEY]);
  assert.deepEqual(
    asked.map(({ argv }) => argv.join(" ")),
    ["ed25519", "ecdsa", "rsa"].map((kind) => `ssh-keyscan -T 10 -p 2222 -t ${kind} -- 10.0.0.7`),
  );
  const limits = { cwd: undefined, signal: given.signal, timeoutMs: 25_000, graceMs: 1_000, keepBytes: 65_536 };
  for (const { options } of asked) assert.deepEqual(options, limits);
});

for (const [what, answer, code, message] of [
  ["has no key in use", { stderr: GREETING }, "failed", "it offers no host key of a kind in use: ed25519, ecdsa, rsa"],
  ["says nothing in time", { durationMs: 9_000 }, "unreachable", "no answer within 10 s"],
  ["greets and says nothing more", { durationMs: 9_000, stderr: GREETING }, "unreachable", "no answer within 10 s"],
  ["ends the connection", { durationMs: 8_999 }, "unreachable", "connection refused"],
  ["has no address", { stderr: "\n  getaddrinfo x: unknown \nmore\n" }, "unreachable", "getaddrinfo x: unknown"],
  ["greets and breaks off", { stderr: `${GREETING}read: reset\n` }, "unreachable", "read: reset"],
  ["is no ssh server", { reason: "timeout" }, "unreachable", "the program that listens there does not answer like an ssh server"],
] as [string, Answer, string, string][])
  test(`a host that ${what} is told as such`, async (t) => {
    const { asked, given } = tools(t, answer);
    await assert.rejects(scanHost(HOST, given), { code, message });
    assert.equal(asked.length, code === "failed" ? 3 : 1);
  });

test("a dropped connection is tried again four times; a cancel is no answer", async (t) => {
  for (const said of ["10.0.0.7: Connection closed by remote host", "Connection reset by peer"]) {
    const { asked, given } = tools(t, { stderr: said });
    await assert.rejects(scanHost(HOST, given), { code: "unreachable", message: said });
    assert.equal(asked.length, 5);
    t.mock.restoreAll();
  }
  const back = tools(t, { stderr: "Connection closed by x" }, { stdout: `x ${type} ${base64}\n` });
  assert.equal((await scanHost(HOST, back.given)).length, 3);
  assert.equal(back.asked.length, 4);
  await assert.rejects(scanHost(HOST, { ...back.given, signal: AbortSignal.abort() }), { code: "cancelled" });
});

const CONFIG = `Host target
  HostName 10.0.0.7
  Port 2222
  HostKeyAlias target
  UserKnownHostsFile found
  StrictHostKeyChecking accept-new
  PubkeyAuthentication no
  ProxyJump hop
Host hop
  HostName gate
  Port 22
  User ada
  HostKeyAlias hop
  UserKnownHostsFile known
  StrictHostKeyChecking yes
  IdentityFile key
  IdentitiesOnly yes
Host *
  ConnectTimeout 10
  GlobalKnownHostsFile none
  UpdateHostKeys no
  HashKnownHosts no
  PreferredAuthentications publickey
  IdentityAgent none
  BatchMode yes
  LogLevel INFO
`;

const RECORDED = { found: `target ${type} ${base64}\n`, exitCode: 255, stderr: "ada@gate: Permission denied (publickey).\n" };
const NO_SUCH = { exitCode: 255, stderr: "Unable to negotiate: no matching host key type found\n" };

test("behind a jump host ssh records the keys, from a folder with what it needs and nothing more, which goes afterwards", async (t) => {
  const { asked, given } = tools(t, RECORDED, NO_SUCH);
  assert.deepEqual(await scanBehind(HOST, HOP, [KEY], given), [KEY]);
  const kinds = {
    0: "ssh-ed25519",
    1: "ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-nistp521",
    2: "rsa-sha2-512,rsa-sha2-256",
  };
  assert.deepEqual(
    asked.map(({ argv }) => argv.join(" ")),
    Object.values(kinds).map((kind) => `ssh -F config -o HostKeyAlgorithms=${kind} -- target true`),
  );
  const files = { config: CONFIG, key: given.keyFile, known: `hop ${type} ${base64}\n` };
  for (const one of asked) {
    assert.deepEqual(one.files, files);
    assert.ok(!existsSync(one.options.cwd as string));
  }
  const more = tools(t, RECORDED);
  const options = { Ciphers: "a,b", MACs: "c" };
  await scanBehind(HOST, HOP, [], { ...more.given, oldKeyFile: "/srv/old", options });
  assert.deepEqual(more.asked[0]?.files, {
    config: CONFIG.replace("IdentityFile key\n", "IdentityFile key\n  IdentityFile old_key\n").replace(
      "Host *\n",
      "Host *\n  Ciphers a,b\n  MACs c\n",
    ),
    key: given.keyFile,
    old_key: "/srv/old",
    known: "",
  });
});

for (const [what, answer, message] of [
  ["a banner", { stderr: "Welcome\n\nada@gate: Permission denied (publickey).\n" }, "ada@gate: Permission denied (publickey)."],
  ["an unknown word", { stderr: "odd\nmore\n" }, "odd"],
  ["silence", {}, "no answer within 10 s"],
  [
    "a closed way",
    { stderr: "channel 0: open failed: connect failed: No route\n" },
    "from the jump host: connect failed: No route",
  ],
  ["an unknown name", { stderr: "ssh: Could not resolve hostname x: unknown\n" }, "ssh: Could not resolve hostname x: unknown"],
  ["a file of another form", { found: "target\n" }, undefined],
] as [string, Answer, string | undefined][])
  test(`behind a jump host ${what} is told as why there is no key`, async (t) => {
    const { asked, given } = tools(t, answer);
    if (message === undefined)
      await assert.rejects(scanBehind(HOST, HOP, [KEY], given), { code: "failed", message: /what ssh recorded, line 1/ });
    else await assert.rejects(scanBehind(HOST, HOP, [KEY], given), { code: "unreachable", message });
    assert.equal(asked.length, 1);
    assert.ok(!existsSync(asked[0]?.options.cwd as string));
  });

test("without a key to sign in at the jump host nobody is asked", async (t) => {
  const { asked, given } = tools(t, RECORDED);
  await assert.rejects(scanBehind(HOST, HOP, [KEY], { ...given, keyFile: "/none" }), {
    code: "failed",
    message: "there is no ssh key to sign in at the jump host with: /none",
  });
  assert.deepEqual(asked, []);
});
