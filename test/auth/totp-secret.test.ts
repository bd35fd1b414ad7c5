import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { enrolTotpSecret, readTotpSecret } from "../../lib/auth/totp.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

test("CP-061 CP-062 a new secret is one line of base32 of 160 bits, for its owner alone under any umask", async (t) => {
  const file = path.join(temporaryFolder(t), "secret");
  const before = process.umask(0);
  const { secret, created } = await enrolTotpSecret(file).finally(() => process.umask(before));
  assert.deepEqual([created, secret.length, statSync(file).mode & 0o777], [true, 20, 0o600]);
  assert.match(readFileSync(file, "utf8"), /^[A-Z2-7]{32}\n$/);
  assert.deepEqual(execFileSync("base32", ["-d", file]), secret);
  assert.deepEqual(readdirSync(path.dirname(file)), ["secret"]);
});

test("CP-063 T-63 a secret that is there is read, never replaced, whoever comes at the same time", async (t) => {
  const file = path.join(temporaryFolder(t), "secret");
  const all = await Promise.all(Array.from({ length: 8 }, () => enrolTotpSecret(file)));
  assert.equal(all.filter(({ created }) => created).length, 1);
  const kept = readFileSync(file);
  const { created } = await enrolTotpSecret(file);
  assert.deepEqual([created, readFileSync(file)], [false, kept]);
  assert.equal(new Set(all.map(({ secret }) => secret.toString("hex"))).size, 1);
});

test("a secret of 64 bytes is read, a longer one is refused", async (t) => {
  const file = path.join(temporaryFolder(t), "secret");
  const write = (bytes: number) =>
    writeFileSync(file, execFileSync("base32", ["-w", "0"], { input: Buffer.alloc(bytes, "x") }), { mode: 0o600 });
  write(64);
  assert.deepEqual(await readTotpSecret(file), Buffer.alloc(64, "x"));
  write(65);
  await assert.rejects(readTotpSecret(file), /at most 64 bytes/);
});

const LONG = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
for (const [what, content] of [
  ["without a newline", LONG],
  ["with a newline", `${LONG}\n`],
  ["with a carriage return", `${LONG}\r\n`],
] as const)
  test(`a secret ${what} is read`, async (t) => {
    const file = path.join(temporaryFolder(t), "secret");
    writeFileSync(file, content, { mode: 0o600 });
    assert.equal((await readTotpSecret(file)).toString(), "12345678901234567890");
  });

test("T-62 the 16 characters that many programs hand out are a secret", async (t) => {
  const file = path.join(temporaryFolder(t), "secret");
  writeFileSync(file, "GEZDGNBVGY3TQOJQ\n", { mode: 0o600 });
  assert.equal((await readTotpSecret(file)).toString(), "1234567890");
});

test("16 bytes with their padding are enough", async (t) => {
  const file = path.join(temporaryFolder(t), "secret");
  writeFileSync(file, "GEZDGNBVGY3TQOJQGEZDGNBVGY======\n", { mode: 0o600 });
  assert.equal((await readTotpSecret(file)).length, 16);
});

for (const [what, content, message] of [
  ["an empty file", "", /it is empty$/],
  ["a blank line", "\n", /it is empty$/],
  ["9 bytes", "GEZDGNBVGY3TQOI=", /it has 72 bits, at least 80 are needed$/],
  ["small letters", LONG.toLowerCase(), /expected one line of base32/],
  ["two lines", `${LONG}\n${LONG}\n`, /expected one line of base32/],
  ["two lines without an end", `${LONG}\n${LONG}`, /expected one line of base32/],
  ["blanks", `${LONG.slice(0, 16)} ${LONG.slice(16)}`, /expected one line of base32/],
  ["hexadecimal", "3132333435363738393031323334353637383930", /expected one line of base32/],
  ["a URI", `otpauth://totp/x?secret=${LONG}`, /expected one line of base32/],
  ["far too much", "A".repeat(129), /at most 64 bytes$/],
] as const)
  test(`T-62 ${what} instead of a secret is refused, and enrolling does not replace it`, async (t) => {
    const file = path.join(temporaryFolder(t), "secret");
    writeFileSync(file, content, { mode: 0o600 });
    for (const use of [readTotpSecret, enrolTotpSecret]) await assert.rejects(use(file), { code: "usage", message });
    assert.equal(readFileSync(file, "utf8"), content);
  });

test("T-62 a secret that anybody else may read, write or run is refused", async (t) => {
  const file = path.join(temporaryFolder(t), "secret");
  writeFileSync(file, LONG);
  for (const others of [0o001, 0o002, 0o004, 0o010, 0o020, 0o040]) {
    chmodSync(file, 0o600 | others);
    const mode = (0o600 | others).toString(8);
    const message = `Cannot use the TOTP secret file ${file}: its mode ${mode} lets others use it: chmod 600 ${file}`;
    await assert.rejects(readTotpSecret(file), { code: "usage", message }, mode);
  }
});

test("T-62 a credential of systemd may be read by its group, and nothing more", async (t) => {
  const file = path.join(temporaryFolder(t), "secret");
  writeFileSync(file, LONG);
  for (const mode of [0o400, 0o600, 0o440, 0o640]) {
    chmodSync(file, mode);
    assert.equal((await readTotpSecret(file, true)).length, 20, mode.toString(8));
  }
  for (const others of [0o001, 0o002, 0o004, 0o010, 0o020]) {
    chmodSync(file, 0o640 | others);
    await assert.rejects(readTotpSecret(file, true), { code: "usage", message: /lets others use it/ }, others.toString(8));
  }
});

test("T-62 what is missing or no file is refused by name", async (t) => {
  const folder = temporaryFolder(t);
  const missing = { code: "usage", message: /secret file .*no: it cannot be read: ENOENT/ };
  await assert.rejects(readTotpSecret(path.join(folder, "no")), missing);
  const keptCause = (error: Error) => (error.cause as NodeJS.ErrnoException).code === "ENOENT";
  await assert.rejects(readTotpSecret(path.join(folder, "no")), keptCause);
  await assert.rejects(readTotpSecret(folder), { message: /cannot be read: EISDIR/ });
  await assert.rejects(enrolTotpSecret(path.join(folder, "a", "b")), { message: /its folder does not exist$/ });
});
