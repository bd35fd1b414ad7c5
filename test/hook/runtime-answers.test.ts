import assert from "node:assert/strict";
import { Server } from "node:net";
import { test } from "node:test";
import { Failure } from "../../lib/core/errors.ts";
import { PeerCheck } from "../../lib/hook/peer.ts";
import { testRuntime } from "../helpers/hook-runtime.ts";

test("T-46 the API listens on port 8080 of the first of 127.0.0.1 to 127.0.0.254 that is free, else on any port", async (t) => {
  const tried: string[] = [];
  const limits = new Set<unknown>();
  let free = "127.0.0.254";
  const { listen } = Server.prototype;
  t.mock.method(Server.prototype, "listen", function (this: Server, options: { host: string; port: number }, done: () => void) {
    const { host, port } = options;
    tried.push(`${host}:${port}`);
    for (const name of ["requestTimeout", "maxHeaderSize"]) limits.add(Reflect.get(this, name));
    const isTaken = port === 8080 && host !== free;
    if (isTaken) process.nextTick(() => this.emit("error", Object.assign(new Error("taken"), { code: "EADDRINUSE" })));
    else listen.call(this, { host, port: 0 }, done);
    return this;
  });
  const addresses = Array.from({ length: 254 }, (_, index) => `127.0.0.${index + 1}:8080`);
  const { runtime } = await testRuntime(t);
  assert.deepEqual([runtime.host, tried.splice(0)], [free, addresses]);
  assert.deepEqual([...limits], [30_000, 16 * 1024]);
  free = "none";
  const other = await testRuntime(t);
  assert.deepEqual([other.runtime.host, tried], ["127.0.0.1", [...addresses, "127.0.0.1:0"]]);
});

test("what goes wrong in the session is told to the script: a failure by its sentence, a defect as one", async (t) => {
  const errors = [new Failure("failed", "the disk is full"), new Failure("bucket_busy", "busy"), new TypeError("wrong")];
  const { script } = await testRuntime(t, {
    dependents: () => {
      throw errors.shift();
    },
  });
  const { ask } = script();
  const answers = [await ask("GET", "/demands"), await ask("GET", "/demands"), await ask("GET", "/demands")];
  assert.deepEqual(answers, [
    { status: 500, body: { error: "the disk is full" } },
    { status: 409, body: { error: "busy" } },
    { status: 500, body: { error: "internal error: wrong" } },
  ]);
});

test("HEAD takes its arguments from the query as GET does, and has no body", async (t) => {
  const { runtime, kv, script } = await testRuntime(t);
  kv.put("vars/job/a", "k", "v");
  const headers = { "X-ALLOCATION-ID": script().id, EVENT: "pre_deploy", COMMAND: "setup" };
  const target = `http://${runtime.host}:${runtime.port}/kv?namespace=vars/job/a&key=`;
  for (const [key, status] of [
    ["k", 200],
    ["none", 404],
  ] as const) {
    const answer = await fetch(target + key, { method: "HEAD", headers });
    assert.deepEqual([answer.status, await answer.text()], [status, ""]);
  }
});

test("T-24 what is missing is told by the names of the fields, whatever their case", async (t) => {
  const { script } = await testRuntime(t);
  const { ask } = script();
  const error = async (body: object) => (await ask("PUT", "/kv", { body })).body.error;
  assert.equal(await error({ Namespace: "vars/job/a", KEY: "k" }), "value: is missing");
  for (const body of [{ Namespace: "vars/job/a", value: "v" }, { KEY: "k" }, { Namespace: "vars/job/a", Key: null }])
    assert.equal(await error(body), "Both namespace and key are required");
});

test("DELETE takes its arguments from the query only where it has no body", async (t) => {
  const { kv, script } = await testRuntime(t);
  for (const key of ["a", "b"]) kv.put("vars/job/a", key, "v");
  const { ask } = script();
  const body = { namespace: "vars/job/a", key: "a" };
  assert.equal((await ask("DELETE", "/kv?namespace=vars/job/a&key=b", { body })).status, 200);
  assert.deepEqual(kv.keys("vars/job/a"), ["b"]);
  const answer = await ask("PUT", "/kv?namespace=vars/job/a&key=c&value=v");
  assert.equal(answer.body.error, "Both namespace and key are required");
});

for (const [user, who] of [
  [undefined, "of the user who runs ops and of root"],
  [4321, "of the user of hooks"],
] as const)
  test(`HR-295 a process of nobody is refused, and told that only processes ${who} may call`, async (t) => {
    t.mock.method(PeerCheck.prototype, "admits", async () => false);
    const { script } = await testRuntime(t, { user });
    const error = `Only processes ${who} may use this API`;
    assert.deepEqual(await script().ask("GET", "/kv/keys"), { status: 403, body: { error } });
  });
