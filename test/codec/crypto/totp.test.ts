import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { base32Encode, otpauthUri, TOTP_STEP_MS, totpCode } from "../../../lib/codec/crypto/totp.ts";
import { randomly, seeded } from "../../helpers/random.ts";

const SECRET = Buffer.from("12345678901234567890");

/** RFC 6238, appendix B, SHA-1: seconds and the last six of the eight digits. */
for (const [seconds, code] of [
  [59, "287082"],
  [1111111109, "081804"],
  [1111111111, "050471"],
  [1234567890, "005924"],
  [2000000000, "279037"],
  [20000000000, "353130"],
] as const)
  test(`RFC 6238: the code at ${seconds} s is ${code}`, () => {
    assert.equal(totpCode(SECRET, Math.floor((seconds * 1000) / TOTP_STEP_MS)), code);
  });

/** RFC 4226, appendix D. */
test("RFC 4226: the codes of the counters 0 to 9", () => {
  const codes = Array.from({ length: 10 }, (_, counter) => totpCode(SECRET, counter));
  assert.equal(codes.join(" "), "755224 287082 359152 969429 338314 254676 287922 162583 399871 520489");
});

test("oathtool has the same codes for any secret and time", () => {
  const random = seeded();
  for (let round = 0; round < 10; round++) {
    const secret = randomly(random, 16 + round * 3);
    const seconds = randomly(random, 4).readUInt32BE();
    const arguments_ = ["--totp", "--base32", base32Encode(secret), "--now", `@${seconds}`, "--window", "2"];
    const theirs = execFileSync("oathtool", arguments_, { encoding: "utf8" }).trim().split("\n");
    const step = Math.floor(seconds / 30);
    assert.deepEqual(
      [0, 1, 2].map((more) => totpCode(secret, step + more)),
      theirs,
    );
  }
});

test("CP-067 the URI has the secret and both labels, whatever is in them", () => {
  const uri = new URL(otpauthUri({ issuer: "a&b = c:d", account: "me@häuser?#/x", secret: SECRET }));
  assert.equal(uri.href.slice(0, 15), "otpauth://totp/");
  assert.deepEqual(uri.pathname.slice(1).split(":").map(decodeURIComponent), ["a&b = c:d", "me@häuser?#/x"]);
  assert.deepEqual(Object.fromEntries(uri.searchParams), {
    secret: "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ",
    issuer: "a&b = c:d",
    algorithm: "SHA1",
    digits: "6",
    period: "30",
  });
});
