import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { connect as connectTls } from "node:tls";
import { json } from "../../lib/http/message.ts";
import { certificateFor, exchangeText, listenFor, selfSigned } from "../helpers/http.ts";

const SECURE = /^Content-Security-Policy: [\s\S]*^X-Frame-Options: DENY\r\n[\s\S]*^X-Content-Type-Options: nosniff\r\n/m;
const CLOSE = "Connection: close\r\n\r\n";
const NO_VERSION = /must end with HTTP\/1\.1/;
const NOT_HTTP = /not an HTTP request that the server understands/;
const LONG = `/a?${"b".repeat(16 * 1024 - 3)}`;

for (const [what, text, message] of [
  ["two Host headers", `GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n${CLOSE}`, /two Host headers/],
  ["two Host headers in HTTP/1.0", `GET / HTTP/1.0\r\nHost: h\r\nhOST: other\r\n${CLOSE}`, /two Host headers/],
  ["a request line without a version", "GET /\r\n\r\n", NO_VERSION],
  ["a request line without a version, with headers", `GET /\r\nHost: h\r\n${CLOSE}`, NO_VERSION],
  ["HTTP/2.0", `GET / HTTP/2.0\r\nHost: h\r\n${CLOSE}`, NO_VERSION],
  ["Transfer-Encoding: gzip", `POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n${CLOSE}`, NOT_HTTP],
  ["Transfer-Encoding: identity", `POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n${CLOSE}`, NOT_HTTP],
  ["gzip below chunks", `POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n${CLOSE}0\r\n\r\n`, /only be chunked/],
  [
    "chunks twice",
    `POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n${CLOSE}0\r\n\r\n`,
    NOT_HTTP,
  ],
  ["path and query of 16 KiB and one", `GET ${LONG}b HTTP/1.1\r\nHost: h\r\n${CLOSE}`, /more than 16384 characters/],
  ["a path of 900 KiB", `GET /${"a/".repeat(450 * 1024)} HTTP/1.1\r\nHost: h\r\n${CLOSE}`, /more than 16384/],
] as const)
  test(`${what}: 400 with the security headers, and no handler hears of it`, async (t) => {
    let handled = 0;
    const { port } = await listenFor(t, {
      limits: { lingerMs: 300 },
      handle() {
        handled++;
        return json(200, {});
      },
    });
    const answer = await exchangeText(t, port, text);
    assert.match(answer, /^HTTP\/1\.1 400 /);
    assert.match(answer, SECURE);
    const body = JSON.parse(answer.slice(answer.indexOf("\r\n\r\n")));
    assert.equal(body.error, "invalid_request");
    assert.match(body.message, message);
    assert.equal(handled, 0);
  });

for (const [what, text] of [
  ["path and query of 16 KiB", `GET ${LONG} HTTP/1.1\r\nHost: h\r\n${CLOSE}`],
  ["HTTP/1.0 without Host", `GET / HTTP/1.0\r\n${CLOSE}`],
  ["chunks", `POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n${CLOSE}0\r\n\r\n`],
] as const)
  test(`${what}: answered`, async (t) => {
    const { port } = await listenFor(t, {});
    assert.match(await exchangeText(t, port, text), /^HTTP\/1\.1 200 /);
  });

for (const kind of ["ec", "rsa"] as const)
  test(`TLS with a key of type ${kind}: 1.2 with a key of its own for each connection, or 1.3; nothing else`, async (t) => {
    const files = await (kind === "ec" ? certificateFor(t) : selfSigned(t, ["rsa:2048"]));
    const [cert, key] = [readFileSync(files.certFile, "utf8"), readFileSync(files.keyFile, "utf8")];
    const listener = await listenFor(t, { tls: { cert, key } });
    const { port } = listener;
    const cipherOf = async (ciphers: string, version: "TLSv1.2" | "TLSv1.3") => {
      const where = { host: "127.0.0.1", port, ca: cert, minVersion: version, maxVersion: version };
      const socket = connectTls({ ...where, ciphers });
      t.after(() => socket.destroy());
      await once(socket, "secureConnect");
      return socket.getCipher().standardName;
    };
    for (const isReplaced of [false, true]) {
      if (isReplaced) listener.replaceTls({ cert, key });
      assert.match(await cipherOf("ALL", "TLSv1.2"), /^TLS_ECDHE_(ECDSA|RSA)_WITH_(AES_\d+_GCM|CHACHA20)/);
      assert.match(await cipherOf("TLS_AES_128_GCM_SHA256", "TLSv1.3"), /^TLS_AES_128_GCM_SHA256$/);
      for (const ciphers of ["kRSA", "AES256-GCM-SHA384:AES128-GCM-SHA256:AES128-SHA", "kDHE"])
        await assert.rejects(cipherOf(`${ciphers}:@SECLEVEL=0`, "TLSv1.2"), { code: /^ERR_SSL_|ECONNRESET/ });
    }
  });
