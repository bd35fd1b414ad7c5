import assert from "node:assert/strict";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { runAll } from "../../../lib/core/async.ts";
import type { Transport } from "../../../lib/transport/base/transport.ts";
import { type SyncTree, syncTree } from "../../../lib/transport/files/sync.ts";
import { SshFleet } from "../../helpers/ssh-fleet.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { contentOf, syncFile } from "../../helpers/worker.ts";

/** How often an ssh has connected, with or without signing in. */
const connections = (fleet: SshFleet) => fleet.sshd.log.split("Remote protocol version").length - 1;

/** What goes wrong at the start of a connection and stays so, and what is said about it. */
const refusals: [string, (fleet: SshFleet, t: TestContext) => Promise<Transport>, RegExp][] = [
  [
    "a key that the worker does not know",
    (fleet, t) => fleet.one(t, { keyFile: fleet.strangersKey() }),
    /^Cannot sign in on worker 127\.0\.0\.1 as \S+: the key secrets\/stranger/,
  ],
  [
    "a key that is none",
    (fleet, t) => {
      writeFileSync(path.join(fleet.folder, "worker.key"), "no key\n", { mode: 0o600 });
      return fleet.one(t, { keyFile: path.join(fleet.folder, "worker.key") });
    },
    /^Cannot sign in on worker 127\.0\.0\.1: ssh cannot use the private key secrets\/worker\.key: /,
  ],
  [
    "an unknown host key",
    (fleet, t) => {
      writeFileSync(fleet.knownHostsFile, "");
      return fleet.one(t);
    },
    /^Cannot connect to worker 127\.0\.0\.1: the host key is not known; check and record it: `ops worker trust -w 127\.0\.0\.1`$/,
  ],
  [
    "no known host at all",
    (fleet, t) => {
      rmSync(fleet.knownHostsFile);
      return fleet.one(t);
    },
    /^Cannot connect to worker 127\.0\.0\.1: the host key is not known/,
  ],
  [
    "a changed host key",
    (fleet, t) => {
      fleet.trust(fleet.strangersKey());
      return fleet.one(t);
    },
    /^Refused to connect to worker 127\.0\.0\.1: another host key is shown there than the one that is trusted; /,
  ],
  [
    "no algorithm in common",
    (fleet, t) => fleet.one(t, { options: { KexAlgorithms: "diffie-hellman-group1-sha1" } }),
    /^Cannot connect to worker 127\.0\.0\.1: no matching key exchange method found; see ssh_options/,
  ],
];

for (const [what, connect, message] of refusals)
  test(`${what} is one sentence, and the worker is asked once in a run`, async (t) => {
    const fleet = await SshFleet.start(t);
    const before = connections(fleet);
    const one = await connect(fleet, t);
    for (let again = 0; again < 2; again++)
      await assert.rejects(one.script("true", { isShort: again === 0 }), { code: "unreachable", message });
    assert.ok(connections(fleet) - before <= 1, fleet.sshd.log);
  });

test("a refused connection is tried again for a moment, then it is one sentence; later the worker can be back", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  await fleet.sshd.stop();
  await assert.rejects(one.script("true"), {
    code: "unreachable",
    message: /^Cannot connect to worker 127\.0\.0\.1: nothing listens on port \d+ there; .+ \(tried \d+ times\)$/,
  });
  await fleet.sshd.run();
  assert.equal((await one.script("echo back")).stdout, "back\n");
});

test("a login that hangs is told as one: the port answers, sshd does not", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t, { options: { ConnectTimeout: "3" } });
  fleet.freezeListener();
  await assert.rejects(one.script("true"), {
    code: "unreachable",
    message: /^Cannot sign in on worker 127\.0\.0\.1: port \d+ accepts the connection, but the login hangs; /,
  });
});

test("a worker that answers without being able to run a command has failed, and its connection goes on", async (t) => {
  const flag = path.join(temporaryFolder(t), "broken");
  const login = `if [ -f '${flag}' ]; then kill -9 $$; fi; exec sh -c "$SSH_ORIGINAL_COMMAND"`;
  const fleet = await SshFleet.start(t, { login });
  const one = await fleet.one(t);
  assert.equal((await one.script("echo 1")).stdout, "1\n");
  writeFileSync(flag, "");
  const message = /^Cannot run commands on worker 127\.0\.0\.1: it closed the session/;
  await assert.rejects(one.script("echo 2"), { code: "failed", message });
  rmSync(flag);
  assert.equal((await one.script("echo 3")).stdout, "3\n");
  assert.equal(fleet.logins, 1);
});

test("a worker that comes back while it is tried is reached", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  await fleet.sshd.stop();
  const running = one.script("echo back");
  await new Promise((resolve) => setTimeout(resolve, 300));
  await fleet.sshd.run();
  assert.equal((await running).stdout, "back\n");
});

/** A tree whose last file comes to a halt in the middle, until somebody goes on. */
function haltingTree(): { tree: SyncTree; halted: Promise<void>; goOn: () => void } {
  const halted = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const last = syncFile("z-last", "z".repeat(400_000));
  const half = Buffer.alloc(200_000, "z");
  const slow = {
    ...last,
    async *open() {
      yield half;
      halted.resolve();
      await go.promise;
      yield half;
    },
  };
  const files = [syncFile("Makefile", "start:\n"), syncFile("a/b", "new\n"), slow];
  return { tree: { name: "web", folder: "jobs/web", files }, halted: halted.promise, goOn: go.resolve };
}

const OLD: SyncTree = { name: "web", folder: "jobs/web", files: [syncFile("Makefile", "stop:\n"), syncFile("a/b", "old\n")] };

test("a session that dies in the middle of a sync leaves the old tree, and the next sync heals", async (t) => {
  const fleet = await SshFleet.start(t);
  const one = await fleet.one(t);
  await syncTree(one, OLD);
  const { tree, halted, goOn } = haltingTree();
  const syncing = syncTree(one, tree);
  await halted;
  fleet.cut();
  await assert.rejects(syncing, {
    code: "unreachable",
    message: /^The connection was lost to worker 127\.0\.0\.1: .+; the command that ran there is (stopped|already gone)$/,
  });
  const jobs = path.join(one.folder, "jobs", "web");
  assert.deepEqual(await contentOf(jobs), { Makefile: "stop:\n", "a/b": "old\n" });
  goOn();
  assert.equal((await syncTree(one, haltingTreeWithoutHalt())).changed.length, 3);
  const found = await contentOf(jobs);
  assert.deepEqual([found["a/b"], found["z-last"]?.length], ["new\n", 400_000]);
  assert.equal(existsSync(path.join(one.folder, ".sync", "web")), false);
});

function haltingTreeWithoutHalt(): SyncTree {
  const { tree, goOn } = haltingTree();
  goOn();
  return tree;
}

test("a host that hangs is noticed by its silence", async (t) => {
  const fleet = await SshFleet.start(t);
  const options = { ServerAliveInterval: "1", ServerAliveCountMax: "1" };
  const one = await fleet.one(t, { options });
  const running = one.script("echo begun; sleep 300", { onLine: () => fleet.freeze() });
  await assert.rejects(running, {
    message:
      /^The connection was lost to worker 127\.0\.0\.1: Timeout, server 127\.0\.0\.1 not responding; the command that ran there is stopped$/,
  });
  fleet.cut();
  assert.equal((await one.script("echo again")).stdout, "again\n");
});

test("a full disk on the worker is told with the tool's own words, the tree stays the old one", async (t) => {
  // A limit for the size of files, with its signal ignored, makes every write beyond it fail as on a full disk.
  const flag = path.join(temporaryFolder(t), "full");
  const login = `[ ! -f '${flag}' ] || { trap '' XFSZ; ulimit -f 200; }; exec sh -c "$SSH_ORIGINAL_COMMAND"`;
  const fleet = await SshFleet.start(t, { login });
  await syncTree(await fleet.one(t), OLD);
  writeFileSync(flag, "");
  const full = await fleet.one(t);
  const large = { ...OLD, files: [...OLD.files, syncFile("large", "x".repeat(1_000_000))] };
  await assert.rejects(syncTree(full, large), {
    code: "failed",
    message:
      /^Cannot sync web to 127\.0\.0\.1: tar: web\/new\/1\/large: (Wrote only|Cannot write).*; the files did not arrive whole$/,
  });
  assert.deepEqual(await contentOf(path.join(full.folder, "jobs", "web")), { Makefile: "stop:\n", "a/b": "old\n" });
  rmSync(flag);
  assert.deepEqual((await syncTree(await fleet.one(t), large)).changed, ["large"]);
});

test("60 workers behind one sshd with MaxStartups 10:30:100 are all reached", async (t) => {
  const hosts = Array.from({ length: 60 }, (_, index) => `127.0.1.${index + 1}`);
  const fleet = await SshFleet.start(t, { hosts, sshd: ["MaxStartups 10:30:100"] });
  const { transports } = await fleet.connect(t);
  const said = await runAll(transports, 60, (one) => one.script('echo "$1"', { args: [one.worker.host], isShort: true }));
  assert.deepEqual(
    said.map((result) => (result.status === "fulfilled" ? result.value.stdout : result.reason.message)),
    hosts.map((host) => `${host}\n`),
  );
  assert.equal(fleet.logins, 60);
});

test("a server that drops most logins is tried again until it takes one", async (t) => {
  const hosts = Array.from({ length: 6 }, (_, index) => `127.0.1.${index + 1}`);
  const fleet = await SshFleet.start(t, { hosts, sshd: ["MaxStartups 1:80:3"] });
  const { transports } = await fleet.connect(t);
  const said = await runAll(transports, 6, (one) => one.script("echo in", { isShort: true }));
  assert.deepEqual(
    said.map((result) => (result.status === "fulfilled" ? result.value.stdout : result.reason.message)),
    hosts.map(() => "in\n"),
  );
  await until("the log tells of dropped logins", () => /drop connection/.test(fleet.sshd.log));
});
