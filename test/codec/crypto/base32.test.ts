import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { base32Decode, base32Encode } from "../../../lib/codec/crypto/totp.ts";
import { randomly, seeded } from "../../helpers/random.ts";

/** RFC 4648, 10. */
const VECTORS = [
  ["", ""],
  ["f", "MY======"],
  ["fo", "MZXQ===="],
  ["foo", "MZXW6==="],
  ["foob", "MZXW6YQ="],
  ["fooba", "MZXW6YTB"],
  ["foobar", "MZXW6YTBOI======"],
] as const;

for (const [text, padded] of VECTORS)
  test(`base32 of ${JSON.stringify(text)} is ${padded}, read with padding and without`, () => {
    const bare = padded.replace(/=+$/, "");
    assert.equal(base32Encode(Buffer.from(text)), bare);
    for (const form of [padded, bare]) assert.equal(base32Decode(form)?.toString(), text);
  });

test("base32 agrees with coreutils on any bytes", () => {
  const random = seeded();
  for (let length = 1; length <= 40; length++) {
    const bytes = randomly(random, length);
    const text = execFileSync("base32", ["-w0"], { input: bytes, encoding: "utf8" });
    assert.deepEqual(base32Decode(text), bytes);
    assert.equal(base32Encode(bytes), text.replace(/=+$/, ""));
  }
});

for (const text of [
  ...["my======", "M", "MZX", "MZXW6Y", "MY=", "MY=====", "MY=======", "M=Y=====", "MY======MY======"],
  ...["MZ======", "MZXW6YR=", "MZXW 6YQ", "MZXW0YQ", "MZXW1YQ", "MZXW8YQ", "MZXW6YQ\n", "ÀÀÀÀÀÀÀÀ", "========"],
])
  test(`base32 never reads ${JSON.stringify(text)}`, () => {
    assert.equal(base32Decode(text), undefined);
  });
