import assert from "node:assert/strict";
import { createHmac, hkdfSync, randomBytes } from "node:crypto";
import { getEventListeners } from "node:events";
import { test } from "node:test";
import { SESSION_COOKIE, SESSION_MS, Sessions, TOTP_COOKIE } from "../../lib/auth/session.ts";

/** Who opens a session with the server's own token. */
const ROOT = { name: "root", token: undefined, address: "", agent: "" };
const BROWSER = { cookie: SESSION_COOKIE, lifetimeMs: SESSION_MS, secure: false } as const;

function pairOf(setCookie: string): string {
  return setCookie.split(";")[0] as string;
}

function newSessions(clock = { now: Date.now() }, key = randomBytes(32)) {
  return new Sessions(BROWSER, key, () => clock.now);
}

test("CP-194 CP-196 T-64 a session lasts 12 hours, which the server checks by itself", () => {
  const clock = { now: 1_000_000 };
  const sessions = newSessions(clock);
  const { session, cookie } = sessions.issue(ROOT);
  assert.equal(session.exp - session.iat, 12 * 3600 * 1000);
  assert.match(session.sid, /^[0-9a-f]{32}$/);
  clock.now += SESSION_MS - 1;
  assert.deepEqual(sessions.verify(pairOf(cookie)), session);
  clock.now += 1;
  assert.equal(sessions.verify(pairOf(cookie)), undefined);
});

test("CP-197 CP-198 T-64 the cookie is HttpOnly and SameSite=Strict; Secure only under TLS", () => {
  const { cookie } = newSessions().issue(ROOT);
  assert.match(cookie, /^ops_server_session=[\w-]+\.[\w-]+; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/);
  const secure = new Sessions({ ...BROWSER, secure: true });
  assert.match(secure.issue(ROOT).cookie, /; Secure$/);
  assert.match(secure.end(undefined), /^ops_server_session=; Path=\/; Max-Age=0; .*Secure$/);
});

test("CP-195 a forged, altered, foreign or repeated cookie is no session", () => {
  const key = randomBytes(32);
  const sessions = newSessions(undefined, key);
  const cookie = pairOf(sessions.issue(ROOT).cookie);
  const [payload = "", signature = ""] = cookie.slice("ops_server_session=".length).split(".");
  const claim = { use: "ops_server_session", sid: "x", iat: 0, exp: Number.MAX_SAFE_INTEGER };
  const forged = Buffer.from(JSON.stringify(claim)).toString("base64url");
  const bare = createHmac("sha256", key).update(forged).digest("base64url");
  const refused = [
    undefined,
    "",
    `other=${payload}.${signature}`,
    `ops_server_session=${payload}`,
    `ops_server_session=${payload}.`,
    `ops_server_session=${payload}.${signature}.`,
    `ops_server_session=${payload}.${signature.slice(1)}`,
    `ops_server_session=${payload.slice(0, -4)}AAAA.${signature}`,
    `ops_server_session=${forged}.${signature}`,
    `ops_server_session=${forged}.${bare}`,
    `${cookie}; ${cookie}`,
    pairOf(newSessions().issue(ROOT).cookie),
  ];
  for (const header of refused) assert.equal(sessions.verify(header), undefined, String(header));
  assert.ok(sessions.verify(`theme=dark; ${cookie};x=y`));
});

test("CP-195 what is signed with the right key is no session where it names another cookie or lacks a field", () => {
  const key = randomBytes(32);
  const sessions = newSessions(undefined, key);
  const own = Buffer.from(hkdfSync("sha256", key, "", SESSION_COOKIE, 32));
  const { sid, iat, exp } = sessions.issue(ROOT).session;
  const told = (claim: object) => {
    const payload = Buffer.from(JSON.stringify(claim)).toString("base64url");
    const signature = createHmac("sha256", own).update(payload).digest("base64url");
    return sessions.verify(`${SESSION_COOKIE}=${payload}.${signature}`)?.sid;
  };
  assert.equal(told({ use: SESSION_COOKIE, sid, iat, exp }), sid);
  for (const claim of [
    { use: TOTP_COOKIE, sid, iat, exp },
    { use: SESSION_COOKIE, sid, iat },
    { sid, iat, exp },
  ])
    assert.equal(told(claim), undefined, JSON.stringify(claim));
});

test("CP-508 a session tells when it was used last", () => {
  const clock = { now: 1_000_000 };
  const sessions = newSessions(clock);
  const { session, cookie } = sessions.issue(ROOT);
  assert.equal(session.lastUsed, 1_000_000);
  clock.now += 5_000;
  sessions.verify(pairOf(cookie));
  assert.deepEqual(
    sessions.list().map(({ lastUsed }) => lastUsed),
    [1_005_000],
  );
});

test("a session that was signed out is refused, others go on", () => {
  const sessions = newSessions();
  const [first, second] = [sessions.issue(ROOT), sessions.issue(ROOT)];
  assert.match(sessions.end(pairOf(first.cookie)), /^ops_server_session=; Path=\/; Max-Age=0;/);
  assert.equal(sessions.verify(pairOf(first.cookie)), undefined);
  assert.ok(sessions.verify(pairOf(second.cookie)));
});

test("CP-508 sessions are listed with whose they are, the oldest first, until they expire or are ended", () => {
  const clock = { now: 1_000_000 };
  const sessions = newSessions(clock);
  const ada = { name: "ada", token: "t1", address: "10.0.0.1", agent: "browser" };
  const first = sessions.issue(ada);
  clock.now += 1_000;
  const second = sessions.issue(ROOT);
  const told = () => sessions.list().map(({ name, token, address, sid }) => [name, token, address, sid]);
  assert.deepEqual(told(), [
    ["ada", "t1", "10.0.0.1", first.session.sid],
    ["root", undefined, "", second.session.sid],
  ]);
  assert.equal(sessions.endById(first.session.sid), true);
  assert.equal(sessions.endById(first.session.sid), false);
  assert.equal(first.session.ends.aborted, true);
  assert.equal(sessions.verify(pairOf(first.cookie)), undefined);
  clock.now += SESSION_MS;
  assert.deepEqual(told(), []);
  clock.now = 1_000_000;
  assert.equal(sessions.verify(pairOf(second.cookie)), undefined, "what was forgotten does not come back");
});

test("CP-508 a session ends with its token, and a 201st of one token ends its oldest, not another's", () => {
  const sessions = newSessions();
  const token = new AbortController();
  const ada = { name: "ada", token: "t1", ends: token.signal, address: "", agent: "" };
  const [own, other] = [sessions.issue(ada), sessions.issue(ROOT)];
  token.abort();
  assert.deepEqual([sessions.verify(pairOf(own.cookie)), own.session.ends.aborted], [undefined, true]);
  assert.ok(sessions.verify(pairOf(other.cookie)));
  const again = new AbortController();
  sessions.endById(sessions.issue({ ...ada, ends: again.signal }).session.sid);
  assert.deepEqual(getEventListeners(again.signal, "abort"), [], "nothing is left of a session that has ended");
  const bob = { name: "bob", token: "t2", address: "", agent: "" };
  const cookies = Array.from({ length: 201 }, () => sessions.issue(bob).cookie);
  const open = cookies.map((cookie) => sessions.verify(pairOf(cookie)) !== undefined);
  assert.deepEqual([open[0], open.filter(Boolean).length], [false, 200]);
  assert.ok(sessions.verify(pairOf(other.cookie)));
});

test("no cookie can stand in for one of another kind, made with the same key or not", () => {
  const key = randomBytes(32);
  const rule = { cookie: TOTP_COOKIE, lifetimeMs: 1000, secure: true } as const;
  const [browser, totp] = [newSessions(undefined, key), new Sessions(rule, key)];
  const [one, other] = [pairOf(browser.issue(ROOT).cookie), pairOf(totp.issue(ROOT).cookie)];
  assert.ok(browser.verify(`${one}; ${other}`));
  assert.ok(totp.verify(`${one}; ${other}`));
  assert.equal(browser.verify(other.replace(TOTP_COOKIE, SESSION_COOKIE)), undefined);
  assert.equal(totp.verify(one.replace(SESSION_COOKIE, TOTP_COOKIE)), undefined);
});

test("CP-199 CP-200 CP-201 CP-202 a TOTP session lasts as long as it is told, HttpOnly and always Secure", () => {
  const clock = { now: 5_000 };
  const rule = { cookie: TOTP_COOKIE, lifetimeMs: 5_000, secure: true } as const;
  const totp = new Sessions(rule, randomBytes(32), () => clock.now);
  const { cookie } = totp.issue(ROOT);
  assert.match(cookie, /^ops_totp_session=.*; Path=\/; Max-Age=5; HttpOnly; SameSite=Strict; Secure$/);
  clock.now += 4_999;
  assert.ok(totp.verify(pairOf(cookie)));
  clock.now += 1;
  assert.equal(totp.verify(pairOf(cookie)), undefined);
});
