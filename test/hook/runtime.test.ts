import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { networkInterfaces } from "node:os";
import { test } from "node:test";
import { PeerCheck } from "../../lib/hook/peer.ts";
import { HOOK_ROUTES } from "../../lib/hook/routes.ts";
import { allocationId, ask, testRuntime } from "../helpers/hook-runtime.ts";
import { exchangeText } from "../helpers/http.ts";
import { NEEDS_ROOT, NOBODY } from "../helpers/other-user.ts";
import { until } from "../helpers/temporary.ts";

const WRITE = { namespace: "vars/job/a", key: "k", value: "v" };
const KEYS = "/kv/keys";

test("HR-007 HR-008 HR-294 T-23 T-46 two buckets at once listen on addresses of their own and know only their own allocations", async (t) => {
  const one = await testRuntime(t);
  const known = allocationId("a", "10.0.0.9");
  const other = await testRuntime(t, { allocation: (id) => (id === known ? { id, job: "a", worker: "10.0.0.9" } : undefined) });
  for (const { runtime } of [one, other]) assert.match(runtime.host, /^127\.0\.0\.\d+$/);
  assert.notDeepEqual([one.runtime.host, one.runtime.port], [other.runtime.host, other.runtime.port]);
  const own = one.script();
  const theirs = other.script({ worker: "10.0.0.9" });
  assert.equal((await own.ask("PUT", "/kv", { body: WRITE })).status, 200);
  assert.equal((await theirs.ask("GET", "/kv?namespace=vars/job/a&key=k")).status, 404);
  const headers = { "X-ALLOCATION-ID": own.id, EVENT: "pre_deploy", COMMAND: "setup" };
  assert.deepEqual(await ask(other.runtime, "GET", KEYS, { headers }), { status: 404, body: { error: "Invalid allocation ID" } });
});

test("T-46 where port 8080 is taken on all addresses, any free port will do", async (t) => {
  for (let index = 1; index <= 254; index++) {
    const taken = createServer().listen(8080, `127.0.0.${index}`);
    await Promise.race([once(taken, "listening"), new Promise((resolve) => taken.once("error", resolve))]);
    t.after(() => taken.close());
  }
  // Other tests may just have freed one: who gets it keeps it, and the next one finds none.
  let last = await testRuntime(t);
  while (last.runtime.port === 8080) last = await testRuntime(t);
  assert.equal(last.runtime.host, "127.0.0.1");
  assert.equal((await last.script().ask("GET", KEYS)).status, 200);
  const large = `GET ${KEYS} HTTP/1.1\r\nHost: x\r\nX: ${"x".repeat(20_000)}\r\n\r\n`;
  assert.match(await exchangeText(t, last.runtime.port, large), /^HTTP\/1.1 431 /, "with the same limits");
});

test("HR-294 other addresses of the host do not answer", async (t) => {
  const { runtime } = await testRuntime(t);
  const others = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
  const hosts = others.filter((one) => one.family === "IPv4" && !one.internal).map((one) => one.address);
  for (const host of [...hosts, "127.0.0.253"]) {
    if (host === runtime.host) continue;
    const socket = connect(runtime.port, host);
    t.after(() => socket.destroy());
    await assert.rejects(once(socket, "connect"), { code: "ECONNREFUSED" }, host);
  }
});

test("HR-237 HR-238 HR-240 HR-321 every route needs the three headers", async (t) => {
  const { script } = await testRuntime(t);
  const { ask } = script();
  const body = { name: "n", namespace: "vars/job/a", key: "k", value: "v", worker: "w", command: "true" };
  for (const { method, path } of HOOK_ROUTES)
    for (const header of ["X-ALLOCATION-ID", "EVENT", "COMMAND"])
      assert.deepEqual(
        await ask(method, path, { body, headers: { [header]: undefined } }),
        { status: 400, body: { error: `${header} header is missing` } },
        `${method} ${path}`,
      );
});

for (const [what, headers, status, error] of [
  ["HR-296 HR-322 an unknown id", { "X-ALLOCATION-ID": crypto.randomUUID() }, 404, "Invalid allocation ID"],
  ["HR-296 no id at all", { "X-ALLOCATION-ID": "abc" }, 404, "Invalid allocation ID"],
  ["HR-239 an event that is not running", { EVENT: "cli" }, 400, "EVENT does not match the running hook"],
  ["T-108 what is no hook of the job", { COMMAND: "other" }, 400, "COMMAND is no hook of the job"],
  [
    "HR-239 T-93 the event of another allocation's script",
    { EVENT: "cli", COMMAND: "check" },
    ...[400, "EVENT does not match the running hook"],
  ],
  ["a foreign Host, as DNS rebinding sends", { Host: "evil.example:8080" }, 403, /Host header/],
  ["a Host without port", { Host: "127.0.0.1" }, 403, /Host header/],
] as const)
  test(`${what} is refused`, async (t) => {
    const { script } = await testRuntime(t);
    script({ job: "b", event: "cli", hook: "check" });
    const answer = await script().ask("GET", KEYS, { headers });
    assert.equal(answer.status, status);
    assert.match(answer.body.error, new RegExp(error));
  });

test("T-108 COMMAND may name any hook of the job, whichever is running", async (t) => {
  const { script } = await testRuntime(t);
  assert.equal((await script().ask("GET", KEYS, { headers: { COMMAND: "stop" } })).status, 200);
});

test("localhost is a name of its own address", async (t) => {
  const { runtime, script } = await testRuntime(t);
  const headers = { Host: `localhost:${runtime.port}` };
  assert.equal((await script().ask("GET", KEYS, { headers })).status, 200);
});

/** The order of checks: each row also breaks a rule that is checked later. */
test("T-41 the checks come in one order: allocation, content type, JSON, required fields, event, namespace", async (t) => {
  const { script } = await testRuntime(t);
  const { ask } = script({ event: "health_check", hook: "check" });
  const foreign = { namespace: "ops/bucket", key: "k", value: "v" };
  const wrongEvent = { EVENT: "cli" };
  const steps: [string, unknown, Record<string, string | undefined>][] = [
    ["KV writes are not allowed during health_check", foreign, {}],
    ["EVENT does not match the running hook", foreign, wrongEvent],
    ["Both namespace and key are required", { namespace: "x" }, wrongEvent],
    ["EVENT header is missing", foreign, { EVENT: undefined, COMMAND: undefined }],
    ["Both namespace and key are required", { namespace: "x" }, { EVENT: undefined, COMMAND: undefined }],
    ["Invalid JSON format", "{", wrongEvent],
    ["Content-Type must be application/json", "{", { ...wrongEvent, "Content-Type": "text/plain" }],
    ["Invalid allocation ID", "{", { "X-ALLOCATION-ID": "x", "Content-Type": "text/plain" }],
    ["X-ALLOCATION-ID header is missing", "{", { "X-ALLOCATION-ID": "", "Content-Type": "text/plain" }],
  ];
  for (const [error, body, headers] of steps) assert.equal((await ask("PUT", "/kv", { body, headers })).body.error, error);
});

test("HR-239 a script may call from its begin to its end, also beside another one of its allocation", async (t) => {
  const { script } = await testRuntime(t);
  const first = script();
  const second = script({ event: "post_deploy", hook: "after" });
  for (const { ask } of [first, second]) assert.equal((await ask("GET", KEYS)).status, 200);
  first.end();
  assert.equal((await first.ask("GET", KEYS)).body.error, "EVENT does not match the running hook");
  assert.equal((await second.ask("GET", KEYS)).status, 200);
});

for (const [method, path, status] of [
  ["GET", "/", 404],
  ["GET", "/v1/kv", 404],
  ["GET", "/kv/", 404],
  ["POST", "/kv", 405],
  ["GET", "/kv/secret", 405],
  ["GET", "/semaphore/acquire", 405],
  ["OPTIONS", "/kv", 405],
] as const)
  test(`HR-266 ${method} ${path} is ${status}`, async (t) => {
    const { script } = await testRuntime(t);
    const answer = await script().ask(method, path);
    assert.equal(answer.status, status);
    assert.equal(typeof answer.body.error, "string");
  });

test("HR-266 a method that a path does not take is told which ones it takes", async (t) => {
  const { runtime, script } = await testRuntime(t);
  const { id } = script();
  const headers = { "X-ALLOCATION-ID": id, EVENT: "pre_deploy", COMMAND: "setup" };
  const answer = await fetch(`http://${runtime.host}:${runtime.port}/semaphore/status`, { method: "POST", headers });
  assert.deepEqual([answer.status, answer.headers.get("allow")], [405, "GET, HEAD"]);
});

test("headers and bodies are bounded", async (t) => {
  const { runtime, script } = await testRuntime(t);
  const { ask } = script();
  const body = { ...WRITE, value: "x".repeat(1024 * 1024) };
  assert.equal((await ask("PUT", "/kv", { body })).status, 413);
  const large = `GET ${KEYS} HTTP/1.1\r\nHost: x\r\nX: ${"x".repeat(20_000)}\r\n\r\n`;
  if (runtime.host === "127.0.0.1") assert.match(await exchangeText(t, runtime.port, large), /^HTTP\/1.1 431 /);
  assert.equal((await ask("GET", KEYS)).status, 200);
});

/** A client of its own, plain bash: sends a request and, if told so, closes before there is an answer. */
function bash(runtime: { host: string; port: number }, request: string, waits: boolean): string[] {
  const send = `exec 3<>/dev/tcp/${runtime.host}/${runtime.port}; printf %s "$0" >&3; ${waits ? "cat <&3" : ":"}`;
  return ["bash", "-c", send, request];
}

function requestText(runtime: { host: string; port: number }, id: string, body = ""): string {
  const head = [
    `${body === "" ? `GET ${KEYS}` : "PUT /kv"} HTTP/1.1`,
    ...[`Host: ${runtime.host}:${runtime.port}`, `X-ALLOCATION-ID: ${id}`, "EVENT: pre_deploy", "COMMAND: setup"],
    ...["Content-Type: application/json", `Content-Length: ${body.length}`, "Connection: close"],
  ];
  return `${head.join("\r\n")}\r\n\r\n${body}`;
}

test("HR-295 a process of the same user is answered without a password, one of another user is refused", async (t) => {
  const { runtime, script } = await testRuntime(t);
  const isRoot = process.getuid?.() === 0;
  const [program = "", ...args] = bash(runtime, requestText(runtime, script().id), true);
  const answerFor = async (user: { uid?: number; gid?: number }) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"], ...user });
    return (await child.stdout.toArray()).join("");
  };
  assert.match(await answerFor({}), /^HTTP\/1.1 200 /);
  // Only root can be somebody else; others show the same by claiming to be somebody else themselves.
  if (isRoot) assert.match(await answerFor({ uid: 65_534, gid: 65_534 }), /^HTTP\/1.1 403 [\s\S]*root may use this API/);
  const socket = connect(runtime.port, runtime.host);
  t.after(() => socket.destroy());
  await once(socket, "connect");
  const { localAddress, localPort, remoteAddress, remotePort } = socket;
  const seen = { localAddress: remoteAddress, localPort: remotePort, remoteAddress: localAddress, remotePort: localPort };
  assert.equal(await new PeerCheck().admits(seen), true);
  assert.equal(await new PeerCheck((process.geteuid?.() ?? 0) + 1).admits({ ...seen }), isRoot);
  assert.equal(await new PeerCheck().admits({ ...seen, remotePort: 1 }), false, "no such socket");
});

test("HR-357 where scripts run as another user, that user alone is answered: not root, not ours, no third one", {
  skip: NEEDS_ROOT,
}, async (t) => {
  const { runtime, script } = await testRuntime(t, { user: NOBODY.uid });
  const [program = "", ...args] = bash(runtime, requestText(runtime, script().id), true);
  const answerFor = async (uid: number) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "inherit"], uid, gid: NOBODY.gid });
    return (await child.stdout.toArray()).join("");
  };
  assert.match(await answerFor(NOBODY.uid), /^HTTP\/1.1 200 /);
  for (const uid of [0, 5, 64_321])
    assert.match(await answerFor(uid), /^HTTP\/1.1 403 [\s\S]*Only processes of the user of hooks may use this API/, `${uid}`);
});

test("a process that uses an IPv6 socket for the IPv4 address is known too", async (t) => {
  const { runtime, script } = await testRuntime(t);
  const socket = connect(runtime.port, `::ffff:${runtime.host}`);
  t.after(() => socket.destroy());
  socket.write(requestText(runtime, script().id));
  assert.match(String(await socket.toArray()), /^HTTP\/1.1 200 /);
});

test("a peer that has closed its socket is nobody: what it sent is not done", async (t) => {
  const { runtime, kv, script } = await testRuntime(t);
  const { id, ask } = script();
  const [program = "", ...args] = bash(runtime, requestText(runtime, id, JSON.stringify(WRITE)), false);
  // This process accepts the connection only after the client has ended.
  assert.equal(spawnSync(program, args).status, 0);
  assert.equal((await ask("GET", KEYS)).status, 200);
  assert.equal(kv.get("vars/job/a", "k"), undefined);
});

test("T-55 cancel ends all waits, and so do the end of the script and close", async (t) => {
  const { runtime, script, cancel } = await testRuntime(t);
  const [holder, second, third, fourth] = [
    script(),
    script({ worker: "10.0.0.2" }),
    script({ worker: "10.0.0.3" }),
    script({ event: "cli", hook: "other" }),
  ];
  const body = { name: "lock" };
  const acquire = (one: typeof holder, sent = {}) => one.ask("POST", "/semaphore/acquire", { body, ...sent });
  const waiting = async () => (await holder.ask("GET", "/semaphore/status?name=lock")).body.waiting;
  assert.equal((await acquire(holder)).status, 200);
  const waits = [acquire(second), acquire(third)];
  await until("two waiters", async () => (await waiting()) === 2);
  second.end();
  assert.equal((await waits[0])?.status, 503);
  assert.equal(await waiting(), 1);
  cancel.abort();
  assert.equal((await waits[1])?.status, 503);
  assert.equal((await acquire(fourth)).status, 503, "who comes later waits no more either");
  await runtime.close();
  await assert.rejects(holder.ask("GET", KEYS), { code: "ECONNREFUSED" });
});

test("close ends waits and connections", async (t) => {
  const { runtime, script } = await testRuntime(t);
  const body = { name: "lock" };
  const [holder, waiter] = [script(), script({ worker: "10.0.0.2" })];
  await holder.ask("POST", "/semaphore/acquire", { body });
  const wait = waiter.ask("POST", "/semaphore/acquire", { body });
  await until("a waiter", async () => (await holder.ask("GET", "/semaphore/status?name=lock")).body.waiting === 1);
  const idle = connect(runtime.port, runtime.host);
  await once(idle, "connect");
  const closed = once(idle.resume(), "close");
  await runtime.close();
  assert.equal((await wait).status, 503);
  await closed;
});

test("HR-232 T-97 a script that ends with a slot gets a warning, and the slot stays taken", async (t) => {
  const { script, warnings } = await testRuntime(t);
  const first = script();
  const body = { name: "lock" };
  await first.ask("POST", "/semaphore/acquire", { body });
  await first.ask("POST", "/semaphore/acquire", { body: { name: "given back" } });
  await first.ask("POST", "/semaphore/release", { body: { name: "given back" } });
  first.end();
  first.end();
  assert.deepEqual(warnings, [
    'a@10.0.0.1 setup: hook setup has ended and semaphore "lock" is not released: the slot stays taken until the session ends',
  ]);
  const other = script({ worker: "10.0.0.2" });
  assert.deepEqual((await other.ask("GET", "/semaphore/status?name=lock")).body.holders, [first.id]);
});
