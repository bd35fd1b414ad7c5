import assert from "node:assert/strict";
import { test } from "node:test";
import { aboutWorkers, type WorkerAddress } from "../../../lib/transport/base/transport.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { connectTrouble } from "../../../lib/transport/ssh/openssh.ts";

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
const direct: WorkerAddress = { host: "10.0.0.7", connection: "ssh", root: "/opt/worker", sshPort: 2222 };
const behind: WorkerAddress = { ...direct, sshJump: "admin@10.9.9.9" };

/** Whose words, what ssh said, what is told, and whether it is tried again. */
const cases: [string, WorkerAddress, string, string, boolean][] = [
  [
    "an unknown host key",
    direct,
    "No ED25519 host key is known for [10.0.0.7]:2222 and you have requested strict checking.\nHost key verification failed.",
    "Cannot connect to worker 10.0.0.7: the host key is not known; check and record it: `ops worker trust -w 10.0.0.7`",
    false,
  ],
  [
    "a changed host key",
    direct,
    "@@@\n@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\n@@@\nHost key for [10.0.0.7]:2222 has changed.\nHost key verification failed.",
    "Refused to connect to worker 10.0.0.7: another host key is shown there than the one that is trusted; if that is right, trust the new one: `ops worker trust --force -w 10.0.0.7`",
    false,
  ],
  [
    "a key that is not accepted",
    direct,
    "Welcome to our host\nagent@10.0.0.7: Permission denied (publickey).",
    "Cannot sign in on worker 10.0.0.7 as agent: the key secrets/worker.key is not accepted there; put its public part (`ops ssh-key show`) into that user's authorized_keys, or store the right key: `ops ssh-key set`",
    false,
  ],
  [
    "a key that ssh cannot read",
    direct,
    'Load key "/srv/ssh-x/key": error in libcrypto\nagent@10.0.0.7: Permission denied (publickey).',
    "Cannot sign in on worker 10.0.0.7: ssh cannot use the private key secrets/worker.key: error in libcrypto; store another one: `ops ssh-key set`",
    false,
  ],
  [
    "no common algorithm",
    direct,
    "Unable to negotiate with 10.0.0.7 port 2222: no matching key exchange method found. Their offer: a,b",
    "Cannot connect to worker 10.0.0.7: no matching key exchange method found; see ssh_options in ops.conf",
    false,
  ],
  [
    "an option that ssh does not know",
    direct,
    "Unsupported KEX algorithm \"foo\"\n/srv/ssh-x/config line 2: Bad SSH2 KexAlgorithms 'foo'.",
    "Cannot connect to worker 10.0.0.7: Bad SSH2 KexAlgorithms 'foo'; see ssh_options in ops.conf",
    false,
  ],
  [
    "a name without an address",
    direct,
    "ssh: Could not resolve hostname web: Name or service not known",
    "Cannot connect to worker 10.0.0.7: the name has no address: Name or service not known",
    false,
  ],
  [
    "a refused connection",
    direct,
    "ssh: connect to host 10.0.0.7 port 2222: Connection refused",
    "Cannot connect to worker 10.0.0.7: nothing listens on port 2222 there; is sshd running, and is ssh_port right?",
    true,
  ],
  [
    "a login that hangs",
    direct,
    "Connection timed out during banner exchange\nConnection to 10.0.0.7 port 2222 timed out",
    "Cannot sign in on worker 10.0.0.7: port 2222 accepts the connection, but the login hangs; does sshd hang there, or is the host out of memory or processes?",
    true,
  ],
  [
    "a login that hangs after the keys are exchanged",
    direct,
    "the login timed out",
    "Cannot sign in on worker 10.0.0.7: port 2222 accepts the connection, but the login hangs; does sshd hang there, or is the host out of memory or processes?",
    true,
  ],
  [
    "no answer",
    direct,
    "ssh: connect to host 10.0.0.7 port 2222: Connection timed out",
    "Cannot connect to worker 10.0.0.7: no answer on port 2222 in time; is it up, and does the network let ssh through?",
    true,
  ],
  [
    "a dropped connection",
    direct,
    "kex_exchange_identification: read: Connection reset by peer\nConnection reset by 10.0.0.7 port 2222",
    "Cannot connect to worker 10.0.0.7: the connection is dropped before the login is done; sshd there may have too many logins at a time (MaxStartups) or has blocked this machine",
    true,
  ],
  [
    "no route",
    direct,
    "ssh: connect to host 10.0.0.7 port 2222: No route to host",
    "Cannot connect to worker 10.0.0.7: No route to host",
    false,
  ],
  ["anything else", direct, "one\nsomething new.\n", "Cannot connect to worker 10.0.0.7: something new", false],
  ["nothing at all", direct, "", "Cannot connect to worker 10.0.0.7: ssh ended without a word", true],
  [
    "a connection that is cut right after the login",
    direct,
    "Connection to 10.0.0.7 closed by remote host.\r\n",
    "Cannot connect to worker 10.0.0.7: the connection is closed right after the login; see the log of sshd there",
    true,
  ],
  [
    "an unknown jump host",
    behind,
    "No ED25519 host key is known for 10.9.9.9 and you have requested strict checking.\nHost key verification failed.\nConnection closed by UNKNOWN port 65535",
    "Cannot connect to the jump host 10.9.9.9 of worker 10.0.0.7: the host key is not known; check and record it: `ops worker trust -w 10.0.0.7`",
    false,
  ],
  [
    "a jump host that does not let in",
    behind,
    "admin@10.9.9.9: Permission denied (publickey).\nkex_exchange_identification: Connection closed by remote host\nConnection closed by UNKNOWN port 65535",
    "Cannot sign in on the jump host 10.9.9.9 of worker 10.0.0.7 as admin: the key secrets/worker.key is not accepted there; put its public part (`ops ssh-key show`) into that user's authorized_keys, or store the right key: `ops ssh-key set`",
    false,
  ],
  [
    "a worker that its jump host does not reach",
    behind,
    "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\nConnection closed by UNKNOWN port 65535",
    "Cannot connect to worker 10.0.0.7: the jump host does not get to port 2222 there: Connection refused",
    false,
  ],
  [
    "a worker behind a jump host that is not known",
    behind,
    "No ED25519 host key is known for [10.0.0.7]:2222 and you have requested strict checking.\nHost key verification failed.",
    "Cannot connect to worker 10.0.0.7: the host key is not known; check and record it: `ops worker trust -w 10.0.0.7`",
    false,
  ],
];

for (const [what, worker, said, sentence, isTransient] of cases)
  test(`${what} is told in one sentence and ${isTransient ? "tried again for some time" : "never tried again"}`, () => {
    const trouble = connectTrouble(said, worker, settings);
    assert.equal(aboutWorkers(trouble.sentence, ["10.0.0.7"]), sentence);
    assert.equal(trouble.retryMs > 0, isTransient);
  });

/** The names of the cases above whose trouble is so. */
const those = (is: (trouble: ReturnType<typeof connectTrouble>) => boolean) =>
  cases.filter(([, worker, said]) => is(connectTrouble(said, worker, settings))).map(([what]) => what);

test("what only a person can change lasts; a dropped connection says that too many came at a time", () => {
  assert.deepEqual(
    those(({ lasts }) => lasts),
    [
      "an unknown host key",
      "a changed host key",
      "a key that is not accepted",
      "a key that ssh cannot read",
      "no common algorithm",
      "an option that ssh does not know",
      "an unknown jump host",
      "a jump host that does not let in",
      "a worker behind a jump host that is not known",
    ],
  );
  assert.deepEqual(
    those(({ isDropped }) => isDropped),
    ["a dropped connection"],
  );
  const refused = connectTrouble("ssh: connect to host 10.0.0.7 port 2222: Connection refused", direct, settings);
  const late = connectTrouble("ssh: connect to host 10.0.0.7 port 2222: Connection timed out", direct, settings);
  assert.ok(refused.retryMs < late.retryMs, "a server that is just being started is back sooner");
});

test("other words for the same: each has its sentence", () => {
  for (const [said, sentence] of [
    ["No RSA host key is known for x.", /^Cannot connect to \{workers\}: the host key is not known; /],
    ["Host key verification failed.", /: the host key is not known; /],
    ["Received disconnect: Too many authentication failures", /^Cannot sign in on \{workers\} as agent: /],
    ["config line 3: Bad configuration option 'x'", /^Cannot connect to \{workers\}: config line 3: Bad/],
    ["line 2: Bad ciphers 'x'.", /^Cannot connect to \{workers\}: Bad ciphers 'x'; see ssh_options in ops\.conf$/],
    ["channel 0: open failed: administratively prohibited: ", /port 2222 there: administratively prohibited: $/],
    ["Connection timed out during banner exchange", /port 2222 accepts the connection, but the login hangs/],
    ["Connection to 10.0.0.7 port 2222 timed out", /the login hangs/],
    ["Connection closed by 10.0.0.7 port 2222", /dropped before the login is done/],
    ["write: Broken pipe", /dropped before the login is done/],
    [" \n ", /ssh ended without a word$/],
    ["ssh: connect to host a port 1: Network is unreachable", /^Cannot connect to \{workers\}: Network is unreachable$/],
  ] as const)
    assert.match(connectTrouble(said, direct, settings).sentence, sentence, said);
});

test("where a server has started the run, sentences also say where in its console", () => {
  const served = (said: string) => connectTrouble(said, direct, { ...settings, isServed: true }).sentence;
  assert.match(served("Host key verification failed."), /trust\{only\}`, or Trust under Workers in the console$/);
  assert.match(served("REMOTE HOST IDENTIFICATION HAS CHANGED"), /`, or Trust by force under Workers in the console$/);
  for (const said of ["Permission denied", "Load key x: bad"])
    assert.match(served(said), /: `ops ssh-key set`, or Keys under Source in the console$/);
});

test("a worker without user and port of its own has those of the settings", () => {
  const plain = { host: "w1", connection: "ssh", root: "/" } as const;
  const told = (said: string, worker: WorkerAddress) => connectTrouble(said, worker, { ...settings, port: 2200 }).sentence;
  assert.match(told("Permission denied", plain), /^Cannot sign in on \{workers\} as agent: /);
  assert.match(told("timed out", plain), /no answer on port 2200 /);
  const own = { ...plain, sshUser: "ada", sshPort: 23, sshJump: "eve@gate:24" };
  assert.match(told("ada@w1: Permission denied", own), /^Cannot sign in on \{workers\} as ada: /);
  assert.match(told("w1 behind gate: timed out", own), /^Cannot connect to \{workers\}: no answer on port 23 /);
  assert.match(told("gate: timed out", own), /^Cannot connect to the jump host gate of \{workers\}: no answer on port 24 /);
});
