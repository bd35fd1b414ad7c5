import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { isMistyped, newTokenText, tokenSum } from "../../lib/auth/token.ts";
import { seeded } from "../helpers/random.ts";

test("CP-504 a token is ops_, 256 random bits and a checksum, and no two are alike", () => {
  const made = Array.from({ length: 100 }, newTokenText);
  for (const text of made) assert.match(text, /^ops_[0-9a-f]{72}$/);
  assert.equal(new Set(made.map((text) => text.slice(4, 68))).size, 100);
  assert.equal(
    tokenSum(made[0] as string).toString("hex"),
    createHash("sha256")
      .update(made[0] as string)
      .digest("hex"),
  );
});

test("CP-504 each wrong, missing, doubled or exchanged character of a token is a typing mistake; another text is not", () => {
  const random = seeded();
  const text = newTokenText();
  assert.equal(isMistyped(text), false);
  for (let at = 4; at < text.length; at++) {
    const other = "0123456789abcdef".replace(text[at] as string, "")[Math.floor(random() * 15)];
    for (const wrong of [other, "", `${text[at]}${text[at]}`, "g"])
      assert.equal(isMistyped(text.slice(0, at) + wrong + text.slice(at + 1)), true, `at ${at}: ${wrong}`);
    if (text[at] !== text[at + 1] && at + 1 < text.length)
      assert.equal(isMistyped(text.slice(0, at) + text[at + 1] + text[at] + text.slice(at + 2)), true, `exchanged at ${at}`);
  }
  assert.equal(isMistyped(`ops_${text}`), true);
  assert.deepEqual([isMistyped("ops_"), isMistyped("correct-horse"), isMistyped("")], [true, false, false]);
});
