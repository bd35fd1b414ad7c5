import assert from "node:assert/strict";
import { test } from "node:test";
import { TestServer } from "../helpers/server.ts";

const SESSION = "/api/auth/session";

async function signIn(server: TestServer): Promise<string> {
  const { headers } = await server.call("POST", SESSION);
  return headers.getSetCookie()[0]?.split(";")[0] as string;
}

function asPage(server: TestServer, cookie: string): Record<string, string> {
  return { cookie, origin: server.url, "x-ops-csrf": "1" };
}

test("CP-194 CP-226 the API token is exchanged for a session cookie of 12 hours", async (t) => {
  const server = await TestServer.start(t);
  const before = Date.now();
  const { status, body, headers } = await server.call("POST", SESSION);
  assert.equal(status, 200);
  assert.deepEqual(body.totp, { enabled: false, verified: false });
  assert.equal(body.totp_expires_at, null);
  assert.ok(Date.parse(body.expires_at) - before >= 12 * 3600 * 1000);
  assert.match(headers.getSetCookie()[0] ?? "", /^ops_server_session=.*; Max-Age=43200; HttpOnly; SameSite=Strict$/);
});

test("CP-227 a wrong token, or none, sets no cookie", async (t) => {
  const server = await TestServer.start(t);
  for (const authorization of ["Bearer wrong", null]) {
    const { status, headers } = await server.call("POST", SESSION, { authorization });
    assert.deepEqual([status, headers.getSetCookie()], [401, []]);
  }
});

test("a session tells when it ends; a request by token has no end", async (t) => {
  const server = await TestServer.start(t);
  const cookie = await signIn(server);
  const bySession = await server.call("GET", SESSION, { authorization: null, headers: { cookie } });
  assert.ok(Date.parse(bySession.body.expires_at) > Date.now());
  assert.equal((await server.call("GET", SESSION)).body.expires_at, null);
});

test("CP-287 CP-288 CP-292 CP-293 CP-324 a session reads everywhere and changes only from the server's own pages", async (t) => {
  const server = await TestServer.start(t);
  const cookie = await signIn(server);
  for (const target of ["/api/buckets", "/openapi.yaml", SESSION])
    assert.equal((await server.call("GET", target, { authorization: null, headers: { cookie } })).status, 200);
  const body = { project: "p", name: "n" };
  const foreign = await server.call("POST", "/api/buckets", { authorization: null, headers: { cookie }, body });
  assert.deepEqual([foreign.status, foreign.body.error], [403, "csrf_failed"]);
  assert.equal((await server.call("GET", "/api/buckets")).body.items.length, 0);
  const own = await server.call("POST", "/api/buckets", { authorization: null, headers: asPage(server, cookie), body });
  assert.equal(own.status, 201);
  const unsafe = await server.call("DELETE", SESSION, { authorization: null, headers: { cookie } });
  assert.equal(unsafe.status, 403);
});

test("a session cannot prolong itself", async (t) => {
  const server = await TestServer.start(t);
  const headers = asPage(server, await signIn(server));
  const reply = await server.call("POST", SESSION, { authorization: null, headers });
  assert.deepEqual([reply.status, reply.headers.getSetCookie()], [401, []]);
});

test("CP-228 signing out clears the cookie and ends the session, by session or by token", async (t) => {
  const server = await TestServer.start(t);
  for (const authorization of [null, undefined]) {
    const cookie = await signIn(server);
    const credentials = authorization === null ? { authorization } : {};
    const reply = await server.call("DELETE", SESSION, { ...credentials, headers: asPage(server, cookie) });
    assert.deepEqual([reply.status, reply.text], [204, ""]);
    assert.match(reply.headers.getSetCookie()[0] ?? "", /^ops_server_session=; Path=\/; Max-Age=0;/);
    const after = await server.call("GET", SESSION, { authorization: null, headers: { cookie } });
    assert.equal(after.status, 401);
  }
  assert.equal((await server.call("DELETE", SESSION)).status, 204);
});

test("a restart ends every session", async (t) => {
  const server = await TestServer.start(t);
  const cookie = await signIn(server);
  await server.stop();
  await server.open();
  assert.equal((await server.call("GET", SESSION, { authorization: null, headers: { cookie } })).status, 401);
});

test("CP-233 verifying a TOTP code is 404 without TOTP, but only for who is known", async (t) => {
  const server = await TestServer.start(t);
  const verify = "/api/auth/totp/verify";
  const known = await server.call("POST", verify, { body: { code: "123456" } });
  assert.deepEqual([known.status, known.body.error], [404, "totp_disabled"]);
  assert.equal((await server.call("POST", verify, { authorization: null })).status, 401);
});
