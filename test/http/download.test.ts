import assert from "node:assert/strict";
import { once } from "node:events";
import { truncateSync, writeFileSync } from "node:fs";
import { open } from "node:fs/promises";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { bytesDownload, downloadAnswer, fileDownload } from "../../lib/http/download.ts";
import type { Exchange } from "../../lib/http/listen.ts";
import { dial, listenFor } from "../helpers/http.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

const TEXT = "0123456789";

/** A server that lets a file be downloaded, with the handles it has opened. */
async function serving(t: TestContext, content: string | Buffer, writeMs = 90_000) {
  const file = path.join(temporaryFolder(t), "file");
  writeFileSync(file, content);
  const handles: Awaited<ReturnType<typeof open>>[] = [];
  const defects: unknown[] = [];
  const exchanges: Exchange[] = [];
  const { port, url } = await listenFor(t, {
    limits: { writeMs, checkMs: 20 },
    async handle(request) {
      const handle = await open(file);
      handles.push(handle);
      return downloadAnswer(request, await fileDownload("text/plain", handle));
    },
    onDefect: (_, error) => defects.push(error),
    onExchange: (exchange) => exchanges.push(exchange),
  });
  const get = async (headers: Record<string, string> = {}, method = "GET") => {
    const response = await fetch(url, { method, headers });
    return { status: response.status, headers: response.headers, text: await response.text() };
  };
  const allClosed = () => until("all files to be closed", () => handles.every(({ fd }) => fd < 0));
  return { file, port, get, handles, allClosed, defects, exchanges };
}

test("the bytes of a file that are asked for come whole, in pieces, and none behind them", async (t) => {
  const file = path.join(temporaryFolder(t), "file");
  const content = Buffer.from(Array.from({ length: 200_000 }, (_, at) => at % 251));
  writeFileSync(file, content);
  const download = await fileDownload("text/plain", await open(file));
  for (const [start, end] of [
    [0, 200_000],
    [2, 5],
    [70_000, 150_001],
    [199_999, 200_000],
  ] as const)
    assert.deepEqual(Buffer.concat(await Array.fromAsync(download.read(start, end))), content.subarray(start, end));
  await download.close();
});

test("a whole download has its length, its version and says that it takes ranges", async (t) => {
  const { get, allClosed, exchanges } = await serving(t, TEXT);
  const { status, headers, text } = await get();
  assert.deepEqual([status, text, headers.get("content-length")], [200, TEXT, "10"]);
  assert.deepEqual([headers.get("accept-ranges"), headers.get("content-type")], ["bytes", "text/plain"]);
  assert.match(headers.get("etag") ?? "", /^"[a-z0-9-]+"$/);
  await allClosed();
  await until("the exchange", () => exchanges.length === 1);
  assert.equal(exchanges[0]?.bytes, 10);
});

test("an empty file is a download too", async (t) => {
  const { get } = await serving(t, "");
  const { status, headers, text } = await get();
  assert.deepEqual([status, text, headers.get("content-length")], [200, "", "0"]);
});

for (const [range, place, text] of [
  ["bytes=0-0", "bytes 0-0/10", "0"],
  ["bytes=2-4", "bytes 2-4/10", "234"],
  ["bytes=7-", "bytes 7-9/10", "789"],
  ["bytes=7-99", "bytes 7-9/10", "789"],
  ["bytes=-3", "bytes 7-9/10", "789"],
  ["bytes=-99", "bytes 0-9/10", TEXT],
  ["Bytes=0-9", "bytes 0-9/10", TEXT],
] as const)
  test(`the range ${range} is 206 with its part`, async (t) => {
    const { get, allClosed } = await serving(t, TEXT);
    const reply = await get({ range });
    assert.deepEqual([reply.status, reply.headers.get("content-range"), reply.text], [206, place, text]);
    assert.equal(reply.headers.get("content-length"), String(text.length));
    await allClosed();
  });

for (const range of ["bytes=0-1,3-4", "bytes=5-2", "bytes=a-b", "bytes=-", "lines=0-1", "bytes=1", `bytes=${"9".repeat(16)}-`])
  test(`the range ${range} is none, so all of it is sent`, async (t) => {
    const { get } = await serving(t, TEXT);
    const { status, text } = await get({ range });
    assert.deepEqual([status, text], [200, TEXT]);
  });

for (const [range, content] of [
  ["bytes=10-", TEXT],
  ["bytes=-0", TEXT],
  ["bytes=0-", ""],
  ["bytes=-5", ""],
] as const)
  test(`the range ${range} of ${content.length} bytes is 416 with the size`, async (t) => {
    const { get, allClosed } = await serving(t, content);
    const { status, headers, text } = await get({ range });
    assert.deepEqual([status, JSON.parse(text).error], [416, "range_not_satisfiable"]);
    assert.equal(headers.get("content-range"), `bytes */${content.length}`);
    await allClosed();
  });

test("If-Range takes the part only of the version it names", async (t) => {
  const { get, file } = await serving(t, TEXT);
  const etag = (await get()).headers.get("etag") ?? "";
  const part = (version: string) => get({ range: "bytes=8-", "if-range": version });
  assert.equal((await part(etag)).text, "89");
  for (const other of ['"x"', `W/${etag}`, "Wed, 21 Oct 2015 07:28:00 GMT"])
    assert.deepEqual([(await part(other)).status, (await part(other)).text], [200, TEXT], other);
  writeFileSync(file, "ABCDEFGHIJ");
  assert.equal((await part(etag)).text, "ABCDEFGHIJ");
});

test("If-None-Match of the present version is 304 without a body", async (t) => {
  const { get, file, allClosed } = await serving(t, TEXT);
  const etag = (await get()).headers.get("etag") ?? "";
  for (const known of [etag, `W/${etag}`, `"x", ${etag}`, "*"]) {
    const { status, headers, text } = await get({ "if-none-match": known, range: "bytes=0-1" });
    assert.deepEqual([status, text, headers.get("etag")], [304, "", etag], known);
  }
  assert.equal((await get({ "if-none-match": '"x"' })).status, 200);
  writeFileSync(file, `${TEXT}more`);
  assert.equal((await get({ "if-none-match": etag })).text, `${TEXT}more`);
  await allClosed();
});

test("HEAD answers with the headers of all of it and closes the file unread", async (t) => {
  const { get, allClosed } = await serving(t, TEXT);
  const { status, headers, text } = await get({ range: "bytes=0-1" }, "HEAD");
  assert.deepEqual([status, text, headers.get("content-length")], [200, "", "10"]);
  await allClosed();
});

test("a connection serves one download after the other", async (t) => {
  const { port } = await serving(t, TEXT);
  const socket = dial(t, port);
  let received = "";
  socket.on("data", (chunk: Buffer) => {
    received += chunk;
  });
  socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\nRange: bytes=5-\r\nConnection: close\r\n\r\n");
  await once(socket, "close");
  assert.match(received, /^HTTP\/1\.1 200 [\s\S]*\r\n0123456789HTTP\/1\.1 206 [\s\S]*\r\n56789$/);
});

test("a file that is cut while it is sent ends the connection instead of a short answer", async (t) => {
  const { port, file, allClosed, defects } = await serving(t, Buffer.alloc(64 * 1024 * 1024));
  const socket = dial(t, port);
  socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  await once(socket, "data");
  socket.pause();
  truncateSync(file, 0);
  socket.resume();
  await once(socket, "close");
  await allClosed();
  assert.match(String(defects[0]), /cut while it was sent/);
});

test("a client that leaves in the middle leaves no open file and is no defect", async (t) => {
  const { port, allClosed, defects, exchanges } = await serving(t, Buffer.alloc(64 * 1024 * 1024));
  const socket = dial(t, port);
  socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  await once(socket, "data");
  socket.destroy();
  await allClosed();
  await until("the exchange", () => exchanges.length === 1);
  assert.deepEqual([defects, exchanges[0]?.bytes], [[], 0]);
});

test("CP-329 a download that is not read in time is cut off and its file closed", async (t) => {
  const { port, allClosed, handles } = await serving(t, Buffer.alloc(64 * 1024 * 1024), 200);
  const socket = dial(t, port);
  socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  socket.pause();
  await until("the download", () => handles.length === 1);
  await allClosed();
});

test("bytes in memory are downloaded like a file", async (t) => {
  const { url } = await listenFor(t, {
    handle: (request) => downloadAnswer(request, bytesDownload("text/plain", Buffer.from(TEXT), "v1")),
  });
  const response = await fetch(url, { headers: { range: "bytes=3-4" } });
  assert.deepEqual([response.status, response.headers.get("etag"), await response.text()], [206, '"v1"', "34"]);
});
