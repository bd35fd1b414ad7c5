import assert from "node:assert/strict";
import { once } from "node:events";
import { type TestContext, test } from "node:test";
import type { Exchange } from "../../lib/http/listen.ts";
import { dial, exchangeText, listenFor } from "../helpers/http.ts";
import { until } from "../helpers/temporary.ts";

/** A server whose answers are read while they are sent, and whose length nobody knows before. */
async function serving(t: TestContext, read: () => AsyncIterable<Uint8Array>) {
  let closed = 0;
  const defects: unknown[] = [];
  const exchanges: Exchange[] = [];
  const close = async () => void closed++;
  const listener = await listenFor(t, {
    handle: async () => ({ status: 200, body: { read, close } }),
    onDefect: (_, error) => defects.push(error),
    onExchange: (exchange) => exchanges.push(exchange),
  });
  const over = (count = 1) => until("the exchange", () => exchanges.length === count && closed === count);
  return { ...listener, defects, exchanges, over };
}

async function* pieces(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

test("a body without a length is sent in chunks, also empty ones, and its bytes are counted", async (t) => {
  const { url, over, exchanges } = await serving(t, () => pieces("grüße", "", "and more"));
  for (const count of [1, 2]) {
    const response = await fetch(url);
    assert.deepEqual([response.headers.get("content-length"), response.headers.get("transfer-encoding")], [null, "chunked"]);
    assert.equal(await response.text(), "grüßeand more");
    await over(count);
  }
  assert.deepEqual(
    exchanges.map(({ bytes }) => bytes),
    [15, 15],
  );
});

test("a body that fails on its way cuts the connection, so that nobody takes the part for the whole", async (t) => {
  const { url, port, over, exchanges, defects } = await serving(t, async function* () {
    yield* pieces("a part");
    throw new Error("the disk is gone");
  });
  await assert.rejects((await fetch(url)).text());
  await over();
  const text = await exchangeText(t, port, "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  assert.match(text, /a part\r\n$/, "without the last chunk");
  await over(2);
  assert.deepEqual(
    exchanges.map(({ status, bytes }) => [status, bytes]),
    [
      [200, 0],
      [200, 0],
    ],
  );
  assert.deepEqual(defects.map(String), ["Error: the disk is gone", "Error: the disk is gone"]);
});

test("HEAD reads nothing of it", async (t) => {
  let reads = 0;
  const { url, over, exchanges } = await serving(t, () => {
    reads++;
    return pieces("text");
  });
  const response = await fetch(url, { method: "HEAD" });
  assert.deepEqual([response.status, await response.text()], [200, ""]);
  await over();
  assert.deepEqual([reads, exchanges[0]?.bytes], [0, 0]);
});

test("who leaves ends the reading, also while nothing is there to be sent", async (t) => {
  let isReading = false;
  const { port, over, defects } = await serving(t, async function* () {
    yield* pieces("first");
    isReading = true;
    try {
      for (;;) {
        await new Promise((go) => setTimeout(go, 1));
        yield new Uint8Array(0);
      }
    } finally {
      isReading = false;
    }
  });
  const socket = dial(t, port);
  socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  await until("the reading to begin", () => isReading);
  socket.destroy();
  await over();
  await until("the reading to end", () => !isReading);
  assert.deepEqual(defects, []);
});

test("who has left before there is an answer gets none: its body is closed, and nothing of it is read", async (t) => {
  const found: string[] = [];
  const body = { read: () => pieces(String(found.push("read"))), close: async () => void found.push("closed") };
  const { port } = await listenFor(t, {
    handle: async ({ signal }) => {
      found.push("asked");
      await once(signal, "abort");
      return { status: 200, body };
    },
    onDefect: (_, error) => found.push(String(error)),
    onExchange: ({ status }) => found.push(String(status)),
  });
  const socket = dial(t, port);
  socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  await until("the request", () => found.length === 1);
  socket.destroy();
  await until("the end", () => found.includes("closed"));
  assert.deepEqual(found, ["asked", "499", "closed"]);
});

test("CP-329 of a live body the time counts for each piece, not for the waits between them", async (t) => {
  const writeMs = 200;
  const read = async function* () {
    yield* pieces("first ");
    const started = performance.now();
    await until("more time than a whole answer may take", () => performance.now() - started > 2 * writeMs);
    yield* pieces("second");
  };
  const body = { isLive: true as const, read, close: async () => {} };
  const { url } = await listenFor(t, { limits: { writeMs }, handle: async () => ({ status: 200, body }) });
  assert.equal(await (await fetch(url)).text(), "first second");
});

test("CP-329 a client that does not take a piece of a live body is cut", async (t) => {
  const limits = { writeMs: 200 };
  let isClosed = false;
  const close = async () => {
    isClosed = true;
  };
  const read = async function* () {
    for (;;) yield new Uint8Array(1024 * 1024);
  };
  const { port } = await listenFor(t, { limits, handle: async () => ({ status: 200, body: { isLive: true, read, close } }) });
  const socket = dial(t, port);
  socket.pause();
  socket.write("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  await until("the end of the answer", () => isClosed);
});
