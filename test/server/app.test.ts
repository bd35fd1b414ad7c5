import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync, statSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { request as httpsRequest } from "node:https";
import { connect } from "node:net";
import path from "node:path";
import { test } from "node:test";
import { Launcher } from "../../lib/core/spawn.ts";
import { startServer } from "../../lib/server/app.ts";
import { readConsole } from "../../lib/server/console-files.ts";
import { ROUTES } from "../../lib/server/routes/table.ts";
import { certificateFor, exchangeText } from "../helpers/http.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

test("CP-035 CP-036 the root is made with its parents, for its owner only", async (t) => {
  const root = path.join(temporaryFolder(t), "a", "b", "c");
  await TestServer.start(t, { root });
  assert.equal(statSync(root).mode & 0o777, 0o700);
});

test("CP-372 a start that fails leaves the root to the next one", async (t) => {
  const { url } = await TestServer.start(t);
  const root = path.join(temporaryFolder(t), "root");
  const config = { root, host: "127.0.0.1", port: Number(new URL(url).port), token: TOKEN };
  await assert.rejects(
    startServer(config, new Launcher(process.env), () => {}),
    /another process listens there/,
  );
  await TestServer.start(t, { root });
});

test("CP-001 CP-050 CP-315 the API answers JSON under /api by token alone", async (t) => {
  const server = await TestServer.start(t);
  const { status, headers, body } = await server.call("GET", "/api/buckets", { headers: { "X-Ops-TOTP": "123456" } });
  assert.equal(status, 200);
  assert.equal(headers.get("cache-control"), "no-store");
  assert.deepEqual(body, { items: [], next_cursor: null });
});

test("CP-003 CP-010 CP-011 CP-012 CP-013 CP-014 the files of the sign-in page need no authentication, those of the API reference the token", async (t) => {
  const server = await TestServer.start(t);
  for (const [name, asset] of await readConsole()) {
    if (name.startsWith("/docs")) {
      const { status, text } = await server.call("GET", name);
      assert.deepEqual([status, text], [200, asset.content.toString()], name);
      continue;
    }
    const reply = await server.call("GET", name, { authorization: null });
    assert.equal(reply.status, 200, name);
    assert.equal(reply.headers.get("content-type"), asset.type);
    assert.equal(reply.text, asset.content.toString());
    assert.equal((await server.call("POST", name, { authorization: null })).status, 405);
  }
});

test("CP-015 CP-016 CP-017 CP-018 CP-322 everything else needs it, known or not, whatever its name looks like", async (t) => {
  const server = await TestServer.start(t);
  const port = Number(new URL(server.url).port);
  const known = ROUTES.map(({ method, path: pattern }) => [method, pattern.replace(/\{\w+\}/g, "x")] as const);
  const others = [
    ...["/api", "/api/", "/api/nothing", "/docs", "/docs/", "/docs/x.js", "/docs/x.css", "/openapi.yaml?x=.css"],
    ...["/docs/console.js", "/docs/console.css"],
    ...["//api/buckets", "/%61pi/buckets", "/docs/../api/buckets", "/API/buckets", "/../index.html", "/app.js/../api"],
    ...["/index.html/", "//", "/./index.html", "/INDEX.HTML", "/%69ndex.html", "*", "http://x/index.html"],
  ].map((target) => ["GET", target] as const);
  for (const [method, target] of [...known, ...others]) {
    const text = await exchangeText(t, port, `${method} ${target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n`);
    assert.match(text, /^HTTP\/1.1 401 /, `${method} ${target}`);
    assert.match(text, /WWW-Authenticate: Bearer\r\n/);
    assert.match(text, /"error":"unauthorized"/);
  }
});

test("CP-027 unknown paths, other methods and bad bodies are told apart once the caller is known", async (t) => {
  const server = await TestServer.start(t);
  const expected: [string, string, unknown, number, string][] = [
    ["GET", "/api/nothing", undefined, 404, "not_found"],
    ["GET", "/api/buckets/", undefined, 404, "not_found"],
    ["PUT", "/api/buckets", undefined, 405, "method_not_allowed"],
    ["GET", "/api/buckets?limit=0", undefined, 400, "invalid_request"],
    ["GET", "/api/buckets?x=1", undefined, 400, "invalid_request"],
    ["POST", "/api/buckets", { project: 1 }, 400, "invalid_request"],
    ["POST", "/api/buckets", Buffer.alloc(1024 * 1024 + 1), 413, "payload_too_large"],
  ];
  for (const [method, target, body, status, error] of expected) {
    const reply = await server.call(method, target, { body });
    assert.deepEqual([reply.status, reply.body.error], [status, error], `${method} ${target}`);
  }
  const { headers } = await server.call("PATCH", "/api/buckets");
  assert.equal(headers.get("allow"), "GET, HEAD, POST");
  const typed = await server.call("POST", "/api/buckets", { body: {}, headers: { "content-type": "text/plain" } });
  assert.deepEqual([typed.status, typed.body.error], [415, "unsupported_media_type"]);
});

test("a body without end is refused as too large while it is still being sent", async (t) => {
  const server = await TestServer.start(t);
  const { port } = new URL(server.url);
  const socket = connect(Number(port), "127.0.0.1").on("error", () => {});
  const head = `POST /api/buckets HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer ${TOKEN}\r\n`;
  socket.write(`${head}Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n`);
  const send = () => {
    while (socket.writable && socket.write(`10000\r\n${" ".repeat(0x10000)}\r\n`));
  };
  socket.on("drain", send);
  send();
  const [answer] = await once(socket, "data");
  socket.destroy();
  assert.match(String(answer), /^HTTP\/1\.1 413 .*payload_too_large/s);
  assert.equal((await server.call("GET", "/api/buckets")).status, 200);
});

test("CP-316 CP-333 CP-340 the 21st wrong token gets 429 and nothing is written", async (t) => {
  const server = await TestServer.start(t);
  const changed = statSync(server.root).mtimeMs;
  const statuses: number[] = [];
  for (let count = 0; count < 21; count++)
    statuses.push((await server.call("GET", "/api/buckets", { authorization: "Bearer wrong" })).status);
  assert.deepEqual(statuses, [...Array(20).fill(401), 429]);
  const right = await server.call("GET", "/api/buckets");
  assert.equal(right.status, 429);
  assert.match(right.headers.get("retry-after") ?? "", /^\d+$/);
  assert.equal(statSync(server.root).mtimeMs, changed);
});

test("CP-341 a restart begins with no failures counted", async (t) => {
  const server = await TestServer.start(t);
  for (let count = 0; count < 21; count++) await server.call("GET", "/api/buckets", { authorization: "Bearer wrong" });
  await server.stop();
  await server.open();
  assert.equal((await server.call("GET", "/api/buckets")).status, 200);
});

test("each request has its line in the access log, which has neither queries nor tokens nor unknown paths", async (t) => {
  const server = await TestServer.start(t);
  const { headers, text } = await server.call("GET", `/api/buckets?token=${TOKEN}`);
  await server.call("GET", `/api/%1b[31m${TOKEN}`, { authorization: `Bearer ${TOKEN}x` });
  const id = String(headers.get("x-request-id"));
  await until("the lines", () => server.lines.length === 2);
  const [known = "", unknown = ""] = server.lines;
  const length = Buffer.byteLength(text);
  assert.match(
    known,
    new RegExp(`^GET /api/buckets 400 bytes=${length} ms=\\d+ auth=bearer name=root peer=127\\.0\\.0\\.1 request=${id}$`),
  );
  assert.match(unknown, /^GET - 401 bytes=\d+ ms=\d+ auth=wrong peer=127\.0\.0\.1 request=[0-9a-f]{32}$/);
  const [{ duration_ms, ...facts } = {}] = server.accesses;
  assert.equal(typeof duration_ms, "number");
  assert.deepEqual(facts, {
    request_id: id,
    peer: "127.0.0.1",
    method: "GET",
    route: "/api/buckets",
    path: "/api/buckets",
    status: 400,
    size_bytes: length,
    authenticated: "bearer",
    name: "root",
  });
  assert.doesNotMatch(server.lines.join("\n"), new RegExp(TOKEN));
});

test("the access log names the route and the path of what was asked for", async (t) => {
  const server = await TestServer.start(t);
  const { path: bucket } = await server.createBucket();
  await server.call("GET", bucket);
  await until("the line", () => server.accesses.length === 1);
  const [{ route, path: logged } = {}] = server.accesses;
  assert.deepEqual([route, logged], ["/api/buckets/{bucket_id}", bucket]);
  assert.match(server.lines.at(-1) ?? "", / auth=bearer name=root route=\/api\/buckets\/\{bucket_id\} peer=/);
});

test("the access log tells a missing credential from a wrong one, and neither from what needs none", async (t) => {
  const server = await TestServer.start(t);
  const cookie = (value: string) => ({ authorization: null, headers: { cookie: value } });
  const asked = [
    [{ authorization: null }, "missing"],
    [cookie("theme=dark"), "missing"],
    [{ authorization: "Bearer wrong" }, "wrong"],
    [{ authorization: "Basic b3Bz" }, "wrong"],
    [cookie("ops_server_session=forged"), "wrong"],
    [cookie("a=b; ops_server_session=e30.AAAA"), "wrong"],
    [{}, "bearer"],
  ] as const;
  for (const [options] of asked) await server.call("GET", "/api/buckets", options);
  await server.call("GET", "/", { authorization: null });
  await until("the lines", () => server.accesses.length === asked.length + 1);
  const told = server.accesses.map(({ authenticated }) => authenticated);
  assert.deepEqual(told, [...asked.map(([, how]) => how), "no"]);
  for (const [index, how] of told.entries()) assert.match(server.lines[index] ?? "", new RegExp(` auth=${how} `));
});

test("the access log has a line for what the parser refuses", async (t) => {
  const server = await TestServer.start(t);
  const answer = await exchangeText(t, Number(new URL(server.url).port), `GET /${TOKEN} HTTP/9\r\n\r\n`);
  assert.match(answer, /^HTTP\/1.1 400 /);
  const id = /X-Request-Id: (\S+)/.exec(answer)?.[1];
  const { route, status, request_id, authenticated } = server.accesses[0] ?? {};
  assert.deepEqual([route, status, request_id, authenticated], ["-", 400, id, "no"]);
  assert.equal(server.accesses.length, 1);
});

test("a defect is told to the log with the request's id, and to the client without its story", async (t) => {
  const server = await TestServer.start(t);
  const { id } = await server.createBucket();
  const runs = path.join(server.root, id, "logs", "runs");
  await rm(runs, { recursive: true, force: true });
  await writeFile(runs, "");
  const reply = await server.call("GET", `/api/buckets/${id}/runs`);
  assert.deepEqual([reply.status, reply.body.error], [500, "internal"]);
  const requestId = String(reply.headers.get("x-request-id"));
  assert.ok(reply.body.message.includes(requestId));
  assert.doesNotMatch(reply.text, /ENOTDIR|logs|\.ts/);
  assert.ok(server.lines.some((line) => line.includes(requestId) && /ENOTDIR/.test(line)));
});

test("CP-008 CP-009 CP-031 with a certificate it serves HTTPS, HSTS and Secure cookies", async (t) => {
  const tls = await certificateFor(t);
  const server = await TestServer.start(t, { tls });
  const options = { method: "POST", ca: readFileSync(tls.certFile), agent: false, headers: { authorization: `Bearer ${TOKEN}` } };
  const [response] = await once(httpsRequest(`${server.url}/api/auth/session`, options).end(), "response");
  response.resume();
  assert.equal(response.statusCode, 200);
  assert.ok(response.headers["strict-transport-security"]);
  assert.match(response.headers["set-cookie"][0], /; Secure$/);
});

test("an address that is taken refuses the start with one sentence", async (t) => {
  const server = await TestServer.start(t);
  const config = { root: temporaryFolder(t), host: "127.0.0.1", port: Number(new URL(server.url).port), token: "x" };
  await assert.rejects(
    startServer(config, new Launcher({}), () => {}),
    { message: /another process listens there/ },
  );
});
