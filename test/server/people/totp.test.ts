import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { certificateFor } from "../../helpers/http.ts";
import { type CallOptions, TestServer, TOKEN } from "../../helpers/server.ts";
import { oathtoolCode, SECRET, SECRET_TEXT } from "../../helpers/totp.ts";

const VERIFY = "/api/auth/totp/verify";

/** A server with TLS and TOTP, and its three kinds of tokens. */
async function setUp(t: TestContext) {
  const server = await TestServer.start(t, { tls: await certificateFor(t), totp: { secret: SECRET, sessionMs: 1_800_000 } });
  const cookie = await verified(server, `Bearer ${TOKEN}`, code(server, SECRET_TEXT));
  const make = async (body: object) => {
    const { status, body: made } = await server.call("POST", "/api/tokens", { body, headers: { cookie } });
    assert.equal(status, 201, made.message);
    return { authorization: `Bearer ${made.token}`, secret: made.totp_secret as string, uri: made.totp_uri as string };
  };
  return { server, cookie, make };
}

function code(server: TestServer, secret: string): string {
  return oathtoolCode(secret, Date.now() + server.aheadMs);
}

/** The TOTP cookie that a code gives. */
async function verified(server: TestServer, authorization: string, given: string): Promise<string> {
  const { status, headers } = await server.call("POST", VERIFY, { authorization, body: { code: given } });
  assert.equal(status, 200);
  return headers.getSetCookie()[0]?.split(";")[0] as string;
}

async function statusOf(server: TestServer, options: CallOptions, target = "/api/identity"): Promise<[number, string]> {
  const { status, body } = await server.call("GET", target, options);
  return [status, body?.error];
}

const NEEDED = [403, "totp_required"];

test("CP-507 a token with a secret of its own takes its codes and not the common ones; others the reverse", async (t) => {
  const { server, make } = await setUp(t);
  const own = await make({ name: "ada", role: "deploy", totp: "own" });
  const common = await make({ name: "bob", role: "deploy" });
  assert.match(own.uri, /^otpauth:\/\/totp\/ops:ada\?secret=/);
  assert.ok(own.uri.includes(own.secret));
  server.aheadMs += 60_000;
  const withCode = (authorization: string, given: string) => ({ authorization, headers: { "x-ops-totp": given } });
  assert.deepEqual(await statusOf(server, own), NEEDED);
  assert.deepEqual(await statusOf(server, withCode(own.authorization, code(server, SECRET_TEXT))), NEEDED);
  assert.deepEqual((await statusOf(server, withCode(own.authorization, code(server, own.secret))))[0], 200);
  assert.deepEqual(await statusOf(server, withCode(own.authorization, code(server, own.secret))), NEEDED, "it is used up");
  assert.deepEqual(await statusOf(server, withCode(common.authorization, code(server, own.secret))), NEEDED);
  assert.deepEqual((await statusOf(server, withCode(common.authorization, code(server, SECRET_TEXT))))[0], 200);
});

test("CP-507 what was verified for one token proves nothing for another, the server's own included", async (t) => {
  const { server, cookie, make } = await setUp(t);
  const own = await make({ name: "ada", role: "admin", totp: "own" });
  const common = await make({ name: "bob", role: "admin" });
  const ofOwn = await verified(server, own.authorization, code(server, own.secret));
  server.aheadMs += 60_000;
  const ofCommon = await verified(server, common.authorization, code(server, SECRET_TEXT));
  const tokens = { root: `Bearer ${TOKEN}`, ada: own.authorization, bob: common.authorization };
  for (const [of, proof] of Object.entries({ root: cookie, ada: ofOwn, bob: ofCommon }))
    for (const [name, authorization] of Object.entries(tokens))
      assert.equal((await statusOf(server, { authorization, headers: { cookie: proof } }))[0], of === name ? 200 : 403);
  const { headers } = await server.call("POST", "/api/auth/session", {
    authorization: own.authorization,
    headers: { cookie: ofOwn },
  });
  const session = headers.getSetCookie()[0]?.split(";")[0];
  const by = (proof: string) => ({ authorization: null, headers: { cookie: `${session}; ${proof}` } });
  assert.equal((await statusOf(server, by(ofOwn)))[0], 200);
  for (const proof of [cookie, ofCommon]) assert.deepEqual(await statusOf(server, by(proof)), NEEDED);
  await server.call("DELETE", "/api/tokens/ada", { headers: { cookie } });
  assert.equal((await statusOf(server, by(ofOwn)))[0], 401);
});

test("CP-507 wrong codes of one token end in 429 for that token alone", async (t) => {
  const { server, make } = await setUp(t);
  const [ada, eve] = [await make({ name: "ada", totp: "own" }), await make({ name: "eve", totp: "own" })];
  server.aheadMs += 60_000;
  const guess = { authorization: eve.authorization, headers: { "x-ops-totp": "000000" } };
  for (let count = 0; count < 20; count++) assert.deepEqual(await statusOf(server, guess), NEEDED);
  assert.deepEqual(await statusOf(server, guess), [429, "rate_limited"]);
  const right = (authorization: string, secret: string) =>
    statusOf(server, { authorization, headers: { "x-ops-totp": code(server, secret) } });
  assert.equal((await right(ada.authorization, ada.secret))[0], 200);
  assert.equal((await right(`Bearer ${TOKEN}`, SECRET_TEXT))[0], 200);
  assert.equal((await right(eve.authorization, eve.secret))[0], 429);
});

test("CP-509 a token to read without TOTP reads /metrics where TOTP is on, and changes nothing", async (t) => {
  const { server, make } = await setUp(t);
  const prometheus = await make({ name: "prometheus", role: "read", totp: "none" });
  const { status, text } = await server.call("GET", "/metrics", prometheus);
  assert.equal(status, 200);
  assert.match(text, /^ops_runs_active /m);
  const body = { project: "p", name: "n" };
  assert.equal((await server.call("POST", "/api/buckets", { ...prometheus, body })).status, 403);
  assert.equal((await server.call("POST", VERIFY, { ...prometheus, body: { code: "000000" } })).status, 404);
});

test("CP-507 a secret of its own is asked for also where the server has none", async (t) => {
  const server = await TestServer.start(t);
  const { answer, authorization } = await server.makeToken({ name: "ada", role: "deploy", totp: "own" });
  assert.equal((await statusOf(server, {}))[0], 200, "the server's own token needs no code");
  assert.deepEqual(await statusOf(server, { authorization }), NEEDED);
  const cookie = await verified(server, authorization, code(server, answer.totp_secret));
  assert.equal((await statusOf(server, { authorization, headers: { cookie } }))[0], 200);
  await server.stop();
  await server.open();
  assert.deepEqual(await statusOf(server, { authorization, headers: { cookie } }), NEEDED, "the server forgets sessions");
  server.aheadMs += 60_000;
  assert.equal((await statusOf(server, { authorization, headers: { "x-ops-totp": code(server, answer.totp_secret) } }))[0], 200);
});
