import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { Agent, request as httpsRequest } from "node:https";
import { connect } from "node:net";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { connect as connectTls, type SecureVersion } from "node:tls";
import { woken } from "../../lib/core/async.ts";
import { Failure } from "../../lib/core/errors.ts";
import { anything } from "../../lib/core/shape.ts";
import type { Exchange } from "../../lib/http/listen.ts";
import { type HttpRequest, json, raw, readJson } from "../../lib/http/message.ts";
import { LIMITS } from "../../lib/http/node-server.ts";
import { certificateFor, dial, exchangeText, listenFor } from "../helpers/http.ts";
import { until } from "../helpers/temporary.ts";

const SECURITY_HEADERS: [string, RegExp][] = [
  ["Content-Security-Policy", /default-src 'none'; script-src 'self';.*frame-ancestors 'none'/],
  ["X-Frame-Options", /DENY/],
  ["X-Content-Type-Options", /nosniff/],
  ["Referrer-Policy", /no-referrer/],
  ["X-Request-Id", /[0-9a-f]{32}/],
];

function assertSecure(head: string): void {
  for (const [name, value] of SECURITY_HEADERS)
    assert.match(head, new RegExp(`^${name}: .*${value.source}`, "im"), `${name} in ${head}`);
  assert.doesNotMatch(head, /strict-transport-security/i);
}

const GET = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

test("CP-328 CP-330 CP-331 the limits are those of the specification", () => {
  assert.deepEqual(
    [LIMITS.headersMs, LIMITS.requestMs, LIMITS.writeMs, LIMITS.idleMs, LIMITS.headerBytes],
    [10_000, 600_000, 90_000, 120_000, 1_048_576],
  );
});

test("CP-027 CP-028 CP-029 CP-030 CP-032 T-59 answers, failures and defects carry the security headers, and no HSTS without TLS", async (t) => {
  const answers = [
    async () => json(200, {}),
    async () => raw("text/html", "<p>"),
    async () => Promise.reject(new Failure("unauthorized", "no")),
    async () => Promise.reject(new Failure("rate_limited", "no", { details: { retry_after_s: 1 } })),
    async () => Promise.reject(new Error("defect")),
    async () => ({ status: 204 }),
  ];
  const seen: number[] = [];
  const { port } = await listenFor(t, { handle: () => (answers.shift() as () => Promise<never>)() });
  while (answers.length > 0) {
    const text = await exchangeText(t, port, GET);
    assertSecure(text);
    seen.push(Number(text.split(" ")[1]));
  }
  assert.deepEqual(seen, [200, 200, 401, 429, 500, 204]);
});

test("an answer that can have no body tells no length of one", async (t) => {
  for (const [status, lengths] of [
    [204, 0],
    [304, 0],
    [404, 1],
  ] as const) {
    const { port } = await listenFor(t, { handle: async () => ({ status, body: "" }) });
    const answer = await exchangeText(t, port, GET);
    assert.equal(answer.match(/^content-length:/gim)?.length ?? 0, lengths, answer);
  }
});

for (const [what, text, status] of [
  ["what is not HTTP", "hello\r\n\r\n", 400],
  ["a request without Host", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400],
  ["two lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400],
  ["length and chunks", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400],
  ["headers of 1.2 MiB", `GET / HTTP/1.1\r\nHost: h\r\nX-A: ${"a".repeat(1_258_291)}\r\n\r\n`, 431],
] as const)
  test(`CP-331 ${what} is refused with ${status} and the security headers`, async (t) => {
    const { port } = await listenFor(t, { limits: { lingerMs: 300 } });
    const answer = await exchangeText(t, port, text);
    assert.equal(Number(answer.split(" ")[1]), status);
    assertSecure(answer);
    assert.match(answer, /"error":"invalid_request"/);
  });

test("a client that is refused and does not go is cut off", async (t) => {
  const caps = { all: 10, ofStranger: 10, onMet: () => {} };
  const listener = await listenFor(t, { caps, limits: { lingerMs: 50 } });
  const socket = connect({ port: listener.port, host: "127.0.0.1", allowHalfOpen: true }).on("error", () => {});
  t.after(() => socket.destroy());
  socket.write("hello\r\n\r\n");
  assert.match(String((await once(socket, "data"))[0]), / 400 /);
  await until("its connection is closed", () => listener.load().connections === 0);
});

test("CP-331 headers of 900 KiB are accepted, however many", async (t) => {
  const { port } = await listenFor(t, {});
  const many = Array.from({ length: 40_000 }, (_, index) => `X-${index}: ${"a".repeat(10)}\r\n`).join("");
  for (const headers of [`X-A: ${"a".repeat(900 * 1024)}\r\n`, many, "X-A: a\r\n".repeat(100_000)])
    assert.match(await exchangeText(t, port, GET.replace("Host", `${headers}Host`)), /^HTTP\/1.1 200 /);
});

test("a header whose value is the name of another one is no second one of those", async (t) => {
  const { port } = await listenFor(t, {});
  assert.match(await exchangeText(t, port, GET.replace("Host", "X-A: host\r\nHost")), /^HTTP\/1.1 200 /);
});

test("CP-327 headers that do not arrive in time are cut off with 408", async (t) => {
  const { port } = await listenFor(t, { limits: { headersMs: 100, checkMs: 20, lingerMs: 50 } });
  const answer = await exchangeText(t, port, "GET / HTTP/1.1\r\nHost: h\r\n");
  assert.match(answer, /^HTTP\/1.1 408 /);
  assertSecure(answer);
});

test("CP-327 a connection on which nothing is sent is closed", async (t) => {
  const { port } = await listenFor(t, { limits: { headersMs: 100, checkMs: 20, lingerMs: 50 } });
  const socket = dial(t, port).resume();
  await once(socket, "close");
});

test("CP-327 a connection whose TLS is never agreed on is closed as soon", async (t) => {
  const limits = { headersMs: 100, checkMs: 20, lingerMs: 3_600_000 };
  const { port } = await listenFor(t, { limits, tls: await tlsPair(t) });
  const socket = dial(t, port).resume();
  await once(socket, "close");
});

test("CP-328 a body that does not arrive in time is cut off with 408, and its reader gets a failure", async (t) => {
  let failure: unknown;
  const { port } = await listenFor(t, {
    limits: { headersMs: 100, requestMs: 150, checkMs: 20, lingerMs: 50 },
    async handle(request) {
      await readJson(request, anything()).catch((error: unknown) => {
        failure = error;
      });
      return json(200, {});
    },
  });
  const answer = await exchangeText(t, port, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{");
  assert.match(answer, /^HTTP\/1.1 408 /);
  await until("the failure", () => failure instanceof Failure && failure.code === "cancelled");
});

test("CP-330 a connection that idles too long between requests is closed", async (t) => {
  const { port } = await listenFor(t, { limits: { idleMs: 50 } });
  const answer = await exchangeText(t, port, GET.replace("Connection: close\r\n", ""));
  assert.match(answer, /^HTTP\/1.1 200 /);
});

test("CP-329 an answer that is not read in time is cut off", async (t) => {
  const body = Buffer.alloc(64 * 1024 * 1024);
  const begun = performance.now();
  const ended: Exchange[] = [];
  const { port } = await listenFor(t, {
    limits: { writeMs: 100, checkMs: 20 },
    handle: async () => raw("application/octet-stream", body),
    onExchange: (exchange) => ended.push(exchange),
  });
  const socket = dial(t, port);
  socket.write(GET);
  await until("the cut", () => ended.length === 1);
  const { durationMs = -1 } = ended[0] ?? {};
  assert.ok(durationMs >= 0 && durationMs <= performance.now() - begun, `${durationMs}`);
  let received = 0;
  socket.on("data", (chunk: Buffer) => {
    received += chunk.length;
  });
  await once(socket, "close");
  assert.ok(received < body.length);
});

test("CP-329 neither a long-poll's wait nor an upload counts as time for the answer", async (t) => {
  const { port } = await listenFor(t, {
    limits: { writeMs: 400, checkMs: 20 },
    async handle(request) {
      for await (const _ of request.body);
      request.longPoll();
      await delay(500);
      return json(200, {});
    },
  });
  const socket = dial(t, port);
  const received: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => received.push(chunk));
  socket.write("POST / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{");
  await delay(500);
  socket.write("}");
  await once(socket, "close");
  assert.match(Buffer.concat(received).toString(), /^HTTP\/1.1 200 /);
});

test("CP-329 work that is no long-poll does count", async (t) => {
  const { port } = await listenFor(t, {
    limits: { writeMs: 50, checkMs: 20 },
    async handle() {
      await delay(400);
      return json(200, {});
    },
  });
  assert.equal(await exchangeText(t, port, GET), "");
});

test("the signal of a request is aborted when its client leaves", async (t) => {
  let signal: AbortSignal | undefined;
  const ended: Exchange[] = [];
  const { port } = await listenFor(t, {
    async handle(request) {
      signal = request.signal;
      await once(request.signal, "abort");
      return json(200, {});
    },
    onExchange: (exchange) => ended.push(exchange),
  });
  const socket = dial(t, port);
  socket.write(GET);
  await until("the request", () => signal !== undefined);
  socket.destroy();
  await until("the end", () => ended.length === 1);
  assert.equal(signal?.aborted, true);
  assert.equal(ended[0]?.status, 499);
});

test("a body that breaks off is a failure for its reader, never a shorter body", async (t) => {
  let outcome: unknown;
  const { port } = await listenFor(t, {
    async handle(request) {
      outcome = await readJson(request, anything()).catch((error: unknown) => error);
      return json(200, {});
    },
  });
  const socket = dial(t, port);
  socket.write("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n");
  await until("the connection", () => socket.readyState === "open");
  socket.end();
  await until("the failure", () => outcome !== undefined);
  assert.ok(outcome instanceof Failure && outcome.code === "cancelled");
});

test("a client that asks before it sends is told to go on only when its body is wanted", async (t) => {
  const { port } = await listenFor(t, {
    async handle(request) {
      if (request.path === "/read") for await (const _ of request.body);
      return json(request.path === "/read" ? 200 : 409, {});
    },
    limits: { lingerMs: 50 },
  });
  const ask = (path: string) =>
    `POST ${path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n`;
  assert.match(await exchangeText(t, port, ask("/refuse")), /^HTTP\/1.1 409 /);
  assert.match(await exchangeText(t, port, `${ask("/read")}{}`), /^HTTP\/1.1 100 Continue[\s\S]*HTTP\/1.1 200 /);
});

test("an expectation that the server does not know is passed over", async (t) => {
  const { port } = await listenFor(t, { limits: { idleMs: 50 } });
  const answer = await exchangeText(t, port, GET.replace("Connection: close", "Expect: the-best"));
  assert.match(answer, /^HTTP\/1.1 200 /);
  assertSecure(answer);
  assert.doesNotMatch(answer, /^Connection: close/im);
});

test("what goes on is told: connections, requests, and those of them that wait", async (t) => {
  const going = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const listener = await listenFor(t, {
    caps: { all: 10, ofStranger: 10, onMet: () => {} },
    async handle(request) {
      if (request.path === "/wait") request.longPoll();
      await going[request.path === "/wait" ? 0 : 1]?.promise;
      return json(200, {});
    },
  });
  const loads = (load: ReturnType<typeof listener.load>) =>
    until(JSON.stringify(load), () => JSON.stringify(listener.load()) === JSON.stringify(load));
  assert.deepEqual(listener.load(), { connections: 0, requests: 0, waiting: 0 });
  const answers = ["/wait", "/work"].map((path) => exchangeText(t, listener.port, GET.replace("/", path)));
  await loads({ connections: 2, requests: 2, waiting: 1 });
  for (const { resolve } of going) resolve();
  for (const answer of answers) assert.match(await answer, /^HTTP\/1.1 200 /);
  await loads({ connections: 0, requests: 0, waiting: 0 });
  assert.equal((await listenFor(t, {})).load().connections, 0, "without caps none are counted");
});

test("an answer given before the body was read reaches the client, and the connection does not stay", async (t) => {
  const { port } = await listenFor(t, { handle: async () => json(413, {}), limits: { lingerMs: 1_000 } });
  const answer = await exchangeText(
    t,
    port,
    `POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 90000000\r\n\r\n${"x".repeat(500_000)}`,
  );
  assert.match(answer, /^HTTP\/1.1 413 /);
});

test("a request tells its parts: path and query as sent, peer, scheme, an id of its own", async (t) => {
  const seen: HttpRequest[] = [];
  const { port } = await listenFor(t, {
    async handle(request) {
      seen.push(request);
      return json(200, {});
    },
  });
  await exchangeText(t, port, GET.replace("/", "/%61//b?x=1?y"));
  await exchangeText(t, port, GET);
  const [first, second] = seen;
  assert.deepEqual([first?.path, first?.query, first?.peer, first?.scheme], ["/%61//b", "x=1?y", "127.0.0.1", "http"]);
  for (const request of seen) assert.match(request.id, /^[0-9a-f]{32}$/);
  assert.notEqual(first?.id, second?.id);
});

test("CP-339 an IPv4 client of an IPv6 socket is one peer with its IPv4 address", async (t) => {
  const seen: string[] = [];
  const { port } = await listenFor(t, {
    host: "::ffff:127.0.0.1",
    async handle({ peer }) {
      seen.push(peer);
      return json(200, {});
    },
  });
  await exchangeText(t, port, GET);
  assert.deepEqual(seen, ["127.0.0.1"]);
});

test("a HEAD request gets the headers alone", async (t) => {
  const { port } = await listenFor(t, { handle: async () => raw("text/plain", "four") });
  const answer = await exchangeText(t, port, GET.replace("GET", "HEAD"));
  assert.match(answer, /Content-Length: 4\r\n[\s\S]*\r\n\r\n$/);
});

test("a reason that cannot be found out leaves the one that was thrown", async (t) => {
  const reasons = [async () => new Failure("not_found", "gone"), () => Promise.reject(new Error("broken"))];
  const { port } = await listenFor(t, {
    handle: () => Promise.reject(new Failure("bucket_busy", "busy")),
    explain: () => (reasons.shift() as () => Promise<unknown>)(),
  });
  assert.match(await exchangeText(t, port, GET), / 404 [\s\S]*"gone"/);
  assert.match(await exchangeText(t, port, GET), / 409 [\s\S]*"busy"/);
});

test("a wait ends when its client leaves", async (t) => {
  const [waiting, ended] = [new Set<() => void>(), Promise.withResolvers<boolean>()];
  const { port } = await listenFor(t, {
    async handle(request) {
      request.longPoll();
      await woken(waiting, 600_000, request.signal);
      ended.resolve(request.signal.aborted);
      return json(200, {});
    },
  });
  const client = dial(t, port);
  client.write(GET);
  await until("the wait", () => waiting.size === 1);
  client.destroy();
  assert.equal(await ended.promise, true);
  assert.equal(waiting.size, 0);
});

test("closing answers long-polls at once and takes no new connections", async (t) => {
  let waiting = 0;
  const listener = await listenFor(t, {
    async handle(request) {
      waiting++;
      request.longPoll();
      await once(request.signal, "abort");
      return json(200, { woken: true });
    },
  });
  const answer = exchangeText(t, listener.port, GET.replace("Connection: close\r\n", ""));
  await until("the poll", () => waiting === 1);
  await listener.close(20_000);
  assert.match(await answer, /Connection: close\r\n[\s\S]*"woken":true/);
  await assert.rejects(exchangeText(t, listener.port, GET), { code: "ECONNREFUSED" });
});

test("closing waits no longer than told for a client that goes on", async (t) => {
  let waiting = false;
  const listener = await listenFor(t, {
    async handle() {
      waiting = true;
      await delay(60_000, undefined, { ref: false });
      return json(200, {});
    },
  });
  const answer = exchangeText(t, listener.port, GET);
  await until("the request", () => waiting);
  await listener.close(20);
  assert.equal(await answer, "");
});

for (const scheme of ["http", "https"])
  test(`closing ends connections of every kind: silent, in the middle of their headers, refused, idle (${scheme})`, async (t) => {
    const files = scheme === "https" ? await certificateFor(t) : undefined;
    const tls = files && { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
    // No limit of its own ends a connection while the test goes on.
    const limits = { headersMs: 600_000, idleMs: 600_000, lingerMs: 600_000 };
    const listener = await listenFor(t, { ...(tls && { tls }), limits });
    const silent = dial(t, listener.port);
    await once(silent, "connect");
    const open = async (text: string, answer: RegExp | undefined) => {
      // It ends nothing by itself: what ends is the server's doing.
      const where = { port: listener.port, host: "127.0.0.1", allowHalfOpen: true };
      const socket = tls ? connectTls({ ...where, ca: tls.cert }) : connect(where);
      t.after(() => socket.destroy());
      socket.on("error", () => {});
      socket.write(text);
      if (!answer) await once(socket, tls ? "secureConnect" : "connect");
      if (answer) assert.match(String((await once(socket, "data"))[0]), answer);
      return socket;
    };
    const others = [
      await open("GET / HTTP/1.1\r\nHos", undefined),
      await open("hello\r\n\r\n", / 400 /),
      await open("GET / HTTP/1.1\r\nHost: h\r\n\r\n", / 200 /),
    ];
    for (const socket of [silent, ...others]) socket.resume();
    await listener.close(50);
    await until("the end of all", () => [silent, ...others].every((one) => one.readableEnded || one.closed));
  });

test("CP-008 CP-031 CP-045 with a certificate it serves HTTPS with that certificate, and HSTS", async (t) => {
  const files = await certificateFor(t);
  const tls = { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
  let scheme = "";
  const { url } = await listenFor(t, {
    tls,
    async handle(request) {
      scheme = request.scheme;
      return json(200, {});
    },
  });
  const [response] = await once(httpsRequest(url, { ca: tls.cert, agent: false }).end(), "response");
  response.resume();
  assert.match(url, /^https:\/\/127\.0\.0\.1:\d+$/);
  assert.equal(response.statusCode, 200);
  assert.equal(response.headers["strict-transport-security"], "max-age=31536000");
  assert.equal(scheme, "https");
});

test("CP-031 a parser's refusal under TLS carries HSTS too", async (t) => {
  const files = await certificateFor(t);
  const tls = { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
  const { url } = await listenFor(t, { tls, limits: { lingerMs: 50 } });
  const headers = { "x-a": "a".repeat(1_258_291) };
  const [response] = await once(httpsRequest(url, { ca: tls.cert, agent: false, headers }).end(), "response");
  response.resume();
  assert.equal(response.statusCode, 431);
  assert.equal(response.headers["strict-transport-security"], "max-age=31536000");
});

test("a plain HTTP request to an HTTPS port gets no answer, and the server goes on", async (t) => {
  const files = await certificateFor(t);
  const tls = { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
  const { port, url } = await listenFor(t, { tls });
  await assert.rejects(once(httpRequest(url.replace("https", "http")).end(), "response"));
  assert.equal(await exchangeText(t, port, GET), "");
  const [response] = await once(httpsRequest(url, { ca: tls.cert, agent: false }).end(), "response");
  response.resume();
  assert.equal(response.statusCode, 200);
});

async function tlsPair(t: Parameters<typeof certificateFor>[0]) {
  const files = await certificateFor(t);
  return { cert: readFileSync(files.certFile, "utf8"), key: readFileSync(files.keyFile, "utf8") };
}

test("nothing older than TLS 1.2 is spoken, not even after the certificate was replaced", async (t) => {
  const pairs = [await tlsPair(t), await tlsPair(t)] as const;
  const listener = await listenFor(t, { tls: pairs[0] });
  const protocolOf = async (version: SecureVersion, ca: string) => {
    const socket = connectTls({
      host: "127.0.0.1",
      port: listener.port,
      ca,
      minVersion: version,
      maxVersion: version,
      // Without this OpenSSL would not even offer the old ones.
      ciphers: "DEFAULT:@SECLEVEL=0",
    });
    t.after(() => socket.destroy());
    await once(socket, "secureConnect");
    return socket.getProtocol();
  };
  for (const { cert } of pairs) {
    for (const version of ["TLSv1.2", "TLSv1.3"] as const) assert.equal(await protocolOf(version, cert), version);
    for (const version of ["TLSv1", "TLSv1.1"] as const) {
      await assert.rejects(protocolOf(version, cert), { code: /^(ERR_SSL_|ECONNRESET)/ });
    }
    listener.replaceTls(pairs[1]);
  }
});

test("a replaced certificate is shown to new connections, while older ones go on", async (t) => {
  const pairs = [await tlsPair(t), await tlsPair(t)] as const;
  const listener = await listenFor(t, { tls: pairs[0] });
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  t.after(() => agent.destroy());
  const ask = async (ca: string, via: Agent | false) => {
    const [response] = await once(httpsRequest(listener.url, { ca, agent: via }).end(), "response");
    await response.toArray();
    return response.statusCode;
  };
  assert.equal(await ask(pairs[0].cert, agent), 200);
  listener.replaceTls(pairs[1]);
  assert.equal(await ask(pairs[1].cert, false), 200);
  await assert.rejects(ask(pairs[0].cert, false), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
  assert.equal(await ask(pairs[0].cert, agent), 200);
});
