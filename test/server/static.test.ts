import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import type { HttpRequest } from "../../lib/http/message.ts";
import { readConsole } from "../../lib/server/console-files.ts";
import { StaticFiles } from "../../lib/server/static.ts";
import { send } from "../helpers/http.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { until } from "../helpers/temporary.ts";

/** What `fetch` would hide: the bytes as they were sent, once the server has compressed its files. */
async function asked(t: TestContext, path = "/console.js") {
  const server = await TestServer.start(t);
  const get = async (headers: Record<string, string> = {}, method = "GET", target = path) => {
    const response = await send(server.url + target, { method, headers });
    const bytes = Buffer.from(await response.arrayBuffer());
    return { status: response.status, bytes, of: (name: string) => response.headers.get(name) };
  };
  const wanted = { "accept-encoding": "br", authorization: `Bearer ${TOKEN}` };
  await until("that the file is compressed", async () => (await get(wanted, "HEAD")).of("content-encoding") === "br");
  return get;
}

const text = (await readConsole()).get("/console.js")?.content.toString() ?? "";

test("CP-430 a text is sent as the client takes it: brotli, gzip or plain", async (t) => {
  const get = await asked(t);
  const decoded = { br: brotliDecompressSync, gzip: gunzipSync };
  for (const [accepted, expected] of [
    ["gzip, deflate, br, zstd", "br"],
    ["GZIP", "gzip"],
    ["br;q=0, gzip;q=0.5", "gzip"],
    ["*", "br"],
    ["*;q=0", null],
    ["br; q=0, *", "gzip"],
    ["identity", null],
    ["", null],
    ["br;q=what", null],
  ] as const) {
    const { status, bytes, of } = await get({ "accept-encoding": accepted });
    assert.deepEqual([status, of("content-encoding"), of("vary")], [200, expected, "Accept-Encoding"], accepted);
    assert.equal(of("content-length"), String(bytes.length), accepted);
    assert.equal(of("content-type"), "text/javascript; charset=utf-8");
    assert.equal((expected === null ? bytes : decoded[expected](bytes)).toString(), text, accepted);
    if (expected !== null) assert.ok(bytes.length < text.length / 2, `${expected}: ${bytes.length} bytes`);
  }
});

test("CP-431 a browser that has a file learns that the file is the same, and each encoding has a version of its own", async (t) => {
  const get = await asked(t);
  const versions = new Set<string>();
  for (const encoding of ["br", "gzip", "identity"]) {
    const first = await get({ "accept-encoding": encoding });
    const etag = String(first.of("etag"));
    versions.add(etag);
    for (const known of [etag, `W/${etag}`, `"other", ${etag}`, "*"]) {
      const { status, bytes, of } = await get({ "accept-encoding": encoding, "if-none-match": known });
      assert.deepEqual([status, bytes.length, of("etag"), of("cache-control")], [304, 0, etag, "no-cache"], known);
      assert.equal(of("vary"), "Accept-Encoding");
    }
    const stale = await get({ "accept-encoding": encoding, "if-none-match": '"other"' });
    assert.deepEqual([stale.status, stale.bytes.equals(first.bytes)], [200, true]);
  }
  assert.equal(versions.size, 3);
});

test("CP-430 a file that is not compressed yet is sent as it is", () => {
  const files = new StaticFiles(new Map([["/a", { type: "text/plain", content: Buffer.from("text") }]]));
  const request = { method: "GET", path: "/a", headers: { "accept-encoding": "br" } } as unknown as HttpRequest;
  const { headers, body } = files.answer(request);
  assert.deepEqual([String(body), headers?.["Content-Encoding"]], ["text", undefined]);
});

test("CP-430 HEAD tells what GET would send, and sends nothing", async (t) => {
  const get = await asked(t);
  for (const encoding of ["br", "identity"]) {
    const headers = { "accept-encoding": encoding };
    const [head, whole] = [await get(headers, "HEAD"), await get(headers)];
    for (const name of ["content-length", "content-encoding", "content-type", "etag", "vary", "cache-control"])
      assert.equal(head.of(name), whole.of(name), name);
    assert.equal(head.bytes.length, 0);
  }
});

test("CP-017 CP-431 the page of the reference has a version too, and needs authentication all the same", async (t) => {
  const get = await asked(t, "/docs/");
  const authorization = `Bearer ${TOKEN}`;
  const { status, of } = await get({ authorization });
  assert.equal(status, 200);
  const known = { "if-none-match": String(of("etag")) };
  assert.equal((await get(known)).status, 401);
  assert.equal((await get({ ...known, authorization })).status, 304);
});
