import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, renameSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { newTokenText } from "../../../lib/auth/token.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { readLock } from "../../../lib/bucket/base/lock.ts";
import { type CallOptions, TestServer, TOKEN } from "../../helpers/server.ts";
import { archiveBytes } from "../../helpers/sources.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const ENDED = [401, "unauthorized"];
type Token = Awaited<ReturnType<TestServer["makeToken"]>>;

/** Waits until so many requests wait for something to happen. */
async function untilPolling(server: TestServer, count: number): Promise<void> {
  const polls = async () => /^ops_http_long_polls (\d+)$/m.exec((await server.call("GET", "/metrics")).text)?.[1];
  await until(`${count} long-polls`, async () => Number(await polls()) === count);
}

/** What ends an identity: each way must end what goes on with it. */
const ENDS: [string, (server: TestServer, token: Token, session: string) => Promise<unknown>][] = [
  ["its token is revoked", (server) => server.call("DELETE", "/api/tokens/ada")],
  ["its session is ended", (server, _, session) => server.call("DELETE", `/api/sessions/${session}`)],
];
for (const [what, end] of ENDS)
  test(`CP-506 CP-508 a long-poll of a session is 401 at once when ${what}, and so is the next request`, async (t) => {
    const server = await TestServer.start(t);
    const bucket = await server.createBucket();
    const token = await server.makeToken({ name: "ada", role: "deploy" });
    const { page } = await server.signInWith(token.authorization);
    const [{ id }] = (await server.call("GET", "/api/sessions", page)).body.items;
    server.hold();
    const { body } = await server.call("POST", `${bucket.path}/build`, { ...page, body: {} });
    const { next } = (await server.call("GET", "/api/events")).body;
    const run = `${bucket.path}/runs/${body.run_id}`;
    const { body: chunk } = await server.call("GET", `${run}/logs`, page);
    const polls = [`/api/events?after=${next}&timeout=60`, `${run}/logs?after=${chunk.next}&timeout=60`].map((target) =>
      server.call("GET", target, page),
    );
    await untilPolling(server, 2);
    await end(server, token, id);
    for (const reply of await Promise.all(polls)) assert.deepEqual([reply.status, reply.body.error], ENDED, what);
    assert.equal((await server.call("GET", "/api/identity", page)).status, 401);
    server.release();
    const ended = await server.ended(bucket.path, body.run_id);
    assert.equal(ended.status, "succeeded", "what was started goes on");
  });

/** Puts a file with this content and mode in the place of the one before. */
function replaceFile(file: string, content: string, mode: number): void {
  writeFileSync(`${file}.next`, content, { mode });
  renameSync(`${file}.next`, file);
}

test("CP-512 another token in the server's file takes over when it is read again, and what the one before had begun ends", async (t) => {
  const tokenFile = path.join(temporaryFolder(t), "token");
  const put = (token: string, mode = 0o600) => replaceFile(tokenFile, `${token}\n`, mode);
  put(TOKEN);
  const server = await TestServer.start(t, { tokenFile });
  const { page } = await server.signInWith(`Bearer ${TOKEN}`);
  const ada = await server.makeToken({ name: "ada" });
  const { next: after } = (await server.call("GET", "/api/events")).body;
  const waiting = server.call("GET", `/api/events?after=${after}&timeout=60`);
  await untilPolling(server, 1);
  const statuses = async (...calls: CallOptions[]) =>
    await Promise.all(calls.map(async (call) => (await server.call("GET", "/api/buckets", call)).status));
  put("next-token-of-the-server", 0o644);
  await server.reload();
  const told = () => server.lines.filter((line) => /read again|in use stays/.test(line));
  assert.match(told().join(), /^the API token in use stays: .*others/);
  put(TOKEN);
  await server.reload();
  assert.equal(told().length, 1, "nothing of the same token, or of a certificate that there is not");
  const next = { authorization: "Bearer next-token-of-the-server" };
  assert.deepEqual(await statuses({}, page, ada, next), [200, 200, 200, 401]);
  put("next-token-of-the-server");
  await server.reload();
  assert.equal((await waiting).status, 401);
  assert.deepEqual(await statuses({}, page, ada, next), [401, 401, 200, 200]);
  const newest = async () => (await server.call("GET", "/api/audit?what=token", next)).body.items[0].facts;
  await until("the line of the audit, for which nothing waits", async () => (await newest())?.replaced === "root");
  assert.ok(!server.lines.join("\n").includes("next-token"), "no log has it");
  put("short");
  await server.reload();
  assert.match(server.lines.at(-1) ?? "", /^warning: the API token has under 16 characters/);
});

test("CP-506 a long-poll of a token is 401 at once when the token expires, and its sessions end with it", async (t) => {
  const server = await TestServer.start(t);
  const token = await server.makeToken({ name: "ada", lifetime_s: 2 });
  const { page } = await server.signInWith(token.authorization);
  const { next } = (await server.call("GET", "/api/events", token)).body;
  const target = `/api/events?after=${next}&timeout=60`;
  for (const reply of await Promise.all([server.call("GET", target, token), server.call("GET", target, page)]))
    assert.deepEqual([reply.status, reply.body.error], ENDED);
  const { status, body } = await server.call("GET", "/api/identity", token);
  assert.deepEqual([status, body.message], [401, 'the API token "ada" has expired']);
  assert.equal((await server.call("GET", "/api/identity", page)).status, 401);
  assert.equal((await server.call("GET", "/api/tokens")).body.items[0].expired, true);
});

test("CP-506 a token that expires by the server's clock is refused also where its timer has not run", async (t) => {
  const server = await TestServer.start(t);
  const token = await server.makeToken({ name: "ada", lifetime_s: 86_400 });
  const { page } = await server.signInWith(token.authorization);
  server.aheadMs = 86_400_000 / 2;
  assert.equal((await server.call("GET", "/api/identity", token)).status, 200);
  const later = await server.signInWith(token.authorization);
  server.aheadMs = 86_400_000;
  for (const options of [token, page, later.page]) assert.equal((await server.call("GET", "/api/identity", options)).status, 401);
});

/** Begins a push and sends a part of it. */
async function halfPush(t: TestContext, server: TestServer, path: string, token: string): Promise<Socket> {
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  t.after(() => socket.destroy());
  await once(socket, "connect");
  const whole = await archiveBytes({ "workspace/workers.json": "[]\n" });
  const head = `POST ${path}/push HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n`;
  socket.write(`${head}Content-Type: application/x-tar\r\nContent-Length: ${whole.length}\r\n\r\n`);
  socket.write(whole.subarray(0, 600));
  return socket;
}

async function restOf(socket: Socket): Promise<string> {
  const received: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => received.push(chunk));
  if (!socket.closed) await once(socket, "close");
  return Buffer.concat(received).toString();
}

test("CP-506 a push whose token is revoked while it arrives is 401 and changes nothing", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const { token } = await server.makeToken({ name: "ada", role: "deploy" });
  const layout = layoutOf(bucket.folder);
  const socket = await halfPush(t, server, bucket.path, token);
  await until("the upload", () => readdirSync(layout.uploads).length === 1);
  await server.call("DELETE", "/api/tokens/ada");
  socket.write((await archiveBytes({ "workspace/workers.json": "[]\n" })).subarray(600));
  assert.match(await restOf(socket), /^HTTP\/1.1 401 [\s\S]*"unauthorized"/);
  await until("the lock to be free", async () => (await readLock(layout)) === undefined);
  assert.deepEqual(readdirSync(layout.uploads), []);
  assert.deepEqual((await server.call("GET", `${bucket.path}/source/revisions`)).body.items, []);
  assert.deepEqual((await server.call("GET", `${bucket.path}/runs`)).body.items, []);
});

test("CP-506 a change whose token is revoked while its body arrives is 401 and not made", async (t) => {
  const server = await TestServer.start(t);
  const { token } = await server.makeToken({ name: "ada", role: "admin" });
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  t.after(() => socket.destroy());
  await once(socket, "connect");
  const body = JSON.stringify({ name: "eve", role: "admin" });
  const head = `POST /api/tokens HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n`;
  socket.write(`${head}Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body.slice(0, 5)}`);
  const used = async () => (await server.call("GET", "/api/tokens")).body.items[0].last_used_on !== null;
  await until("the request to be admitted", used);
  await server.call("DELETE", "/api/tokens/ada");
  socket.write(body.slice(5));
  assert.match(await restOf(socket), /^HTTP\/1.1 401 /);
  assert.deepEqual((await server.call("GET", "/api/tokens")).body.items, []);
});

test("CP-506 a start that waits in line for its bucket is 401 when its token is revoked, and never starts", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const { authorization } = await server.makeToken({ name: "ada", role: "deploy" });
  server.hold();
  const { body } = await server.call("POST", `${bucket.path}/build`, { body: {} });
  const headers = { "Idempotency-Key": "waits-for-it", "Ops-Wait": "60" };
  const waiting = server.call("POST", `${bucket.path}/build`, { authorization, headers, body: {} });
  const queue = async () => (await server.call("GET", `${bucket.path}/queue`)).body.items;
  await until("the place in line", async () => (await queue()).length === 1);
  assert.equal((await queue())[0].by.name, "ada");
  await server.call("DELETE", "/api/tokens/ada");
  const reply = await waiting;
  assert.deepEqual([reply.status, reply.body.error], ENDED);
  server.release();
  await server.ended(bucket.path, body.run_id);
  assert.deepEqual((await server.call("GET", `${bucket.path}/runs`)).body.items.length, 1);
});

test("CP-504 a mistyped token is told from a wrong one, and both count as wrong tokens of the address", async (t) => {
  const server = await TestServer.start(t);
  const { token, authorization } = await server.makeToken({ name: "ada" });
  const tell = async (text: string) => (await server.call("GET", "/api/buckets", { authorization: `Bearer ${text}` })).body;
  const last = token.at(-1) === "0" ? "1" : "0";
  assert.match((await tell(token.slice(0, -1) + last)).message, /is mistyped: a character is wrong or missing/);
  assert.match((await tell(token.slice(0, -1))).message, /is mistyped/);
  assert.equal((await tell(newTokenText())).message, "the API token is wrong");
  for (let count = 3; count < 20; count++) assert.equal((await tell(newTokenText())).error, "unauthorized");
  assert.equal((await tell(newTokenText())).error, "rate_limited");
  const right = await server.call("GET", "/api/buckets", { authorization });
  assert.deepEqual([right.status, right.body.error], [429, "rate_limited"]);
  assert.equal((await server.call("GET", "/api/buckets", { authorization, from: "127.0.0.2" })).status, 200);
});

test("CP-506 a revoked token counts as a wrong one; one that has expired does not, and says so", async (t) => {
  const server = await TestServer.start(t);
  const old = await server.makeToken({ name: "old", lifetime_s: 60 });
  const gone = await server.makeToken({ name: "gone" });
  await server.call("DELETE", "/api/tokens/gone");
  server.aheadMs = 60_000;
  for (let count = 0; count < 30; count++) assert.equal((await server.call("GET", "/api/buckets", old)).status, 401);
  for (let count = 0; count < 20; count++) assert.equal((await server.call("GET", "/api/buckets", gone)).status, 401);
  assert.equal((await server.call("GET", "/api/buckets", gone)).status, 429);
});

test("a session of one token is no session of another, and a new token of the same name does not revive it", async (t) => {
  const server = await TestServer.start(t);
  const first = await server.makeToken({ name: "ada", role: "admin" });
  const { page } = await server.signInWith(first.authorization);
  await server.call("DELETE", "/api/tokens/ada");
  const second = await server.makeToken({ name: "ada", role: "read" });
  assert.equal((await server.call("GET", "/api/identity", page)).status, 401);
  assert.equal((await server.call("GET", "/api/identity", first)).status, 401);
  assert.equal((await server.call("GET", "/api/identity", second)).body.role, "read");
});

test("CP-442 a start sent again with the key of somebody else's is another request", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const { authorization } = await server.makeToken({ name: "ada", role: "deploy" });
  const headers = { "Idempotency-Key": "the-same-key" };
  const first = await server.call("POST", `${bucket.path}/build`, { body: {}, headers });
  const second = await server.call("POST", `${bucket.path}/build`, { authorization, body: {}, headers });
  assert.deepEqual([second.status, second.body.error], [422, "idempotency_mismatch"]);
  await server.ended(bucket.path, first.body.run_id);
});

test("CP-447 CP-501 a key that stands in the line of a bucket neither lends its place nor loses it to somebody else", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  const ada = await server.makeToken({ name: "ada", role: "deploy" });
  const eve = await server.makeToken({ name: "eve", role: "operate" });
  server.hold();
  const first = await server.call("POST", `${bucket.path}/build`, { body: {} });
  const headers = { "Idempotency-Key": "key-in-the-line", "Ops-Wait": "60" };
  const { authorization } = ada;
  const waiting = server.call("POST", `${bucket.path}/build`, { authorization, headers, body: {} });
  const queue = async () => (await server.call("GET", `${bucket.path}/queue`, eve)).body.items;
  await until("the place in line", async () => (await queue()).length === 1);
  const [{ key }] = await queue();
  for (const wait of [undefined, "0"]) {
    const headers = { "Idempotency-Key": key, ...(wait !== undefined && { "Ops-Wait": wait }) };
    const asked = { authorization: eve.authorization, headers, body: { jobs: ["nothing"] } };
    const reply = await server.call("POST", `${bucket.path}/health_check`, asked);
    assert.deepEqual([reply.status, reply.body.error], [422, "idempotency_mismatch"], wait);
    assert.equal((await queue())[0]?.by.name, "ada");
  }
  server.release();
  const { body } = await waiting;
  for (const id of [first.body.run_id, body.run_id]) assert.ok((await server.ended(bucket.path, id)).id);
});

test("the server's own token stays what it was beside tokens, also where it looks like one", async (t) => {
  const token = newTokenText();
  for (const own of [token, `${token.slice(0, -1)}x`, "ops_short"]) {
    const server = await TestServer.start(t, { token: own });
    const { body } = await server.call("GET", "/api/identity", { authorization: `Bearer ${own}` });
    assert.deepEqual([body.name, body.role], ["root", "root"]);
    assert.equal((await server.call("GET", "/api/identity", { authorization: `Bearer ${TOKEN}` })).status, 401);
  }
});
