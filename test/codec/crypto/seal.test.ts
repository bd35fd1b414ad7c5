import assert from "node:assert/strict";
import { createDecipheriv, randomBytes } from "node:crypto";
import test from "node:test";
import { resealPieces, seal, sealPieces, unseal, unsealedLength, unsealPieces } from "../../../lib/codec/crypto/seal.ts";
import { Failure } from "../../../lib/core/errors.ts";

const KEY = randomBytes(32);
const NAMESPACE = "secrets/job/db";

test("a sealed text opens again, whatever it holds", () => {
  for (const text of ["", "p\u00e4ss", "-----BEGIN KEY-----\nabc\n", "\0\n\ud83d\ude00", "x".repeat(100_000)])
    assert.equal(unseal(KEY, NAMESPACE, "password", seal(KEY, NAMESPACE, "password", text)), text);
});

test("the form is enc:v2: and base64 of nonce, ciphertext and tag, bound to namespace and name", () => {
  const sealed = seal(KEY, NAMESPACE, "password", "hunter22");
  assert.match(sealed, /^enc:v2:[A-Za-z0-9+/]+=*$/);
  const bytes = Buffer.from(sealed.slice("enc:v2:".length), "base64");
  assert.equal(bytes.length, 12 + 8 + 16);
  const decipher = createDecipheriv("aes-256-gcm", KEY, bytes.subarray(0, 12));
  decipher.setAAD(Buffer.from(`${NAMESPACE}\0password`)).setAuthTag(bytes.subarray(-16));
  const text = Buffer.concat([decipher.update(bytes.subarray(12, -16)), decipher.final()]);
  assert.equal(text.toString(), "hunter22");
});

test("pieces that are sealed anew open with the new key, and nothing needs no piece", () => {
  const [key, bytes] = [randomBytes(32), randomBytes(200_000)];
  const sealed = [...sealPieces(KEY, NAMESPACE, "large", bytes)];
  const anew = [...resealPieces([key, KEY], [NAMESPACE, "large"], sealed, bytes.length)];
  assert.deepEqual(Buffer.concat([...unsealPieces(key, [NAMESPACE, "large"], anew, bytes.length)]), bytes);
  assert.deepEqual([...sealPieces(KEY, NAMESPACE, "nothing", Buffer.alloc(0))], []);
});

test("sealing the same text twice gives different values", () => {
  const sealed = new Set(Array.from({ length: 100 }, () => seal(KEY, NAMESPACE, "password", "same")));
  assert.equal(sealed.size, 100);
});

test("another key, another place or any flipped bit is refused with one sentence", () => {
  const sealed = seal(KEY, NAMESPACE, "password", "hunter22");
  const refuse = (work: () => string) =>
    assert.throws(work, (error) => error instanceof Failure && error.code === "failed" && error.cause instanceof Error);
  refuse(() => unseal(randomBytes(32), NAMESPACE, "password", sealed));
  refuse(() => unseal(KEY, "secrets/job/web", "password", sealed));
  refuse(() => unseal(KEY, NAMESPACE, "passwor", sealed));
  refuse(() => unseal(KEY, `${NAMESPACE}\0password`, "", sealed));
  const bytes = Buffer.from(sealed.slice("enc:v2:".length), "base64");
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const flipped = Buffer.from(bytes);
    flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
    refuse(() => unseal(KEY, NAMESPACE, "password", `enc:v2:${flipped.toString("base64")}`));
  }
  assert.throws(() => unseal(KEY, NAMESPACE, "other", sealed), {
    message:
      "Cannot open the sealed value other of secrets/job/db: it was altered, moved from another place or sealed with another key",
  });
});

test("any other spelling of a sealed value is refused", () => {
  const sealed = seal(KEY, NAMESPACE, "password", "hunter2");
  for (const text of ["", "hunter2", "enc:v2:", "enc:v2:AAAA", sealed.replace("v2", "v1"), ` ${sealed}`, `${sealed}\n`])
    assert.throws(() => unseal(KEY, NAMESPACE, "password", text), /it is not of the form enc:v2:…/, text);
  const loose = [sealed.replace(/=+$/, ""), sealed.replace("enc:v2:", "enc:v2:-"), `${sealed}====`];
  for (const text of loose) assert.throws(() => unseal(KEY, NAMESPACE, "password", text), Failure, text);
});

const SIZES = [0, 1, 32_740, 32_741, 65_480, 100_000];

for (const size of SIZES)
  test(`${size} bytes that are sealed in pieces open again`, () => {
    const bytes = randomBytes(size);
    const sealed = [...sealPieces(KEY, "contents", "name", bytes)];
    assert.deepEqual(
      sealed.map((piece) => piece.length).filter((length, index) => length !== 32 * 1024 && index < sealed.length - 1),
      [],
    );
    const length = sealed.reduce((sum, piece) => sum + piece.length, 0);
    assert.equal(unsealedLength(length), size);
    assert.ok(Buffer.concat([...unsealPieces(KEY, ["contents", "name"], sealed, size)]).equals(bytes));
  });

test("a sealed piece opens at its place only, and among as many", () => {
  const bytes = randomBytes(100_000);
  const pieces = [...sealPieces(KEY, "contents", "name", bytes)];
  const [first, second, third, last] = pieces as [Buffer, Buffer, Buffer, Buffer];
  const altered = Buffer.from(second);
  altered.writeUInt8(altered.readUInt8(100) ^ 1, 100);
  type How = { length?: number; key?: Buffer; name?: string };
  const open = (sealed: Buffer[], { length = bytes.length, key = KEY, name = "name" }: How = {}) =>
    Buffer.concat([...unsealPieces(key, ["contents", name], sealed, length)]);
  assert.ok(open(pieces).equals(bytes));
  const refused: [Buffer[], How?][] = [
    [[first, third, second, last]],
    [[first, altered, third, last]],
    [[first, second, third]],
    [[first, second, third], { length: unsealedLength(3 * 32 * 1024) }],
    [[...pieces, last]],
    [[Buffer.alloc(5)]],
    [pieces, { key: randomBytes(32) }],
    [pieces, { name: "other" }],
  ];
  for (const [sealed, how] of refused)
    assert.throws(
      () => open(sealed, how),
      (error) => error instanceof Failure && error.code === "failed",
    );
});
