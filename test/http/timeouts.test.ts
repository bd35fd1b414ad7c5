import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { LIMITS, nodeServer } from "../../lib/http/node-server.ts";
import { certificateFor } from "../helpers/http.ts";
import { slowClients } from "../helpers/slow-clients.ts";

test("CP-327 CP-328 CP-330 CP-331 CP-338 T-73 the limits of the specification stand on Node's server, with TLS too", async (t) => {
  const files = await certificateFor(t);
  const tls = { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
  for (const pair of [undefined, tls]) {
    const server = nodeServer(pair, LIMITS);
    const { headersTimeout, requestTimeout, keepAliveTimeout, timeout } = server;
    assert.deepEqual(
      { headersTimeout, requestTimeout, keepAliveTimeout, timeout },
      { headersTimeout: 10_000, requestTimeout: 600_000, keepAliveTimeout: 120_000, timeout: 0 },
    );
    assert.equal(Reflect.get(server, "maxHeaderSize"), 1024 * 1024);
    assert.equal(Reflect.get(server, "connectionsCheckingInterval"), 1000);
    assert.ok(LIMITS.lingerMs >= 1000, "an answer gets through to a client that still sends its body");
  }
});

test("CP-327 CP-328 CP-329 CP-330 clients that are too slow are cut off, none before its time; a long-poll is not", async () => {
  const limits = { ...LIMITS, headersMs: 300, requestMs: 700, writeMs: 500, idleMs: 400, checkMs: 20 };
  const { headers, body, write, idle, longPoll } = await slowClients(limits);
  for (const [took, limit] of [
    [headers, 300],
    [body, 700],
    [write, 500],
    [idle, 400],
  ] as const)
    assert.ok(took >= limit - 5, `cut off after ${took} ms, before ${limit} ms`);
  assert.equal(longPoll, 200);
});
