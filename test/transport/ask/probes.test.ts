import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer as createHttpServer, type RequestListener } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type ProbeTarget, probe } from "../../../lib/transport/ask/probes.ts";
import { patience } from "../../../scripts/patience.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";
import { answeringWorker, contentOf, processesIn, temporaryWorker } from "../../helpers/worker.ts";

async function listening(t: TestContext, server: Server, host = "127.0.0.1"): Promise<number> {
  const sockets = new Set<Socket>();
  server.on("connection", (socket: Socket) => sockets.add(socket));
  server.listen(0, host);
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

function tcp(port: number, rest: Partial<ProbeTarget> = {}): ProbeTarget {
  return { type: "tcp", host: "127.0.0.1", port, timeoutMs: patience(5_000), ...rest } as ProbeTarget;
}

function http(port: number, rest: Record<string, unknown> = {}): ProbeTarget {
  const usual = { scheme: "http", host: "127.0.0.1", path: "/", expectStatus: 200, timeoutMs: patience(5_000) };
  return { type: "http", port, ...usual, ...rest } as ProbeTarget;
}

async function serving(t: TestContext, answer: RequestListener, host?: string): Promise<number> {
  return listening(t, createHttpServer(answer), host);
}

async function freePort(t: TestContext): Promise<number> {
  const server = createServer();
  const port = await listening(t, server);
  server.close();
  await once(server, "close");
  return port;
}

test("HR-061 a tcp probe passes where something listens and fails where nothing does", async (t) => {
  const port = await listening(t, createServer());
  const passed = await probe(tcp(port));
  assert.deepEqual([passed.ok, passed.evidence], [true, `tcp 127.0.0.1:${port}: connected`]);
  assert.ok(passed.durationMs > 0);
  const dead = await freePort(t);
  const failed = await probe(tcp(dead));
  assert.deepEqual([failed.ok, failed.evidence], [false, `tcp 127.0.0.1:${dead}: connection refused`]);
});

test("HR-062 an http probe passes by the expected status alone", async (t) => {
  const asked: string[] = [];
  const port = await serving(t, (request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers.host}`);
    response.writeHead(request.url === "/teapot" ? 418 : 200).end("hello\n\x1b[31m there");
  });
  const passed = await probe(http(port));
  assert.deepEqual([passed.ok, passed.evidence], [true, `GET http://127.0.0.1:${port}/: status 200: hello  there`]);
  assert.equal((await probe(http(port, { path: "/teapot", expectStatus: 418 }))).ok, true);
  const failed = await probe(http(port, { path: "/teapot?x=1", expectStatus: 204 }));
  assert.equal(failed.ok, false);
  assert.match(failed.evidence, /: status 200 instead of 204: hello/);
  assert.deepEqual(
    asked.map((line) => line.split(" ").slice(0, 2).join(" ")),
    ["GET /", "GET /teapot", "GET /teapot?x=1"],
  );
  assert.ok(asked[0]?.endsWith(`127.0.0.1:${port}`));
});

test("a probe that is over leaves no connection, whatever was answered", async (t) => {
  const sockets: Socket[] = [];
  const serve = async (answer: (socket: Socket) => void) => {
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      sockets.push(socket.on("error", () => {}));
      answer(socket);
    });
    return await listening(t, server);
  };
  const says = (text: string) => serve((socket) => void socket.once("data", () => socket.write(text)));
  const found = [
    await probe(tcp(await serve((socket) => void socket.resume()))),
    await probe(http(await says("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))),
    await probe(http(await says("HTTP/1.1 204 No Content\r\n\r\n"), { expectStatus: 204 })),
    await probe(http(await says(`HTTP/1.1 200 OK\r\n\r\n${"x".repeat(5_000)}`))),
    await probe(http(await says("HTTP/1.1 200 OK\r\n\r\nhalf"), { timeoutMs: 50 })),
    await probe(http(await says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n"))),
    await probe(http(await says("nonsense\r\n\r\n"))),
  ];
  assert.deepEqual(
    found.map(({ ok }) => ok),
    [true, true, true, true, true, true, false],
  );
  await until("all connections to end", () => sockets.every((socket) => socket.readableEnded || socket.destroyed));
});

test("an http probe follows no redirect", async (t) => {
  const asked: string[] = [];
  const port = await serving(t, (request, response) => {
    asked.push(request.url ?? "");
    response.writeHead(302, { location: "/elsewhere" }).end();
  });
  assert.equal((await probe(http(port))).ok, false);
  assert.equal((await probe(http(port, { expectStatus: 302 }))).ok, true);
  assert.deepEqual(asked, ["/", "/"]);
});

test("of an answer without end only the first 2 KiB is read", async (t) => {
  const port = await serving(t, (_request, response) => {
    const more = () => {
      while (!response.destroyed && response.write("x".repeat(4096)));
    };
    response.on("drain", more);
    more();
  });
  const found = await probe(http(port));
  assert.deepEqual([found.ok, found.evidence.match(/x+/)?.[0].length], [true, 2048]);
});

test("the beginning of an answer is evidence also where it comes in pieces", async (t) => {
  const port = await serving(t, (_, response) => {
    response.write("sl", () => setTimeout(() => response.end("ow"), 20));
  });
  assert.equal((await probe(http(port))).evidence.endsWith("status 200: slow"), true);
});

test("the status counts also where the body breaks off", async (t) => {
  const port = await listening(
    t,
    createServer((socket) => {
      socket.once("data", () => socket.end("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"));
    }),
  );
  const found = await probe(http(port));
  assert.deepEqual([found.ok, found.evidence.split(": ").at(-1)], [true, "half"]);
});

const CLOSED = /: the connection was closed without an answer$/;
for (const [what, answer, evidence] of [
  ["no HTTP", "SSH-2.0-OpenSSH_9.9\r\n\r\n", /Parse Error/],
  ["nothing", "", CLOSED],
  ["headers without end", `HTTP/1.1 200 OK\r\nX: ${"x".repeat(100_000)}`, /Header overflow$/],
  ["a switch to another protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", CLOSED],
] as const)
  test(`an http probe of a peer that answers ${what} fails`, async (t) => {
    const server = createServer((socket) => {
      socket.on("error", () => {}).once("data", () => socket.end(answer));
    });
    const found = await probe(http(await listening(t, server)));
    assert.equal(found.ok, false);
    assert.ok(found.evidence.length < 1200, found.evidence);
    assert.match(found.evidence, evidence);
  });

test("an https probe of what speaks no TLS says that the handshake failed", async (t) => {
  const port = await serving(t, (_request, response) => response.end());
  const found = await probe(http(port, { scheme: "https" }));
  assert.deepEqual([found.ok, found.evidence], [false, `GET https://127.0.0.1:${port}/: the TLS handshake failed`]);
});

for (const [type, make] of [
  ["tcp", (port: number) => tcp(port, { host: "::1" })],
  ["http", (port: number) => http(port, { host: "::1" })],
] as const)
  test(`a ${type} probe reaches an IPv6 host and names it in brackets`, async (t) => {
    const port = await serving(t, (_request, response) => response.end(), "::1");
    const found = await probe(make(port));
    assert.equal(found.ok, true);
    assert.ok(found.evidence.includes(`[::1]:${port}`), found.evidence);
  });

test("a peer that accepts and says nothing costs no more than the probe's time", async (t) => {
  const port = await listening(t, createServer());
  for (const signal of [undefined, new AbortController().signal]) {
    const found = await probe(http(port, { timeoutMs: 30 }), signal);
    assert.deepEqual([found.ok, found.evidence], [false, `GET http://127.0.0.1:${port}/: no answer within 0.03 s`]);
  }
});

test("what cannot be asked for is a failed probe, not an error", async () => {
  for (const target of [http(1, { path: "/a b" }), http(99_999), tcp(99_999), tcp(80, { host: "no.such.invalid" })])
    assert.equal((await probe(target)).ok, false);
});

test("an https probe trusts the CA it is given and no stranger", async (t) => {
  const folder = temporaryFolder(t);
  const [key, cert] = ["key.pem", "cert.pem"].map((name) => path.join(folder, name)) as [string, string];
  const subject = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"];
  const kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  execFileSync("openssl", ["req", ...kind, ...subject, "-keyout", key, "-out", cert], { stdio: "ignore" });
  const ca = await readFile(cert, "utf8");
  const server = createHttpsServer({ key: await readFile(key), cert: ca }, (_request, response) => response.end("ok"));
  const port = await listening(t, server);
  assert.equal((await probe(http(port, { scheme: "https", ca }))).ok, true);
  const stranger = await probe(http(port, { scheme: "https" }));
  assert.equal(stranger.ok, false);
  assert.match(stranger.evidence, /self-signed certificate/);
});

test("HR-063 a command probe passes by exit code 0 of its command line on the worker", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  const run = (command: string, timeoutMs = patience(5_000)) => probe({ type: "ssh", transport, command, timeoutMs });
  const passed = await run('test "$(pwd -P)" = "$PWD" && echo fine | tr a-z A-Z');
  assert.deepEqual([passed.ok, passed.evidence], [true, "command on 127.0.0.1: exit code 0: FINE"]);
  const failed = await run("echo no >&2; exit 7");
  assert.deepEqual([failed.ok, failed.evidence], [false, "command on 127.0.0.1: exit code 7"]);
  assert.deepEqual(
    failed.said?.shown((text) => text),
    ["no"],
  );
  assert.match((await run("sleep 600", 30)).evidence, /no answer within 0\.03 s$/);
  assert.deepEqual(processesIn(folder), []);
});

test("HR-064 HR-065 a command probe starts nothing else, writes nothing and gets no batch variables", async (t) => {
  const { transport, folder } = await temporaryWorker(t);
  const found = await probe({ type: "ssh", transport, command: "env", timeoutMs: patience(5_000) });
  assert.equal(found.ok, true);
  assert.doesNotMatch(found.evidence, /BATCH_/);
  assert.deepEqual(await contentOf(folder), {});
});

test("a worker that cannot be reached is a failed probe", async (t) => {
  const { transport } = await temporaryWorker(t);
  const broken = { ...transport, script: () => Promise.reject(new Error("Cannot reach worker 127.0.0.1")) };
  const found = await probe({ type: "ssh", transport: broken, command: "true", timeoutMs: patience(5_000) });
  assert.deepEqual([found.ok, found.evidence], [false, "command on 127.0.0.1: Cannot reach worker 127.0.0.1"]);
});

test("a cancel ends every kind of probe and is no verdict", async (t) => {
  const silent = await listening(t, createServer());
  const { transport, folder } = await temporaryWorker(t);
  const targets: ProbeTarget[] = [
    http(silent, { timeoutMs: 600_000 }),
    http(silent, { scheme: "https", timeoutMs: 600_000 }),
    { type: "ssh", transport, command: "sleep 600", timeoutMs: 600_000 },
  ];
  for (const target of targets) {
    const stop = new AbortController();
    const running = probe(target, stop.signal);
    setTimeout(() => stop.abort(), 30);
    await assert.rejects(running, { code: "cancelled" });
  }
  assert.deepEqual(processesIn(folder), []);
  await assert.rejects(probe(tcp(silent), AbortSignal.abort()), { code: "cancelled" });
  const { transport: worker, asked } = answeringWorker();
  const command: ProbeTarget = { type: "ssh", transport: worker, command: "true", timeoutMs: 1 };
  await assert.rejects(probe(command, AbortSignal.abort()), { code: "cancelled" });
  assert.deepEqual(asked, []);
});
