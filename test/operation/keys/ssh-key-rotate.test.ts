import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { SEED } from "../../helpers/random.ts";
import { keepersOf } from "../../helpers/ssh-fleet.ts";
import { type Site, SshRotations, sshKeyKillRounds } from "../../helpers/ssh-rotations.ts";

/** The result of a rotation of the ssh key. */
async function rotated(it: SshRotations, ...args: string[]) {
  const { code, stdout, said } = await it.ops("ssh-key", "rotate", "--json", ...args);
  const found = said.includes("{") ? JSON.parse(stdout.slice(stdout.indexOf("{"))) : {};
  return { code, said, result: found };
}

const outcomes = ({ workers }: { workers: { worker: string; outcome: string }[] }) =>
  workers.map(({ worker, outcome }) => `${worker} ${outcome}`);

test("CP-565 a rotation of the ssh key installs a new key by the one before, with its options, uses it, and removes the one before", async (t) => {
  const it = await SshRotations.start(t, [["127.0.0.1", "127.0.0.2"], ["127.0.0.3"]]);
  const before = it.key;
  await it.checkReached();
  const plan = await it.ops("ssh-key", "rotate", "--dry-run");
  assert.match(plan.said, /would install it on 3 workers and 0 jump hosts by the present key/);
  assert.equal(it.key, before);
  const keepers = keepersOf(it.layout.root);
  const { code, said, result } = await rotated(it);
  assert.equal(code, 0, said);
  assert.deepEqual(outcomes(result), ["127.0.0.1 ok", "127.0.0.2 ok", "127.0.0.3 ok"]);
  assert.deepEqual([result.resumed, result.switched, result.old_kept], [false, true, false]);
  assert.notEqual(it.key, before);
  for (const site of it.sites) assert.deepEqual(it.linesOf(site), [`no-pty,environment="A=b c" ${it.key}`]);
  assert.equal(it.isUnderway, false);
  await it.checkReached();
  assert.ok(
    keepersOf(it.layout.root).every((pid) => !keepers.includes(pid)),
    "no connection of the key before serves a run",
  );
});

test("CP-566 CP-568 an unreachable worker is named, both keys are offered for it, and the next rotation reaches it", async (t) => {
  const it = await SshRotations.start(t, [["127.0.0.1"], ["127.0.0.2"]]);
  const before = it.key;
  const away = it.sites[1] as Site;
  await away.fleet.sshd.stop();
  const first = await rotated(it);
  assert.equal(first.code, 1);
  assert.deepEqual(outcomes(first.result), ["127.0.0.1 ok", "127.0.0.2 unreachable"]);
  assert.deepEqual([first.result.switched, first.result.old_kept], [true, true]);
  assert.match(first.said, /1 machine may know only the key before, which is offered too/);
  assert.notEqual(it.key, before);
  await away.fleet.sshd.run();
  assert.ok(it.linesOf(away).join().includes(before), "it knows the key before alone");
  await it.checkReached();
  const left = "127.0.0.2 may know only the ssh key before, which is offered too";
  assert.match((await it.ops("doctor")).said, new RegExp(`${left}, since 2.*Z`));
  assert.match(
    await it.succeed("status"),
    new RegExp(`key change +ssh key, for .*; go on with: ops ssh-key rotate\n +${left}\n`),
  );
  const present = it.key;
  const second = await rotated(it);
  assert.equal(second.code, 0, second.said);
  assert.deepEqual([second.result.resumed, second.result.old_kept], [true, false]);
  assert.equal(it.key, present, "no further key is made");
  for (const site of it.sites) assert.deepEqual(it.linesOf(site), [`no-pty,environment="A=b c" ${present}`]);
  await it.checkReached();
  assert.doesNotMatch(await it.succeed("status"), /key change/);
});

test("CP-566 where a machine answers and the new key does not let in, nothing is switched, and a retry goes on once it does", async (t) => {
  const it = await SshRotations.start(t, [["127.0.0.1"], ["127.0.0.2"]]);
  const before = it.key;
  const [, other] = it.sites as [Site, Site];
  const elsewhere = path.join(path.dirname(other.authorized), "keys");
  writeFileSync(elsewhere, readFileSync(other.authorized));
  // Its sshd reads that file, and not the one in the home.
  await other.fleet.sshd.stop();
  rmSync(other.authorized);
  writeFileSync(other.authorized, readFileSync(elsewhere));
  const swapped = (await rotatedWith(it, other, elsewhere)).result;
  assert.deepEqual(outcomes(swapped), ["127.0.0.1 ok", "127.0.0.2 failed"]);
  assert.equal(swapped.switched, false);
  assert.match(swapped.workers[1].error, /does not let in: .*AuthorizedKeysFile.* put this line there, then again: ssh-ed25519 /);
  assert.equal(it.key, before);
  await it.checkReached();
  const [, line = ""] = /then again: (ssh-ed25519 \S+)/.exec(swapped.workers[1].error) ?? [];
  writeFileSync(elsewhere, `${readFileSync(elsewhere, "utf8")}${line}\n`);
  const { code, said } = await rotated(it);
  assert.equal(code, 0, said);
  assert.equal(it.key, line);
});

/** Rotates while the sshd of a site reads another file than the one in its home. */
async function rotatedWith(it: SshRotations, { fleet }: Site, file: string) {
  fleet.sshd.authorize(file);
  await fleet.sshd.run();
  return await rotated(it);
}

test("CP-565 jump hosts get the new key before the workers behind them, and authorized_keys may be a link", async (t) => {
  const it = await SshRotations.start(t, [["127.0.0.1"], ["127.0.0.2", "127.0.0.3"]], { behind: true });
  const [hop, behind] = it.sites as [Site, Site];
  const real = `${behind.authorized}.real`;
  writeFileSync(real, readFileSync(behind.authorized), { mode: 0o640 });
  rmSync(behind.authorized);
  symlinkSync(real, behind.authorized);
  const { code, said, result } = await rotated(it);
  assert.equal(code, 0, said);
  const { user, port } = hop.fleet.sshd;
  assert.deepEqual(outcomes(result), [`${user}@127.0.0.1:${port} ok`, "127.0.0.2 ok", "127.0.0.3 ok"]);
  for (const site of it.sites) assert.deepEqual(it.linesOf(site), [`no-pty,environment="A=b c" ${it.key}`]);
  assert.ok(existsSync(real));
  await it.checkReached();
});

test("CP-565 keys in authorized_keys are found behind any blanks, and comments are left alone", async (t) => {
  const it = await SshRotations.start(t, [["127.0.0.1"], ["127.0.0.2"]]);
  const [type, base64] = it.key.split(" ") as [string, string];
  const [tabs, blanks] = it.sites as [Site, Site];
  const comment = `  # ${it.key} of before`;
  writeFileSync(tabs.authorized, `no-pty,environment="A=b #c"\t${type}\t${base64}\tops\n${comment}\n`);
  writeFileSync(blanks.authorized, `no-pty  ${type}  ${base64}  ops  \n\t${type} ${base64}`);
  const { code, said } = await rotated(it);
  assert.equal(code, 0, said);
  assert.equal(readFileSync(tabs.authorized, "utf8"), `no-pty,environment="A=b #c"\t${it.key}\n${comment}\n`);
  assert.equal(readFileSync(blanks.authorized, "utf8"), `no-pty  ${it.key}\n\t${it.key}\n`);
});

test("CP-252 CP-566 behind a jump host that may know only the key before, a worker is trusted by that key", async (t) => {
  const it = await SshRotations.start(t, [["127.0.0.1"], ["127.0.0.2"]], { behind: true });
  renameSync(it.keyFile, path.join(it.layout.secrets, ".ssh_key.old"));
  spawnSync("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", it.keyFile]);
  rmSync(it.layout.knownHosts);
  const { code, said } = await it.ops("worker", "trust");
  assert.equal(code, 0, said);
});

test("CP-566 another key that is stored ends a rotation that was not switched, and deleting the key deletes both", async (t) => {
  const it = await SshRotations.start(t, [["127.0.0.1"]]);
  writeFileSync(path.join(it.layout.secrets, ".ssh_key.next"), readFileSync(it.keyFile), { mode: 0o600 });
  await it.succeed("ssh-key", "set", it.keyFile);
  assert.equal(it.isUnderway, false);
  writeFileSync(path.join(it.layout.secrets, ".ssh_key.old"), readFileSync(it.keyFile), { mode: 0o600 });
  await it.succeed("ssh-key", "delete");
  assert.equal(it.isUnderway, false);
  assert.match((await it.ops("ssh-key", "rotate")).said, /the bucket has none; make one with `ops ssh-key create`/);
});

test("CP-567 rotations of the ssh key that are killed at 3 random moments lose no worker, and end", async (t) => {
  const { hits, rotated } = await sshKeyKillRounds(t, 3, SEED);
  t.diagnostic(`seed ${SEED}: ${hits} kills, ${rotated} rotations`);
});
