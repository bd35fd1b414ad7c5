import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import {
  isSigned,
  knownSigningKey,
  serverAuditFolder,
  serverKeyFile,
  serverSigningKey,
  signatureOf,
  signerFingerprint,
  signingKey,
} from "../../lib/core/signing-key.ts";
import { diskSteps, linesOf } from "../helpers/disk-record.ts";
import { seeded } from "../helpers/random.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("a signing key is made once, for its owner alone, however many ask for it at a time", async (t) => {
  const file = serverKeyFile(temporaryFolder(t));
  assert.equal(await knownSigningKey(file), undefined);
  const keys = await Promise.all(Array.from({ length: 8 }, () => signingKey(file)));
  assert.equal(new Set(keys.map(({ publicKey }) => publicKey)).size, 1);
  assert.deepEqual(readdirSync(path.dirname(file)), ["audit.key"]);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.equal((await knownSigningKey(file))?.publicKey, keys[0]?.publicKey);
  assert.match(keys[0]?.fingerprint ?? "", /^SHA256:[A-Za-z0-9+/]{43}$/);
  assert.equal(signerFingerprint(keys[0]?.publicKey ?? ""), keys[0]?.fingerprint);
});

test("a new signing key is on the disk before it is used, and a known one is not written again", async (t) => {
  const folder = temporaryFolder(t);
  const make = () => diskSteps(folder, () => signingKey(path.join(folder, "key")));
  const made = linesOf(await make());
  assert.deepEqual(made, ["flush .key.tmp", "link .key.tmp -> key", "remove .key.tmp", "flush ."]);
  assert.deepEqual(await make(), []);
});

test("a server makes its key where nothing was signed yet, and never a second one beside an audit", async (t) => {
  const root = temporaryFolder(t);
  const [file, folder] = [serverKeyFile(root), serverAuditFolder(root)];
  mkdirSync(folder);
  writeFileSync(path.join(folder, "note.txt"), "");
  const { publicKey } = await serverSigningKey(root);
  assert.equal((await knownSigningKey(file))?.publicKey, publicKey);
  writeFileSync(path.join(folder, "1.jsonl"), "");
  assert.equal((await serverSigningKey(root)).publicKey, publicKey);
  rmSync(file);
  const message = `${file} is missing: put it back, or move ${folder} away to begin a new audit`;
  await assert.rejects(serverSigningKey(root), { code: "failed", message });
  assert.deepEqual(readdirSync(root), ["audit"]);
});

test("a file that is no Ed25519 key, or a link, is refused by name and never replaced", async (t) => {
  const folder = temporaryFolder(t);
  const other = generateKeyPairSync("x25519").privateKey.export({ type: "pkcs8", format: "pem" });
  for (const [name, content] of [
    ["text", "no key"],
    ["empty", ""],
    ["other", other],
  ] as const) {
    const file = path.join(folder, name);
    writeFileSync(file, content);
    await assert.rejects(signingKey(file), ({ code, message, cause }) => {
      assert.match(
        message,
        new RegExp(`^Cannot use ${file}: it is no Ed25519 key in PEM: .*${name === "other" ? "another type" : ""}`),
      );
      return code === "failed" && cause instanceof Error;
    });
    assert.equal(readFileSync(file, "utf8"), content);
  }
  symlinkSync("text", path.join(folder, "link"));
  await assert.rejects(signingKey(path.join(folder, "link")), { code: "file_not_found" });
});

test("a signature holds for these bytes, this purpose and this key, and with any bit flipped for nothing", async (t) => {
  const random = seeded();
  const folder = temporaryFolder(t);
  const [key, other] = [await signingKey(path.join(folder, "a")), await signingKey(path.join(folder, "b"))];
  const bytes = Buffer.from("what is signed");
  const signature = signatureOf(key, "purpose", bytes);
  assert.ok(isSigned(key.publicKey, "purpose", bytes, signature));
  assert.ok(!isSigned(key.publicKey, "other", bytes, signature));
  assert.ok(!isSigned(other.publicKey, "purpose", bytes, signature));
  for (let round = 0; round < 200; round++) {
    const [first, second] = [Buffer.from(bytes), Buffer.from(signature, "base64")];
    const target = random() < 0.5 ? first : second;
    const at = Math.floor(random() * target.length);
    target[at] = (target[at] as number) ^ (1 << Math.floor(random() * 8));
    assert.ok(!isSigned(key.publicKey, "purpose", first, second.toString("base64")));
  }
  for (const wrong of ["", "x", ` ${signature}`, signature.slice(4), `${signature}AAAA`])
    assert.ok(!isSigned(key.publicKey, "purpose", bytes, wrong), wrong);
  for (const wrong of ["", "x", key.publicKey.slice(4)]) assert.ok(!isSigned(wrong, "purpose", bytes, signature), wrong);
});
