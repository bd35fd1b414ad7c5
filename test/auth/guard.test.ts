import assert from "node:assert/strict";
import { test } from "node:test";
import { Guard } from "../../lib/auth/guard.ts";
import { Sessions } from "../../lib/auth/session.ts";
import type { HttpRequest } from "../../lib/http/message.ts";

const TOKEN = "correct-horse";

function setUp() {
  const clock = { now: 0 };
  const now = () => clock.now;
  const sessions = new Sessions({ secure: false, now });
  const cookie = (sessions.issue().cookie.split(";")[0] as string) ?? "";
  return { clock, sessions, cookie, guard: new Guard({ token: TOKEN, sessions, now }) };
}

function requestOf(headers: Record<string, string>, more: Partial<HttpRequest> = {}): HttpRequest {
  async function* body() {}
  return {
    ...{ id: "r1", method: "GET", path: "/api/buckets", query: "", peer: "10.0.0.1", scheme: "http" },
    ...{ headers: { host: "localhost:9090", ...headers }, signal: new AbortController().signal },
    ...{ body: body(), longPoll: (work) => work() },
    ...more,
  };
}

const wrong = requestOf({ authorization: "Bearer wrong" });
const right = requestOf({ authorization: `Bearer ${TOKEN}` });

test("CP-286 the right bearer token is admitted", () => {
  const { guard } = setUp();
  for (const scheme of ["Bearer", "bearer", "BEARER"])
    assert.deepEqual(guard.admit(requestOf({ authorization: `${scheme} ${TOKEN}` })), {
      ...{ address: "10.0.0.1", via: "bearer", session: undefined },
    });
});

for (const authorization of [
  ...["", "Bearer", "Bearer ", "Bearer wrong", `Bearer ${TOKEN}x`, `Bearer ${TOKEN.slice(1)}`, TOKEN],
  ...[`Basic ${TOKEN}`, `Bearer ${TOKEN} x`, `Bearer ${TOKEN.toUpperCase()}`, `Token ${TOKEN}`],
])
  test(`CP-286 CP-323 Authorization: ${JSON.stringify(authorization)} is unauthorized`, () => {
    assert.throws(() => setUp().guard.admit(requestOf({ authorization })), { code: "unauthorized" });
  });

test("CP-322 without a credential a request is unauthorized, whatever its query says", () => {
  const { guard } = setUp();
  assert.throws(() => guard.admit(requestOf({}, { query: `token=${TOKEN}` })), { code: "unauthorized" });
});

test("CP-316 CP-347 the 21st attempt after 20 wrong tokens is the first 429, with the seconds to wait", () => {
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
    assert.throws(() => guard.admit(requestOf({ cookie: "ops_server_session=x.y" })), {
      code: "unauthorized",
    });
  }
  assert.equal(guard.admit(right).via, "bearer");
});

test("CP-287 CP-294 a session is enough for reading, without further headers", () => {
  const { guard, cookie } = setUp();
  for (const method of ["GET", "HEAD"])
    assert.equal(guard.admit(requestOf({ cookie }, { method })).via, "session");
});

test("an Authorization header decides alone: a wrong one is not helped by a valid session", () => {
  const { guard, cookie } = setUp();
  assert.throws(() => guard.admit(requestOf({ cookie, authorization: "Bearer wrong" })), {
    code: "unauthorized",
  });
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
  for (const request of [right, foreign])
    assert.equal(guard.admit({ ...request, method: "POST" }).via, "bearer");
});

test("a session that has ended or was signed out is unauthorized", () => {
  const { guard, cookie, sessions, clock } = setUp();
  sessions.revoke(
    guard.admit(requestOf({ cookie })).session as NonNullable<ReturnType<typeof sessions.verify>>,
  );
  assert.throws(() => guard.admit(requestOf({ cookie })), { code: "unauthorized" });
  const other = sessions.issue().cookie.split(";")[0] as string;
  clock.now += 12 * 3600 * 1000;
  assert.throws(() => guard.admit(requestOf({ cookie: other })), { code: "unauthorized" });
});
