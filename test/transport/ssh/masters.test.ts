import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  fstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { identify, type ProcessIdentity } from "../../../lib/core/process.ts";
import type { Launcher } from "../../../lib/core/spawn.ts";
import { digestIn, keptFolders, makeSshFolder, requireKey, SSH_PLACES, stampIn } from "../../../lib/transport/ssh/folder.ts";
import { OwnMasters, ownMasters } from "../../../lib/transport/ssh/masters.ts";
import { masterArgv, type SshSettings, sshConfig } from "../../../lib/transport/ssh/openssh.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const never = new AbortController().signal;
const SELF = identify(process.pid) as ProcessIdentity;
const GONE = { pid: process.pid, start_time: "1" };

/** Plays the ssh of each connection: `ssh` gets its socket and says what becomes of it. */
function playing(ssh: (socket: string, says: (text: string) => void, exits: () => void) => void) {
  const noted: unknown[][] = [];
  const launcher = {
    async start(argv: readonly string[], { stderr, isMember }: { stderr: number; isMember: boolean }) {
      noted.push([argv, isMember]);
      assert.equal(fstatSync(stderr).mode & 0o777, 0o600);
      const { promise: ended, resolve } = Promise.withResolvers<void>();
      ssh(argv[4] as string, (text) => void writeSync(stderr, text), resolve);
      const end = async (graceMs: number) => {
        noted.push(["end", graceMs > 0]);
        resolve();
      };
      return { ended, end };
    },
  };
  return { noted, launcher: launcher as unknown as Launcher };
}

test("a connection is there once its socket is; its messages are told when it ends, and nothing of them stays", async (t) => {
  const folder = temporaryFolder(t);
  let exit = () => {};
  const { noted, launcher } = playing((socket, says, exits) => {
    assert.ok(!existsSync(socket), "what a dead one left is in nobody's way");
    says(`${"a".repeat(4_000)}bye\n`);
    exit = exits;
    setImmediate(() => writeFileSync(socket, ""));
  });
  const masters = new OwnMasters(folder, launcher);
  t.after(() => masters.close());
  writeFileSync(path.join(folder, "s0"), "dead");
  const first = await masters.open("s0", "w1", never);
  assert.ok(typeof first !== "string" && !first.isOld);
  exit();
  assert.equal(await first.ended, `${"a".repeat(3_996)}bye\n`);
  assert.deepEqual(readdirSync(folder), ["s0"]);
  const second = await masters.open("s0", "w1", never);
  assert.ok(typeof second !== "string");
  await second.release(true);
  assert.equal((await second.ended).length, 4_000);
  const started = [masterArgv(folder, "s0", "w1"), false];
  assert.deepEqual(noted, [started, started, ["end", true]]);
  const members = new OwnMasters(folder, launcher, true);
  assert.ok(typeof (await members.open("s1", "w1", never)) !== "string");
  assert.deepEqual(noted.at(-1), [masterArgv(folder, "s1", "w1"), true]);
  const gone = await members.open("s2", "w1", never);
  assert.ok(typeof gone !== "string");
  await members.close();
  assert.ok(!existsSync(folder));
  exit();
  assert.equal(await gone.ended, "", "the messages went with the folder");
});

test("an ssh that ends first tells why; one that is cancelled, or takes over 40 s, is ended", async (t) => {
  const folder = temporaryFolder(t);
  const failing = playing((_, says, exits) => {
    says("Permission denied");
    exits();
  });
  const masters = new OwnMasters(folder, failing.launcher);
  t.after(() => masters.close());
  assert.equal(await masters.open("s0", "w1", never), "Permission denied");
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const hanging = playing(() => {});
  const slow = new OwnMasters(folder, hanging.launcher);
  t.after(() => slow.close());
  const opening = slow.open("s0", "w1", never);
  while (hanging.noted.length === 0) await nextRound();
  await nextRound();
  t.mock.timers.tick(39_999);
  await nextRound();
  assert.equal(hanging.noted.length, 1);
  t.mock.timers.tick(1);
  assert.equal(await opening, "the login timed out");
  await assert.rejects(slow.open("s0", "w1", AbortSignal.abort()), { code: "cancelled" });
  assert.deepEqual(hanging.noted.slice(1), [
    ["end", true],
    [masterArgv(folder, "s0", "w1"), false],
    ["end", true],
  ]);
  t.mock.timers.reset();
});

test("a folder that cannot be watched is told", async (t) => {
  const masters = new OwnMasters(path.join(temporaryFolder(t), "none"), playing(() => {}).launcher);
  await assert.rejects(masters.open("s0", "w1", never), { code: "failed", message: /^Cannot watch .*\/none for connections: / });
});

/** What a folder of connections is made for. */
function setUp(t: TestContext, more: Partial<SshSettings> = {}) {
  const bucket = temporaryFolder(t);
  const [keyFile, knownHostsFile] = ["worker.key", "known_hosts"].map((name) => path.join(bucket, name)) as [string, string];
  for (const file of [keyFile, knownHostsFile]) writeFileSync(file, path.basename(file));
  const settings = { user: "agent", port: 22, keyFile, knownHostsFile, options: {}, ...more } as SshSettings;
  const setup = { settings, workers: [{ host: "w1", connection: "ssh", root: "/srv" }] as const };
  const made = async (owner: ProcessIdentity, kept: "kept" | "own") => {
    const folder = await makeSshFolder(owner, setup, kept);
    t.after(() => rmSync(folder, { recursive: true, force: true }));
    return folder;
  };
  return { setup, settings, made, bucket };
}

test("the folder of connections has both configurations and links to the keys, for its user alone, named by its owner", async (t) => {
  const { setup, settings, made, bucket } = setUp(t);
  const folder = await made(SELF, "own");
  assert.match(folder, new RegExp(`^(?:${SSH_PLACES.join("|")})/ops-ssh-${SELF.pid}-${SELF.start_time}-\\w{6}$`));
  assert.deepEqual(readdirSync(folder).sort(), ["config", "key", "known_hosts", "masters"]);
  assert.equal(statSync(folder).mode & 0o777, 0o700);
  for (const file of ["config", "masters"] as const) {
    assert.equal(readFileSync(path.join(folder, file), "utf8"), sshConfig(file, folder, settings, setup.workers));
    assert.equal(statSync(path.join(folder, file)).mode & 0o777, 0o600);
  }
  assert.deepEqual(
    ["key", "known_hosts"].map((name) => readlinkSync(path.join(folder, name))),
    [settings.keyFile, settings.knownHostsFile],
  );
  const withOld = setUp(t, { oldKeyFile: path.join(bucket, "old.key") });
  const kept = await withOld.made(SELF, "kept");
  assert.match(path.basename(kept), /-kept-\w{6}$/);
  assert.equal(readlinkSync(path.join(kept, "old_key")), path.join(bucket, "old.key"));
  const own = await ownMasters({ ...setup, launcher: {} as Launcher });
  assert.match(path.basename(own.folder), new RegExp(`^ops-ssh-${SELF.pid}-${SELF.start_time}-\\w{6}$`));
  await own.masters.close();
  assert.ok(!existsSync(own.folder));
});

test("nothing stays of a folder whose configuration cannot be written", async (t) => {
  const { made } = setUp(t, { user: "no user" });
  const owner = { pid: 4_000_000, start_time: "77" };
  await assert.rejects(made(owner, "own"), { message: /Cannot use the user "no user" with ssh/ });
  for (const place of SSH_PLACES)
    assert.deepEqual(
      readdirSync(place).filter((name) => name.startsWith("ops-ssh-4000000-77-")),
      [],
    );
});

test("of the folders of a bucket those of living keepers are found, and those of dead processes removed", async (t) => {
  const { settings, made } = setUp(t);
  const others = setUp(t);
  const [kept, own] = [await made(SELF, "kept"), await made(SELF, "own")];
  const [dead, deadOwn] = [await made(GONE, "kept"), await made(GONE, "own")];
  const foreign = await others.made(GONE, "kept");
  const open = await made(GONE, "kept");
  chmodSync(open, 0o755);
  const unnumbered = await made(GONE, "kept");
  const odd = unnumbered.replace(/ops-ssh-\d+/, "ops-ssh-x");
  renameSync(unnumbered, odd);
  t.after(() => rmSync(odd, { recursive: true, force: true }));
  assert.deepEqual(await keptFolders(settings.knownHostsFile), [{ folder: kept, owner: SELF }]);
  assert.deepEqual(
    [kept, own, dead, deadOwn, foreign, open, odd].map((one) => existsSync(one)),
    [true, true, false, false, true, true, true],
  );
});

test("the digest of a folder tells of its configuration and its keys, the stamp of every write to them", async (t) => {
  const { settings, made } = setUp(t);
  const folder = await made(SELF, "own");
  const before = [await digestIn(folder), stampIn(folder)];
  assert.deepEqual([await digestIn(folder), stampIn(folder)], before);
  assert.equal(await digestIn(folder, readFileSync(path.join(folder, "config"), "utf8")), before[0]);
  assert.notEqual(await digestIn(folder, "other"), before[0]);
  const seen = new Set([before.join()]);
  const links = [settings.keyFile, settings.knownHostsFile, path.join(folder, "config"), path.join(folder, "old_key")];
  for (const file of links) {
    writeFileSync(file, "changed");
    seen.add([await digestIn(folder), stampIn(folder)].join());
  }
  assert.equal(seen.size, 5);
  assert.equal(new Set([...seen].map((one) => one.split(",")[0])).size, 5);
  const [digest, stamp] = [await digestIn(folder), stampIn(folder)];
  rmSync(settings.keyFile);
  assert.notEqual(await digestIn(folder), digest);
  assert.notEqual(stampIn(folder), stamp);
});

test("without a private key no worker is reached over ssh, and the sentence says how to get one", async (t) => {
  const { settings } = setUp(t);
  await requireKey(settings);
  await assert.rejects(requireKey({ ...settings, keyFile: "/none/fleet.key", isServed: true }), {
    code: "failed",
    message:
      "Cannot reach workers over ssh: there is no private key secrets/fleet.key; make one: `ops ssh-key create`, or store yours: `ops ssh-key set`, or Keys under Source in the console",
  });
});

test("what is watched is given back with the folder", async (t) => {
  const above = temporaryFolder(t);
  const folder = path.join(above, "ssh");
  mkdirSync(folder);
  const { launcher } = playing((socket) => setImmediate(() => writeFileSync(socket, "")));
  const masters = new OwnMasters(folder, launcher);
  await masters.open("s0", "w1", never);
  const watches = () =>
    readdirSync("/proc/self/fdinfo")
      .map((name) => `/proc/self/fdinfo/${name}`)
      .filter((file) => existsSync(file))
      .filter((file) => readFileSync(file, "utf8").includes("inotify ")).length;
  assert.equal(watches(), 1);
  // The kernel forgets the watch of a folder that is removed.
  renameSync(folder, path.join(above, "elsewhere"));
  await masters.close();
  await until("the watcher to be closed", () => watches() === 0);
});
