import assert from "node:assert/strict";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { chainFiles, writeMonths } from "../../helpers/audit-log.ts";
import { ops } from "../../helpers/command-line.ts";
import { TestServer, TOKEN } from "../../helpers/server.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

test("ops audit show, head and export tell the same of a server and of its root, and an export verifies", async (t) => {
  const server = await TestServer.start(t);
  const folder = temporaryFolder(t);
  for (const name of ["a", "b"]) await server.call("POST", "/api/buckets", { body: { project: "p", name } });
  const env = { OPS_SERVER: server.url, OPS_SERVE_TOKEN: TOKEN, XDG_STATE_HOME: folder };
  const [there, here] = [{ env, cwd: folder }, { cwd: folder }];
  const root = ["--root", server.root];
  const shown = await ops(["audit", "show", "--json"], there);
  assert.equal(shown.code, 0, shown.stderr);
  assert.deepEqual(
    JSON.parse(shown.stdout).map(({ n, what }: { n: number; what: string }) => [n, what]),
    [
      [5, "outcome"],
      [4, "change"],
      [3, "outcome"],
      [2, "change"],
      [1, "server_start"],
    ],
  );
  assert.equal((await ops(["audit", "show", "--json", ...root], here)).stdout, shown.stdout);
  assert.match(
    (await ops(["audit", "show", "--what", "change", "--limit", "1"], there)).stdout,
    /^line +at .*\n +4 .*root +change +POST \/api\/buckets/,
  );
  const bucket = await server.createBucket();
  const { body } = await server.call("POST", `${bucket.path}/gc`);
  await server.ended(bucket.path, body.run_id);
  const { stdout: last } = await ops(["audit", "show", "--what", "start", "--limit", "1"], there);
  assert.match(last, new RegExp(`\\n +\\d+ .* POST \\S+/gc +…?${bucket.id.slice(-8)} `));
  const head = await ops(["audit", "head", "--json"], there);
  assert.equal((await ops(["audit", "head", "--json", ...root], here)).stdout, head.stdout);
  const { hash, public_key } = JSON.parse(head.stdout);
  // A line that is just being written.
  const [file = ""] = await chainFiles(server.root);
  writeFileSync(file, '{"audit":1,', { flag: "a" });
  for (const [name, where, more] of [
    ["there", there, []],
    ["here", here, root],
  ] as const) {
    const exported = await ops(["audit", "export", name, "--json", ...more], where);
    assert.equal(exported.code, 0, exported.stderr);
    const copy = path.join(folder, name);
    assert.deepEqual(readdirSync(copy).sort(), [...JSON.parse(exported.stdout).files, "audit.pub"].sort());
    const verified = await ops(["audit", "verify", copy, "--public-key", public_key, "--head", hash], here);
    assert.deepEqual([verified.code, verified.stderr], [0, ""]);
    assert.match(
      verified.stdout,
      /^nothing was changed: 1 file\nthe key SHA256:\S+ vouches for the lines 1 to \d+, until .*\nhead [0-9a-f]{64}\n$/,
    );
  }
  assert.equal((await ops(["audit", "show"], here)).code, 2);
  for (const args of [["show"], ["verify", "--public-key", public_key]])
    assert.match((await ops(["audit", ...args, "--root", folder], here)).stderr, /\/audit has no file of an audit, such as /);
  assert.match((await ops(["audit", "show", "--what", "nothing", ...root], here)).stderr, /--what: "nothing" is none of sign_in/);
});

test("ops audit verify works on copied files with the public key alone, names what it finds, and exits with 1", async (t) => {
  const folder = temporaryFolder(t);
  const root = path.join(folder, "root");
  const publicKey = await writeMonths(root, 2, 3);
  const files = await chainFiles(root);
  const [first = "", second = ""] = files;
  rmSync(path.join(root, "audit.key"));
  writeFileSync(path.join(folder, "key"), `${publicKey}\n`);
  const verify = (...args: string[]) =>
    ops(["audit", "verify", path.join(root, "audit"), "--public-key", "key", ...args], { cwd: folder });
  const whole = await verify();
  assert.equal(whole.code, 0, whole.stderr);
  assert.match(
    whole.stdout,
    /lines 1 to 6, until 2026-02-15.*\nhead [0-9a-f]{64}\nan end that was cut off shows only against --head/,
  );
  const [, hash = ""] = /head ([0-9a-f]{64})/.exec(whole.stdout) ?? [];
  const kept = readFileSync(second);
  writeFileSync(second, kept.subarray(0, kept.lastIndexOf("\n", kept.length - 2) + 1));
  assert.equal((await verify()).code, 0);
  const cut = await verify("--head", hash, "--json");
  const { ok, finding, last } = JSON.parse(cut.stdout);
  assert.deepEqual([cut.code, ok, finding.fault, last.n], [1, false, "cut off", 5]);
  writeFileSync(second, kept.toString().replace("person-4", "person-0"));
  const changed = await verify();
  assert.equal(changed.code, 1);
  assert.match(
    changed.stdout,
    /^FOUND: 2026-02\.jsonl:2: changed, where line 5 should be: the signature is not that of this line\n.*lines 1 to 4/,
  );
  assert.equal((await ops(["audit", "verify", first, "--public-key", publicKey], { cwd: folder })).code, 0);
  for (const wrong of [
    ["--head", "x"],
    ["--head", `x${hash}`],
    ["--head", `${hash}0`],
    ["--from", "y"],
  ])
    assert.equal((await verify(...wrong)).code, 2);
  assert.equal((await ops(["audit", "verify", root], { cwd: folder })).code, 2);
  assert.equal(statSync(first).mode & 0o777, 0o600);
});
