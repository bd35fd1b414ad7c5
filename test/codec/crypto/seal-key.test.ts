import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { test } from "node:test";
import { isRecipient, newIdentity, newSeal, recipientOf, SEAL, sealKey } from "../../../lib/codec/crypto/seal-key.ts";
import { check } from "../../../lib/core/shape.ts";
import { seeded } from "../../helpers/random.ts";

test("a passphrase finds the key again, another one does not, and each seal has a key of its own", async () => {
  const passphrase = "correct horse battery";
  const [one, two] = [await newSeal({ passphrase }), await newSeal({ passphrase })];
  assert.notDeepEqual(one.key, two.key);
  assert.deepEqual(await sealKey(one.seal, { passphrase }), one.key);
  assert.deepEqual(await sealKey(one.seal, { key: one.key.toString("base64") }), one.key);
  await assert.rejects(sealKey(one.seal, { passphrase: "correct horse batterx" }), {
    message: "the passphrase does not open it",
  });
  await assert.rejects(sealKey(one.seal, { key: two.key.toString("base64") }), { message: "the key does not open it" });
  await assert.rejects(sealKey(one.seal, {}), { message: /sealed for a passphrase, which was not given/ });
  assert.ok(check(SEAL, JSON.parse(JSON.stringify(one.seal))).ok);
});

test("only the private key of the recipient finds the key again", async () => {
  const [own, other] = [newIdentity(), newIdentity()];
  const { seal, key } = await newSeal({ recipient: own.recipient });
  assert.deepEqual(await sealKey(seal, { identity: own.identity }), key);
  const message = `it is sealed for ${own.recipient}, the private key is that of ${other.recipient}`;
  await assert.rejects(sealKey(seal, { identity: other.identity }), { message });
  // The seal of one file says nothing about another: names changed in it lead to another key.
  await assert.rejects(sealKey({ ...seal, recipient: other.recipient }, { identity: other.identity }), {
    message: /does not open it/,
  });
  await assert.rejects(sealKey(seal, {}), { message: `it is sealed for ${own.recipient}, whose private key was not given` });
  const ed25519 = generateKeyPairSync("ed25519").privateKey.export({ type: "pkcs8", format: "pem" }).toString();
  for (const identity of ["", "no key", ed25519])
    await assert.rejects(sealKey(seal, { identity }), { message: "the private key is no X25519 key in PEM" });
  assert.ok(check(SEAL, JSON.parse(JSON.stringify(seal))).ok);
});

test("a file that is sealed like another one has a key of its own, which opens with the same passphrase or private key", async () => {
  const passphrase = "correct horse battery";
  const { identity, recipient } = newIdentity();
  for (const [target, secret] of [
    [{ passphrase }, { passphrase }],
    [{ recipient }, { identity }],
  ] as const) {
    const first = await newSeal(target);
    const second = await newSeal(first);
    const third = await newSeal(second);
    assert.equal(new Set([first, second, third].map(({ key }) => key.toString("hex"))).size, 3);
    for (const { seal, key } of [first, second, third]) {
      assert.ok(check(SEAL, JSON.parse(JSON.stringify(seal))).ok);
      assert.deepEqual(await sealKey(seal, secret), key);
    }
    await assert.rejects(sealKey(first.seal, { key: second.key.toString("base64") }), { message: "the key does not open it" });
    const other = { ...third.seal, derived: [...(third.seal.derived ?? [])].reverse() };
    await assert.rejects(sealKey(other, secret), { message: /does not open it/ });
  }
});

test("at most 100 files are sealed like one another in a row", async () => {
  let last = await newSeal({ recipient: newIdentity().recipient });
  for (let count = 0; count < 100; count++) last = await newSeal(last);
  assert.ok(check(SEAL, last.seal).ok);
  await assert.rejects(newSeal(last), { message: /100 files were sealed like one another in a row/ });
});

test("a point of low order is refused: every private key would open what is sealed for it", async () => {
  const { identity, recipient } = newIdentity();
  const { seal } = await newSeal({ recipient });
  const zeros = Buffer.alloc(32).toString("base64");
  await assert.rejects(sealKey({ ...seal, ephemeral: zeros }, { identity }), { message: "its public key cannot be used" });
});

test("a public key with any one letter changed is no recipient", async () => {
  const random = seeded();
  const { identity, recipient } = newIdentity();
  assert.ok(isRecipient(recipient));
  assert.equal(recipientOf(identity), recipient);
  const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  for (let at = 0; at < recipient.length; at++) {
    const letter = letters[Math.floor(random() * letters.length)] as string;
    const changed = recipient.slice(0, at) + letter + recipient.slice(at + 1);
    assert.equal(isRecipient(changed), changed === recipient, changed);
  }
  for (const wrong of ["", "x25519:", `${recipient}A`, recipient.slice(0, -1), ` ${recipient}`])
    assert.ok(!isRecipient(wrong), wrong);
  await assert.rejects(newSeal({ recipient: "x25519:nobody" }), { message: /^the recipient is no public key/ });
});

test("a seal that asks for more memory than a passphrase is worth, or lacks a part, is refused", async () => {
  const { seal } = await newSeal({ passphrase: "correct horse battery" });
  for (const wrong of [
    { n: 2 ** 20, r: 64 },
    { n: 2 ** 16, r: 8, p: 16 },
    { n: 65_535 },
    { n: undefined },
    { r: 0 },
    { salt: "" },
    { for: "all" },
  ])
    assert.ok(!check(SEAL, { ...seal, ...wrong }).ok, JSON.stringify(wrong));
  const { seal: other } = await newSeal({ recipient: newIdentity().recipient });
  for (const wrong of [{ recipient: undefined }, { ephemeral: undefined }, { ephemeral: "x" }])
    assert.ok(!check(SEAL, { ...other, ...wrong }).ok, JSON.stringify(wrong));
});
