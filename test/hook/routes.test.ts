import assert from "node:assert/strict";
import { test } from "node:test";
import { cancelledFailure } from "../../lib/core/errors.ts";
import type { HookRuntimeOptions } from "../../lib/hook/routes.ts";
import { testRuntime } from "../helpers/hook-runtime.ts";
import { until } from "../helpers/temporary.ts";

const FORBIDDEN = { status: 400, body: { error: "Invalid or unauthorized namespace" } };
const UNNAMED = { status: 400, body: { error: "Both namespace and key are required" } };
const MISSING = { status: 404, body: { error: "KV get operation failed" } };
const get = (namespace: string, key = "k") => `/kv?${new URLSearchParams({ namespace, key })}`;

for (const [rows, namespace] of [
  ["HR-164 HR-165", "ops/bucket"],
  ["HR-166 HR-167", "ops/worker"],
  ["HR-168 HR-169", "ops/worker/10.0.0.1"],
  ["HR-170 HR-171", "ops/worker/10.0.0.1/tags"],
  ["HR-172 HR-173", "vars/bucket"],
  ["HR-174 HR-175 HR-298", "vars/bucket/job/b"],
  ["HR-176 HR-177", "ops/job/b/worker/10.0.0.1"],
  ["HR-183 HR-184 HR-297 T-27", "ops/job/b"],
  ["HR-195 HR-201 HR-202", "ops/job/a"],
  ["HR-197 HR-201 HR-202", "vars/job/a"],
  ["HR-199 HR-201 HR-202", "secrets/job/a"],
] as const)
  test(`${rows} HR-244 ${namespace} is read only for a script of job b`, async (t) => {
    const { kv, script } = await testRuntime(t);
    kv.put(namespace, "k", "before");
    const { ask } = script({ job: "b" });
    assert.deepEqual(await ask("GET", get(namespace)), { status: 200, body: { namespace, key: "k", value: "before" } });
    for (const path of ["/kv", "/kv/secret"]) {
      const body = { namespace, key: "k", value: "after" };
      assert.deepEqual(await ask("PUT", path, { body }), FORBIDDEN);
      assert.deepEqual(await ask("DELETE", path, { body: { namespace, key: "k" } }), FORBIDDEN);
    }
    assert.equal(kv.get(namespace, "k"), "before");
  });

for (const [rows, namespace] of [
  ["HR-196 HR-326", "ops/job/b"],
  ["HR-198 HR-203", "vars/job/b"],
  ["HR-200", "secrets/job/b"],
  ["T-94", "vars/job/ab"],
  ["T-94", "vars/job/a/x"],
  ["T-94", "vars/job/a/"],
  ["T-94", "ops/job/a/worker/10.0.0.2"],
  ["T-94", "ops/job/ab/worker/10.0.0.1"],
  ["HR-249", "foo/bar"],
  ["", "ops/worker/10.0.0.2"],
] as const)
  test(`${rows} HR-324 HR-325 ${namespace} is closed to a script of job a`, async (t) => {
    const { kv, script } = await testRuntime(t);
    kv.put(namespace, "k", "v");
    const { ask } = script();
    assert.deepEqual(await ask("GET", get(namespace)), FORBIDDEN);
    assert.deepEqual(await ask("GET", `/kv/keys?namespace=${namespace}`), FORBIDDEN);
    for (const path of ["/kv", "/kv/secret"])
      assert.deepEqual(await ask("PUT", path, { body: { namespace, key: "k", value: "x" } }), FORBIDDEN);
    assert.equal(kv.get(namespace, "k"), "v");
  });

test("HR-187 HR-188 HR-189 HR-190 HR-250 T-101 a variable is written, read by all at once, deleted, and stored by a flush only", async (t) => {
  const { kv, script, committed } = await testRuntime(t);
  const { ask } = script();
  const body = { namespace: "vars/job/a", key: "k", value: " as given\n" };
  assert.deepEqual(await ask("PUT", "/kv/secret", { body }), FORBIDDEN);
  assert.deepEqual(await ask("PUT", "/kv", { body }), { status: 200, body: { namespace: "vars/job/a", key: "k" } });
  const other = script({ worker: "10.0.0.2" });
  assert.equal((await other.ask("GET", get("vars/job/a"))).body.value, " as given\n");
  assert.equal(committed().get("vars/job/a", "k"), undefined);
  kv.flush("a");
  assert.equal(committed().get("vars/job/a", "k"), " as given\n");
  const entry = { namespace: "vars/job/a", key: "k" };
  assert.deepEqual(await ask("DELETE", "/kv", { body: entry }), { status: 200, body: entry });
  assert.deepEqual(await ask("GET", get("vars/job/a")), MISSING);
  assert.equal((await ask("DELETE", "/kv", { body: entry })).status, 404);
  await ask("PUT", "/kv", { body });
  assert.deepEqual(await ask("DELETE", get("vars/job/a")), { status: 200, body: entry });
  assert.deepEqual(await ask("GET", get("vars/job/a")), MISSING);
});

test("HR-191 HR-192 HR-193 HR-194 HR-251 HR-253 HR-204 a secret is written sealed, read in clear, told to the log first, and deleted", async (t) => {
  const { kv, script, secrets, committed } = await testRuntime(t);
  const { ask } = script();
  const entry = { namespace: "secrets/job/a", key: "k" };
  const body = { ...entry, value: "correct horse" };
  assert.deepEqual(await ask("PUT", "/kv", { body }), FORBIDDEN);
  assert.deepEqual(secrets, []);
  assert.deepEqual(await ask("PUT", "/kv/secret", { body }), { status: 200, body: entry });
  assert.deepEqual(secrets, ["correct horse"]);
  assert.equal((await ask("GET", get("secrets/job/a"))).body.value, "correct horse");
  assert.deepEqual(await ask("DELETE", "/kv", { body: entry }), FORBIDDEN);
  kv.flush();
  assert.equal(committed().get("secrets/job/a", "k"), "correct horse");
  assert.deepEqual(await ask("DELETE", "/kv/secret", { body: entry }), { status: 200, body: entry });
  assert.deepEqual(await ask("GET", get("secrets/job/a")), MISSING);
});

for (const event of ["pre_deploy", "cli", "post_deploy", "post_build", "job_control", "after_allocation_started"] as const)
  test(`HR-178 HR-179 HR-180 HR-181 HR-182 HR-186 T-26 rollout_order on ${event}`, async (t) => {
    const { kv, script } = await testRuntime(t);
    const isOpen = event === "pre_deploy" || event === "cli";
    const { ask } = script({ event });
    const entry = { namespace: "ops/job/a", key: "rollout_order" };
    const [before, after] = ["10.0.0.3,10.0.0.1,10.0.0.2", "10.0.0.2,10.0.0.1,10.0.0.3"];
    kv.put("ops/job/a", "rollout_order", before);
    const put = await ask("PUT", "/kv", { body: { ...entry, value: after } });
    assert.deepEqual(put, isOpen ? { status: 200, body: entry } : FORBIDDEN);
    const { value } = (await ask("GET", get("ops/job/a", "rollout_order"))).body;
    assert.equal(value, isOpen ? after : before);
    assert.deepEqual(await ask("DELETE", "/kv", { body: entry }), isOpen ? { status: 200, body: entry } : FORBIDDEN);
    assert.equal(kv.get("ops/job/a", "rollout_order"), isOpen ? undefined : before);
  });

test("HR-182 DELETE of rollout_order is answered, too, where nobody has put an order: the catalog's is in force", async (t) => {
  const { kv, script } = await testRuntime(t);
  const { ask } = script({ event: "pre_deploy" });
  const entry = { namespace: "ops/job/a", key: "rollout_order" };
  for (let time = 0; time < 2; time++)
    assert.deepEqual(await ask("DELETE", "/kv", { body: entry }), { status: 200, body: entry });
  assert.equal((await ask("GET", get("ops/job/a", "rollout_order"))).body.value, "10.0.0.1,10.0.0.2,10.0.0.3");
  assert.deepEqual(kv.keys("ops/job/a"), []);
});

test("rollout_order is the order in force: the catalog's until a list names every worker, of upstream jobs too", async (t) => {
  const { kv, script } = await testRuntime(t);
  const catalog = "10.0.0.1,10.0.0.2,10.0.0.3";
  const answer = (value: string) => ({ status: 200, body: { namespace: "ops/job/a", key: "rollout_order", value } });
  for (const { ask } of [script(), script({ job: "b" })]) {
    const read = () => ask("GET", get("ops/job/a", "rollout_order"));
    kv.delete("ops/job/a", "rollout_order");
    assert.deepEqual(await read(), answer(catalog));
    kv.put("ops/job/a", "rollout_order", "10.0.0.2,10.0.0.1");
    assert.deepEqual(await read(), answer(catalog));
    kv.put("ops/job/a", "rollout_order", "10.0.0.9, 10.0.0.2 ,10.0.0.1,10.0.0.3");
    assert.deepEqual(await read(), answer("10.0.0.2,10.0.0.1,10.0.0.3"));
  }
  const { ask } = script();
  assert.deepEqual(await ask("GET", get("ops/job/b", "rollout_order")), FORBIDDEN);
  assert.deepEqual(await ask("GET", get("vars/job/a", "rollout_order")), MISSING);
});

test("HR-186 HR-280 a rollout_order without the disabled workers is in force for the active ones, and read as it was put", async (t) => {
  const all = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
  const { kv, script } = await testRuntime(t, { workers: (_job, kind) => (kind === "cli" ? all : all.slice(1)) });
  const { ask } = script({ event: "cli" });
  const read = async () => (await ask("GET", get("ops/job/a", "rollout_order"))).body.value;
  assert.equal(await read(), all.join());
  for (const [put, inForce] of [
    ["10.0.0.3,10.0.0.2", "10.0.0.3,10.0.0.2"],
    ["10.0.0.3,10.0.0.1,10.0.0.2", "10.0.0.3,10.0.0.1,10.0.0.2"],
    ["10.0.0.3,10.0.0.1", all.join()],
  ] as const) {
    await ask("PUT", "/kv", { body: { namespace: "ops/job/a", key: "rollout_order", value: put } });
    assert.equal(await read(), inForce, put);
  }
  kv.delete("ops/job/a", "rollout_order");
  assert.equal(await read(), all.join());
});

test("rollout_order of a job without workers is there only once it is put", async (t) => {
  const { kv, script } = await testRuntime(t, { workers: () => [] });
  const { ask } = script();
  assert.deepEqual(await ask("GET", get("ops/job/a", "rollout_order")), MISSING);
  kv.put("ops/job/a", "rollout_order", "10.0.0.1");
  assert.equal((await ask("GET", get("ops/job/a", "rollout_order"))).body.value, "10.0.0.1");
});

test("HR-299 HR-300 HR-301 HR-302 HR-328 T-99 on health_check all writes are refused, reads and semaphores are not", async (t) => {
  const { kv, script } = await testRuntime(t);
  const { ask } = script({ event: "health_check" });
  kv.put("vars/job/a", "k", "v");
  const refused = { status: 400, body: { error: "KV writes are not allowed during health_check" } };
  for (const [method, path] of [
    ["PUT", "/kv"],
    ["DELETE", "/kv"],
    ["PUT", "/kv/secret"],
    ["DELETE", "/kv/secret"],
  ] as const)
    for (const namespace of ["vars/job/a", "secrets/job/a", "foo"])
      assert.deepEqual(await ask(method, path, { body: { namespace, key: "k", value: "x" } }), refused);
  assert.equal(kv.get("vars/job/a", "k"), "v");
  for (const path of [get("vars/job/a"), "/kv/keys", "/demands", "/semaphore/status?name=n"])
    assert.equal((await ask("GET", path)).status, 200, path);
  for (const path of ["/semaphore/acquire", "/semaphore/release"])
    assert.equal((await ask("POST", path, { body: { name: "n" } })).status, 200, path);
});

for (const [what, method, body, answer] of [
  ["HR-242 HR-323 GET without namespace", "GET", { key: "k" }, UNNAMED],
  ["HR-243 HR-323 GET without key", "GET", { namespace: "vars/job/a" }, UNNAMED],
  ["HR-245 PUT without key", "PUT", { namespace: "vars/job/a", value: "v" }, UNNAMED],
  ["HR-245 PUT with an empty namespace", "PUT", { namespace: "", key: "k", value: "v" }, UNNAMED],
  ["a key that is null", "PUT", { namespace: "vars/job/a", key: null, value: "v" }, UNNAMED],
  ["HR-323 a key of two lines", "PUT", { namespace: "vars/job/a", key: "k\nl", value: "v" }, /^key: expected text of one line/],
  ["HR-323 a key of 1,001 characters", "GET", { namespace: "vars/job/a", key: "k".repeat(1001) }, /^key: must have at most 1000/],
  ["HR-323 a namespace that is a number", "DELETE", { namespace: 1, key: "k" }, /^namespace: expected a string/],
  ["PUT without a body", "PUT", undefined, UNNAMED],
  ["HR-246 PUT without value", "PUT", { namespace: "vars/job/a", key: "k" }, /^value: is missing$/],
  ["HR-246 an empty value", "PUT", { namespace: "vars/job/a", key: "k", value: "" }, /^value: must not be empty$/],
  ["a value that is a number", "PUT", { namespace: "vars/job/a", key: "k", value: 1 }, /^value: expected a string/],
  ["a lone surrogate", "PUT", { namespace: "vars/job/a", key: "k", value: "\ud800" }, /^value: expected well-formed/],
  ...["x", 1.5, -1, true].map(
    (ttl) => [`HR-247 ttl ${ttl}`, "PUT", { namespace: "vars/job/a", key: "k", value: "v", ttl }, /^ttl: expected/] as const,
  ),
  ["HR-334 half a body", "PUT", "{", { status: 400, body: { error: "Invalid JSON format" } }],
  ["a body that is no object", "PUT", "[]", { status: 400, body: { error: "Invalid JSON format" } }],
] as const)
  test(`${what} is refused`, async (t) => {
    const { kv, script } = await testRuntime(t);
    const answered = await script().ask(method, "/kv", { body });
    if (answer instanceof RegExp) assert.match(answered.body.error, answer);
    else assert.deepEqual(answered, answer);
    assert.equal(answered.status, 400);
    assert.deepEqual(kv.keys("vars/job/a"), []);
  });

for (const [what, type, status] of [
  ["HR-332 no content type", undefined, 415],
  ["HR-333 text", "text/plain", 415],
  ["T-98 a form, as Python's urllib says by itself", "application/x-www-form-urlencoded", 415],
  ["HR-235 HR-236 JSON", "application/json", 200],
  ["T-98 JSON in UTF-8", "application/json; charset=utf-8", 200],
] as const)
  for (const method of ["PUT", "DELETE", "GET"])
    test(`${what} with a body of ${method} is ${status}`, async (t) => {
      const { kv, script } = await testRuntime(t);
      kv.put("vars/job/a", "k", "v");
      const body = { namespace: "vars/job/a", key: "k", ...(method === "PUT" && { value: "v" }) };
      const answer = await script().ask(method, "/kv", { body, headers: { "Content-Type": type } });
      assert.equal(answer.status, status);
      if (status === 415) assert.equal(answer.body.error, "Content-Type must be application/json");
    });

test("T-24 GET takes its arguments from the query or from a JSON body, and needs no body", async (t) => {
  const { kv, script } = await testRuntime(t);
  kv.put("vars/job/a", "ä b&c", "v");
  const { ask } = script();
  const expected = { namespace: "vars/job/a", key: "ä b&c", value: "v" };
  assert.deepEqual((await ask("GET", get("vars/job/a", "ä b&c"))).body, expected);
  assert.deepEqual((await ask("GET", "/kv", { body: { namespace: "vars/job/a", key: "ä b&c" } })).body, expected);
  assert.deepEqual((await ask("GET", "/kv/keys", { body: { namespace: "vars/job/a" } })).body, {
    namespaces: { "vars/job/a": ["ä b&c"] },
  });
  assert.equal((await ask("GET", "/semaphore/status", { body: { name: "n" } })).body.name, "n");
});

test("an unknown field is ignored with a warning that names the nearest one", async (t) => {
  const { script, warnings } = await testRuntime(t);
  const body = { namespace: "vars/job/a", key: "k", value: "v", tll: 5 };
  assert.equal((await script().ask("PUT", "/kv", { body })).status, 200);
  assert.deepEqual(warnings, ['a@10.0.0.1 setup: PUT /kv: tll is not a known field; did you mean "ttl"?']);
});

test("HR-170 tags stands for the own worker's tags, ops for ops/bucket with a warning, for reading only", async (t) => {
  const { kv, script, warnings } = await testRuntime(t);
  const { ask } = script();
  kv.put("ops/worker/10.0.0.1/tags", "k", "tag");
  kv.put("ops/bucket", "k", "bucket");
  assert.deepEqual((await ask("GET", get("tags"))).body, { namespace: "ops/worker/10.0.0.1/tags", key: "k", value: "tag" });
  assert.deepEqual(warnings, []);
  assert.equal((await ask("GET", get("ops"))).body.value, "bucket");
  assert.match(warnings.join(), /^a@10\.0\.0\.1 setup: .*ops\/bucket$/);
  for (const namespace of ["tags", "ops"])
    assert.deepEqual(await ask("PUT", "/kv", { body: { namespace, key: "k", value: "x" } }), FORBIDDEN);
});

test("a certificate's private key is in its file, never in an answer", async (t) => {
  const { kv, script } = await testRuntime(t);
  const namespace = "ops/job/a/worker/10.0.0.1";
  kv.put(namespace, "certs/web.key", "private");
  kv.put(namespace, "certs/web.crt", "public");
  const { ask } = script();
  assert.deepEqual(await ask("GET", get(namespace, "certs/web.key")), FORBIDDEN);
  assert.equal((await ask("GET", get(namespace, "certs/web.crt"))).body.value, "public");
});

for (const [path, namespace] of [
  ["/kv", "vars/job/a"],
  ["/kv/secret", "secrets/job/a"],
] as const)
  test(`HR-247 HR-248 HR-252 T-43 a ttl with ${path} counts in seconds and 0 is for ever`, async (t) => {
    const { clock, script } = await testRuntime(t);
    const { ask } = script();
    for (const [key, ttl] of [
      ["short", 2],
      ["zero", 0],
    ])
      assert.equal((await ask("PUT", path, { body: { namespace, key, value: "v", ttl } })).status, 200);
    clock.now += 1_999;
    assert.equal((await ask("GET", get(namespace, "short"))).status, 200);
    clock.now += 1;
    assert.deepEqual(await ask("GET", get(namespace, "short")), MISSING);
    clock.now += 1e12;
    assert.equal((await ask("GET", get(namespace, "zero"))).status, 200);
  });

test("HR-327 a key that does not exist is not found, and one whose value is empty is", async (t) => {
  const { kv, script } = await testRuntime(t);
  kv.put("ops/bucket", "empty", "");
  const { ask } = script();
  assert.deepEqual(await ask("GET", get("vars/job/a", "never")), MISSING);
  assert.equal((await ask("GET", get("ops/bucket", "empty"))).body.value, "");
});

test("HR-254 HR-255 HR-256 T-100 the listing has key names only, of both own namespaces unless one is named", async (t) => {
  const { kv, script } = await testRuntime(t);
  kv.put("vars/job/a", "variable", "1");
  kv.put("secrets/job/a", "password", "correct horse");
  const { ask } = script();
  assert.deepEqual(await ask("GET", "/kv/keys"), {
    status: 200,
    body: { namespaces: { "vars/job/a": ["variable"], "secrets/job/a": ["password"] } },
  });
  assert.deepEqual((await ask("GET", "/kv/keys?namespace=secrets/job/a")).body, {
    namespaces: { "secrets/job/a": ["password"] },
  });
});

test("HR-070 HR-162 HR-257 HR-258 HR-259 HR-260 HR-261 /demands answers who demands this job's hook", async (t) => {
  const { script } = await testRuntime(t);
  assert.deepEqual(await script().ask("GET", "/demands"), {
    status: 200,
    body: [{ job: "b", hook: "join", demand_config: { min_version: "1" } }],
  });
  const headers = { COMMAND: "stop" };
  assert.deepEqual(await script().ask("GET", "/demands", { headers }), { status: 200, body: [] });
});

test("HR-216 HR-221 HR-222 HR-223 HR-224 HR-225 HR-226 HR-262 HR-263 HR-264 HR-265 semaphores over HTTP", async (t) => {
  const { script } = await testRuntime(t);
  const [one, two] = [script(), script({ worker: "10.0.0.2" })];
  const status = async () => (await one.ask("GET", "/semaphore/status?name=lock")).body;
  assert.deepEqual(await status(), { name: "lock", capacity: 1, holders: [], waiting: 0, available: 1 });
  const body = { name: "lock" };
  assert.deepEqual(await one.ask("POST", "/semaphore/acquire", { body }), {
    status: 200,
    body: { name: "lock", allocation_id: one.id, capacity: 1, acquired: true },
  });
  const wait = two.ask("POST", "/semaphore/acquire", { body: { name: "lock", capacity: 1, timeout_seconds: 3600 } });
  await until("a waiter", async () => (await status()).waiting === 1);
  assert.deepEqual(await status(), { name: "lock", capacity: 1, holders: [one.id], waiting: 1, available: 0 });
  assert.deepEqual(await one.ask("POST", "/semaphore/release", { body }), {
    status: 200,
    body: { name: "lock", allocation_id: one.id, released: true },
  });
  assert.equal((await wait).body.acquired, true);
  assert.deepEqual((await status()).holders, [two.id]);
});

test("HR-211 T-25 two hooks of one job and event share a semaphore", async (t) => {
  const { script } = await testRuntime(t);
  const other = script({ worker: "10.0.0.2", hook: "other" });
  const { id, ask } = script();
  await ask("POST", "/semaphore/acquire", { body: { name: "lock" } });
  assert.deepEqual((await other.ask("GET", "/semaphore/status?name=lock")).body.holders, [id]);
});

test("HR-229 HR-329 a wait whose time is up is 408; HR-231 HR-330 HR-331 conflicts are 409", async (t) => {
  const { script } = await testRuntime(t);
  const [one, two] = [script(), script({ worker: "10.0.0.2" })];
  const conflict = { status: 409, body: { error: "Semaphore acquire or release failed" } };
  const acquire = (who: typeof one, body: object) => who.ask("POST", "/semaphore/acquire", { body });
  await acquire(one, { name: "lock" });
  assert.deepEqual(await acquire(two, { name: "lock", timeout_seconds: 1 }), {
    status: 408,
    body: { error: "Timed out waiting for semaphore" },
  });
  assert.deepEqual(await two.ask("POST", "/semaphore/release", { body: { name: "lock" } }), conflict);
  assert.deepEqual(await acquire(two, { name: "lock", capacity: 2 }), conflict);
});

test("HR-217 HR-218 capacities go from 1 to 64", async (t) => {
  const { script } = await testRuntime(t);
  const { ask } = script();
  for (const capacity of [1, 64]) {
    const body = { name: `lock ${capacity}`, capacity };
    assert.equal((await ask("POST", "/semaphore/acquire", { body })).body.capacity, capacity);
  }
});

for (const [rows, given, inForce] of [
  ["HR-219", undefined, 600],
  ["HR-220", 0, 600],
  ["HR-220", 3600, 3600],
] as const)
  test(`${rows} a timeout of ${given} s counts as ${inForce}`, async (t) => {
    const waits: number[] = [];
    const { script } = await testRuntime(t, {
      waiting: (_on, limitMs, work) => {
        waits.push(limitMs);
        return work;
      },
    });
    await script().ask("POST", "/semaphore/acquire", { body: { name: "lock", timeout_seconds: given } });
    assert.deepEqual(waits, [inForce * 1000]);
  });

for (const [rows, body] of [
  ["HR-214", {}],
  ["HR-215", { name: 1 }],
  ["", { name: "" }],
  ["", { name: "n", capacity: "1" }],
  ["", { name: "n", timeout_seconds: 1.5 }],
  ["HR-217", { name: "n", capacity: 0 }],
  ["HR-217", { name: "n", capacity: -1 }],
  ["HR-218", { name: "n", capacity: 65 }],
  ["HR-220", { name: "n", timeout_seconds: -1 }],
  ["HR-220", { name: "n", timeout_seconds: 3601 }],
] as const)
  test(`${rows} acquire with ${JSON.stringify(body)} is refused`, async (t) => {
    const { script } = await testRuntime(t);
    const answer = await script().ask("POST", "/semaphore/acquire", { body });
    assert.equal(answer.status, 400);
    assert.match(answer.body.error, /^(name|capacity|timeout_seconds): /);
  });

test("T-96 a waiter whose client has gone leaves the queue", async (t) => {
  const { script } = await testRuntime(t);
  const [one, two, three] = [script(), script({ worker: "10.0.0.2" }), script({ worker: "10.0.0.3" })];
  const body = { name: "lock" };
  const waiting = async () => (await one.ask("GET", "/semaphore/status?name=lock")).body.waiting;
  await one.ask("POST", "/semaphore/acquire", { body });
  const gone = new AbortController();
  const lost = two.ask("POST", "/semaphore/acquire", { body, signal: gone.signal });
  await until("the first waiter", async () => (await waiting()) === 1);
  const wait = three.ask("POST", "/semaphore/acquire", { body });
  await until("both waiters", async () => (await waiting()) === 2);
  gone.abort();
  await assert.rejects(lost);
  await until("one to be gone", async () => (await waiting()) === 1);
  await one.ask("POST", "/semaphore/release", { body });
  assert.equal((await wait).body.allocation_id, three.id);
});

test("HR-337 HR-338 a command goes to the worker that is named, with its time, and its end is the answer", async (t) => {
  const given: object[] = [];
  const end = { exit_code: 3, stdout: "out\n", stderr: "", reason: "exit" };
  const command: HookRuntimeOptions["command"] = async (_script, order) => {
    given.push(order);
    return end;
  };
  const { script } = await testRuntime(t, { command });
  const { ask } = script({ event: "health_check" });
  const order = { worker: "10.0.0.2", command: "a\n'b' ü" };
  assert.deepEqual(await ask("POST", "/worker/command", { body: order }), { status: 200, body: end });
  await ask("POST", "/worker/command", { body: { ...order, timeout_seconds: 0 } });
  assert.deepEqual(given, [
    { ...order, timeout_seconds: 300 },
    { ...order, timeout_seconds: 0 },
  ]);
});

test("HR-337 a command for what is no worker, or that is no text, is refused", async (t) => {
  const { ask } = (await testRuntime(t)).script();
  const refused = async (body: object) => {
    const { status, body: answer } = await ask("POST", "/worker/command", { body });
    return [status, answer.error];
  };
  assert.deepEqual(await refused({ worker: "10.0.0.9", command: "true" }), [404, '"10.0.0.9" is not a worker of this bucket']);
  for (const [more, field] of [
    [{ command: "a\0b" }, "command"],
    [{ command: "a\ud800" }, "command"],
    [{ worker: 7 }, "worker"],
    [{ timeout_seconds: -1 }, "timeout_seconds"],
    [{ timeout_seconds: 0.5 }, "timeout_seconds"],
  ] as const) {
    const [status, error] = await refused({ worker: "10.0.0.1", command: "true", ...more });
    assert.deepEqual([status, String(error).split(":")[0]], [400, field]);
  }
});

for (const what of ["its client leaves", "its script ends", "the session is cancelled"] as const)
  test(`HR-340 a command ends when ${what}; the end of a script waits for it`, async (t) => {
    let ending: AbortSignal | undefined;
    const over = Promise.withResolvers<void>();
    const command: HookRuntimeOptions["command"] = async (_script, _order, signal) => {
      ending = signal;
      await over.promise;
      throw cancelledFailure();
    };
    const { script, cancel } = await testRuntime(t, { command });
    const { ask, end } = script();
    const client = new AbortController();
    const answer = ask("POST", "/worker/command", {
      body: { worker: "10.0.0.1", command: "true" },
      ...(what === "its client leaves" && { signal: client.signal }),
    }).catch(() => undefined);
    await until("the command runs", () => ending !== undefined);
    if (what === "its client leaves") client.abort();
    if (what === "the session is cancelled") cancel.abort();
    let isEnded = false;
    const endScript = () =>
      end().then(() => {
        isEnded = true;
      });
    const ended = what === "its script ends" ? endScript() : undefined;
    await until("its end is asked for", () => ending?.aborted === true);
    assert.equal(isEnded, false);
    over.resolve();
    await (ended ?? end());
    const expected = { status: 503, body: { error: "The session ends" } };
    assert.deepEqual(await answer, what === "its client leaves" ? undefined : expected);
  });
