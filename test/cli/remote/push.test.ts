import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { type Layout, layoutOf } from "../../../lib/bucket/base/layout.ts";
import { receiveSource } from "../../../lib/bucket/source/source.ts";
import { openClient, parseBaseUrl } from "../../../lib/cli/remote/client.ts";
import { followRun } from "../../../lib/cli/remote/follow.ts";
import { push } from "../../../lib/cli/remote/push.ts";
import { bucketNamed, RemoteBucket } from "../../../lib/cli/remote/remote-bucket.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { Launcher } from "../../../lib/core/spawn.ts";
import { NO_DEPLOY, type Progress } from "../../../lib/run/progress.ts";
import { ops } from "../../helpers/command-line.ts";
import { HOSTILE, OBEYED } from "../../helpers/hostile.ts";
import { EXAMPLE, writeTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const BUCKET = "0198f3a2-0000-7000-8000-00000000000a";
const RUN = uuidV7();
const TOKEN = "a-token";

type Handler = (request: IncomingMessage, response: ServerResponse) => unknown;
type Routes = Record<string, Handler>;

function answer(status: number, body: unknown): Handler {
  return (_, response) => {
    response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
  };
}

/** The run as the API shows it once it has ended. */
function ended(status: string, error: string | null): Handler {
  return answer(200, { id: RUN, status, error, result: {} });
}

/** Each call of the route gets the next handler; the last one stays. */
function inTurn(...handlers: Handler[]): Handler {
  return (request, response) => (handlers.length > 1 ? handlers.shift() : handlers[0])?.(request, response);
}

/** A server that plays the API as docs/api.md has it, with some of its routes replaced. */
function routesOf(replaced: Routes): Routes {
  const base = `/api/buckets/${BUCKET}`;
  const chunk = (data: string, after: number, done: boolean) =>
    answer(200, { run_id: RUN, status: "running", after, next: after + data.length, data, done });
  return {
    "POST /api/auth/totp/verify": async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      const isRight = Buffer.concat(chunks).toString() === '{"code":"123456"}';
      response.setHeader("Set-Cookie", isRight ? "ops_totp_session=a.b; Path=/; Secure" : []);
      const refusal = { error: "invalid_totp_code", message: "wrong" };
      answer(isRight ? 200 : 401, isRight ? { expires_at: "" } : refusal)(request, response);
    },
    [`POST ${base}/push`]: async (request, response) => {
      for await (const _ of request);
      answer(202, { run_id: RUN })(request, response);
    },
    [`GET ${base}/runs/${RUN}/logs?after=0&timeout=30`]: chunk("first\n", 0, false),
    [`GET ${base}/runs/${RUN}/logs?after=6&timeout=30`]: inTurn(chunk("", 6, false), chunk("second\n", 6, false)),
    [`GET ${base}/runs/${RUN}/logs?after=13&timeout=30`]: chunk("", 13, true),
    [`GET ${base}`]: answer(200, { id: BUCKET }),
    [`GET ${base}/runs/${RUN}`]: ended("succeeded", null),
    ...Object.fromEntries(Object.entries(replaced).map(([key, handler]) => [key.replace(" ", ` ${base}`), handler])),
  };
}

const PUSH = "POST /push";
const DETAIL = `GET /runs/${RUN}`;
const CANCEL = `POST /runs/${RUN}/cancel`;
const LOGS = (after: number) => `GET /runs/${RUN}/logs?after=${after}&timeout=30`;

interface Played {
  url: string;
  requests: string[];
}

async function play(t: TestContext, replaced: Routes = {}, tls?: { cert: string; key: string }): Promise<Played> {
  const routes = routesOf(replaced);
  const requests: string[] = [];
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    const name = `${request.method} ${request.url}`;
    requests.push(name.replace(`/api/buckets/${BUCKET}`, ""));
    if (request.headers.authorization === `Bearer ${TOKEN}`)
      return (routes[name] ?? answer(404, { error: "not_found", message: `no ${name}` }))(request, response);
    request.resume();
    return answer(401, { error: "unauthorized", message: "the token is wrong" })(request, response);
  };
  const server: Server = tls ? createTlsServer(tls, listener) : createServer(listener);
  server.listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { url: `${tls ? "https" : "http"}://127.0.0.1:${port}`, requests };
}

interface Attempt {
  exit: number;
  output: string;
  progress: string[];
}

interface Given {
  bucket?: string;
  dir?: string;
  note?: string;
  token?: string;
  caFile?: string;
  totp?: string;
  signal?: AbortSignal;
  insisted?: Promise<void>;
  isDetached?: boolean;
  progress?: (text: string) => void;
  output?: (text: string) => void;
}

async function attempt(t: TestContext, url: string, given: Given = {}): Promise<Attempt> {
  const source = temporaryFolder(t);
  writeTree(source, EXAMPLE);
  const found: Attempt = { exit: -1, output: "", progress: [] };
  const { token = TOKEN, caFile, totp, dir = source, note, signal = new AbortController().signal } = given;
  const client = await openClient(parseBaseUrl(url), { token, caFile });
  if (totp !== undefined) await client.verifyTotp(totp);
  const bucket = new RemoteBucket(client, await bucketNamed(client, given.bucket ?? BUCKET));
  const follower = {
    signal,
    insisted: given.insisted,
    tell: given.progress ?? ((text: string) => void found.progress.push(text)),
    output:
      given.output ??
      ((text: string) => {
        found.output += text;
      }),
    patienceMs: 1_000,
  };
  found.exit = await push(bucket, { dir, note, isDetached: given.isDetached ?? false }, follower);
  return found;
}

test("a push sends the source with the token, follows the build and answers 0", async (t) => {
  const layout: Layout = layoutOf(temporaryFolder(t));
  const headers: IncomingMessage["headers"][] = [];
  const server = await play(t, {
    [PUSH]: async (request, response) => {
      headers.push(request.headers);
      await receiveSource(layout, request, false, new AbortController().signal);
      answer(202, { run_id: RUN })(request, response);
    },
  });
  const dir = temporaryFolder(t);
  writeTree(dir, EXAMPLE);
  const { exit, output, progress } = await attempt(t, `${server.url}/`, { dir, bucket: BUCKET.toUpperCase() });
  assert.deepEqual([exit, output], [0, "first\nsecond\n"]);
  assert.deepEqual(server.requests, [PUSH, LOGS(0), LOGS(6), LOGS(6), LOGS(13), DETAIL]);
  assert.equal(headers[0]?.["content-type"], "application/x-tar");
  assert.equal(headers[0]?.["transfer-encoding"], "chunked");
  assert.equal(headers[0]?.["ops-commit"], undefined, "the folder is not in Git");
  assert.deepEqual(progress, ["sending 6 files, 80 B", `the source was accepted; run ${RUN} builds it`, "the build succeeded"]);
});

test("a push that is not followed answers the id of its run, once the source is accepted", async (t) => {
  const server = await play(t);
  const { exit, output } = await attempt(t, server.url, { isDetached: true });
  assert.deepEqual([exit, output, server.requests], [0, `${RUN}\n`, [PUSH]]);
});

for (const [status, error, exit, sentence] of [
  ["failed", "workspace/workers.json: expected a list", 1, "the build failed: workspace/workers.json: expected a list"],
  ["cancelled", null, 130, "the build cancelled"],
] as const)
  test(`a build that ended ${status} is answered as ${exit}`, async (t) => {
    const server = await play(t, { [DETAIL]: ended(status, error) });
    const result = await attempt(t, server.url);
    assert.equal(result.exit, exit);
    assert.equal(result.progress.at(-1), sentence);
  });

test("nothing that a server says is obeyed by a terminal: a run's Activity, its error, and a refusal", async (t) => {
  const dir = temporaryFolder(t);
  writeTree(dir, EXAMPLE);
  const servers: Routes[] = [
    {
      [LOGS(0)]: answer(200, { next: 6, data: `said ${HOSTILE}\n`, done: true }),
      [DETAIL]: ended("failed", `reason ${HOSTILE}`),
    },
    {
      [PUSH]: answer(400, {
        error: "invalid_source",
        message: `refused ${HOSTILE}`,
        details: [{ path: `path ${HOSTILE}`, message: `problem ${HOSTILE}` }],
      }),
    },
  ];
  const said: string[] = [];
  for (const routes of servers) {
    const { url } = await play(t, routes);
    const args = ["push", url, "--bucket", BUCKET, "--dir", dir];
    const { code, stdout, stderr } = await ops(args, { env: { OPS_SERVE_TOKEN: TOKEN } });
    assert.equal(code, 1);
    said.push(stdout, stderr);
  }
  for (const word of ["said", "reason", "refused", "path", "problem"])
    assert.ok(said.join("").includes(`${word} \\x1b]52;c;aGk=`), word);
  assert.doesNotMatch(said.join(""), OBEYED);
});

/** A bucket whose source takes a while to send. */
function largeBucket(t: TestContext): string {
  const dir = temporaryFolder(t);
  writeTree(dir, { "workspace/large": "x".repeat(24 * 1024 * 1024) });
  return dir;
}

const BUSY = "bucket busy: another ops operation is in progress";
const HOLDER = { holder: "process 7 on host since 12:00, doing build" };
const ENTRY = { path: "workspace/x", message: "a symbolic link is not allowed" };

const refusals: [string, number, object, string, string][] = [
  ["a busy bucket", 409, { error: "bucket_busy", message: BUSY, details: HOLDER }, "bucket_busy", BUSY],
  ["another conflict", 409, { error: "bucket_not_initialized", message: "run init" }, "bucket_not_initialized", "run init"],
  ["an unknown bucket", 404, { error: "bucket_not_found", message: "no such bucket" }, "bucket_not_found", "no such bucket"],
  ["a large body", 413, { error: "payload_too_large", message: "too large" }, "payload_too_large", "too large"],
  [
    "problems",
    400,
    { error: "invalid_source", message: "the archive breaks a rule", details: [ENTRY] },
    "invalid_source",
    "the archive breaks a rule\n  workspace/x: a symbolic link is not allowed",
  ],
  [
    "a problem that the sentence tells",
    400,
    { error: "invalid_source", message: `archive entry 3 (workspace/x): ${ENTRY.message}`, details: [ENTRY] },
    "invalid_source",
    `archive entry 3 (workspace/x): ${ENTRY.message}`,
  ],
];

for (const [what, status, body, code, message] of refusals)
  test(`a server that refuses with ${what} before the upload is shown with its own sentence`, async (t) => {
    const refuse: Handler = (request, response) => {
      request.resume();
      answer(status, body)(request, response);
    };
    const server = await play(t, { [PUSH]: refuse });
    for (const dir of [undefined, largeBucket(t)]) {
      const details = (body as { details?: unknown }).details;
      await assert.rejects(attempt(t, server.url, dir === undefined ? {} : { dir }), { code, message, details });
    }
    assert.deepEqual(server.requests, [PUSH, PUSH]);
  });

test("a refusal in the middle of the upload is shown and ends the upload", async (t) => {
  let received = 0;
  const refuse: Handler = async (request, response) => {
    for await (const chunk of request.iterator({ destroyOnReturn: false })) {
      received += chunk.length;
      if (received > 1024 * 1024) break;
    }
    answer(400, { error: "invalid_source", message: "archive entry 1: no" })(request, response);
  };
  const server = await play(t, { [PUSH]: refuse });
  const pushing = attempt(t, server.url, { dir: largeBucket(t) });
  await assert.rejects(pushing, { code: "invalid_source", message: "archive entry 1: no" });
  assert.ok(received < 24 * 1024 * 1024);
});

test("T-21 a wrong token is shown with the server's sentence", async (t) => {
  const server = await play(t);
  await assert.rejects(attempt(t, server.url, { token: "wrong" }), { code: "unauthorized", message: "the token is wrong" });
});

const broken: [string, Handler, RegExp][] = [
  ["resets the connection", (request) => request.socket.resetAndDestroy(), /the connection was closed without an/],
  ["closes the connection", (request) => request.socket.destroy(), /the connection was closed without an answer/],
  ["answers a page", (_, response) => response.writeHead(500).end("<html>"), /answered 500 and no reason; is it an/],
  ["is behind a proxy and away", (_, response) => response.writeHead(502).end("<html>"), /a proxy answered 502/],
  ["redirects", (_, response) => response.writeHead(301, { Location: "/x" }).end(), /answered 301 and no reason/],
  ["answers no JSON", (_, response) => response.writeHead(202).end("ok"), /answered 202 and no reason/],
  ["answers another JSON", answer(202, { run_id: "../../x" }), /Cannot understand the server's answer: run_id expected/],
  ["answers without end", (_, response) => void response.write(Buffer.alloc(17 << 20)), /more than 16777216 bytes/],
  ["cuts its answer", (_, response) => cut(response), /Cannot reach http:\/\/127/],
];

function cut(response: ServerResponse): void {
  response.writeHead(202, { "Content-Length": "100" }).write("{", () => response.destroy());
}

for (const [what, handler, message] of broken)
  test(`a server that ${what} is one clear sentence`, async (t) => {
    const server = await play(t, { [PUSH]: handler });
    await assert.rejects(attempt(t, server.url), { code: "failed", message });
    assert.deepEqual([...new Set(server.requests)], [PUSH]);
  });

test("a lost connection while following is tried again, and the text goes on where it was", async (t) => {
  const reset: Handler = (request) => request.socket.resetAndDestroy();
  const data = { next: 13, data: "second\n", done: false };
  const server = await play(t, { [LOGS(6)]: inTurn(reset, answer(200, data)) });
  const { exit, output } = await attempt(t, server.url);
  assert.deepEqual([exit, output], [0, "first\nsecond\n"]);
});

test("a TOTP code is verified once, before the source is sent; its cookie goes with every request after that", async (t) => {
  const cookies: (string | undefined)[] = [];
  const noted: Handler = async (request, response) => {
    cookies.push(request.headers.cookie);
    for await (const _ of request);
    answer(202, { run_id: RUN, status: "succeeded", error: null, result: {} })(request, response);
  };
  const server = await play(t, { [PUSH]: noted, [DETAIL]: noted });
  assert.equal((await attempt(t, server.url, { totp: "123456" })).exit, 0);
  assert.deepEqual(cookies, ["ops_totp_session=a.b", "ops_totp_session=a.b"]);
  assert.deepEqual(server.requests.slice(0, 2), ["POST /api/auth/totp/verify", PUSH]);
  await assert.rejects(attempt(t, server.url, { totp: "654321" }), { code: "invalid_totp_code", message: "wrong" });
  assert.equal(server.requests.at(-1), "POST /api/auth/totp/verify");
});

test("a TOTP session that ends while following is told, and that the run goes on", async (t) => {
  const required = answer(403, { error: "totp_required", message: "a TOTP code is needed" });
  const server = await play(t, { [LOGS(6)]: required });
  const progress: string[] = [];
  const told = { totp: "123456", progress: (text: string) => void progress.push(text) };
  const message = "the server asks for a TOTP code: give a fresh one with --totp, or sign in with `ops login`";
  await assert.rejects(attempt(t, server.url, told), { code: "totp_required", message });
  assert.equal(progress.at(-1), `run ${RUN} goes on as far as is known here; \`ops runs follow ${RUN.slice(-8)}\` shows it`);
});

test("a refusal while following is not tried again", async (t) => {
  const server = await play(t, { [LOGS(6)]: answer(404, { error: "run_not_found", message: "no run" }) });
  await assert.rejects(attempt(t, server.url), { code: "run_not_found", message: "no run" });
  assert.deepEqual(server.requests, [PUSH, LOGS(0), LOGS(6)]);
});

/** The log of a run that is being followed when the person wants to stop; the run has ended at the next question. */
function interrupted(stop: AbortController): Routes {
  const end = answer(200, { run_id: RUN, status: "cancelled", after: 6, next: 6, data: "", done: true });
  const asked = Promise.withResolvers<void>();
  return {
    [LOGS(6)]: async (request, response) => {
      stop.abort();
      await asked.promise;
      end(request, response);
    },
    [CANCEL]: (request, response) => {
      answer(202, { id: RUN, status: "running" })(request, response);
      asked.resolve();
    },
    [DETAIL]: ended("cancelled", "cancelled"),
  };
}

test("an interrupt while following cancels the run, and the push ends with the run: 130", async (t) => {
  const stop = new AbortController();
  const server = await play(t, interrupted(stop));
  const { exit, progress } = await attempt(t, server.url, { signal: stop.signal });
  assert.equal(exit, 130);
  assert.ok(progress.includes("asked the server to cancel the run; a second interrupt leaves the run alone"), progress.join());
  assert.equal(progress.at(-1), "the build cancelled: cancelled");
  assert.deepEqual(server.requests, [PUSH, LOGS(0), LOGS(6), CANCEL, DETAIL]);
});

test("a second interrupt leaves the run alone, and says so", async (t) => {
  const stop = new AbortController();
  const insist = Promise.withResolvers<void>();
  const server = await play(t, { [LOGS(6)]: () => stop.abort(), [CANCEL]: () => insist.resolve() });
  const { exit, progress } = await attempt(t, server.url, { signal: stop.signal, insisted: insist.promise });
  assert.equal(exit, 130);
  assert.equal(progress.at(-1), `run ${RUN} is left alone; \`ops runs follow ${RUN.slice(-8)}\` shows it`);
});

test("whoever follows a run sees how far it is, and at its end how many workers had confirmed a cancel", async (t) => {
  const seen = Promise.withResolvers<Progress>();
  const told: string[] = [];
  const progress = {
    ...NO_DEPLOY,
    phase: "stop",
    done: 2,
    total: 5,
    rollouts: [],
    waiting: [],
    cancel: { confirmed: 3, total: 4 },
  };
  const running = answer(200, { id: RUN, status: "running", error: null, result: null, progress });
  const logs: Handler = async (request, response) => {
    await seen.promise;
    answer(200, { next: 0, data: "", done: true })(request, response);
  };
  const server = await play(t, { [LOGS(0)]: logs, [DETAIL]: inTurn(running, ended("cancelled", "cancelled")) });
  const bucket = new RemoteBucket(await openClient(parseBaseUrl(server.url), { token: TOKEN }), BUCKET);
  const tell = (text: string) => void told.push(text);
  const follower = { signal: new AbortController().signal, tell, output: tell, progress: seen.resolve, patienceMs: 30_000 };
  assert.equal((await followRun(bucket, RUN, follower)).status, "cancelled");
  assert.deepEqual([await seen.promise, told], [progress, ["cancelled: 3 of 4 confirmed to have ended"]]);
});

test("a cancel that the server refuses is told", async (t) => {
  const stop = new AbortController();
  const refused = answer(403, { error: "totp_required", message: "a TOTP code is needed" });
  const { [CANCEL]: accepted, ...routes } = interrupted(stop);
  const cancel: Handler = (request, response) => {
    refused(request, response);
    accepted?.(request, { writeHead: () => ({ end() {} }) } as unknown as ServerResponse);
  };
  const server = await play(t, { ...routes, [CANCEL]: cancel });
  const { exit, progress } = await attempt(t, server.url, { signal: stop.signal });
  assert.equal(exit, 130);
  assert.match(progress.join("\n"), /Cannot cancel the run: the server asks for a TOTP code/);
});

test("a run that is left alone is not cancelled any more by a request that was still tried", async (t) => {
  const stop = new AbortController();
  const insist = Promise.withResolvers<void>();
  let cancels = 0;
  const lost: Handler = (request) => {
    cancels++;
    request.socket.resetAndDestroy();
    insist.resolve();
  };
  const server = await play(t, { [LOGS(6)]: () => stop.abort(), [CANCEL]: lost });
  await attempt(t, server.url, { signal: stop.signal, insisted: insist.promise });
  const tried = cancels;
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal(cancels, tried);
});

test("an interrupt after all of the source was sent waits for the answer, and cancels the run", async (t) => {
  const stop = new AbortController();
  const routes = interrupted(stop);
  const push: Handler = async (request, response) => {
    for await (const _ of request);
    stop.abort();
    setTimeout(() => answer(202, { run_id: RUN })(request, response), 100);
  };
  const server = await play(t, { ...routes, [PUSH]: push });
  const { exit } = await attempt(t, server.url, { signal: stop.signal });
  assert.equal(exit, 130);
  assert.ok(server.requests.includes(CANCEL), server.requests.join());
});

test("an interrupt while a run is started that nobody would follow cancels the run", async (t) => {
  const stop = new AbortController();
  const push: Handler = async (request, response) => {
    for await (const _ of request);
    stop.abort();
    answer(202, { run_id: RUN })(request, response);
  };
  const server = await play(t, { ...interrupted(stop), [PUSH]: push });
  const { exit, output } = await attempt(t, server.url, { signal: stop.signal, isDetached: true });
  assert.deepEqual([exit, output.includes(RUN)], [130, false]);
  assert.ok(server.requests.includes(CANCEL));
});

test("a proxy that finds no server for a moment is waited for", async (t) => {
  const away: Handler = (_, response) => response.writeHead(502).end("<html>");
  const data = { next: 13, data: "second\n", done: false };
  const server = await play(t, {
    [LOGS(6)]: inTurn(away, away, answer(200, data)),
    [DETAIL]: inTurn(away, ended("succeeded", null)),
  });
  const { exit, output } = await attempt(t, server.url);
  assert.deepEqual([exit, output], [0, "first\nsecond\n"]);
});

test("a run whose process was killed has told nothing: its error is told, once", async (t) => {
  const error = "the run's process ended by signal SIGKILL before it reported a result";
  const routes = (data: string): Routes => ({
    "POST /build": answer(202, { run_id: RUN }),
    [LOGS(0)]: answer(200, { next: data.length, data, done: true }),
    [DETAIL]: ended("failed", error),
  });
  for (const said of ["", `error: build failed: ${error}\n`]) {
    const { url } = await play(t, routes(said));
    for (const flags of [[], ["--json"]]) {
      const env = { OPS_SERVE_TOKEN: TOKEN, OPS_SERVER: url, OPS_BUCKET: BUCKET };
      const { code, stderr } = await ops(["build", ...flags], { env });
      assert.deepEqual([code, stderr.split(error).length - 1], [1, 1], stderr);
    }
  }
});

test("an abort during the upload ends it and answers 130 without a cancel", async (t) => {
  const stop = new AbortController();
  const server = await play(t, { [PUSH]: (request) => request.once("data", () => stop.abort()) });
  const { exit } = await attempt(t, server.url, { signal: stop.signal, dir: largeBucket(t) });
  assert.equal(exit, 130);
  assert.deepEqual(server.requests, [PUSH]);
});

test("T-52 what cannot be packed is refused before anything is sent", async (t) => {
  const server = await play(t);
  const dir = temporaryFolder(t);
  await assert.rejects(attempt(t, server.url, { dir }), { code: "invalid_source", message: /no workspace/ });
  assert.deepEqual(server.requests, []);
});

test("a large upload says how far it is", async (t) => {
  const server = await play(t);
  const { progress } = await attempt(t, server.url, { dir: largeBucket(t) });
  assert.ok(progress.includes("sending 1 file, 24 MiB"), progress.join("\n"));
  assert.equal(progress.filter((text) => /^sent (\d\.\d|\d\d) MiB of 24 MiB$/.test(text)).length, 3);
});

test("a host that nobody serves or knows is one clear sentence", async (t) => {
  const { port } = await new Promise<AddressInfo>((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const address = server.address() as AddressInfo;
      server.close(() => resolve(address));
    });
  });
  const refused = attempt(t, `http://127.0.0.1:${port}`);
  await assert.rejects(refused, { code: "failed", message: /Cannot reach .*: the connection was refused/ });
  const unknown = attempt(t, "https://no-such-host.invalid");
  await assert.rejects(unknown, { code: "failed", message: /Cannot reach .*: the host name is not known/ });
});

async function certificate(t: TestContext): Promise<{ cert: string; key: string; file: string }> {
  const folder = temporaryFolder(t);
  const [key, file] = [path.join(folder, "key.pem"), path.join(folder, "cert.pem")];
  const subject = ["-subj", "/CN=ops test", "-addext", "subjectAltName=IP:127.0.0.1"];
  const newKey = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key];
  const outcome = await new Launcher(process.env).run([
    "openssl",
    "req",
    "-x509",
    ...newKey,
    "-out",
    file,
    "-days",
    "2",
    ...subject,
  ]);
  assert.equal(outcome.exitCode, 0, outcome.stderr);
  return { cert: readFileSync(file, "utf8"), key: readFileSync(key, "utf8"), file };
}

test("over TLS only a trusted certificate is talked to, and --ca-file adds one", async (t) => {
  const { file, ...tls } = await certificate(t);
  const server = await play(t, {}, tls);
  const untrusted = /its certificate is not trusted \(.*\); name the CA it is from with --ca-file/;
  await assert.rejects(attempt(t, server.url), { code: "failed", message: untrusted });
  assert.deepEqual(server.requests, []);
  assert.equal((await attempt(t, server.url, { caFile: file })).exit, 0);
});

test("a server that speaks no TLS is one clear sentence", async (t) => {
  const server = await play(t);
  const pushing = attempt(t, server.url.replace("http:", "https:"));
  await assert.rejects(pushing, { code: "failed", message: /does not speak this protocol/ });
});

const unusable: [string, Given, RegExp][] = [
  ["an empty token", { token: "" }, /Cannot use the token/],
  ["a token with a newline", { token: "a\nb" }, /Cannot use the token/],
  ["a CA file that is not there", { caFile: "/nowhere" }, /Cannot use the certificates in \/nowhere: ENOENT/],
  ["a note of two lines", { note: "a\nb" }, /^--note: expected one line of at most 200 characters$/],
  ["a CA file without certificates", { caFile: import.meta.filename.replace(/push.*/, "logs.test.ts") }, /no PEM/],
];

for (const [what, given, message] of unusable)
  test(`${what} is wrong usage and sends nothing`, async (t) => {
    const server = await play(t);
    await assert.rejects(attempt(t, server.url, given), { code: "usage", message });
    assert.deepEqual(server.requests, []);
  });

const addresses: [string, RegExp | undefined][] = [
  ["https://ops.example", undefined],
  ["https://ops.example:9090/below/", undefined],
  ["http://localhost:9090", undefined],
  ["http://127.8.9.1:9090", undefined],
  ["http://[::1]:9090", undefined],
  ["http://ops.example", /without TLS the token would travel in the clear/],
  ["http://192.168.0.1", /in the clear/],
  ["http://127.0.0.1.example", /in the clear/],
  ["http://localhost.example", /in the clear/],
  ["ops.example:9090", /expected a URL such as/],
  ["127.0.0.1:9090", /expected a URL/],
  ["ftp://ops.example", /expected a URL/],
  ["", /expected a URL/],
  ["https://user:secret@ops.example", /no user, password, query or fragment/],
  ["https://ops.example/?a=b", /no user, password, query or fragment/],
];

test("an address whose path has an empty part is refused: it would name another host", () => {
  for (const text of ["http://localhost:9090//", "https://ops.example//evil.example"])
    assert.throws(() => parseBaseUrl(text), { code: "usage", message: /its path has an empty part/ });
});

test("addresses of servers are taken only where the token is safe", () => {
  for (const [text, message] of addresses)
    if (message) assert.throws(() => parseBaseUrl(text), { code: "usage", message }, text);
    else assert.ok(parseBaseUrl(text), text);
});
