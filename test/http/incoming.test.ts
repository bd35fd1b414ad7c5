import assert from "node:assert/strict";
import { EventEmitter, getEventListeners } from "node:events";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Readable } from "node:stream";
import { type TestContext, test } from "node:test";
import { OpenRequest, requireSound } from "../../lib/http/incoming.ts";

const WRITE_MS = 1_000;

/** What a test says of a request and its answer. */
interface Given {
  url?: string | undefined;
  method?: string | undefined;
  headers?: Record<string, string>;
  socket?: object;
  response?: Partial<Record<"destroyed" | "headersSent" | "writableFinished", boolean>>;
  isUnasked?: boolean;
  chunks?: string[];
}

/** A request that is not over yet, without a connection, and what was done to its connection. */
function opened(t: TestContext, given: Given = {}) {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const done: string[] = [];
  const socket = { remoteAddress: "::ffff:10.0.0.1", destroy: () => done.push("cut"), ...given.socket };
  const incoming = Object.assign(Readable.from((given.chunks ?? []).map((chunk) => Buffer.from(chunk))), {
    url: "/",
    method: "GET",
    headers: {},
    socket,
    ...given,
  }) as unknown as IncomingMessage;
  const response = Object.assign(new EventEmitter(), {
    destroyed: false,
    headersSent: false,
    writableFinished: false,
    writeContinue: () => done.push("go on"),
    ...given.response,
  }) as unknown as ServerResponse;
  const onAdmitted = () => done.push("admitted");
  const options = { writeMs: WRITE_MS, isUnasked: given.isUnasked ?? false, onAdmitted };
  const request = new OpenRequest(incoming, response, options);
  return { request, incoming, response, done, tick: (ms: number) => t.mock.timers.tick(ms) };
}

for (const [url, path, query] of [
  ["/a?b=c", "/a", "b=c"],
  ["/a", "/a", ""],
  ["/a?", "/a", ""],
  ["?a", "", "a"],
  ["/a?b?c", "/a", "b?c"],
  [undefined, "", ""],
] as const)
  test(`of the target ${url} the path is "${path}" and the query "${query}"`, (t) => {
    const { request } = opened(t, { url });
    assert.deepEqual([request.path, request.query, request.peer, request.scheme], [path, query, "10.0.0.1", "http"]);
    request.over();
  });

test("a request over TLS is one of https; one without a method has an empty one", (t) => {
  const { request } = opened(t, { socket: { encrypted: true }, method: undefined });
  assert.deepEqual([request.scheme, request.method], ["https", ""]);
  const nothing = { route: undefined, authenticated: undefined, name: undefined, refused: undefined };
  assert.deepEqual(request.noted, nothing);
});

for (const [what, headers, isBegun] of [
  ["no body", {}, true],
  ["an empty body", { "content-length": "0" }, true],
  ["a body", { "content-length": "1" }, false],
  ["a body in chunks", { "transfer-encoding": "chunked" }, false],
  ["a body in chunks that says it is empty", { "transfer-encoding": "chunked", "content-length": "0" }, false],
] as const)
  test(`CP-329 the time for the answer to a request with ${what} begins ${isBegun ? "at once" : "with the end of the body"}`, (t) => {
    const { request, incoming, done, tick } = opened(t, { headers });
    assert.equal(request.isWaiting, !isBegun);
    tick(WRITE_MS - 1);
    incoming.emit("end");
    assert.equal(request.isWaiting, false);
    tick(isBegun ? 0 : WRITE_MS - 1);
    assert.deepEqual(done, []);
    tick(1);
    assert.deepEqual(done, ["cut"]);
  });

test("CP-329 a long-poll takes none of the time; after it the time begins anew, and only once", (t) => {
  const { request, done, tick } = opened(t);
  tick(WRITE_MS - 1);
  request.longPoll();
  assert.equal(request.isWaiting, true);
  tick(10 * WRITE_MS);
  request.answered();
  tick(WRITE_MS - 1);
  request.answered();
  assert.deepEqual([done, request.isWaiting], [[], false]);
  tick(1);
  assert.deepEqual(done, ["cut"]);
});

test("CP-329 where the answer is begun before the end of the body, that end begins its time anew", (t) => {
  const { request, incoming, done, tick } = opened(t, { headers: { "content-length": "1" } });
  request.answered();
  tick(WRITE_MS - 1);
  incoming.emit("end");
  tick(WRITE_MS - 1);
  assert.deepEqual(done, []);
  tick(1);
  assert.deepEqual(done, ["cut"]);
});

for (const isLive of [undefined, true] as const)
  test(`CP-329 ${isLive ? "each piece of a live body has the time for itself" : "a plain body has the time as a whole"}`, async (t) => {
    const { request, done, tick } = opened(t);
    const read = async function* () {
      for (let piece = 0; piece < 3; piece++) yield Buffer.from("a");
    };
    for await (const _ of request.counted({ read, close: async () => {}, ...(isLive && { isLive }) })) tick(WRITE_MS / 2);
    assert.deepEqual(done, isLive ? [] : ["cut"]);
    request.over();
  });

test("a second reader of a body gets what the first one has left", async (t) => {
  const { request, incoming } = opened(t, { headers: { "content-length": "4" }, chunks: ["ab", "cd"] });
  for await (const _ of request.body) break;
  assert.equal(incoming.destroyed, false);
  assert.deepEqual((await Array.fromAsync(request.body)).map(String), ["cd"]);
  request.over();
});

test("a request that is over, or whose client has left, is not cut any more", (t) => {
  for (const isLeft of [false, true]) {
    const { request, done, tick } = opened(t, { response: { destroyed: isLeft, writableFinished: !isLeft } });
    if (!isLeft) request.over();
    tick(WRITE_MS);
    assert.deepEqual([done, request.signal.aborted], [[], false]);
    t.mock.timers.reset();
  }
});

test("the signal of a request is aborted where its answer was not sent whole, or where who was admitted is let in no more", (t) => {
  const { request } = opened(t);
  request.over();
  assert.equal(request.signal.aborted, true);
  t.mock.timers.reset();
  const ends = new AbortController();
  const other = opened(t, { response: { writableFinished: true } });
  other.request.admitted(ends.signal);
  assert.deepEqual([other.done, getEventListeners(ends.signal, "abort").length], [["admitted"], 1]);
  ends.abort();
  assert.equal(other.request.signal.aborted, true);
  t.mock.timers.reset();
  const third = opened(t, { response: { writableFinished: true } });
  const later = new AbortController();
  third.request.admitted(later.signal);
  third.request.over();
  assert.equal(getEventListeners(later.signal, "abort").length, 0);
  assert.equal(third.request.signal.aborted, false);
});

test("a client that waits to be asked for its body is asked once, when the body is read; each piece is told of", async (t) => {
  const { request, done } = opened(t, { isUnasked: true, headers: { "content-length": "4" }, chunks: ["ab", "cd"] });
  const pieces: string[] = [];
  request.onBody = (piece) => pieces.push(String(piece));
  assert.equal(request.isUnasked, true);
  const read: string[] = [];
  for await (const piece of request.body) read.push(String(piece));
  assert.deepEqual([read, pieces, done, request.isUnasked], [["ab", "cd"], ["ab", "cd"], ["go on"], false]);
  assert.deepEqual([await Array.fromAsync(request.body), done], [[], ["go on"]]);
});

test("a body whose request was stopped is a failure for its reader, with the reason", async (t) => {
  const { request, done } = opened(t, { headers: { "content-length": "4" }, chunks: ["abcd"] });
  request.abort();
  await assert.rejects(Array.fromAsync(request.body), ({ code, message, cause }) => {
    assert.equal(message, "the request ended before its body was complete");
    return code === "cancelled" && cause.message === "stopped";
  });
  assert.deepEqual(done, [], "nobody waits to be asked");
});

for (const isLive of [undefined, true] as const)
  test(`CP-329 while a ${isLive ? "live" : "plain"} body is sent the time ${isLive ? "stands between pieces" : "goes on"}`, async (t) => {
    const { request, incoming } = opened(t);
    const waited: boolean[] = [];
    const read = async function* () {
      for (const text of ["abc", "de"]) {
        waited.push(request.isWaiting);
        yield Buffer.from(text);
      }
      waited.push(request.isWaiting);
    };
    const sent: boolean[] = [];
    for await (const _ of request.counted({ read, close: async () => {}, ...(isLive && { isLive }) }))
      sent.push(request.isWaiting);
    assert.deepEqual([waited, sent], [Array(3).fill(isLive === true), [false, false]]);
    assert.deepEqual([request.sentBytes, request.isWaiting], [5, false]);
    incoming.destroy();
  });

test("an answer is on its way over a connection between its headers and its end", (t) => {
  const socket = { remoteAddress: "10.0.0.1" };
  const isBeingAnswered = (response: Given["response"]) => {
    const { request, incoming } = opened(t, response && { response });
    t.mock.timers.reset();
    assert.equal(request.isBeingAnswered(socket as Socket), false, "another connection");
    return request.isBeingAnswered(incoming.socket);
  };
  assert.deepEqual([{}, { headersSent: true }, { headersSent: true, writableFinished: true }].map(isBeingAnswered), [
    false,
    true,
    false,
  ]);
});

const SOUND = { url: "/", httpVersion: "1.1", rawHeaders: ["Host", "h"], headers: {} };

for (const [what, given, message] of [
  ["a plain request", {}, undefined],
  ["16 KiB of path and query", { url: "x".repeat(16 * 1024) }, undefined],
  ["one character more", { url: "x".repeat(16 * 1024 + 1) }, "path and query have more than 16384 characters together"],
  ["HTTP/1.0 without Host", { httpVersion: "1.0", rawHeaders: [] }, undefined],
  ["HTTP/1.1 without Host", { rawHeaders: ["X", "host"] }, "the request has no Host header"],
  ["HTTP/1.0 with two", { httpVersion: "1.0", rawHeaders: ["Host", "a", "HOST", "b"] }, "the request has two Host headers"],
  ["HTTP/0.9", { httpVersion: "0.9" }, "the request line must end with HTTP/1.1"],
  ["HTTP/2.0", { httpVersion: "2.0" }, "the request line must end with HTTP/1.1"],
  ["chunks", { headers: { "transfer-encoding": "CHUNKED" } }, undefined],
  ["another coding", { headers: { "transfer-encoding": "gzip, chunked" } }, "Transfer-Encoding can only be chunked"],
] as const)
  test(`${what}: ${message ?? "sound"}`, () => {
    const check = () => requireSound({ ...SOUND, ...given } as unknown as IncomingMessage);
    if (message === undefined) check();
    else assert.throws(check, { code: "invalid_request", message });
  });
