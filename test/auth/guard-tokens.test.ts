import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { AccessStore, type NewToken } from "../../lib/auth/access-store.ts";
import { Guard, SecondFactor } from "../../lib/auth/guard.ts";
import { SESSION_COOKIE, SESSION_MS, type SessionHolder, Sessions, TOTP_COOKIE } from "../../lib/auth/session.ts";
import { base32Decode, totpCode } from "../../lib/codec/crypto/totp.ts";
import type { HttpRequest } from "../../lib/http/message.ts";
import { requestWith } from "../helpers/http.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const OWN_TOKEN = "correct-horse";
const ADA: NewToken = { name: "ada", role: "deploy", buckets: null, totp: "common", created_by: "root" };
const BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const SECRET = Buffer.from("12345678901234567890");

/** A guard that knows the tokens of people, with a second factor or without. */
async function setUp(t: TestContext, { common }: { common?: Uint8Array } = {}) {
  const folder = temporaryFolder(t);
  const clock = { now: 1_000_000_000 };
  const now = () => clock.now;
  const access = await AccessStore.open(path.join(folder, "access.json"), { now });
  const sessions = new Sessions({ cookie: SESSION_COOKIE, lifetimeMs: SESSION_MS, secure: true }, undefined, now);
  const verified = new Sessions({ cookie: TOTP_COOKIE, lifetimeMs: SESSION_MS, secure: true }, undefined, now);
  const used = path.join(folder, "steps.json");
  const totp = new SecondFactor(verified, common, now, { file: used, onTrouble: (error) => assert.fail(String(error)) });
  const guard = new Guard({ token: OWN_TOKEN, access, sessions, totp, now });
  const admit = (headers: Record<string, string>) => guard.admit(requestOf(headers));
  const code = (secret: Uint8Array = SECRET) => totpCode(secret, Math.floor(clock.now / 30_000));
  const pair = (issuer: Sessions, token: string | undefined) => issuer.issue(holderOf(token)).cookie.split(";")[0] as string;
  return { access, clock, guard, sessions, verified, used, admit, code, pair };
}

const holderOf = (token: string | undefined): SessionHolder => ({ name: "x", token, address: "", agent: "" });
const bearer = (text: string) => ({ authorization: `Bearer ${text}` });
const requestOf = (headers: Record<string, string>): HttpRequest => requestWith([], { peer: "10.0.0.1", headers });

/** How a request is refused, and what the log of requests says of it. */
function refusalOf(guard: Guard, headers: Record<string, string>): [message: string, refused: string | undefined] {
  const request = requestOf(headers);
  try {
    guard.admit(request);
    return ["admitted", request.noted.refused];
  } catch (error) {
    return [(error as Error).message, request.noted.refused];
  }
}

test("CP-505 CP-506 a token is admitted as whose it is, its use is noted, and what goes on with it ends with it", async (t) => {
  const { access, admit } = await setUp(t);
  const { token, text } = await access.create({ ...ADA, buckets: [BUCKET] });
  const { ends, ...identity } = admit(bearer(text));
  assert.deepEqual(identity, {
    name: "ada",
    role: "deploy",
    buckets: [BUCKET],
    token: token.id,
    address: "10.0.0.1",
    via: "bearer",
    session: undefined,
    codes: undefined,
    totp: false,
  });
  await access.close();
  assert.equal(access.byId(token.id)?.last_used_on, "1970-01-12");
  assert.equal(ends?.aborted, false);
  await access.revoke("ada");
  assert.equal(ends?.aborted, true);
});

test("CP-504 CP-506 a token that has expired, is mistyped or wrong is refused with its reason; only guesses are counted", async (t) => {
  const { access, guard, clock, admit } = await setUp(t);
  const { text } = await access.create({ ...ADA, lifetimeMs: 60_000 });
  const { text: good } = await access.create({ ...ADA, name: "bob" });
  clock.now += 60_000;
  for (let count = 0; count < 25; count++)
    assert.deepEqual(refusalOf(guard, bearer(text)), ['the API token "ada" has expired', "wrong"]);
  assert.equal(admit(bearer(good)).name, "bob");
  const mistyped = `${good.slice(0, -1)}${good.endsWith("0") ? "1" : "0"}`;
  for (let count = 0; count < 10; count++) {
    const message = "the API token is mistyped: a character is wrong or missing";
    assert.deepEqual(refusalOf(guard, bearer(mistyped)), [message, "wrong"]);
    assert.deepEqual(refusalOf(guard, bearer("guess")), ["the API token is wrong", "wrong"]);
  }
  assert.throws(() => admit(bearer(good)), { code: "rate_limited" });
  assert.deepEqual(refusalOf(guard, { authorization: "Basic x" }), ["Authorization must be: Bearer <API token>", "wrong"]);
});

test("CP-505 CP-506 a session goes on as its token does: with its rights, until the token expires or is revoked", async (t) => {
  const { access, guard, sessions, clock, admit, pair } = await setUp(t);
  const { token } = await access.create({ ...ADA, role: "read", lifetimeMs: 60_000 });
  const cookie = pair(sessions, token.id);
  const { name, role, token: id, via, session, ends } = admit({ cookie });
  assert.deepEqual([name, role, id, via, session?.token], ["ada", "read", token.id, "session", token.id]);
  assert.equal(ends, session?.ends);
  await access.close();
  assert.equal(access.byId(token.id)?.last_used_on, "1970-01-12");
  clock.now += 60_000;
  assert.equal(refusalOf(guard, { cookie })[0], 'the API token "ada" has expired');
  await access.revoke(token.id);
  assert.equal(refusalOf(guard, { cookie })[0], "the API token of this session was revoked");
  assert.equal(admit({ cookie: pair(sessions, undefined) }).role, "root");
});

test("what is missing is told from what is wrong, for sessions and for codes", async (t) => {
  const { guard, sessions, pair, verified } = await setUp(t, { common: SECRET });
  const signIn = "sign in, or send Authorization: Bearer <API token>";
  assert.deepEqual(refusalOf(guard, {}), [signIn, "missing"]);
  assert.deepEqual(refusalOf(guard, { cookie: "theme=dark" }), [signIn, "missing"]);
  assert.deepEqual(refusalOf(guard, { cookie: `${SESSION_COOKIE}=x.y` }), [signIn, "wrong"]);
  const cookie = pair(sessions, undefined);
  const verify = "a TOTP code is needed: verify one (POST /api/auth/totp/verify) or send a fresh one as X-Ops-TOTP";
  assert.deepEqual(refusalOf(guard, { cookie }), [verify, "totp_missing"]);
  assert.deepEqual(refusalOf(guard, { cookie: `${cookie}; ${TOTP_COOKIE}=x.y` }), [verify, "totp_wrong"]);
  assert.deepEqual(refusalOf(guard, { cookie, "x-ops-totp": "000000" }), [verify, "totp_wrong"]);
  assert.deepEqual(refusalOf(guard, { cookie: `${cookie}; ${pair(verified, undefined)}` }), ["admitted", undefined]);
});

test("CP-507 each token has the second factor that it was given: the server's, one of its own, or none", async (t) => {
  const { access, admit, code, clock, used, guard } = await setUp(t, { common: SECRET });
  const [own, common, none] = await Promise.all([
    access.create({ ...ADA, name: "own", totp: "own" }),
    access.create({ ...ADA, name: "common" }),
    access.create({ ...ADA, name: "none", role: "read", totp: "none" }),
  ]);
  const { codes, totp } = admit(bearer(none.text));
  assert.deepEqual([codes, totp], [undefined, false]);
  assert.throws(() => guard.admit({ ...requestOf(bearer(none.text)), method: "POST", path: "/api/auth/totp/verify" }), {
    code: "totp_disabled",
    message: "TOTP is not enabled on this server, or not for this token",
  });
  const ownSecret = base32Decode(own.token.totp_secret ?? "") as Buffer;
  assert.throws(() => admit({ ...bearer(own.text), "x-ops-totp": code() }), { code: "totp_required" });
  assert.throws(() => admit({ ...bearer(common.text), "x-ops-totp": code(ownSecret) }), { code: "totp_required" });
  assert.equal(existsSync(used), false);
  assert.equal(admit({ ...bearer(own.text), "x-ops-totp": code(ownSecret) }).totp, true);
  assert.equal(admit({ ...bearer(common.text), "x-ops-totp": code() }).totp, true);
  const step = Math.floor(clock.now / 30_000);
  assert.deepEqual(JSON.parse(readFileSync(used, "utf8")), { [own.token.id]: step, common: step });
  assert.throws(() => admit({ ...bearer(OWN_TOKEN), "x-ops-totp": code() }), { code: "totp_required" }, "it is used up");
});

test("CP-507 a token with a secret of its own needs its codes where the server has none", async (t) => {
  const { access, admit, code } = await setUp(t);
  const { token, text } = await access.create({ ...ADA, totp: "own" });
  assert.throws(() => admit(bearer(text)), { code: "totp_required" });
  assert.equal(admit({ ...bearer(text), "x-ops-totp": code(base32Decode(token.totp_secret ?? "") as Buffer) }).totp, true);
  assert.deepEqual([admit(bearer(OWN_TOKEN)).totp, admit(bearer(OWN_TOKEN)).codes], [false, undefined]);
});

test("CP-507 a code that was verified for one token proves nothing for another", async (t) => {
  const { access, admit, verified, pair } = await setUp(t, { common: SECRET });
  const { token, text } = await access.create(ADA);
  const [own, root] = [pair(verified, token.id), pair(verified, undefined)];
  assert.equal(admit({ ...bearer(text), cookie: own }).totp, true);
  assert.throws(() => admit({ ...bearer(text), cookie: root }), { code: "totp_required" });
  assert.equal(admit({ ...bearer(OWN_TOKEN), cookie: root }).totp, true);
  assert.throws(() => admit({ ...bearer(OWN_TOKEN), cookie: own }), { code: "totp_required" });
});

test("another token of the server ends the verified codes of the one before too, and none of a person", async (t) => {
  const { guard, sessions, verified, pair } = await setUp(t, { common: SECRET });
  for (const issuer of [sessions, verified]) for (const token of [undefined, "t1"]) pair(issuer, token);
  guard.replaceToken("battery-staple");
  assert.deepEqual(
    [...sessions.list(), ...verified.list()].map(({ token }) => token),
    ["t1", "t1"],
  );
});
