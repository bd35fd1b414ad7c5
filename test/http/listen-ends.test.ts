import assert from "node:assert/strict";
import { once } from "node:events";
import type { Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { Failure } from "../../lib/core/errors.ts";
import { type Exchange, listen } from "../../lib/http/listen.ts";
import { json, raw } from "../../lib/http/message.ts";
import { dial, exchangeText, listenFor } from "../helpers/http.ts";
import { until } from "../helpers/temporary.ts";

const GET = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const POST = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n";

/** A connection, and what has come over it. */
function connection(t: TestContext, port: number): { socket: Socket; statuses: () => string[] } {
  const socket = dial(t, port);
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text += chunk;
  });
  return { socket, statuses: () => [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status = ""]) => status) };
}

test("CP-329 an answer after a long-poll has the usual time", async (t) => {
  const ended: Exchange[] = [];
  const { port } = await listenFor(t, {
    limits: { writeMs: 50 },
    async handle(request) {
      request.longPoll();
      return raw("application/octet-stream", Buffer.alloc(64 * 1024 * 1024));
    },
    onExchange: (exchange) => ended.push(exchange),
  });
  const socket = dial(t, port);
  socket.write(GET);
  await until("the cut", () => ended.length === 1);
  assert.equal(ended[0]?.bytes, 0);
});

test("a connection whose request was read to its end goes on, however long it rests", async (t) => {
  const { port } = await listenFor(t, {
    limits: { lingerMs: 20 },
    async handle(request) {
      for await (const _ of request.body);
      return json(200, {});
    },
  });
  const { socket, statuses } = connection(t, port);
  socket.write(`${POST}{}`);
  await until("the first answer", () => statuses().length === 1);
  await delay(60);
  socket.write(GET);
  await until("the second answer", () => statuses().length === 2);
  assert.deepEqual(statuses(), ["200", "200"]);
});

test("the rest of a body that nobody reads is taken for a while: if it comes the connection goes on, else it is cut", async (t) => {
  for (const isSent of [true, false]) {
    const { port } = await listenFor(t, { handle: async () => json(409, {}), limits: { lingerMs: isSent ? 3_600_000 : 20 } });
    const { socket, statuses } = connection(t, port);
    socket.write(POST);
    await until("the answer", () => statuses().length === 1);
    if (isSent) socket.write(`{}${GET}`);
    await until("what follows", () => (isSent ? statuses().length === 2 : socket.closed));
    assert.equal(statuses()[0], "409");
  }
});

test("a request that comes while the server stops is not handled", async (t) => {
  let handled = 0;
  const going = Promise.withResolvers<void>();
  const listener = await listenFor(t, {
    async handle() {
      handled++;
      await going.promise;
      return json(200, {});
    },
  });
  const [first, second] = [connection(t, listener.port), connection(t, listener.port)];
  first.socket.write(GET);
  second.socket.write(GET.slice(0, 9));
  await until("the first request", () => handled === 1);
  // The server has read the beginning of the second request, too, before it stops.
  await exchangeText(t, listener.port, "hello\r\n\r\n");
  const closed = listener.close(20_000);
  second.socket.write(GET.slice(9));
  await until("the answer", () => second.statuses().length === 1);
  assert.deepEqual([second.statuses(), handled], [["503"], 1]);
  going.resolve();
  await closed;
  await until("the first answer", () => first.statuses().length === 1);
  assert.deepEqual(first.statuses(), ["200"]);
});

test("a body for a client that has left is closed and not read", async (t) => {
  const [waiting, done] = [Promise.withResolvers<void>(), [] as string[]];
  const ended: Exchange[] = [];
  const { port } = await listenFor(t, {
    async handle({ signal }) {
      waiting.resolve();
      await once(signal, "abort");
      const read = async function* () {
        done.push("read");
        yield Buffer.from("a");
      };
      return { status: 200, body: { read, close: async () => void done.push("closed") } };
    },
    onExchange: (exchange) => ended.push(exchange),
  });
  const socket = dial(t, port);
  socket.write(GET);
  await waiting.promise;
  socket.destroy();
  await until("the close", () => done.length > 0);
  await until("the exchange", () => ended.length > 0);
  assert.deepEqual([done, ended.map(({ status }) => status)], [["closed"], [499]]);
});

test("defects are told with the id of their request, and failures that the client is told are none", async (t) => {
  const errors = [new Failure("unauthorized", "no"), new TypeError("wrong"), new Failure("failed", "the disk is full")];
  const [thrown, defects, ids] = [[...errors], [] as [string, unknown][], [] as string[]];
  const { url } = await listenFor(t, {
    handle: () => Promise.reject(errors.shift()),
    onDefect: (id, error) => defects.push([id, error]),
  });
  const statuses: number[] = [];
  while (errors.length > 0) {
    const answer = await fetch(url);
    statuses.push(answer.status);
    ids.push(answer.headers.get("x-request-id") ?? "");
    await answer.body?.cancel();
  }
  assert.deepEqual(statuses, [401, 500, 500]);
  const expected = [
    [ids[1], thrown[1]],
    [ids[2], thrown[2]],
  ];
  assert.deepEqual(defects, expected);
});

test("a server that cannot listen says where and why", async (t) => {
  const { port } = await listenFor(t, {});
  const handle = async () => json(200, {});
  await assert.rejects(listen({ host: "127.0.0.1", port, handle }), ({ code, message, cause }) => {
    assert.equal(message, `Cannot listen on 127.0.0.1:${port}: another process listens there`);
    return code === "failed" && cause.code === "EADDRINUSE";
  });
  await assert.rejects(listen({ host: "192.0.2.1", port: 0, handle }), {
    code: "failed",
    message: /^Cannot listen on 192\.0\.2\.1:0: /,
  });
});

test("an exchange tells the request, the status, the bytes of the body and how long it took", async (t) => {
  const ended: Exchange[] = [];
  const { port } = await listenFor(t, {
    handle: async ({ path }) => (path === "/none" ? { status: 204 } : raw("text/plain", "gr\u00fc\u00dfe")),
    onExchange: (exchange) => ended.push(exchange),
    limits: { lingerMs: 20 },
  });
  for (const [method, path] of [
    ["GET", "/a?b"],
    ["HEAD", "/a"],
    ["GET", "/none"],
  ])
    assert.match(
      await exchangeText(t, port, `${method} ${path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n`),
      path === "/none" ? / 204 / : /^Content-Type: text\/plain\r$/m,
    );
  const refused = await exchangeText(t, port, "hello\r\n\r\n");
  await until("the exchanges", () => ended.length === 4);
  assert.deepEqual(
    ended.map(({ request, status, bytes }) => [request.method, request.path, request.peer, status, bytes]),
    [
      ["GET", "/a", "127.0.0.1", 200, 7],
      ["HEAD", "/a", "127.0.0.1", 200, 0],
      ["GET", "/none", "127.0.0.1", 204, 0],
      ["-", "-", "127.0.0.1", 400, refused.slice(refused.indexOf("\r\n\r\n") + 4).length],
    ],
  );
  assert.match(refused, new RegExp(`^X-Request-Id: ${ended[3]?.request.id}\r$`, "im"));
  for (const { durationMs } of ended) assert.ok(durationMs >= 0);
  assert.deepEqual(ended[3]?.durationMs, 0);
});

test("a connection that is refused is answered once, and nothing more that comes over it", async (t) => {
  const ended: Exchange[] = [];
  const { port } = await listenFor(t, { onExchange: (exchange) => ended.push(exchange), limits: { lingerMs: 50 } });
  const { socket, statuses } = connection(t, port);
  await once(socket, "connect");
  socket.write("hello\r\n\r\n");
  await until("the answer", () => statuses().length === 1);
  socket.write("again\r\n\r\n");
  await until("the end", () => socket.closed || socket.readableEnded);
  assert.deepEqual([statuses(), ended.length], [["400"], 1]);
});

test("a wait for the rest of a body is called off by its end, or by that of the connection, and leaves nothing", async (t) => {
  const lingerMs = 3_600_000;
  const set = t.mock.method(globalThis, "setTimeout");
  const cleared = t.mock.method(globalThis, "clearTimeout");
  const left = () => {
    const off = new Set<unknown>(cleared.mock.calls.map(({ arguments: [timer] }) => timer));
    return set.mock.calls.filter(({ arguments: [, ms], result }) => ms === lingerMs && !off.has(result)).length;
  };
  const listeners: number[] = [];
  const listener = await listenFor(t, {
    async handle({ path, signal }, connection) {
      listeners.push((connection as Socket).listenerCount("close"));
      if (path === "/late") await once(signal, "abort");
      return json(409, {});
    },
    caps: { all: 9, ofStranger: 9, onMet: () => {} },
    limits: { lingerMs },
  });
  const isAlone = () => listener.load().connections === 0;
  const { socket, statuses } = connection(t, listener.port);
  for (const count of [1, 2, 3]) {
    socket.write(count === 1 ? POST : `{}${POST}`);
    await until("the answer", () => statuses().length === count);
    assert.equal(left(), 1, "only the last body has not ended");
  }
  assert.equal(listeners[2], listeners[1], "no listener stays for each request");
  socket.destroy();
  await until("the end of the connection", isAlone);
  assert.equal(left(), 0);
  const late = dial(t, listener.port);
  late.write(POST.replace("/", "/late"));
  await until("the late request", () => listeners.length === 4);
  late.destroy();
  await until("the end of the other one", () => isAlone() && listener.load().requests === 0);
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(left(), 0, "nobody waits for who has left");
});

test("a refusal is never written into an answer that is on its way: the connection is cut", async (t) => {
  const going = Promise.withResolvers<void>();
  t.after(() => going.resolve());
  const read = async function* () {
    yield Buffer.from("a part");
    await going.promise;
  };
  const { port } = await listenFor(t, { handle: async () => ({ status: 200, body: { read, close: async () => {} } }) });
  const socket = dial(t, port);
  let text = "";
  socket.on("data", (chunk: Buffer) => {
    text += chunk;
  });
  socket.write(GET);
  await until("the part", () => text.includes("a part"));
  socket.write("hello\r\n\r\n");
  await until("the cut", () => socket.closed);
  assert.match(text, /^HTTP\/1\.1 200 [\s\S]*a part\r\n$/);
});
