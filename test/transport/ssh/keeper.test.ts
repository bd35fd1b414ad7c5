import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import path from "node:path";
import { test } from "node:test";
import { hasMembers, identify, type ProcessIdentity, signalProcess } from "../../../lib/core/process.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import type { WorkerAddress } from "../../../lib/transport/base/transport.ts";
import type { Keeping } from "../../../lib/transport/ssh/kept-masters.ts";
import type { SshSettings } from "../../../lib/transport/ssh/openssh.ts";
import { SshConnections } from "../../../lib/transport/ssh/ssh.ts";
import { BUCKET_ID, keepersOf, SshFleet, sshFolders } from "../../helpers/ssh-fleet.ts";
import { until } from "../../helpers/temporary.ts";

/** Longer than any test. */
const LONG = { seconds: 3_600, server: null };

interface RunOptions {
  keeping?: Keeping;
  settings?: Partial<SshSettings>;
  workers?: readonly WorkerAddress[];
  launcher?: Launcher;
}

/** Connects as a run does. */
function begin(fleet: SshFleet, { keeping = LONG, settings, workers, launcher }: RunOptions = {}): Promise<SshConnections> {
  return SshConnections.open(fleet.settings(settings), workers ?? fleet.workers, launcher ?? fleet.launcher, { keeping });
}

async function say(fleet: SshFleet, connections: SshConnections, more: { isShort?: boolean } = {}): Promise<void> {
  for (const worker of fleet.workers) {
    const { stdout } = await connections.transport(worker, BUCKET_ID).script('echo "$1"', { args: [worker.host], ...more });
    assert.equal(stdout, `${worker.host}\n`);
  }
}

/** A whole run, which says something on every worker; answers how often it has signed in. */
async function run(fleet: SshFleet, options: RunOptions = {}): Promise<number> {
  const before = fleet.logins;
  const connections = await begin(fleet, options);
  await say(fleet, connections);
  await say(fleet, connections, { isShort: true });
  await connections.close();
  return fleet.logins - before;
}

async function keeperOf(fleet: SshFleet): Promise<number> {
  const [pid, ...more] = keepersOf(fleet.folder);
  assert.deepEqual(more, [], "there is one keeper");
  return pid as number;
}

/** No process of a connection is left on either side, nor a folder. */
async function nothingIsLeft(fleet: SshFleet, keeper: number): Promise<void> {
  await until("all processes of the keeper to end", () => !hasMembers(keeper));
  await until("the workers' side to end", () => fleet.sessions.length === 0 && fleet.shells.length === 0);
}

test("CP-395 a later run opens no connection, whatever the one before it did; a run reports no group of it", async (t) => {
  const fleet = await SshFleet.start(t);
  const changes: string[] = [];
  const launcher = new Launcher(process.env, (change) => changes.push(change));
  assert.equal(await run(fleet, { launcher }), fleet.hosts.length);
  const pid = await keeperOf(fleet);
  assert.deepEqual([changes, launcher.groups], [[], []]);
  for (let again = 0; again < 3; again++) assert.equal(await run(fleet), 0);
  assert.equal(await keeperOf(fleet), pid);
  const [folder = ""] = sshFolders(fleet.folder);
  assert.equal(statSync(folder).mode & 0o777, 0o700);
  await until("no session of a run is left", () => fleet.shells.length === 0);
  assert.equal(fleet.sessions.length > 0, true);
});

test("CP-395 kept connections end after ssh_keep_seconds without a run, and with 0 at the next run", async (t) => {
  const fleet = await SshFleet.start(t);
  await run(fleet, { keeping: { seconds: 1, server: null } });
  await nothingIsLeft(fleet, await keeperOf(fleet));
  assert.deepEqual(sshFolders(fleet.folder), []);
  await run(fleet);
  const pid = await keeperOf(fleet);
  assert.equal(await run(fleet, { keeping: { seconds: 0, server: null } }), fleet.hosts.length);
  await nothingIsLeft(fleet, pid);
  await until("the folders to go", () => sshFolders(fleet.folder).length === 0);
});

/** What a run may find changed, after which no earlier connection serves it. */
const changes: [string, (fleet: SshFleet) => RunOptions, RegExp | undefined][] = [
  [
    "another key",
    (fleet) => {
      const keyFile = path.join(fleet.folder, "worker.key");
      writeFileSync(keyFile, readFileSync(fleet.strangersKey()), { mode: 0o600 });
      return { settings: { keyFile } };
    },
    /the key secrets\/worker\.key is not accepted there/,
  ],
  [
    "another host key",
    (fleet) => {
      fleet.trust(fleet.strangersKey());
      return {};
    },
    /another host key is shown there than the one that is trusted/,
  ],
  [
    "no host keys",
    (fleet) => {
      rmSync(fleet.knownHostsFile);
      return {};
    },
    /the host key is not known/,
  ],
  ["another option", () => ({ settings: { options: { ServerAliveInterval: "7" } } }), undefined],
  ["another port", (fleet) => ({ workers: fleet.hosts.map((host) => fleet.worker(host, { sshPort: 1 })) }), /port 1 there/],
  ["other workers", (fleet) => ({ workers: [...fleet.workers].reverse() }), undefined],
];

for (const [what, change, message] of changes)
  test(`CP-396 after a run with ${what} no earlier connection is left, and none serves that run`, async (t) => {
    const fleet = await SshFleet.start(t);
    const keyFile = path.join(fleet.folder, "worker.key");
    writeFileSync(keyFile, readFileSync(fleet.sshd.clientKey), { mode: 0o600 });
    await run(fleet, { settings: { keyFile } });
    const pid = await keeperOf(fleet);
    const options = change(fleet);
    const changed = { settings: { keyFile, ...options.settings }, ...(options.workers && { workers: options.workers }) };
    if (message) await assert.rejects(run(fleet, changed), { code: "unreachable", message });
    else assert.equal(await run(fleet, changed), fleet.hosts.length);
    await until("the earlier keeper to end", () => !hasMembers(pid));
  });

test("CP-396 kept connections end by themselves when the key or the known hosts are changed or gone", async (t) => {
  const fleet = await SshFleet.start(t);
  const keyFile = path.join(fleet.folder, "worker.key");
  const settings = { keyFile };
  for (const change of [
    () => writeFileSync(keyFile, readFileSync(fleet.strangersKey())),
    () => rmSync(keyFile),
    () => writeFileSync(fleet.knownHostsFile, ""),
    () => rmSync(fleet.knownHostsFile),
  ]) {
    writeFileSync(keyFile, readFileSync(fleet.sshd.clientKey), { mode: 0o600 });
    fleet.trust(fleet.sshd.hostKeys[0] as string);
    assert.equal(await run(fleet, { settings }), fleet.hosts.length);
    const pid = await keeperOf(fleet);
    change();
    await nothingIsLeft(fleet, pid);
  }
});

test("CP-397 kept connections end with the server whose run has used them", async (t) => {
  const fleet = await SshFleet.start(t);
  const server = spawn("sleep", ["600"]);
  t.after(() => server.kill("SIGKILL"));
  await run(fleet);
  await run(fleet, { keeping: { seconds: 3_600, server: identify(server.pid as number) as ProcessIdentity } });
  const pid = await keeperOf(fleet);
  await run(fleet);
  assert.equal(await keeperOf(fleet), pid, "a run of the command line uses them too");
  server.kill("SIGKILL");
  await nothingIsLeft(fleet, pid);
});

/** The members of the keeper's group, by the first word of their command lines. */
function members(keeper: number): Map<string, number> {
  const found = readdirSync("/proc").filter((name) => /^\d+$/.test(name) && groupOf(name) === keeper);
  return new Map(
    found.map((name) => [path.basename(readFileSync(`/proc/${name}/cmdline`, "latin1").split("\0")[0] ?? ""), Number(name)]),
  );
}

function groupOf(pid: string): number {
  try {
    return Number(readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ")[2]);
  } catch {
    return 0;
  }
}

for (const victim of ["keeper", "guard"] as const)
  test(`CP-397 a ${victim} that is killed leaves nothing behind, and the next run connects anew`, async (t) => {
    const fleet = await SshFleet.start(t);
    await run(fleet);
    const pid = await keeperOf(fleet);
    signalProcess(victim === "keeper" ? pid : (members(pid).get("sh") as number), "SIGKILL");
    await nothingIsLeft(fleet, pid);
    assert.equal(await run(fleet), fleet.hosts.length);
    assert.equal(sshFolders(fleet.folder).length, 1);
    assert.notEqual(await keeperOf(fleet), pid);
  });

for (const victim of ["keeper", "guard"] as const)
  test(`CP-397 a run whose ${victim} is killed goes on over connections of its own, and they end with it`, async (t) => {
    const fleet = await SshFleet.start(t);
    const connections = await begin(fleet);
    await say(fleet, connections, { isShort: true });
    const pid = await keeperOf(fleet);
    signalProcess(victim === "keeper" ? pid : (members(pid).get("sh") as number), "SIGKILL");
    await until("the keeper to end", () => !hasMembers(pid));
    for (let again = 0; again < 2; again++) await say(fleet, connections);
    assert.equal(fleet.logins, 2 * fleet.hosts.length);
    assert.equal(existsSync(connections.configFile), true, "the configuration stays where scripts know it");
    await connections.close();
    await until("nothing is left", () => fleet.sessions.length === 0);
    assert.deepEqual(sshFolders(fleet.folder), []);
  });

test("CP-397 a run that says no farewell takes its connections with it", async (t) => {
  const fleet = await SshFleet.start(t);
  await run(fleet);
  const pid = await keeperOf(fleet);
  const launcher = new Launcher(process.env);
  const connections = await begin(fleet, { launcher });
  const running = connections.transport(fleet.worker("127.0.0.1"), BUCKET_ID).script("echo begun; exec sleep 300");
  await until("the command to run", () => fleet.processes.length > 0);
  // As a process that is killed does.
  await launcher.endAll(0);
  await assert.rejects(running, { code: "unreachable" });
  await until("the keeper to end", () => !hasMembers(pid));
  await connections.close();
});

test("a keeper that hangs is replaced, and a socket that nobody listens on is passed over", async (t) => {
  const fleet = await SshFleet.start(t);
  await run(fleet);
  const pid = await keeperOf(fleet);
  signalProcess(pid, "SIGSTOP");
  assert.equal(await run(fleet), fleet.hosts.length);
  await until("the keeper that hangs to end", () => !hasMembers(pid));
  const next = await keeperOf(fleet);
  const [folder = ""] = sshFolders(fleet.folder);
  rmSync(path.join(folder, "keeper"));
  assert.equal(await run(fleet), fleet.hosts.length);
  await until("the keeper that nobody finds to end", () => !hasMembers(next));
  assert.equal(sshFolders(fleet.folder).length, 1);
});

test("a kept connection that has died unnoticed is replaced before anything runs over it", async (t) => {
  const fleet = await SshFleet.start(t, { hosts: ["127.0.0.1"] });
  // By itself ssh would not notice.
  const settings = { options: { ServerAliveInterval: "0" } };
  await run(fleet, { settings });
  const before = fleet.sessions;
  fleet.freeze();
  assert.equal(await run(fleet, { settings }), fleet.hosts.length);
  for (const pid of before) signalProcess(pid, "SIGKILL");
});

test("a kept connection that was lost is opened anew", async (t) => {
  const fleet = await SshFleet.start(t);
  await run(fleet);
  fleet.cut();
  assert.equal(await run(fleet), fleet.hosts.length);
  assert.equal(await run(fleet), 0);
});

test("a worker on which a command may still run is signed in to anew by the next run", async (t) => {
  const fleet = await SshFleet.start(t);
  const connections = await begin(fleet);
  await say(fleet, connections);
  const one = connections.transport(fleet.worker("127.0.0.1"), BUCKET_ID);
  const stop = new AbortController();
  const running = one.script("echo begun; exec sleep 300", { signal: stop.signal, onLine: () => stop.abort() });
  stop.signal.addEventListener("abort", () => fleet.freeze());
  assert.equal((await running).receipt, "unreachable");
  await connections.close();
  const frozen = fleet.sessions;
  for (const pid of frozen) signalProcess(pid, "SIGCONT");
  assert.equal(await run(fleet), 1);
});

test("an ssh of a script goes over the kept connections", async (t) => {
  const fleet = await SshFleet.start(t);
  await run(fleet);
  const connections = await begin(fleet);
  await connections.transport(fleet.worker("127.0.0.2"), BUCKET_ID).script("true");
  const argv = ["ssh", "-F", connections.configFile, "--", "127.0.0.2", "echo over"] as const;
  assert.equal((await fleet.launcher.run(argv)).stdout, "over\n");
  assert.equal(fleet.logins, fleet.hosts.length);
  await connections.close();
});

test("who speaks to a keeper and is no run of its bucket ends it", async (t) => {
  const fleet = await SshFleet.start(t);
  for (const line of ["no json\n", '{"type":"hello","folder":"/","digest":"0","seconds":9,"server":null}\n']) {
    await run(fleet);
    const pid = await keeperOf(fleet);
    const [folder = ""] = sshFolders(fleet.folder);
    connect(path.join(folder, "keeper"))
      .on("error", () => {})
      .write(line);
    await nothingIsLeft(fleet, pid);
  }
});
