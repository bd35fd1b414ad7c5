import assert from "node:assert/strict";
import { createHmac, hkdfSync } from "node:crypto";
import { writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { fingerprintKey, publicKeyNamed } from "../../lib/audit/key.ts";
import { fingerprintOf } from "../../lib/audit/told.ts";
import { signingKey } from "../../lib/core/signing-key.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const folder = temporaryFolder();
const key = await signingKey(path.join(folder, "audit.key"));

test("fingerprints follow from the private key, so that nobody without it can try guesses", async () => {
  const { d = "" } = key.privateKey.export({ format: "jwk" });
  const expected = hkdfSync("sha256", Buffer.from(d, "base64url"), "", "ops audit fingerprints", 32);
  assert.deepEqual(fingerprintKey(key), Buffer.from(expected));
  const hmac = createHmac("sha256", Buffer.from(expected)).update("secret").digest("hex").slice(0, 32);
  assert.equal(fingerprintOf("secret", fingerprintKey(key)), `hmac:${hmac}`);
  const other = await signingKey(path.join(folder, "other.key"));
  assert.notDeepEqual(fingerprintKey(other), fingerprintKey(key));
});

test("a public key is 44 characters of base64, given as they are or alone in a file", () => {
  const { publicKey } = key;
  const file = path.join(folder, "audit.pub");
  for (const content of [publicKey, `${publicKey}\n`, `  ${publicKey}\r\n\n`]) {
    writeFileSync(file, content);
    assert.deepEqual([publicKeyNamed(file), publicKeyNamed(publicKey)], [publicKey, publicKey]);
  }
  const wanted = "expected 44 characters of base64, as the server prints them at its start, or a file with them";
  for (const content of [
    "",
    "key",
    `A${publicKey}`,
    `${publicKey}=`,
    `${publicKey}\n${publicKey}`,
    " ".repeat(5_000) + publicKey,
  ]) {
    writeFileSync(file, content);
    assert.throws(() => publicKeyNamed(file), { code: "usage", message: `${file} is no public key of an audit: ${wanted}` });
  }
  for (const given of [`A${publicKey}`, `${publicKey}=`, publicKey.slice(1), "", "x".repeat(5_000)])
    assert.throws(() => publicKeyNamed(given), { code: "usage", message: `${given} is no public key of an audit: ${wanted}` });
});

test("a file that cannot be read as a key is told with the reason", () => {
  assert.throws(
    () => publicKeyNamed(folder),
    (error: Error & { code?: string }) => {
      assert.equal(error.code, "usage");
      assert.match(error.message, /^Cannot read the public key .*: EISDIR/);
      return (error.cause as NodeJS.ErrnoException).code === "EISDIR";
    },
  );
});
