import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { HttpRequest } from "../../../lib/http/message.ts";
import { serverConfig } from "../../../lib/server/config.ts";
import { Pulse } from "../../../lib/server/watch/pulse.ts";
import { TestServer } from "../../helpers/server.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const get = (path: string) => ({ method: "GET", path }) as HttpRequest;

/** A receiver of heartbeats on this host. */
async function receiver(t: TestContext, answer: RequestListener) {
  const calls: string[] = [];
  const server = createServer((request, response) => {
    calls.push(`${request.method} ${request.url}`);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/ping/secret`, calls };
}

/** A pulse that beats fast until the test ends. */
function beating(t: TestContext, heartbeatUrl: string | undefined) {
  const root = temporaryFolder(t);
  mkdirSync(path.join(root, ".server"));
  const log: string[] = [];
  const pulse = new Pulse({ root, heartbeatUrl, log: (line) => log.push(line), beatMs: 20 });
  const stop = new AbortController();
  const over = pulse.run(stop.signal);
  const end = async () => {
    stop.abort();
    await over;
  };
  t.after(end);
  return { root, log, pulse, end };
}

test("CP-976 healthz and readyz answer ok without credentials, and nothing else; other paths need them", async (t) => {
  const server = await TestServer.start(t);
  const ask = (method: string, target: string) => server.call(method, target, { authorization: null });
  for (const target of ["/healthz", "/readyz"]) {
    const { status, text, headers } = await ask("GET", target);
    assert.deepEqual([status, text, headers.get("content-type")], [200, "ok\n", "text/plain; charset=utf-8"]);
  }
  for (const target of ["/healthz/", "/healthz/x"]) assert.equal((await ask("GET", target)).status, 401, target);
});

test("CP-976 another method on a sign of life is 405 with Allow, as on a file of the console", async (t) => {
  const server = await TestServer.start(t);
  for (const target of ["/healthz", "/readyz", "/"])
    for (const credentials of [{ authorization: null }, {}]) {
      const { status, headers } = await server.call("PATCH", target, credentials);
      assert.deepEqual([status, headers.get("allow")], [405, "GET, HEAD"], target);
    }
});

test("CP-976 a server that hangs or cannot write says that it is not ready", async (t) => {
  let time = 0;
  const root = temporaryFolder(t);
  const pulse = new Pulse({ root, heartbeatUrl: undefined, log: () => {}, monotonic: () => time });
  const ready = () => pulse.answer(get("/readyz")).status;
  assert.equal(ready(), 200);
  time += 180_001;
  assert.deepEqual([ready(), pulse.answer(get("/healthz")).status], [503, 200]);
  pulse.looked();
  assert.equal(ready(), 200);
  const broken = beating(t, undefined);
  await until("it beats", () => existsSync(path.join(broken.root, ".server", "alive")));
  rmSync(path.join(broken.root, ".server"), { recursive: true });
  await until("it is not ready", () => broken.pulse.answer(get("/readyz")).status === 503);
});

test("CP-977 the server writes .server/alive", async (t) => {
  const server = await TestServer.start(t);
  const file = path.join(server.root, ".server", "alive");
  await until("the file is there", () => existsSync(file));
  assert.match(readFileSync(file, "utf8"), /^\d{4}-\d\d-\d\dT.*Z\n$/);
});

test("CP-977 the heartbeat calls its address again and again; a server that hangs calls nothing", async (t) => {
  const { url, calls } = await receiver(t, (_, response) => response.end());
  beating(t, url);
  await until("three calls", () => calls.length >= 3);
  assert.equal(calls[0], "GET /ping/secret");
  let time = 0;
  const other = await receiver(t, (_, response) => response.end());
  const root = temporaryFolder(t);
  const pulse = new Pulse({ root, heartbeatUrl: other.url, log: () => {}, beatMs: 20, monotonic: () => time });
  time = 180_001;
  const before = calls.length;
  const stop = new AbortController();
  const over = pulse.run(stop.signal);
  await until("others go on", () => calls.length > before + 3);
  stop.abort();
  await over;
  assert.deepEqual(other.calls, []);
});

test("CP-977 a call that fails is told once, without the address, and again when it is over; redirects are not followed", async (t) => {
  const target = await receiver(t, (_, response) => response.end());
  let isBad = true;
  const { url, calls } = await receiver(t, (_, response) => {
    response.writeHead(isBad ? 302 : 204, { location: target.url }).end();
  });
  const { log } = beating(t, url);
  await until("three calls", () => calls.length >= 3);
  isBad = false;
  await until("it is over", () => log.length >= 2);
  assert.deepEqual(log, ["Cannot call the heartbeat address: the answer is 302", "can call the heartbeat address again"]);
  assert.deepEqual(target.calls, []);
});

test("CP-977 a call that the end of the server cuts off is no failure to tell", async (t) => {
  const { url, calls } = await receiver(t, () => {});
  const { log, end } = beating(t, url);
  await until("a call", () => calls.length > 0);
  await end();
  assert.deepEqual(log, []);
});

test("CP-977 of the answer to a call nothing is read: its body is cancelled", async (t) => {
  const cancel = t.mock.fn(async () => {});
  const called = t.mock.method(globalThis, "fetch", async () => ({ status: 200, body: { cancel } }));
  const { log, end } = beating(t, "http://127.0.0.1/");
  await until("two calls", () => called.mock.callCount() > 1);
  await end();
  assert.deepEqual([cancel.mock.callCount(), log], [called.mock.callCount(), []]);
});

test("CP-977 a call that finds nobody is told without any part of the address", async (t) => {
  const { url } = await receiver(t, (request) => request.socket.destroy());
  const free = createServer();
  await new Promise<void>((resolve) => free.listen(0, "127.0.0.1", resolve));
  const { port } = free.address() as AddressInfo;
  await new Promise((resolve) => free.close(resolve));
  const found: string[] = [];
  for (const address of [url, `http://127.0.0.1:${port}/secret`, "https://nowhere.invalid/secret"]) {
    const { log } = beating(t, address);
    await until("the failure is told", () => log.length > 0);
    found.push(log[0] as string);
  }
  for (const line of found) assert.match(line, /^Cannot call the heartbeat address: [A-Z_]+$/);
});

test("CP-977 the address of the heartbeat is read from a file that others cannot read, and is https or on this host", async (t) => {
  const folder = temporaryFolder(t);
  const file = path.join(folder, "url");
  const read = async (text: string, mode = 0o600) => {
    writeFileSync(file, text);
    chmodSync(file, mode);
    const flags = { root: path.join(folder, "root"), token: "token-of-this-test", "heartbeat-url-file": file };
    return (await serverConfig(flags, {})).heartbeatUrl;
  };
  for (const url of ["https://example.org/a?b", "http://127.0.0.1:1/x", "http://[::1]:1/", "http://localhost/"])
    assert.equal(await read(`${url}\n`), url);
  for (const url of ["http://example.org/", "ftp://127.0.0.1/", "", "nothing", "https://ada:secret@example.org/"])
    await assert.rejects(read(url), /--heartbeat-url-file .*: expected an address with https:\/\//, url);
  await assert.rejects(read("https://example.org/", 0o644), /--heartbeat-url-file .* cannot be used/);
});
