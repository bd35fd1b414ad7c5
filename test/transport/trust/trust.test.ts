import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { Launcher } from "../../../lib/core/spawn.ts";
import type { WorkerAddress } from "../../../lib/transport/base/transport.ts";
import { type TrustOptions, trustWorkers } from "../../../lib/transport/trust/trust.ts";
import { patience } from "../../../scripts/patience.ts";
import { type PrivateSshd, publicPart } from "../../../scripts/private-sshd.ts";
import { fingerprintBy, freePort, startSshd } from "../../helpers/sshd.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

/** A known_hosts of its own, and how to give trust there. */
function place(t: TestContext, sshd?: PrivateSshd) {
  const file = path.join(temporaryFolder(t), "known_hosts");
  const launcher = new Launcher(process.env);
  const said: string[] = [];
  const give = (workers: WorkerAddress[], more: Partial<TrustOptions> = {}) =>
    trustWorkers(workers, {
      launcher,
      signal: new AbortController().signal,
      knownHostsFile: file,
      options: {},
      keyFile: sshd?.clientKey ?? "/none",
      user: "agent",
      concurrency: 8,
      force: false,
      onResult: (name, { outcome }) => said.push(`${name} ${outcome}`),
      ...more,
    });
  const text = () => (existsSync(file) ? readFileSync(file, "utf8") : undefined);
  return { file, launcher, said, give, text };
}

function at(host: string, sshPort: number, more: Partial<WorkerAddress> = {}): WorkerAddress {
  return { host, connection: "ssh", root: "/srv/worker", sshUser: "agent", sshPort, ...more };
}

/** A listener that takes connections and never says anything. */
async function silentListener(t: TestContext): Promise<{ port: number; connected: Promise<unknown> }> {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => sockets.add(socket.on("error", () => {}))).listen(0, "127.0.0.1");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  await once(server, "listening");
  return { port: (server.address() as { port: number }).port, connected: once(server, "connection") };
}

const linesOf = (name: string, files: readonly string[]) => files.map((file) => `${name} ${publicPart(file)}\n`).join("");
const shown = (files: readonly string[]) =>
  files.map((file) => ({ type: publicPart(file).split(" ")[0], fingerprint: fingerprintBy(file) }));

test("CP-252 a new host is recorded with all its keys, then it is unchanged, and ssh accepts it", async (t) => {
  const sshd = await startSshd(t, ["ed25519", "ecdsa", "rsa"]);
  const { file, said, give, text } = place(t);
  const name = `[127.0.0.2]:${sshd.port}`;
  const { workers } = await give([at("127.0.0.2", sshd.port)]);
  assert.deepEqual(workers, [
    { worker: "127.0.0.2", host: name, outcome: "trusted", fingerprints: shown(sshd.hostKeys), previous: [], error: null },
  ]);
  assert.equal(text(), linesOf(name, sshd.hostKeys));
  assert.equal(statSync(file).mode & 0o777, 0o600);
  const strict = ["-F", "none", "-o", `UserKnownHostsFile=${file}`, "-o", "StrictHostKeyChecking=yes"];
  for (const [host, status] of [
    ["127.0.0.2", 0],
    ["127.0.0.3", 255],
  ] as const) {
    const login = ["-o", "BatchMode=yes", "-i", sshd.clientKey, "-p", `${sshd.port}`, `${sshd.user}@${host}`];
    assert.equal(spawnSync("ssh", [...strict, ...login, "true"]).status, status, host);
  }
  assert.equal((await give([at("127.0.0.2", sshd.port)])).workers[0]?.outcome, "unchanged");
  assert.deepEqual(said, ["worker 127.0.0.2 trusted", "worker 127.0.0.2 unchanged"]);
});

test("CP-256 a changed key is refused with both fingerprints, and replaced only with force", async (t) => {
  const sshd = await startSshd(t, ["ed25519", "rsa"]);
  const { give, text } = place(t);
  const workers = [at("127.0.0.1", sshd.port), at("127.0.0.2", sshd.port)];
  await give(workers);
  const [before, known] = [text(), shown(sshd.hostKeys)];
  await sshd.stop();
  sshd.newKeys(["ed25519"]);
  await sshd.run();
  const offered = shown(sshd.hostKeys);
  const refused = await give([at("127.0.0.1", sshd.port)]);
  assert.deepEqual(refused.workers, [
    {
      worker: "127.0.0.1",
      host: `[127.0.0.1]:${sshd.port}`,
      outcome: "changed",
      fingerprints: offered,
      previous: known,
      error: "its host key is not the known one",
    },
  ]);
  assert.equal(text(), before);
  const replaced = (await give([at("127.0.0.1", sshd.port)], { force: true })).workers[0];
  assert.deepEqual([replaced?.outcome, replaced?.previous], ["replaced", known]);
  const others = before?.split("\n").filter((line) => line.startsWith("[127.0.0.2]"));
  assert.equal(text(), `${linesOf(`[127.0.0.1]:${sshd.port}`, sshd.hostKeys)}${others?.join("\n")}\n`);
  assert.equal((await give([at("127.0.0.1", sshd.port)], { force: true })).workers[0]?.outcome, "unchanged");
});

test("a key of another kind is no new trust: without force it is not taken, whatever else is known", async (t) => {
  const sshd = await startSshd(t, ["ed25519"]);
  const { give, text } = place(t);
  const worker = at("127.0.0.1", sshd.port);
  await give([worker]);
  const before = text();
  const [first] = sshd.hostKeys as [string];
  const restart = async (...kinds: Parameters<PrivateSshd["newKeys"]>) => {
    await sshd.stop();
    sshd.newKeys(...kinds);
    await sshd.run();
  };
  await restart(["rsa"], [first]);
  assert.equal((await give([worker])).workers[0]?.outcome, "unchanged");
  assert.equal(text(), before);
  await restart(["rsa"]);
  assert.equal((await give([worker])).workers[0]?.outcome, "changed");
  assert.equal(text(), before);
  await restart(["rsa"], [first]);
  assert.equal((await give([worker], { force: true })).workers[0]?.outcome, "replaced");
  assert.equal(text(), linesOf(`[127.0.0.1]:${sshd.port}`, sshd.hostKeys));
});

test("what goes wrong with one worker is its own result; a local one needs no trust", async (t) => {
  const sshd = await startSshd(t, ["ed25519"]);
  const { said, give, text } = place(t);
  const { workers } = await give([
    at("127.0.0.1", await freePort()),
    at("no-such-host.invalid", sshd.port),
    { host: "here", connection: "local", root: "/srv/worker" },
    at("127.0.0.4", sshd.port),
  ]);
  const found = workers.map(({ worker, outcome, error }) => `${worker}: ${outcome} ${error}`);
  assert.match(found[0] as string, /^127\.0\.0\.1: unreachable connection refused$/);
  assert.match(found[1] as string, /^no-such-host\.invalid: unreachable .*no-such-host\.invalid/);
  assert.equal(found[2], "here: not_needed null");
  assert.equal(found[3], "127.0.0.4: trusted null");
  assert.equal(said.length, 4);
  assert.equal(text(), linesOf(`[127.0.0.4]:${sshd.port}`, sshd.hostKeys));
});

test("CP-137 a cancel ends the wait for a silent host at once, with nothing left running", {
  timeout: patience(5_000),
}, async (t) => {
  const silent = await silentListener(t);
  const { launcher, give, text } = place(t);
  const stop = new AbortController();
  const given = give([at("127.0.0.1", silent.port), at("127.0.0.1", silent.port + 1)], { signal: stop.signal, concurrency: 1 });
  await silent.connected;
  stop.abort();
  await assert.rejects(given, { code: "cancelled" });
  assert.deepEqual(launcher.groups, []);
  assert.equal(text(), undefined);
});

test("a worker behind a jump host is asked through it, once the jump host is trusted", async (t) => {
  const hop = await startSshd(t, ["ed25519", "rsa"]);
  const inner = await startSshd(t, ["ecdsa", "rsa"]);
  const { said, give, text } = place(t, hop);
  const { TMPDIR } = process.env;
  t.after(() => {
    if (TMPDIR === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = TMPDIR;
  });
  process.env.TMPDIR = temporaryFolder(t);
  const sshJump = `${hop.user}@127.0.0.1:${hop.port}`;
  const closed = await freePort();
  const workers = [at("127.0.0.2", inner.port, { sshJump }), at("127.0.0.3", closed, { sshJump })];
  const result = await give(workers, { options: { Compression: "yes" } });
  assert.deepEqual(
    [result.jump_hosts, result.workers].map((hosts) => hosts.map(({ host, outcome }) => `${host} ${outcome}`)),
    [[`[127.0.0.1]:${hop.port} trusted`], [`[127.0.0.2]:${inner.port} trusted`, `[127.0.0.3]:${closed} unreachable`]],
  );
  assert.equal(result.workers[1]?.error, "from the jump host: connect failed: Connection refused");
  assert.equal(said[0], `jump host [127.0.0.1]:${hop.port} trusted`);
  assert.equal(text(), linesOf(`[127.0.0.1]:${hop.port}`, hop.hostKeys) + linesOf(`[127.0.0.2]:${inner.port}`, inner.hostKeys));
  assert.ok(/direct_tcpip: .* target 127\.0\.0\.2 /.test(hop.log));
  assert.ok(!/userauth_pubkey|Accepted/.test(inner.log));
  assert.deepEqual(readdirSync(process.env.TMPDIR as string), []);
});

test("behind a jump host that is not to be trusted, or lets nobody in, no worker is asked", async (t) => {
  const hop = await startSshd(t, ["ed25519"]);
  const inner = await startSshd(t, ["ed25519"]);
  const { file, give, text } = place(t, hop);
  const worker = at("127.0.0.2", inner.port, { sshJump: `${hop.user}@127.0.0.1:${hop.port}` });
  const [denied] = (await give([worker], { keyFile: inner.clientKey })).workers;
  assert.match(denied?.error ?? "", /Permission denied/);
  const [keyless] = (await give([worker], { keyFile: "/nowhere/worker.key" })).workers;
  assert.match(keyless?.error ?? "", /no ssh key to sign in at the jump host with: \/nowhere\/worker\.key/);
  assert.deepEqual([denied?.outcome, keyless?.outcome], ["unreachable", "failed"]);
  writeFileSync(file, linesOf(`[127.0.0.1]:${hop.port}`, inner.hostKeys));
  const before = text();
  const { jump_hosts, workers } = await give([worker]);
  assert.deepEqual([jump_hosts[0]?.outcome, workers[0]?.outcome], ["changed", "unreachable"]);
  assert.equal(workers[0]?.error, `its jump host [127.0.0.1]:${hop.port} is not trusted`);
  assert.equal(text(), before);
});

test("a server that drops connections while many ask it is asked again", async (t) => {
  const sshd = await startSshd(t, ["ed25519"], ["MaxStartups 2:50:4"]);
  const { give } = place(t);
  const workers = Array.from({ length: 8 }, (_, index) => at(`127.0.0.${index + 1}`, sshd.port));
  const result = await give(workers);
  assert.deepEqual(new Set(result.workers.map(({ outcome }) => outcome)), new Set(["trusted"]));
  assert.ok(/drop connection|MaxStartups/.test(sshd.log));
});

test("a known_hosts that no ops wrote stops the trust before any host is asked", async (t) => {
  const { file, said, give } = place(t);
  writeFileSync(file, "*.example ssh-rsa x\n");
  await assert.rejects(give([at("127.0.0.1", 1)]), { code: "failed", message: /line 1/ });
  assert.deepEqual(said, []);
});
