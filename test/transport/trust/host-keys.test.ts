import assert from "node:assert/strict";
import { chmodSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import type { PublicKey } from "../../../lib/codec/crypto/ssh-key.ts";
import { parseJump } from "../../../lib/transport/ssh/openssh.ts";
import { knownHostName, openKnownHosts, parseKnownHosts } from "../../../lib/transport/trust/host-keys.ts";
import { makeKey, publicPart } from "../../../scripts/private-sshd.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const folder = temporaryFolder({ after: (done) => process.on("exit", done as () => void) });
const [ed25519, rsa, ecdsa] = (["ed25519", "rsa", "ecdsa"] as const).map((kind) => {
  const [type, base64] = publicPart(makeKey(folder, kind, "-t", kind)).split(" ");
  return { type, base64 } as PublicKey;
}) as [PublicKey, PublicKey, PublicKey];
const line = (name: string, key: PublicKey) => `${name} ${key.type} ${key.base64}`;

for (const [host, port, name] of [
  ["10.0.0.1", 22, "10.0.0.1"],
  ["10.0.0.1", 2222, "[10.0.0.1]:2222"],
  ["DB1.Example", 22, "db1.example"],
  ["0:0:0:0:0:0:0:1", 22, "::1"],
  ["FE80::0001", 2222, "[fe80::1]:2222"],
] as const)
  test(`ssh looks for ${host} on port ${port} under ${name}`, () => {
    assert.equal(knownHostName({ host, port }), name);
  });

for (const [jump, expected] of [
  ["bastion", { user: "agent", host: "bastion", port: 22 }],
  ["admin@bastion:2222", { user: "admin", host: "bastion", port: 2222 }],
  ["admin@fe80::1", { user: "admin", host: "fe80::1", port: 22 }],
  ["[fe80::1]:2222", { user: "agent", host: "fe80::1", port: 2222 }],
] as const)
  test(`${jump} is a way through ${expected.host}`, () => {
    assert.deepEqual(parseJump(jump, "agent"), expected);
  });

test("lines are read with blanks, comments and what was said twice passed over", () => {
  const text = `# ours\n\n${line("B.example", rsa)}\n${line("[a]:23", ed25519)}\n${line("b.example", ed25519)}\n${line("b.example", rsa)}\n`;
  const known = parseKnownHosts(text, "known_hosts");
  assert.deepEqual(
    [...known.entries()],
    [
      ["b.example", [rsa, ed25519]],
      ["[a]:23", [ed25519]],
    ],
  );
});

for (const [what, text] of [
  ["a marker", `@revoked ${line("a", ed25519)}`],
  ["several names", line("a,b", ed25519)],
  ["a pattern", line("*.example", ed25519)],
  ["a hashed name", line("|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg=", ed25519)],
  ["a comment behind the key", `${line("a", ed25519)} root@a`],
  ["a key of another type than it says", `a ssh-rsa ${ed25519.base64}`],
  ["a key that is cut off", line("a", rsa).slice(0, -3)],
  ["something else", "hello"],
] as const)
  test(`a line with ${what} is refused with its place`, () => {
    assert.throws(() => parseKnownHosts(`# first\n${text}\n`, "/b/.ssh/known_hosts"), {
      code: "failed",
      message: /^Cannot read \/b\/\.ssh\/known_hosts, line 2: expected a host, a key type and a key, found "/,
    });
  });

test("CP-207 what is recorded is in the file at once, sorted, readable for the owner alone", async (t) => {
  const file = path.join(temporaryFolder(t), "known_hosts");
  const known = await openKnownHosts(file);
  assert.deepEqual(known.keysOf("a"), []);
  await Promise.all([known.record("b", [rsa, ecdsa, ed25519]), known.record("a", [ed25519])]);
  const written = [line("a", ed25519), line("b", ed25519), line("b", ecdsa), line("b", rsa)];
  assert.equal(readFileSync(file, "utf8"), `${written.join("\n")}\n`);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  await known.record("b", [ecdsa]);
  assert.deepEqual((await openKnownHosts(file)).keysOf("b"), [ecdsa]);
  assert.deepEqual((await openKnownHosts(file)).keysOf("a"), [ed25519]);
});

test("a link in the place of the file is not followed", async (t) => {
  const dir = temporaryFolder(t);
  writeFileSync(path.join(dir, "elsewhere"), "");
  symlinkSync("elsewhere", path.join(dir, "known_hosts"));
  await assert.rejects(openKnownHosts(path.join(dir, "known_hosts")), /not a regular file/);
});

test("a file that can be read by others is private after the next change", async (t) => {
  const file = path.join(temporaryFolder(t), "known_hosts");
  writeFileSync(file, `${line("a", ed25519)}\n`);
  chmodSync(file, 0o644);
  await (await openKnownHosts(file)).record("b", [rsa]);
  assert.equal(statSync(file).mode & 0o777, 0o600);
});
