import assert from "node:assert/strict";
import { chmodSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { test } from "node:test";
import { TestServer, TOKEN } from "../../helpers/server.ts";
import { until } from "../../helpers/temporary.ts";

test("CP-504 CP-505 a token is made, shown once, listed without itself, and goes on after a restart until it is revoked", async (t) => {
  const server = await TestServer.start(t);
  const made = await server.makeToken({ name: "ada", role: "deploy", lifetime_s: 3_600 });
  const { token, totp_secret, totp_uri, ...shown } = made.answer;
  assert.match(token, /^ops_[0-9a-f]{72}$/);
  assert.deepEqual([totp_secret, totp_uri, shown.role, shown.buckets, shown.created_by], [null, null, "deploy", null, "root"]);
  assert.equal(Date.parse(shown.expires_at) - Date.parse(shown.created_at), 3_600_000);
  const { body } = await server.call("GET", "/api/tokens");
  assert.deepEqual(body.items, [shown]);
  const file = path.join(server.root, "access.json");
  assert.equal(statSync(file).mode & 0o777, 0o600);
  assert.ok(!readFileSync(file, "utf8").includes(token));
  await server.stop();
  await server.open();
  assert.equal((await server.call("GET", "/api/buckets", made)).status, 200);
  assert.equal((await server.call("DELETE", "/api/tokens/ADA")).status, 204);
  assert.equal((await server.call("GET", "/api/buckets", made)).status, 401);
  assert.equal((await server.call("DELETE", "/api/tokens/ada")).status, 404);
  assert.deepEqual(server.lines.join("\n").includes(token), false, "no log has it");
});

test("CP-503 who one is shows in the identity, the session, the run, the revision and the access log", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const root = await server.call("GET", "/api/identity");
  const everything = { name: "root", role: "root", buckets: null, expires_at: null, via: "bearer", address: "127.0.0.1" };
  assert.deepEqual(root.body, everything);
  const { authorization } = await server.makeToken({ name: "ada", role: "deploy", buckets: [bucket.id] });
  const own = { ...everything, name: "ada", role: "deploy", buckets: [bucket.id] };
  assert.deepEqual((await server.call("GET", "/api/identity", { authorization })).body, own);
  const { page, body } = await server.signInWith(authorization);
  assert.deepEqual([body.name, body.role, body.buckets], ["ada", "deploy", [bucket.id]]);
  assert.deepEqual((await server.call("GET", "/api/identity", page)).body, { ...own, via: "session" });
  const { body: started } = await server.call("POST", `${bucket.path}/build`, { ...page, body: {} });
  const run = await server.ended(bucket.path, started.run_id);
  assert.deepEqual(run.audit[0].actor, { name: "ada", address: "127.0.0.1", via: "session" });
  await until("the line", () => server.accesses.some(({ name, route }) => name === "ada" && route === "/api/identity"));
  assert.ok(server.lines.some((line) => / auth=session name=ada /.test(line)));
  const listed = (await server.call("GET", "/api/tokens")).body.items[0];
  assert.equal(listed.last_used_on, new Date().toISOString().slice(0, 10));
});

const WRONG: [string, Record<string, unknown>, RegExp][] = [
  ["no name", { role: "read" }, /name is missing|name: is missing/],
  ["root's name", { name: "root" }, /the server's own token/],
  ["root's name in another case", { name: "ROOT" }, /the server's own token/],
  ["an id as name", { name: "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70" }, /found an id/],
  ["a name with a blank", { name: "ada lovelace" }, /letters, digits/],
  ["a name with a control character", { name: "ada\u001b[2J" }, /letters, digits/],
  ["the role root", { name: "eve", role: "root" }, /expected one of read, operate, deploy, admin/],
  ["an unknown role", { name: "eve", role: "superuser" }, /expected one of/],
  ["no bucket at all", { name: "eve", buckets: [] }, /buckets/],
  ["a bucket that is not there", { name: "eve", buckets: ["0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70"] }, /no such bucket/],
  ["a path as bucket", { name: "eve", buckets: ["../.."] }, /id of a bucket/],
  ["no second factor with a role that changes things", { name: "eve", role: "operate", totp: "none" }, /only with the role read/],
  ["a lifetime of nothing", { name: "eve", lifetime_s: 0 }, /lifetime_s/],
  ["a lifetime without end", { name: "eve", lifetime_s: 1e12 }, /lifetime_s/],
  ["an owner of its own", { name: "eve", created_by: "root" }, /created_by/],
];
for (const [what, body, message] of WRONG)
  test(`CP-505 a token with ${what} is refused, and none is made`, async (t) => {
    const server = await TestServer.start(t);
    const reply = await server.call("POST", "/api/tokens", { body });
    assert.deepEqual([reply.status, reply.body.error], [400, "invalid_request"]);
    assert.match(reply.body.message, message);
    assert.deepEqual((await server.call("GET", "/api/tokens")).body.items, []);
  });

test("CP-505 nobody makes, sees or revokes tokens but root and admins of all buckets, and no token is more than its maker", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const admin = await server.makeToken({ name: "alma", role: "admin" });
  const others = [
    await server.makeToken({ name: "scoped", role: "admin", buckets: [bucket.id] }),
    await server.makeToken({ name: "dora", role: "deploy" }),
    await server.makeToken({ name: "rita", role: "read" }),
  ];
  for (const { authorization } of others) {
    const asked = [
      server.call("GET", "/api/tokens", { authorization }),
      server.call("POST", "/api/tokens", { authorization, body: { name: "eve", role: "admin" } }),
      server.call("DELETE", "/api/tokens/alma", { authorization }),
      server.call("DELETE", `/api/tokens/${admin.id}`, { authorization }),
    ];
    for (const { status, body } of await Promise.all(asked)) assert.deepEqual([status, body.error], [403, "forbidden"]);
  }
  const { authorization } = admin;
  const made = await server.call("POST", "/api/tokens", { authorization, body: { name: "eve", role: "admin" } });
  assert.deepEqual([made.status, made.body.created_by], [201, "alma"]);
  const above = await server.call("POST", "/api/tokens", { authorization, body: { name: "mallory", role: "root" } });
  assert.equal(above.status, 400);
  assert.equal((await server.call("DELETE", "/api/tokens/alma", { authorization })).status, 204, "one's own, too");
  assert.equal((await server.call("GET", "/api/identity", { authorization })).status, 401);
});

test("CP-288 CP-505 by session a token is made, revoked, and a session ended only from a page of the server", async (t) => {
  const server = await TestServer.start(t);
  const { cookie, page } = await server.signInWith(`Bearer ${TOKEN}`);
  const made = await server.makeToken({ name: "ada" });
  const session = (await server.call("GET", "/api/sessions")).body.items[0].id;
  const foreign = { authorization: null, headers: { cookie, origin: "https://evil.example", "x-ops-csrf": "1" } };
  for (const options of [{ authorization: null, headers: { cookie } }, foreign]) {
    for (const [method, target, body] of [
      ["POST", "/api/tokens", { name: "eve", role: "admin" }],
      ["DELETE", "/api/tokens/ada", undefined],
      ["DELETE", `/api/sessions/${session}`, undefined],
    ] as const) {
      const reply = await server.call(method, target, { ...options, body });
      assert.deepEqual([reply.status, reply.body.error], [403, "csrf_failed"], target);
    }
  }
  assert.equal((await server.call("GET", "/api/identity", made)).status, 200);
  assert.equal((await server.call("POST", "/api/tokens", { ...page, body: { name: "bob" } })).status, 201);
});

test("CP-508 sessions are one's own, or everybody's for an admin of all buckets; ending one ends it at once", async (t) => {
  const server = await TestServer.start(t);
  const [ada, bob] = [await server.makeToken({ name: "ada" }), await server.makeToken({ name: "bob", role: "deploy" })];
  const [one, other] = [await server.signInWith(ada.authorization), await server.signInWith(bob.authorization)];
  const listed = async (options: Parameters<TestServer["call"]>[2]) =>
    (await server.call("GET", "/api/sessions", options)).body.items;
  const namesIn = (items: { name: string }[]) => items.map(({ name }) => name);
  assert.deepEqual(namesIn(await listed(one.page)), ["ada"]);
  assert.deepEqual(namesIn(await listed(bob)), ["bob"]);
  const all = await listed({});
  assert.deepEqual(namesIn(all), ["ada", "bob"]);
  assert.deepEqual([(await listed(one.page))[0].current, (await listed(ada))[0].current], [true, false]);
  const [idOfAda, idOfBob] = all.map(({ id }: { id: string }) => id);
  assert.equal((await server.call("DELETE", `/api/sessions/${idOfBob}`, one.page)).status, 404, "another's");
  assert.equal((await server.call("DELETE", "/api/sessions/x", one.page)).status, 404);
  assert.equal((await server.call("GET", "/api/identity", other.page)).status, 200);
  assert.equal((await server.call("DELETE", `/api/sessions/${idOfBob}`)).status, 204);
  assert.equal((await server.call("GET", "/api/identity", other.page)).status, 401);
  assert.equal((await server.call("DELETE", `/api/sessions/${idOfAda}`, one.page)).status, 204, "one's own, by itself");
  assert.equal((await server.call("GET", "/api/identity", one.page)).status, 401);
  assert.equal((await server.call("GET", "/api/identity", ada)).status, 200, "the token stays");
  assert.deepEqual(await listed({}), []);
});

test("CP-505 a server does not start over an access.json that it cannot trust", async (t) => {
  const server = await TestServer.start(t);
  await server.makeToken({ name: "ada" });
  await server.stop();
  const file = path.join(server.root, "access.json");
  const good = readFileSync(file, "utf8");
  chmodSync(file, 0o644);
  await assert.rejects(server.open(), { message: /access\.json: its mode 644 lets others use it: chmod 600/ });
  chmodSync(file, 0o600);
  writeFileSync(file, good.slice(0, 40));
  await assert.rejects(server.open(), { message: /nobody is let in before it is mended/ });
  writeFileSync(file, good);
  await server.open();
});
