import assert from "node:assert/strict";
import { test } from "node:test";
import { Guard, SecondFactor } from "../../lib/auth/guard.ts";
import { SESSION_COOKIE, SESSION_MS, Sessions, TOTP_COOKIE } from "../../lib/auth/session.ts";
import { totpCode } from "../../lib/codec/crypto/totp.ts";
import type { HttpRequest } from "../../lib/http/message.ts";
import { requestWith } from "../helpers/http.ts";

const TOKEN = "correct-horse";
/** Who opens a session with the server's own token. */
const ROOT = { name: "root", token: undefined, address: "", agent: "" };

function setUp() {
  const clock = { now: 0 };
  const now = () => clock.now;
  const rule = { cookie: SESSION_COOKIE, lifetimeMs: SESSION_MS, secure: false } as const;
  const sessions = new Sessions(rule, undefined, now);
  const cookie = (sessions.issue(ROOT).cookie.split(";")[0] as string) ?? "";
  return { clock, sessions, cookie, guard: new Guard({ token: TOKEN, sessions, now }) };
}

function requestOf(headers: Record<string, string>, more: Partial<HttpRequest> = {}): HttpRequest {
  const plain = { path: "/api/buckets", peer: "10.0.0.1", headers: { host: "localhost:9090", ...headers } };
  return requestWith([], { ...plain, ...more });
}

const wrong = requestOf({ authorization: "Bearer wrong" });
const right = requestOf({ authorization: `Bearer ${TOKEN}` });

test("CP-286 the right bearer token is admitted", () => {
  const { guard } = setUp();
  for (const scheme of ["Bearer", "bearer", "BEARER"])
    assert.deepEqual(
      { ...guard.admit(requestOf({ authorization: `${scheme} ${TOKEN}` })), ends: undefined },
      {
        name: "root",
        role: "root",
        buckets: undefined,
        token: undefined,
        address: "10.0.0.1",
        via: "bearer",
        session: undefined,
        codes: undefined,
        totp: false,
        ends: undefined,
      },
    );
});

for (const authorization of [
  ...["", "Bearer", "Bearer ", "Bearer wrong", `Bearer ${TOKEN}x`, `Bearer ${TOKEN.slice(1)}`, TOKEN],
  ...[`Bearer\t${TOKEN}`, `Bearer \t${TOKEN}`, `Bearer ${TOKEN}\tx`, `Bearerx ${TOKEN}`],
  ...[`Basic ${TOKEN}`, `Bearer ${TOKEN} x`, `Bearer ${TOKEN.toUpperCase()}`, `Token ${TOKEN}`, `xBearer ${TOKEN}`],
])
  test(`CP-286 CP-323 Authorization: ${JSON.stringify(authorization)} is unauthorized`, () => {
    assert.throws(() => setUp().guard.admit(requestOf({ authorization })), { code: "unauthorized" });
  });

for (const length of [1, 63, 64, 65, 1_000])
  test(`CP-286 a token of ${length} letters is right as a whole only`, () => {
    const token = "a".repeat(length);
    const guard = new Guard({ token, sessions: setUp().sessions });
    const admit = (given: string) => guard.admit(requestOf({ authorization: `Bearer ${given}` }));
    assert.equal(admit(token).via, "bearer");
    for (const given of [`${token}a`, `${token}\0`, `${token}${"b".repeat(300)}`, token.slice(1), `b${token.slice(1)}`])
      assert.throws(() => admit(given), { code: "unauthorized" }, JSON.stringify(given.slice(-3)));
    assert.equal(admit(token).via, "bearer", "what was given before is forgotten");
  });

test("CP-322 without a credential a request is unauthorized, whatever its query says", () => {
  const { guard } = setUp();
  assert.throws(() => guard.admit(requestOf({}, { query: `token=${TOKEN}` })), { code: "unauthorized" });
});

test("CP-316 CP-347 T-07 the 21st attempt after 20 wrong tokens is the first 429, with the seconds to wait", () => {
  const { guard, clock } = setUp();
  for (let count = 0; count < 20; count++) assert.throws(() => guard.admit(wrong), { code: "unauthorized" });
  clock.now = 30_500;
  assert.throws(() => guard.admit(wrong), { code: "rate_limited", details: { retry_after_s: 30 } });
});

test("while an address is limited its right token gets 429 too, but its session goes on working", () => {
  const { guard, cookie, clock } = setUp();
  for (let count = 0; count < 20; count++) assert.throws(() => guard.admit(wrong));
  assert.throws(() => guard.admit(right), { code: "rate_limited" });
  assert.equal(guard.admit(requestOf({ cookie })).via, "session");
  assert.equal(guard.admit({ ...right, peer: "10.0.0.2" }).via, "bearer");
  clock.now = 60_000;
  assert.equal(guard.admit(right).via, "bearer");
});

test("CP-339 forwarding headers change nothing about the limit", () => {
  const { guard } = setUp();
  const from = (index: number) => ({
    ...wrong,
    headers: { ...wrong.headers, "x-forwarded-for": `1.1.1.${index}`, forwarded: `for=1.1.1.${index}` },
  });
  for (let count = 0; count < 20; count++) assert.throws(() => guard.admit(from(count)));
  assert.throws(() => guard.admit(from(99)), { code: "rate_limited" });
});

test("requests without a bearer token are not counted", () => {
  const { guard } = setUp();
  for (let count = 0; count < 50; count++) {
    assert.throws(() => guard.admit(requestOf({})), { code: "unauthorized" });
    assert.throws(() => guard.admit(requestOf({ authorization: "Basic eA==" })), { code: "unauthorized" });
    assert.throws(() => guard.admit(requestOf({ cookie: "ops_server_session=x.y" })), { code: "unauthorized" });
  }
  assert.equal(guard.admit(right).via, "bearer");
});

test("CP-287 CP-294 a session is enough for reading, without further headers", () => {
  const { guard, cookie } = setUp();
  for (const method of ["GET", "HEAD"]) assert.equal(guard.admit(requestOf({ cookie }, { method })).via, "session");
});

test("T-65 an Authorization header decides alone: a wrong one is not helped by a valid session", () => {
  const { guard, cookie } = setUp();
  assert.throws(() => guard.admit(requestOf({ cookie, authorization: "Bearer wrong" })), { code: "unauthorized" });
  const both = guard.admit(requestOf({ cookie, authorization: `Bearer ${TOKEN}` }, { method: "POST" }));
  assert.deepEqual([both.via, both.session], ["bearer", undefined]);
});

const CSRF = { "x-ops-csrf": "1" };
const ALLOWED: [string, Record<string, string>, Partial<HttpRequest>][] = [
  ["same origin", { origin: "http://localhost:9090" }, {}],
  ["the default port left out", { origin: "http://h", host: "h:80" }, {}],
  ["https with its default port", { origin: "https://h", host: "h" }, { scheme: "https" }],
  ["an IPv6 address", { origin: "http://[::1]:9090", host: "[::1]:9090" }, {}],
  ["another case of the host", { origin: "http://localhost:9090", host: "LOCALHOST:9090" }, {}],
];
for (const [what, headers, more] of ALLOWED)
  test(`CP-292 a change by session from ${what} with X-Ops-CSRF: 1 is admitted`, () => {
    const { guard, cookie } = setUp();
    const request = requestOf({ cookie, ...CSRF, ...headers }, { method: "POST", ...more });
    assert.equal(guard.admit(request).via, "session");
  });

const OWN = { origin: "http://localhost:9090" };
const REFUSED: [string, Record<string, string>, Partial<HttpRequest>][] = [
  ["CP-288 no Origin", CSRF, {}],
  ["CP-289 a foreign Origin", { ...CSRF, origin: "https://evil.example" }, {}],
  ["CP-289 another port", { ...CSRF, origin: "http://localhost:9091" }, {}],
  ["CP-289 no port", { ...CSRF, origin: "http://localhost" }, {}],
  ["CP-289 another scheme", { ...CSRF, origin: "https://localhost:9090" }, {}],
  ["CP-289 another scheme than TLS", { ...CSRF, ...OWN }, { scheme: "https" }],
  ["CP-289 Origin null", { ...CSRF, origin: "null" }, {}],
  ["CP-289 an Origin that begins alike", { ...CSRF, origin: "http://localhost:9090.evil" }, {}],
  ["CP-289 a host with user information", { ...CSRF, origin: "http://localhost:9090@evil" }, {}],
  ["CP-289 an Origin with a path", { ...CSRF, origin: "http://localhost:9090/" }, {}],
  ["CP-289 an Origin behind a blank", { ...CSRF, origin: " http://localhost:9090" }, {}],
  ["CP-289 two Origins", { ...CSRF, origin: "http://localhost:9090, http://evil" }, {}],
  ["CP-289 a Host that hides another", { ...CSRF, origin: "http://evil", host: "localhost@evil" }, {}],
  ["CP-290 no X-Ops-CSRF", OWN, {}],
  ["CP-291 X-Ops-CSRF: 0", { ...OWN, "x-ops-csrf": "0" }, {}],
  ["CP-291 X-Ops-CSRF: 1, 1", { ...OWN, "x-ops-csrf": "1, 1" }, {}],
];
for (const [what, headers, more] of REFUSED)
  test(`${what}: a change by session is refused as csrf_failed`, () => {
    const { guard, cookie } = setUp();
    const request = requestOf({ cookie, ...headers }, { method: "POST", ...more });
    assert.throws(() => guard.admit(request), { code: "csrf_failed" });
  });

test("CP-293 every method but GET and HEAD counts as a change", () => {
  const { guard, cookie } = setUp();
  for (const method of ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
    assert.throws(() => guard.admit(requestOf({ cookie }, { method })), { code: "csrf_failed" });
});

test("CP-295 a bearer token needs no Origin and may come with a foreign one", () => {
  const { guard } = setUp();
  const foreign = { ...right, headers: { ...right.headers, origin: "https://evil.example" } };
  for (const request of [right, foreign]) assert.equal(guard.admit({ ...request, method: "POST" }).via, "bearer");
});

test("a session that has ended or was signed out is unauthorized", () => {
  const { guard, cookie, sessions, clock } = setUp();
  sessions.end(cookie);
  assert.throws(() => guard.admit(requestOf({ cookie })), { code: "unauthorized" });
  const other = sessions.issue(ROOT).cookie.split(";")[0] as string;
  clock.now += 12 * 3600 * 1000;
  assert.throws(() => guard.admit(requestOf({ cookie: other })), { code: "unauthorized" });
});

test("another token of the server ends what goes on with the one before, and nothing of a person", () => {
  const { guard, sessions } = setUp();
  const person = sessions.issue({ ...ROOT, name: "ada", token: "t1" }).session;
  const { ends } = guard.admit(right);
  assert.equal(guard.replaceToken(TOKEN), false);
  assert.deepEqual([ends?.aborted, sessions.list().length], [false, 2]);
  assert.equal(guard.replaceToken("battery-staple"), true);
  assert.deepEqual([ends?.aborted, sessions.list().map(({ sid }) => sid)], [true, [person.sid]]);
  assert.throws(() => guard.admit(right), { code: "unauthorized" });
  assert.equal(guard.admit(requestOf({ authorization: "Bearer battery-staple" })).name, "root");
});

const SECRET = Buffer.from("12345678901234567890");

function setUpTotp() {
  const clock = { now: 1_000_000_000 };
  const now = () => clock.now;
  const browser = { cookie: SESSION_COOKIE, lifetimeMs: SESSION_MS, secure: true } as const;
  const sessions = new Sessions(browser, undefined, now);
  const totpSessions = new Sessions({ cookie: TOTP_COOKIE, lifetimeMs: 60_000, secure: true }, undefined, now);
  const totp = new SecondFactor(totpSessions, SECRET, now);
  const pair = (issuer: Sessions) => issuer.issue(ROOT).cookie.split(";")[0] as string;
  return {
    clock,
    guard: new Guard({ token: TOKEN, sessions, totp, now }),
    browser: pair(sessions),
    verified: pair(totpSessions),
    code: (steps = 0) => totpCode(SECRET, Math.floor(clock.now / 30_000) + steps),
    bearer: { authorization: `Bearer ${TOKEN}` },
  };
}

const VERIFY = { method: "POST", path: "/api/auth/totp/verify" };
const SIGN_OUT = { method: "DELETE", path: "/api/auth/session" };

test("CP-296 CP-302 CP-317 CP-337 with TOTP on, a token or a session alone is not enough, and is no failure", () => {
  const { guard, bearer, browser, code } = setUpTotp();
  for (let count = 0; count < 200; count++)
    for (const headers of [bearer, { cookie: browser }])
      assert.throws(() => guard.admit(requestOf(headers)), { code: "totp_required" });
  assert.equal(guard.admit(requestOf({ ...bearer, "x-ops-totp": code() })).totp, true);
});

test("CP-305 T-69 the TOTP cookie counts beside a token and beside a session, until it expires", () => {
  const { guard, bearer, browser, verified, clock } = setUpTotp();
  const byToken = requestOf({ ...bearer, cookie: verified });
  const bySession = requestOf({ cookie: `${browser}; ${verified}` });
  for (let count = 0; count < 3; count++) {
    assert.deepEqual([guard.admit(byToken).via, guard.admit(byToken).totp], ["bearer", true]);
    assert.deepEqual([guard.admit(bySession).via, guard.admit(bySession).totp], ["session", true]);
  }
  clock.now += 60_000;
  for (let count = 0; count < 50; count++) assert.throws(() => guard.admit(byToken), { code: "totp_required" });
});

test("CP-303 T-66 neither a TOTP cookie nor a code helps who has no token, and costs nobody an attempt", () => {
  const { guard, bearer, verified, code } = setUpTotp();
  const attempts: Record<string, string>[] = [{ cookie: verified }, { "x-ops-totp": code() }, { "x-ops-totp": "no" }];
  for (const [index, headers] of attempts.entries())
    for (let count = 0; count < 40; count++)
      assert.throws(() => guard.admit(requestOf(headers, { peer: `10.0.${index}.${count}` })), { code: "unauthorized" });
  const wrongToken = { authorization: "Bearer x", "x-ops-totp": "no" };
  for (let count = 0; count < 120; count++)
    assert.throws(() => guard.admit(requestOf(wrongToken, { peer: `10.1.0.${count}` })), { code: "unauthorized" });
  assert.equal(guard.admit(requestOf({ ...bearer, "x-ops-totp": code() })).totp, true);
});

test("CP-306 CP-307 CP-310 a code in the header counts for one request", () => {
  const { guard, bearer, code } = setUpTotp();
  const request = requestOf({ ...bearer, "x-ops-totp": code() });
  assert.equal(guard.admit(request).totp, true);
  for (let count = 0; count < 2; count++) assert.throws(() => guard.admit(request), { code: "totp_required" });
  assert.equal(guard.admit(requestOf({ ...bearer, "x-ops-totp": code(1) })).totp, true);
});

test("T-68 where there are both the header and the cookie, the header decides", () => {
  const { guard, bearer, verified, code } = setUpTotp();
  const both = (value: string) => requestOf({ ...bearer, cookie: verified, "x-ops-totp": value });
  assert.throws(() => guard.admit(both("000000")), { code: "totp_required" });
  assert.throws(() => guard.admit(both("")), { code: "totp_required" });
  assert.equal(guard.admit(both(code())).totp, true);
  assert.throws(() => guard.admit(both(code())), { code: "totp_required" });
});

test("CP-318 CP-321 T-70 wrong codes in the header end in 429; the cookie and the token go on working", () => {
  const { guard, bearer, verified } = setUpTotp();
  const guess = requestOf({ ...bearer, cookie: verified, "x-ops-totp": "000000" });
  for (let count = 0; count < 20; count++) assert.throws(() => guard.admit(guess), { code: "totp_required" });
  assert.throws(() => guard.admit(guess), { code: "rate_limited", details: { retry_after_s: 60 } });
  assert.equal(guard.admit(requestOf({ ...bearer, cookie: verified })).totp, true);
  assert.throws(() => guard.admit(guess), { code: "rate_limited" }, "the cookie clears nothing");
  assert.throws(() => guard.admit(requestOf(bearer)), { code: "totp_required" });
});

test("CP-344 neither a code nor a right token forgets wrong tokens", () => {
  const { guard, bearer, code } = setUpTotp();
  const guess = requestOf({ authorization: "Bearer wrong" });
  for (let count = 0; count < 15; count++) assert.throws(() => guard.admit(guess), { code: "unauthorized" });
  assert.equal(guard.admit(requestOf({ ...bearer, "x-ops-totp": code() })).totp, true);
  for (let count = 0; count < 5; count++) assert.throws(() => guard.admit(guess), { code: "unauthorized" });
  assert.throws(() => guard.admit(guess), { code: "rate_limited" });
});

test("CP-231 CP-232 verify needs the token or a session of this page, but no TOTP", () => {
  const { guard, bearer, browser, verified } = setUpTotp();
  assert.deepEqual([guard.admit(requestOf(bearer, VERIFY)).totp], [false]);
  const page = { cookie: browser, "x-ops-csrf": "1", origin: "http://localhost:9090" };
  assert.equal(guard.admit(requestOf(page, VERIFY)).via, "session");
  assert.throws(() => guard.admit(requestOf({ cookie: browser }, VERIFY)), { code: "csrf_failed" });
  assert.throws(() => guard.admit(requestOf({ cookie: verified }, VERIFY)), { code: "unauthorized" });
});

for (const path of [
  ...["/api/auth/totp/verify/", "/api/auth/totp//verify", "/api/auth/totp/%76erify", "/API/auth/totp/verify"],
  ...["/api/auth/totp", "/api/auth/session/", "//api/auth/totp/verify", "/openapi.yaml", "/docs/", "/docs"],
])
  test(`CP-297 CP-298 only verify itself does without TOTP: ${path} does not`, () => {
    const { guard, bearer } = setUpTotp();
    for (const method of ["GET", "POST", "DELETE"])
      assert.throws(() => guard.admit(requestOf(bearer, { method, path })), { code: "totp_required" });
  });

test("other methods on verify, and other than signing out of the session, need TOTP", () => {
  const { guard, bearer } = setUpTotp();
  for (const method of ["GET", "PUT", "DELETE", "HEAD"])
    assert.throws(() => guard.admit(requestOf(bearer, { ...VERIFY, method })), { code: "totp_required" });
  for (const method of ["GET", "POST", "PUT"])
    assert.throws(() => guard.admit(requestOf(bearer, { ...SIGN_OUT, method })), { code: "totp_required" });
});

test("T-03 signing out is let through without TOTP, and says so", () => {
  const { guard, bearer, verified } = setUpTotp();
  assert.equal(guard.admit(requestOf(bearer, SIGN_OUT)).totp, false);
  assert.equal(guard.admit(requestOf({ ...bearer, cookie: verified }, SIGN_OUT)).totp, true);
});

test("T-04 CP-233 without TOTP verify does not exist, but only for who is known", () => {
  const { guard } = setUp();
  assert.throws(() => guard.admit({ ...right, ...VERIFY }), { code: "totp_disabled" });
  assert.throws(() => guard.admit({ ...wrong, ...VERIFY }), { code: "unauthorized" });
});
