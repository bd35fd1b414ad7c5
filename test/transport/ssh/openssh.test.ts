import assert from "node:assert/strict";
import { test } from "node:test";
import type { WorkerAddress } from "../../../lib/transport/base/transport.ts";
import { jumpOf, lastLine, masterArgv, parseJump, type SshSettings, sshConfig } from "../../../lib/transport/ssh/openssh.ts";

const settings: SshSettings = {
  user: "agent",
  port: 22,
  keyFile: "/srv/b/secrets/worker.key",
  knownHostsFile: "/srv/b/.ssh/known_hosts",
  options: {},
  concurrency: 32,
  useSudo: false,
  reattachSeconds: 60,
  spoolBytes: 2 ** 26,
};

function at(host: string, more: Partial<WorkerAddress> = {}): WorkerAddress {
  return { host, connection: "ssh", root: "/opt/worker", ...more };
}

const COMMON = `Host *
  User agent
  Port 22
  BatchMode yes
  StrictHostKeyChecking yes
  UserKnownHostsFile /srv/x/known_hosts
  GlobalKnownHostsFile none
  UpdateHostKeys no
  VerifyHostKeyDNS no
  IdentityFile /srv/x/key
  IdentitiesOnly yes
  IdentityAgent none
  PreferredAuthentications publickey
  ConnectTimeout 10
  ConnectionAttempts 1
  ServerAliveInterval 15
  ServerAliveCountMax 3
  ClearAllForwardings yes
  ForwardAgent no
  ForwardX11 no
  EscapeChar none
  LogLevel INFO
`;

const WORKERS = [
  at("10.0.0.7"),
  at("2001:db8::7", { sshUser: "ops", sshPort: 2222, sshJump: "admin@bastion.example:2200" }),
  at("web-3.example", { sshJump: "admin@bastion.example:2200" }),
  // Its jump host has the user of ops.conf all the same.
  at("10.0.0.9", { sshUser: "ops", sshJump: "[2001:db8::1]:22" }),
];

test("the configuration has an entry per worker and one per jump host, and the operator's options come first", () => {
  const options = { Ciphers: "aes128-gcm@openssh.com,aes256-ctr", ServerAliveInterval: "5" };
  assert.equal(
    sshConfig("config", "/srv/x", { ...settings, options }, WORKERS),
    `Host *
  Ciphers aes128-gcm@openssh.com,aes256-ctr
  ServerAliveInterval 5
Host 10.0.0.7
  ControlPath /srv/x/s0
Host 2001:db8::7
  User ops
  Port 2222
  ControlPath /srv/x/s1
  ProxyJump jump_0
Host web-3.example
  ControlPath /srv/x/s2
  ProxyJump jump_0
Host 10.0.0.9
  User ops
  ControlPath /srv/x/s3
  ProxyJump jump_1
Host jump_0
  HostName bastion.example
  User admin
  Port 2200
Host jump_1
  HostName 2001:db8::1
  User agent
  Port 22
${COMMON}`,
  );
});

test("who opens connections reads entries only of workers that differ from the settings, and of jump hosts", () => {
  assert.equal(
    sshConfig("masters", "/srv/x", settings, WORKERS),
    `Host *
Host 2001:db8::7
  User ops
  Port 2222
  ProxyJump jump_0
Host web-3.example
  ProxyJump jump_0
Host 10.0.0.9
  User ops
  ProxyJump jump_1
Host jump_0
  HostName bastion.example
  User admin
  Port 2200
Host jump_1
  HostName 2001:db8::1
  User agent
  Port 22
${COMMON}`,
  );
});

test("the host stands behind `--`", () => {
  const options = ["-F", "/srv/x/masters", "-S", "/srv/x/s4", "-M", "-N", "-T"];
  assert.deepEqual(masterArgv("/srv/x", "s4", "10.0.0.7"), ["ssh", ...options, "--", "10.0.0.7"]);
});

const HOSTILE = [
  ...["-oProxyCommand=id", "a b", "a\nProxyCommand id", "$(id)", "`id`", "a;id", "a'b", 'a"b', "a*", "!a", ""],
  ...["../a", "a|b", "a#b", "%h", `\${HOME}`, "fe80::1%eth0", "a_b", "a\0b", "ä", "a".repeat(254)],
];

for (const value of HOSTILE)
  test(`a host ${JSON.stringify(value.slice(0, 30))} does not get into the configuration`, () => {
    assert.throws(() => sshConfig("config", "/srv/x", settings, [at(value)]), {
      code: "failed",
      message: /^Cannot use the host /,
    });
    assert.throws(() => sshConfig("config", "/srv/x", settings, [at("a", { sshJump: `b@${value}` })]), { code: "failed" });
  });

const refused: [string, Partial<SshSettings>, Partial<WorkerAddress>, RegExp][] = [
  ["a user with a dash in front", {}, { sshUser: "-l" }, /the user "-l"/],
  ["a user with a space", { user: "a b" }, {}, /the user "a b"/],
  ["a user with a line of its own", { user: "a\nProxyCommand id" }, {}, /the user "a\\nProxyCommand id"/],
  ["the user of a jump host", {}, { sshJump: "$(id)@b" }, /the user "\$\(id\)"/],
  ["a port out of range", { port: 65_536 }, {}, /the port "65536"/],
  ["a port that is no number", {}, { sshPort: Number.NaN }, /the port "NaN"/],
  ["an option that is not allowed", { options: { ProxyCommand: "id" } }, {}, /the ssh option "ProxyCommand id"/],
  ["an option in other letters", { options: { proxycommand: "id" } }, {}, /the ssh option/],
  ["an option with two values", { options: { Ciphers: "a b" } }, {}, /the ssh option "Ciphers a b"/],
  ["an option with a line of its own", { options: { Ciphers: "a\nProxyCommand id" } }, {}, /the ssh option/],
  ["an option named as the start of another", { options: { "Ciphers a\nProxyCommand": "id" } }, {}, /the ssh option/],
];

for (const [what, more, worker, message] of refused)
  test(`${what} does not get into the configuration`, () => {
    const given = { ...settings, ...more };
    assert.throws(() => sshConfig("config", "/srv/x", given, [at("10.0.0.7", worker)]), { code: "failed", message });
  });

test("a folder whose name could mean something to ssh is refused", () => {
  for (const folder of ["/srv/%h", "/srv/a b", `/srv/\${HOME}`, "tmp", '/srv/"'])
    assert.throws(() => sshConfig("config", folder, settings, []), { code: "failed", message: /the folder/ });
});

test("what is as long, or as high, as may be gets into the configuration, and one more does not", () => {
  const refusal = (more: Partial<SshSettings>, worker: Partial<WorkerAddress> = {}, host = "a") => {
    try {
      sshConfig("config", "/srv/x", { ...settings, ...more }, [at(host, worker)]);
      return undefined;
    } catch (error) {
      return (error as Error).message.replace(/"[^"]*"/, "…");
    }
  };
  const option = (value: string) => refusal({ options: { MACs: value } });
  const [host, port] = ["Cannot use the host … with ssh", "Cannot use the port … with ssh"];
  assert.deepEqual([refusal({}, {}, "a".repeat(253)), refusal({}, {}, "a".repeat(254))], [undefined, host]);
  assert.deepEqual(
    ["a", "a.b-c", "A9", "a-", "a.", "-a", ".a"].map((one) => refusal({}, {}, one)),
    [undefined, undefined, undefined, host, host, host, host],
  );
  assert.deepEqual(
    [1, 65_535, 0, 65_536, 1.5].map((sshPort) => refusal({}, { sshPort })),
    [undefined, undefined, port, port, port],
  );
  assert.deepEqual(
    ["_a", "a_b-9", "9a", "A", "a b", "a\n", " a", ""].map((user) => refusal({ user }) === undefined),
    [true, true, false, false, false, false, false, false],
  );
  const wrong = "Cannot use the ssh option … with ssh";
  assert.deepEqual([option("a".repeat(500)), option("a".repeat(501)), option("")], [undefined, wrong, wrong]);
  assert.equal(refusal({ options: { " MACs": "a" } }), wrong);
  assert.equal(option("a\n"), wrong);
  for (const folder of ["", "/", "/a/", "/a\n", "a/b", "x /a"])
    assert.throws(() => sshConfig("config", folder, settings, []), { message: /the folder/ }, JSON.stringify(folder));
});

test("a key before is offered after the key; who has no key asks the agent alone", () => {
  const [before, after] = COMMON.split("  IdentityFile /srv/x/key\n");
  const withOld = sshConfig("masters", "/srv/x", { ...settings, oldKeyFile: "/srv/b/secrets/old.key" }, []);
  assert.equal(withOld, `Host *\n${before}  IdentityFile /srv/x/key\n  IdentityFile /srv/x/old_key\n${after}`);
  const keys = "  IdentityFile /srv/x/key\n  IdentitiesOnly yes\n  IdentityAgent none\n";
  const agent = sshConfig("agent", "/srv/x", settings, [at("10.0.0.7"), at("b", { sshPort: 23 })]);
  const asking = COMMON.replace(keys, "  IdentityFile none\n  IdentityAgent /srv/x/agent\n");
  assert.equal(agent, `Host *\nHost b\n  Port 23\n${asking}`);
});

test("the parts of a way through another host; without one there is none", () => {
  for (const [jump, user, host, port] of [
    ["b", "agent", "b", 22],
    ["b:2", "agent", "b", 2],
    ["ada@b", "ada", "b", 22],
    ["@b", "", "b", 22],
    ["::1", "agent", "::1", 22],
    ["[::1]:2", "agent", "::1", 2],
    ["b:x", "agent", "b:x", 22],
    ["b:2x", "agent", "b:2x", 22],
  ] as const)
    assert.deepEqual(parseJump(jump, "agent"), { user, host, port }, jump);
  assert.equal(jumpOf(at("a"), settings), undefined);
  assert.deepEqual(jumpOf(at("a", { sshJump: "b" }), settings), { user: "agent", host: "b", port: 22 });
});

test("the last line of a text has neither blanks nor a period at its end", () => {
  assert.deepEqual(["a\nb.\n\n", "a.b", " a. ", ""].map(lastLine), ["b", "a.b", "a", ""]);
});
