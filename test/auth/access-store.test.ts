import assert from "node:assert/strict";
import { chmodSync, existsSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { setImmediate as nextRound } from "node:timers/promises";
import { AccessStore, type NewToken } from "../../lib/auth/access-store.ts";
import { base32Decode } from "../../lib/codec/crypto/totp.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const ADA: NewToken = { name: "ada", role: "deploy", buckets: null, totp: "common", created_by: "root" };
const BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";

async function setUp(t: TestContext) {
  const file = path.join(temporaryFolder(t), "access.json");
  const clock = { now: Date.parse("2026-03-01T10:00:00Z") };
  const open = () => AccessStore.open(file, { now: () => clock.now });
  return { file, clock, open, store: await open() };
}

test("CP-505 a token is kept as its SHA-256, for its owner alone, and found again after a restart", async (t) => {
  const { file, store, open } = await setUp(t);
  assert.deepEqual([store.tokens, existsSync(file)], [[], false]);
  const { text, token } = await store.create(ADA);
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.ok(!readFileSync(file, "utf8").includes(text) && !readFileSync(file, "utf8").includes(text.slice(4, 68)));
  const again = await open();
  assert.deepEqual(again.find(text), token);
  assert.deepEqual(again.byId(token.id), token);
  assert.equal(again.find(`${text}0`), undefined);
  assert.deepEqual(readdirSync(path.dirname(file)), ["access.json"], "nothing is left beside it");
  const shown = `${JSON.stringify({ tokens: [token], approvals: {} }, undefined, 2)}\n`;
  assert.equal(readFileSync(file, "utf8"), shown, "people can read it");
});

test("CP-505 a name is in use once, whatever its case, until its token is revoked", async (t) => {
  const { store } = await setUp(t);
  const { token } = await store.create(ADA);
  for (const name of ["ada", "ADA", "Ada"])
    await assert.rejects(store.create({ ...ADA, name }), { code: "invalid_request", message: /is there already/ }, name);
  await store.revoke("ADA");
  assert.equal(store.tokens.length, 0);
  await assert.rejects(store.revoke("ada"), { code: "not_found" });
  await store.create(ADA);
  await assert.rejects(store.revoke(token.id), { code: "not_found" }, "the earlier one");
});

test("CP-505 of a hundred changes at once none is lost", async (t) => {
  const { store, open } = await setUp(t);
  const names = Array.from({ length: 100 }, (_, at) => `p${at}`);
  const made = await Promise.all(names.map((name) => store.create({ ...ADA, name })));
  await Promise.all(made.slice(0, 50).map(({ token }) => store.revoke(token.id)));
  const kept = (await open()).tokens.map(({ name }) => name);
  assert.deepEqual(kept, names.slice(50));
});

test("CP-506 a token expires by the clock and by a timer, and what ends it is told", async (t) => {
  const { store, clock } = await setUp(t);
  const { token } = await store.create({ ...ADA, lifetimeMs: 60_000 });
  assert.equal(token.expires_at, "2026-03-01T10:01:00.000Z");
  assert.equal(store.isExpired(token), false);
  clock.now += 60_000;
  assert.equal(store.isExpired(token), true);
  const soon = await store.create({ ...ADA, name: "soon", lifetimeMs: 50 });
  const end = store.endOf(soon.token);
  assert.equal(end.aborted, false);
  await until("the end of its time", () => end.aborted);
  const other = await store.create({ ...ADA, name: "other" });
  const revoked = store.endOf(other.token);
  await store.revoke("other");
  assert.equal(revoked.aborted, true);
  await store.close();
});

test("CP-506 a token whose end is further away than a timer can wait ends what goes on with it all the same", async (t) => {
  const { store, clock } = await setUp(t);
  const lifetimeMs = 30 * 86_400_000;
  const { token } = await store.create({ ...ADA, lifetimeMs });
  assert.equal(store.endOf(token).aborted, false);
  clock.now += lifetimeMs - 20;
  const end = store.endOf(token);
  await until("the end of its time", () => end.aborted);
  await store.close();
});

test("CP-506 a timer is set for an end that it can wait for, once, and given up where the token is revoked or the store closes", async (t) => {
  const { store } = await setUp(t);
  const longest = 2 ** 31 - 1;
  const names = ["reached", "other", "too far", "never"];
  const made = await Promise.all(
    [longest, longest, longest + 1, undefined].map((lifetimeMs, at) =>
      store.create({ ...ADA, name: names[at] ?? "", lifetimeMs }),
    ),
  );
  const timers: object[] = [];
  const waits: unknown[] = [];
  const cleared: unknown[] = [];
  t.mock.method(globalThis, "setTimeout", (_: unknown, ms: number) => {
    const timer = { unref: () => timer };
    waits.push(ms);
    timers.push(timer);
    return timer;
  });
  t.mock.method(globalThis, "clearTimeout", (timer: unknown) => timer && cleared.push(timer));
  for (const { token } of [...made, ...made]) assert.equal(store.endOf(token).aborted, false, token.name);
  assert.deepEqual(waits, [longest, longest]);
  const [first, second] = timers;
  await store.revoke("reached");
  assert.deepEqual(cleared, [first]);
  await store.close();
  assert.deepEqual(cleared, [first, second]);
});

test("CP-505 there are at most 500 tokens", async (t) => {
  const { file, store, open } = await setUp(t);
  const { token } = await store.create(ADA);
  const tokens = Array.from({ length: 499 }, (_, at) => {
    const digits = String(at).padStart(12, "0");
    return { ...token, id: token.id.slice(0, -12) + digits, name: `p${at}`, sha256: digits.padStart(64, "0") };
  });
  writeFileSync(file, JSON.stringify({ tokens, approvals: {} }));
  const full = await open();
  await full.create(ADA);
  const message = "there are 500 tokens, no more are possible; revoke one first";
  await assert.rejects(full.create({ ...ADA, name: "bob" }), { code: "invalid_request", message });
  await full.revoke("p0");
  await full.create({ ...ADA, name: "bob" });
  assert.deepEqual([full.tokens.length, full.tokens.at(-1)?.name], [500, "bob"]);
});

test("CP-505 the day of the last use is written once a day", async (t) => {
  const { store, open, clock, file } = await setUp(t);
  const { token } = await store.create(ADA);
  const usedOn = async () => (await open()).byId(token.id)?.last_used_on;
  assert.equal(await usedOn(), null);
  for (let count = 0; count < 3; count++) store.noteUse(store.byId(token.id) ?? token);
  await store.close();
  assert.equal(await usedOn(), "2026-03-01");
  const { mtimeMs, ino } = statSync(file);
  store.noteUse(store.byId(token.id) ?? token);
  await store.close();
  assert.deepEqual([statSync(file).mtimeMs, statSync(file).ino], [mtimeMs, ino], "nothing is written again");
  clock.now += 86_400_000;
  store.noteUse(store.byId(token.id) ?? token);
  await store.close();
  assert.equal(await usedOn(), "2026-03-02");
});

test("a use that cannot be noted is told and refuses nobody; a change that cannot be written does not hold", async (t) => {
  const folder = temporaryFolder(t);
  const file = path.join(folder, "gone", "access.json");
  const troubles: unknown[] = [];
  const made = await AccessStore.open(path.join(folder, "access.json"));
  const { token } = await made.create(ADA);
  const store = await AccessStore.open(file, { onTrouble: (error) => troubles.push(error) });
  for (const noted of [1, 2]) {
    for (let count = 0; count < 3; count++) store.noteUse(token);
    await store.close();
    await nextRound();
    assert.equal(troubles.length, noted, "what is being noted is not noted once more");
  }
  await assert.rejects(store.create(ADA), { code: "ENOENT" });
  assert.deepEqual(store.tokens, []);
});

test("CP-507 a TOTP secret of its own has 160 bits; approvals of a bucket stay with the tokens", async (t) => {
  const { store, open } = await setUp(t);
  const { token } = await store.create({ ...ADA, totp: "own" });
  assert.equal(base32Decode(token.totp_secret ?? "")?.length, 20);
  const other = BUCKET.replace("0", "1");
  await store.setApprovals(BUCKET, 2);
  await store.setApprovals(other, 1);
  const again = await open();
  assert.deepEqual([again.approvalsOf(BUCKET), again.approvalsOf(other), again.tokens.length], [2, 1, 1]);
  await again.setApprovals(BUCKET, 0);
  assert.deepEqual([again.approvalsOf(BUCKET), (await open()).approvalsOf(BUCKET), again.approvalsOf(other)], [0, 0, 1]);
});

test("CP-505 a file that is damaged, contradicts itself, is a link, or may be used by others is refused", async (t) => {
  const { file, store, open } = await setUp(t);
  await store.create(ADA);
  const good = readFileSync(file, "utf8");
  const { tokens } = JSON.parse(good);
  const [one] = tokens;
  const variants: [string, object, RegExp][] = [
    ["an unknown field", { tokens: [{ ...one, admin: true }], approvals: {} }, /admin is not a known field/],
    ["a role that no token has", { tokens: [{ ...one, role: "root" }], approvals: {} }, /role expected one of read/],
    ["the name of the server's token", { tokens: [{ ...one, name: "Root" }], approvals: {} }, /the server's own token/],
    [
      "a name twice",
      { tokens: [one, { ...one, id: BUCKET, sha256: "0".repeat(64), name: "ADA" }], approvals: {} },
      /stands there twice/,
    ],
    ["a sum twice", { tokens: [one, { ...one, id: BUCKET, name: "bob" }], approvals: {} }, /stands there twice/],
    ["no second factor for who may change", { tokens: [{ ...one, totp: "none" }], approvals: {} }, /only with the role read/],
    ["a missing secret", { tokens: [{ ...one, totp: "own" }], approvals: {} }, /totp_secret .* disagree/],
    ["a sum that is longer", { tokens: [{ ...one, sha256: `0${one.sha256}` }], approvals: {} }, /sha256 expected a SHA-256/],
    ["three approvals", { tokens: [], approvals: { [BUCKET]: 3 } }, /approvals/],
    ["no list", { tokens: {}, approvals: {} }, /tokens expected a list/],
  ];
  for (const [what, state, message] of variants) {
    writeFileSync(file, JSON.stringify(state));
    await assert.rejects(open(), { code: "failed", message }, what);
  }
  for (const text of ["", "{", good.slice(0, -10), "[]", "null"]) {
    writeFileSync(file, text);
    await assert.rejects(open(), { code: "failed", message: /nobody is let in before it is mended/ }, text);
  }
  writeFileSync(file, good);
  for (const mode of [0o640, 0o604, 0o622]) {
    chmodSync(file, mode);
    await assert.rejects(open(), { code: "failed", message: new RegExp(`chmod 600 ${file}`) }, mode.toString(8));
  }
  chmodSync(file, 0o600);
  await open();
  symlinkSync(file, path.join(path.dirname(file), "link.json"));
  await assert.rejects(AccessStore.open(path.join(path.dirname(file), "link.json")), { code: "failed" });
});
