import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { certificateFor } from "../helpers/http.ts";
import { type CallOptions, type Reply, TestServer, TOKEN } from "../helpers/server.ts";
import { until } from "../helpers/temporary.ts";
import { oathtoolCode, SECRET, SECRET_TEXT } from "../helpers/totp.ts";

const SESSION = "/api/auth/session";
const VERIFY = "/api/auth/totp/verify";

/** A server with TLS and TOTP, whose clock stands at a time of its own plus what is added to `aheadMs`. */
class TotpServer {
  readonly server: TestServer;
  #used = 0;

  private constructor(server: TestServer) {
    this.server = server;
  }

  static async start(t: TestContext, sessionMs = 1_800_000): Promise<TotpServer> {
    const config = { tls: await certificateFor(t), totp: { secret: SECRET, sessionMs } };
    return new TotpServer(await TestServer.start(t, config));
  }

  /** A code that was never used: the clock goes on by a step where that is needed. */
  freshCode(): string {
    if (this.#used > 0) this.server.aheadMs += 30_000;
    this.#used++;
    return this.code();
  }

  code(): string {
    return oathtoolCode(SECRET_TEXT, Date.now() + this.server.aheadMs);
  }

  verify(code: unknown, options: CallOptions = {}): Promise<Reply> {
    return this.server.call("POST", VERIFY, { body: { code }, ...options });
  }

  async totpCookie(): Promise<string> {
    return cookiesOf(await this.verify(this.freshCode()))[0] as string;
  }

  /** The cookies of a browser that signed in. */
  async signIn(): Promise<{ totp: string; browser: string }> {
    const totp = await this.totpCookie();
    const reply = await this.server.call("POST", SESSION, { headers: { cookie: totp } });
    assert.equal(reply.status, 200);
    return { totp, browser: cookiesOf(reply)[0] as string };
  }

  async status(method: string, target: string, options: CallOptions = {}): Promise<[number, string]> {
    const { status, body } = await this.server.call(method, target, options);
    return [status, body?.error];
  }

  page(cookie: string): Pick<CallOptions, "authorization" | "headers"> {
    return { authorization: null, headers: { cookie, origin: this.server.url, "x-ops-csrf": "1" } };
  }
}

const cookiesOf = (reply: Reply) => reply.headers.getSetCookie().map((one) => one.split(";")[0] as string);
const withCode = (code: string): CallOptions => ({ headers: { "x-ops-totp": code } });
const withCookie = (cookie: string): CallOptions => ({ headers: { cookie } });

const REQUIRED = [403, "totp_required"];

test("CP-296 CP-297 CP-298 CP-299 CP-300 CP-317 with TOTP on, the token alone opens no route but verify", async (t) => {
  const { server } = await TotpServer.start(t);
  const targets = ROUTES.map(({ method, path }) => [method, path.replace(/\{\w+\}/g, "x")] as const);
  for (const target of ["/docs", "/docs/", "/docs/x.js", "/api", "/api/nothing"]) targets.push(["GET", target]);
  for (const [method, target] of targets) {
    if (target === VERIFY) continue;
    const { status, body } = await server.call(method, target);
    assert.deepEqual([status, body.error], REQUIRED, `${method} ${target}`);
  }
});

test("CP-304 the sign-in page needs nothing, with TOTP on too", async (t) => {
  const { server } = await TotpServer.start(t);
  assert.equal((await server.call("GET", "/", { authorization: null })).status, 200);
});

test("CP-199 CP-200 CP-201 CP-229 CP-230 CP-231 CP-305 a code of oathtool becomes a TOTP session of its lifetime", async (t) => {
  const totp = await TotpServer.start(t, 5_000);
  const before = Date.now();
  const reply = await totp.verify(totp.freshCode());
  assert.equal(reply.status, 200);
  assert.deepEqual(Object.keys(reply.body), ["expires_at"]);
  const lasts = Date.parse(reply.body.expires_at) - before;
  assert.ok(lasts >= 5_000 && lasts < 65_000);
  assert.match(
    reply.headers.getSetCookie().join(),
    /^ops_totp_session=[\w-]+\.[\w-]+; Path=\/; Max-Age=5; HttpOnly; SameSite=Strict; Secure$/,
  );
  const [cookie = ""] = cookiesOf(reply);
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCookie(cookie)), [200, undefined]);
});

test("CP-052 CP-202 CP-318 the server ends a TOTP session by itself, and takes no made-up one", async (t) => {
  const totp = await TotpServer.start(t, 5_000);
  const cookie = await totp.totpCookie();
  totp.server.aheadMs += 5_000;
  for (const one of [cookie, `${cookie}x`, "ops_totp_session=1", "ops_totp_session=e30.e30"])
    assert.deepEqual(await totp.status("GET", "/api/buckets", withCookie(one)), REQUIRED);
});

test("CP-229 CP-319 a wrong code of whatever shape is 401, none or one that is no string 400; neither sets a cookie", async (t) => {
  const totp = await TotpServer.start(t);
  const wrong = await totp.verify("000000");
  assert.deepEqual([wrong.status, wrong.body.error, cookiesOf(wrong)], [401, "invalid_totp_code", []]);
  for (const code of ["12345", "1234567", "12345a", "", "１２３４５６", "123456\n", "1".repeat(10_000)]) {
    const reply = await totp.verify(code);
    assert.deepEqual([reply.status, reply.body.error, cookiesOf(reply)], [401, "invalid_totp_code", []]);
  }
  for (const code of [123456, null, undefined, ["123456"], true]) {
    const reply = await totp.verify(code);
    assert.deepEqual([reply.status, reply.body.error, cookiesOf(reply)], [400, "invalid_request", []]);
  }
  assert.equal((await totp.server.call("POST", VERIFY)).status, 400);
});

test("CP-320 a code of any wrong shape is counted, in the body and in the header; none, or one that is no string, is not", async (t) => {
  const totp = await TotpServer.start(t);
  for (let count = 0; count < 25; count++) {
    assert.equal((await totp.verify(count % 2 === 0 ? undefined : 123456)).status, 400);
    assert.deepEqual(await totp.status("GET", "/api/buckets"), REQUIRED);
  }
  for (let count = 0; count < 10; count++) {
    assert.equal((await totp.verify("12345a")).status, 401);
    assert.deepEqual(await totp.status("GET", "/api/buckets", withCode("12")), REQUIRED);
  }
  assert.equal((await totp.verify("12345a")).status, 429);
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCode("12")), [429, "rate_limited"]);
});

test("CP-314 a code of a clock that is an hour off the server's is refused in either form", async (t) => {
  const totp = await TotpServer.start(t);
  for (const off of [-3_600_000, 3_600_000]) {
    const code = oathtoolCode(SECRET_TEXT, Date.now() + totp.server.aheadMs + off);
    assert.equal((await totp.verify(code)).status, 401);
    assert.deepEqual(await totp.status("GET", "/api/buckets", withCode(code)), REQUIRED);
  }
});

test("CP-232 CP-303 a valid code without the token, or with a wrong one, is 401 and is not used up", async (t) => {
  const totp = await TotpServer.start(t);
  const code = totp.freshCode();
  for (const authorization of [null, "Bearer wrong"]) {
    const reply = await totp.verify(code, { authorization });
    assert.deepEqual([reply.status, reply.body.error, cookiesOf(reply)], [401, "unauthorized", []]);
    const unauthorized = await totp.status("GET", "/api/buckets", { authorization, ...withCode(code) });
    assert.deepEqual(unauthorized, [401, "unauthorized"]);
  }
  assert.equal((await totp.verify(code)).status, 200);
});

test("CP-307 CP-308 CP-309 CP-310 a code counts once, in either form, for all clients", async (t) => {
  const totp = await TotpServer.start(t);
  const first = totp.freshCode();
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCode(first)), [200, undefined]);
  for (const from of ["127.0.0.1", "127.0.0.2"]) {
    assert.deepEqual(await totp.status("GET", "/api/buckets", { from, ...withCode(first) }), REQUIRED);
    const verified = await totp.verify(first, { from });
    assert.deepEqual([verified.status, cookiesOf(verified)], [401, []]);
  }
  const second = totp.freshCode();
  assert.equal((await totp.verify(second)).status, 200);
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCode(second)), REQUIRED);
  assert.equal((await totp.verify(second)).status, 401);
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCode(totp.freshCode())), [200, undefined]);
});

test("T-67 of many requests with one code at the same time exactly one succeeds", async (t) => {
  const totp = await TotpServer.start(t);
  const code = totp.freshCode();
  const replies = await Promise.all(
    Array.from({ length: 16 }, (_, index) => {
      const from = `127.0.1.${index + 1}`;
      if (index % 2 === 0) return totp.verify(code, { from });
      return totp.server.call("GET", "/api/buckets", { from, ...withCode(code) });
    }),
  );
  assert.equal(replies.filter(({ status }) => status === 200).length, 1);
  assert.equal(replies.filter((reply) => cookiesOf(reply).length > 0).length <= 1, true);
});

test("CP-320 CP-321 CP-335 CP-347 T-05 T-06 20 failures in both forms together, then 429 with the seconds to wait; the right code is kept", async (t) => {
  const totp = await TotpServer.start(t);
  for (let count = 0; count < 10; count++) {
    assert.equal((await totp.verify("000000")).status, 401);
    assert.deepEqual(await totp.status("GET", "/api/buckets", withCode("000000")), REQUIRED);
  }
  const code = totp.freshCode();
  const limited = await totp.verify(code);
  assert.deepEqual([limited.status, limited.body.error], [429, "rate_limited"]);
  assert.match(limited.headers.get("retry-after") ?? "", /^([1-9]|[1-5]\d|60)$/);
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCode(code)), [429, "rate_limited"]);
  assert.deepEqual(await totp.status("GET", "/api/buckets"), REQUIRED);
  assert.equal((await totp.verify(code, { from: "127.0.0.2" })).status, 200);
  totp.server.aheadMs += 60_000;
  assert.equal((await totp.verify(totp.freshCode())).status, 200);
});

test("CP-336 CP-345 CP-346 T-07 100 failures of several addresses limit a fresh one, until their minute is over", async (t) => {
  const totp = await TotpServer.start(t);
  for (let count = 0; count < 100; count++) {
    const from = `127.0.0.${1 + (count % 6)}`;
    assert.equal((await totp.verify("000000", { from })).status, 401);
  }
  assert.equal((await totp.verify(totp.freshCode(), { from: "127.0.0.99" })).status, 429);
  totp.server.aheadMs += 60_000;
  assert.equal((await totp.verify(totp.freshCode(), { from: "127.0.0.99" })).status, 200);
});

test("CP-341 a restart begins with no TOTP failures, and ends every TOTP session", async (t) => {
  const totp = await TotpServer.start(t);
  const cookie = await totp.totpCookie();
  for (let count = 0; count < 21; count++) await totp.verify("000000");
  await totp.server.stop();
  await totp.server.open();
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCookie(cookie)), REQUIRED);
  assert.equal((await totp.verify(totp.freshCode())).status, 200);
});

test("CP-301 one TOTP session is enough for whatever is asked, in all of it", async (t) => {
  const totp = await TotpServer.start(t);
  const cookie = await totp.totpCookie();
  const body = { project: "p", name: "n" };
  const created = await totp.server.call("POST", "/api/buckets", { body, ...withCookie(cookie) });
  assert.equal(created.status, 201);
  const bucket = `/api/buckets/${created.body.id}`;
  const keyed = `${bucket}/secrets/ssh_key`;
  assert.deepEqual(await totp.status("DELETE", keyed), REQUIRED);
  assert.deepEqual(await totp.status("DELETE", keyed, withCookie(cookie)), [204, undefined]);
  const started = await totp.server.call("POST", `${bucket}/build`, withCookie(cookie));
  assert.equal(started.status, 202);
  assert.deepEqual(await totp.status("GET", `${bucket}/runs/${started.body.run_id}`), REQUIRED);
});

test("T-01 signing in needs TOTP first; the session then tells so", async (t) => {
  const totp = await TotpServer.start(t);
  const early = await totp.server.call("POST", SESSION);
  assert.deepEqual([early.status, early.body.error, cookiesOf(early)], [403, "totp_required", []]);
  const { totp: verified, browser } = await totp.signIn();
  const cookie = `${browser}; ${verified}`;
  const { body } = await totp.server.call("GET", SESSION, { authorization: null, headers: { cookie } });
  assert.deepEqual(body.totp, { enabled: true, verified: true });
  const ends = Date.parse(String(body.totp_expires_at)) - Date.now();
  assert.ok(ends > 0 && ends <= 1_800_000, `in ${ends} ms`);
  assert.deepEqual(await totp.status("GET", SESSION, { authorization: null, headers: { cookie: browser } }), REQUIRED);
});

test("CP-311 CP-312 CP-313 T-02 TOTP is renewed by the session, and neither prolongs the other", async (t) => {
  const totp = await TotpServer.start(t, 10_000);
  const { browser } = await totp.signIn();
  const first = totp.server.aheadMs;
  totp.server.aheadMs += 10_000;
  assert.deepEqual(await totp.status("GET", "/api/buckets", totp.page(browser)), REQUIRED);
  const code = totp.freshCode();
  const foreign = await totp.verify(code, { authorization: null, headers: { cookie: browser } });
  assert.deepEqual([foreign.status, foreign.body.error], [403, "csrf_failed"]);
  const renewed = await totp.verify(code, totp.page(browser));
  assert.equal(renewed.status, 200);
  assert.equal(cookiesOf(renewed).length, 1);
  const cookie = `${browser}; ${cookiesOf(renewed)[0]}`;
  assert.deepEqual(await totp.status("GET", "/api/buckets", totp.page(cookie)), [200, undefined]);
  totp.server.aheadMs = first + 12 * 3_600_000 - 60_000;
  const late = `${browser}; ${await totp.totpCookie()}`;
  assert.deepEqual(await totp.status("GET", "/api/buckets", totp.page(late)), [200, undefined]);
  totp.server.aheadMs = first + 12 * 3_600_000;
  const over = `${browser}; ${await totp.totpCookie()}`;
  assert.deepEqual(await totp.status("GET", "/api/buckets", totp.page(over)), [401, "unauthorized"]);
});

test("CP-228 signing out ends both sessions", async (t) => {
  const totp = await TotpServer.start(t);
  const { totp: verified, browser } = await totp.signIn();
  const reply = await totp.server.call("DELETE", SESSION, totp.page(`${browser}; ${verified}`));
  assert.equal(reply.status, 204);
  assert.deepEqual(cookiesOf(reply), ["ops_server_session=", "ops_totp_session="]);
  for (const one of reply.headers.getSetCookie()) assert.match(one, /; Max-Age=0; HttpOnly; SameSite=Strict; Secure$/);
  assert.deepEqual(await totp.status("GET", "/api/buckets", withCookie(verified)), REQUIRED);
  assert.equal((await totp.verify(totp.freshCode(), totp.page(browser))).status, 401);
});

test("T-03 signing out works after the TOTP session ended too, though the answer is 403", async (t) => {
  const totp = await TotpServer.start(t, 10_000);
  const { browser } = await totp.signIn();
  const foreign = { authorization: null, headers: { cookie: browser } };
  assert.deepEqual(await totp.status("DELETE", SESSION, foreign), [403, "csrf_failed"]);
  const reply = await totp.server.call("DELETE", SESSION, totp.page(browser));
  assert.deepEqual([reply.status, reply.body.error], REQUIRED);
  assert.deepEqual(cookiesOf(reply), ["ops_server_session=", "ops_totp_session="]);
  assert.equal((await totp.verify(totp.freshCode(), totp.page(browser))).status, 401);
});

test("signing out by token without TOTP ends a session only where a page of the server asks", async (t) => {
  const totp = await TotpServer.start(t, 10_000);
  const { browser } = await totp.signIn();
  const bare = await totp.server.call("DELETE", SESSION, withCookie(browser));
  assert.deepEqual([bare.status, bare.body.error, cookiesOf(bare)], [...REQUIRED, []]);
  assert.equal((await totp.verify(totp.freshCode(), totp.page(browser))).status, 200);
  const { headers = {} } = totp.page(browser);
  assert.deepEqual(await totp.status("DELETE", SESSION, { headers }), REQUIRED);
  assert.equal((await totp.verify(totp.freshCode(), totp.page(browser))).status, 401);
});

test("CP-069 nothing under /api enrols or tells the secret", async (t) => {
  const totp = await TotpServer.start(t);
  const cookie = await totp.totpCookie();
  for (const target of ["enroll", "enrol", "secret", "qr", "setup", ""])
    for (const method of ["GET", "POST"]) {
      const reply = await totp.server.call(method, `/api/auth/totp/${target}`, withCookie(cookie));
      assert.equal(reply.status, 404);
    }
  const { text } = await totp.server.call("GET", "/openapi.yaml", withCookie(cookie));
  assert.doesNotMatch(text, /enrol/i);
});

test("the access log tells how a request was authenticated, and has neither codes nor cookies nor tokens", async (t) => {
  const totp = await TotpServer.start(t);
  const { totp: verified, browser } = await totp.signIn();
  const code = totp.freshCode();
  await totp.server.call("GET", "/api/buckets", withCode(code));
  await totp.server.call("GET", "/api/buckets", totp.page(`${browser}; ${verified}`));
  await totp.server.call("GET", `/api/${code}?token=${TOKEN}`, withCode("000000"));
  await totp.server.call("GET", "/api/buckets");
  await totp.server.call("POST", "/api/auth/totp/verify", { body: { code: "000000" } });
  await totp.server.call("GET", "/", { authorization: null });
  await until("the last line", () => totp.server.accesses.length === 8);
  assert.deepEqual(
    totp.server.accesses.map((one) => `${one.method} ${one.route} ${one.status} ${one.authenticated}`),
    [
      "POST /api/auth/totp/verify 200 bearer",
      "POST /api/auth/session 200 bearer+totp",
      "GET /api/buckets 200 bearer+totp",
      "GET /api/buckets 200 session+totp",
      "GET - 403 totp_wrong",
      "GET /api/buckets 403 totp_missing",
      "POST /api/auth/totp/verify 401 totp_wrong",
      "GET / 200 no",
    ],
  );
  const everything = JSON.stringify([totp.server.lines, totp.server.accesses]);
  for (const secret of [code, "000000", TOKEN, SECRET_TEXT, verified.split("=")[1], browser.split("=")[1]])
    assert.ok(!everything.includes(String(secret)));
});

test("CP-307 CP-308 CP-309 a code that was used is refused by the next server on the root, in both forms", async (t) => {
  const totp = await TotpServer.start(t);
  for (const use of [
    async (code: string) => (await totp.verify(code)).status,
    async (code: string) => (await totp.status("GET", "/api/buckets", withCode(code)))[0],
  ]) {
    const code = totp.freshCode();
    assert.equal(await use(code), 200);
    await totp.server.stop();
    await totp.server.open();
    assert.equal((await totp.verify(code)).status, 401);
    assert.deepEqual(await totp.status("GET", "/api/buckets", withCode(code)), REQUIRED);
  }
  assert.equal((await totp.verify(totp.freshCode())).status, 200);
});
