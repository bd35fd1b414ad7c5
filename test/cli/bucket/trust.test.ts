import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../../lib/bucket/base/lock.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { ops } from "../../helpers/command-line.ts";
import { fingerprintBy, startSshd } from "../../helpers/sshd.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import { makeWorkspace } from "../../helpers/workspace.ts";

async function bucketWith(t: TestContext, port: number, ...hosts: string[]) {
  const dir = temporaryFolder(t);
  const workers = hosts.map((host) => ({ host, ssh_port: port, labels: [host === hosts[0] ? "first" : "other"] }));
  assert.equal((await ops(["init", "--bucket-dir", dir])).code, 0);
  makeWorkspace(dir, { workers });
  assert.equal((await ops(["build", "--bucket-dir", dir])).code, 0);
  const trust = (...args: string[]) => ops(["worker", "trust", ...args], { cwd: dir });
  return { dir, layout: layoutOf(dir), trust };
}

test("CP-256 ops worker trust records keys, refuses a changed one with exit code 1 and replaces it with --force", async (t) => {
  const sshd = await startSshd(t, ["ed25519"]);
  const { layout, trust } = await bucketWith(t, sshd.port, "127.0.0.1", "127.0.0.2");
  const first = await trust("--workers", "127.0.0.1, 127.0.0.2", "--concurrency", "1");
  assert.deepEqual([first.code, first.stderr], [0, ""]);
  const [old = ""] = sshd.hostKeys;
  for (const host of ["127.0.0.1", "127.0.0.2"])
    assert.ok(first.stdout.includes(`worker ${host}: trusted, ssh-ed25519 ${fingerprintBy(old)}\n`));
  await sshd.stop();
  sshd.newKeys(["ed25519"]);
  await sshd.run();
  const [now = ""] = sshd.hostKeys;
  const refused = await trust("--labels=first");
  assert.equal(refused.code, 1);
  const both = `known is ssh-ed25519 ${fingerprintBy(old)}, it shows ssh-ed25519 ${fingerprintBy(now)}`;
  assert.ok(refused.stderr.includes(both), refused.stderr);
  const forced = await trust("--labels", "first", "--force");
  assert.equal(forced.code, 0);
  assert.match(forced.stdout, /127\.0\.0\.1: replaced ssh-ed25519 .* by ssh-ed25519 /);
  const known = readFileSync(layout.knownHosts, "utf8");
  assert.equal(known.split("\n").length, 3);
  assert.equal(existsSync(layout.lock), false);
});

test("it works under the bucket's lock", async (t) => {
  const { layout, trust } = await bucketWith(t, 1, "127.0.0.1");
  const lock = await acquireLock(layout, uuidV7(), "deploy");
  t.after(() => lock.release());
  const busy = await trust();
  assert.deepEqual([busy.code, busy.stdout], [75, ""]);
  assert.match(busy.stderr, /^ops: bucket busy: another ops operation is in progress\n/);
});

for (const [args, message] of [
  [["--concurrency", "many"], /--concurrency: expected a whole number, found "many"/],
  [["--concurrency", "0"], /--concurrency: expected a number from 1 to 1024/],
  [["--workers", "a", "--labels", "b"], /--labels: excludes workers: give one of the two/],
  [["--workers", ","], /--workers: expected names with commas between them/],
  [["--forse"], /did you mean --force\?/],
] as const)
  test(`ops worker trust ${args.join(" ")} is wrong usage`, async (t) => {
    const { code, stderr } = await ops(["worker", "trust", ...args], { cwd: temporaryFolder(t) });
    assert.equal(code, 2, stderr);
    assert.match(stderr, message);
  });
