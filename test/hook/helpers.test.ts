import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { HookRuntimeOptions, RunningScript } from "../../lib/hook/routes.ts";
import { type TestRuntime, testRuntime } from "../helpers/hook-runtime.ts";
import { environmentOf, HookScripts, type Language } from "../helpers/hook-scripts.ts";
import { until } from "../helpers/temporary.ts";

const LANGUAGES: readonly Language[] = ["py", "ts"];

/** Scripts in both languages that run for an allocation of job `a`, and the real API. */
class Session {
  readonly api: TestRuntime;
  readonly scripts: HookScripts;

  private constructor(api: TestRuntime, scripts: HookScripts) {
    this.api = api;
    this.scripts = scripts;
  }

  static async start(t: TestContext, changes: Partial<HookRuntimeOptions> = {}): Promise<Session> {
    return new Session(await testRuntime(t, changes), new HookScripts(t));
  }

  /** A script runs from now on; answers the environment that it has. */
  begin(about: Partial<RunningScript> = {}): Record<string, string> {
    const { job = "a", worker = "10.0.0.1", event = "pre_deploy", hook = "setup" } = about;
    const allocationId = this.api.script(about).id;
    return environmentOf(this.api.runtime, { allocationId, job, worker, event, hook });
  }

  /** What a script in one of the languages prints as JSON. */
  answer(language: Language, texts: Record<Language, string>, env: Record<string, string>): Promise<unknown> {
    return this.scripts.answer(language, texts[language], env);
  }
}

/** Answers `[status, body]` of each call, in a script of either language. */
const CALLS: Record<Language, (calls: readonly string[]) => string> = {
  py: (calls) => `responses = [${calls.join(", ")}]\nprint(json.dumps([[r.status_code, r.ok, r.json()] for r in responses]))`,
  ts: (calls) =>
    `const responses = [${calls.map((call) => `await ${call}`).join(", ")}];
console.log(JSON.stringify(responses.map((r) => [r.status, r.ok, r.json()])));`,
};

/** Runs the same calls in both languages, each with its own names, and expects the same answers. */
function calls(
  name: string,
  texts: Record<Language, readonly string[]>,
  expected: readonly unknown[],
  more: { about?: Partial<RunningScript>; prepare?: (session: Session) => void } = {},
): void {
  for (const language of LANGUAGES)
    test(`${name} (${language})`, async (t) => {
      const session = await Session.start(t);
      more.prepare?.(session);
      const text = CALLS[language](texts[language]);
      assert.deepEqual(
        await session.scripts.answer(language, text, session.begin(more.about)),
        expected.map((one) => (Array.isArray(one) ? [one[0], one[0] < 400, one[1]] : [200, true, one])),
      );
    });
}

const GETTERS: Record<Language, string> = {
  py: `print(json.dumps([ops.allocation_id(), ops.allocation_ip(), ops.allocation_index(), ops.job_name(),
  ops.hook_event(), ops.hook_name()]))`,
  ts: `console.log(JSON.stringify([ops.allocationId(), ops.allocationIp(), ops.allocationIndex(), ops.jobName(),
  ops.hookEvent(), ops.hookName()]))`,
};

for (const language of LANGUAGES)
  test(`HR-268 HR-269 HR-270 HR-271 HR-272 HR-273 a script reads who it runs for (${language})`, async (t) => {
    const env = { ALLOCATION_ID: "id", ALLOCATION_IP: "10.0.0.9", ALLOCATION_INDEX: "2", JOB: "web" };
    const scripts = new HookScripts(t);
    assert.deepEqual(await scripts.answer(language, GETTERS[language], { ...env, EVENT: "cli", HOOK: "go", COMMAND: "other" }), [
      "id",
      "10.0.0.9",
      "2",
      "web",
      "cli",
      "go",
    ]);
    assert.deepEqual(await scripts.answer(language, GETTERS[language], {}), Array(6).fill(null));
  });

const FLAGS: Record<Language, string> = {
  py: "print(json.dumps([ops.is_allocation_disabled(), ops.is_one_shot()]))",
  ts: "console.log(JSON.stringify([ops.isAllocationDisabled(), ops.isOneShot()]))",
};

for (const language of LANGUAGES)
  test(`HR-274 HR-275 T-38 disabled and one-shot are told by exact values (${language})`, async (t) => {
    const scripts = new HookScripts(t);
    const told = async (disabled: string, batch: string, index: string) =>
      await scripts.answer(language, FLAGS[language], { DISABLED: disabled, BATCH_INDEX: batch, ALLOCATION_INDEX: index });
    assert.deepEqual(await told("1", "0", "0"), [true, true]);
    assert.deepEqual(await told("0", "0", "1"), [false, false]);
    assert.deepEqual(await told("true", "1", "0"), [false, false]);
    assert.deepEqual(await scripts.answer(language, FLAGS[language], {}), [false, false]);
  });

calls(
  "HR-267 HR-276 HR-281 HR-282 HR-283 HR-284 variables and secrets are put, read and deleted",
  {
    py: [
      'ops.put_job_variable("mode", "primary")',
      'ops.put_job_secret("password", "it\'s \\"quoted\\" ümläut\\n")',
      'ops.get_store_value("vars/job/a", "mode")',
      'ops.get_store_value("secrets/job/a", "password")',
      'ops.delete_job_variable("mode")',
      'ops.delete_job_secret("password")',
      'ops.get_store_value("vars/job/a", "mode")',
      'ops.get_store_value("secrets/job/a", "password")',
    ],
    ts: [
      'ops.putJobVariable("mode", "primary")',
      'ops.putJobSecret("password", "it\'s \\"quoted\\" ümläut\\n")',
      'ops.getStoreValue("vars/job/a", "mode")',
      'ops.getStoreValue("secrets/job/a", "password")',
      'ops.deleteJobVariable("mode")',
      'ops.deleteJobSecret("password")',
      'ops.getStoreValue("vars/job/a", "mode")',
      'ops.getStoreValue("secrets/job/a", "password")',
    ],
  },
  [
    { namespace: "vars/job/a", key: "mode" },
    { namespace: "secrets/job/a", key: "password" },
    { namespace: "vars/job/a", key: "mode", value: "primary" },
    { namespace: "secrets/job/a", key: "password", value: `it's "quoted" ümläut\n` },
    { namespace: "vars/job/a", key: "mode" },
    { namespace: "secrets/job/a", key: "password" },
    [404, { error: "KV get operation failed" }],
    [404, { error: "KV get operation failed" }],
  ],
);

calls(
  "a value that the store does not take, and a refused write, are answers and no errors",
  {
    py: [
      'ops.put_job_variable("mode", "")',
      'ops.put_job_variable("mode", 3)',
      'ops.delete_job_variable("none")',
      'ops.put_rollout_order(["10.0.0.1"])',
      'ops.get_store_value("secrets/job/b", "x")',
    ],
    ts: [
      'ops.putJobVariable("mode", "")',
      'ops.putJobVariable("mode", 3 as unknown as string)',
      'ops.deleteJobVariable("none")',
      'ops.putRolloutOrder(["10.0.0.1"])',
      'ops.getStoreValue("secrets/job/b", "x")',
    ],
  },
  [
    [400, { error: "value: must not be empty" }],
    [400, { error: "value: expected a string, found an integer" }],
    [404, { error: "KV delete operation failed" }],
    [400, { error: "Invalid or unauthorized namespace" }],
    [400, { error: "Invalid or unauthorized namespace" }],
  ],
  { about: { event: "post_deploy" } },
);

calls(
  "HR-267 HR-285 keys are listed, of one namespace and of the job's own",
  {
    py: ["ops.list_job_keys()", 'ops.list_job_keys("vars/job/a")', 'ops.list_job_keys("vars/job/b")'],
    ts: ["ops.listJobKeys()", 'ops.listJobKeys("vars/job/a")', 'ops.listJobKeys("vars/job/b")'],
  },
  [
    { namespaces: { "vars/job/a": ["mode"], "secrets/job/a": ["password"] } },
    { namespaces: { "vars/job/a": ["mode"] } },
    [400, { error: "Invalid or unauthorized namespace" }],
  ],
  {
    prepare: ({ api }) => {
      api.kv.put("vars/job/a", "mode", "x");
      api.kv.put("secrets/job/a", "password", "y");
    },
  },
);

calls("HR-286 the demands of other jobs are listed", { py: ["ops.list_hook_demands()"], ts: ["ops.listHookDemands()"] }, [
  [200, [{ job: "b", hook: "join", demand_config: { min_version: "1" } }]],
]);

/** The order of the catalog, then those that the scripts put. */
const ORDERS = ["10.0.0.1,10.0.0.2,10.0.0.3", "10.0.0.2,10.0.0.1,10.0.0.3", "10.0.0.3,10.0.0.1,10.0.0.2"];

for (const [language, list, text, get] of [
  [
    "py",
    'ops.put_rollout_order(("10.0.0.2 ", "10.0.0.1", "10.0.0.3"))',
    'ops.put_rollout_order("10.0.0.3,10.0.0.1,10.0.0.2")',
    "get_rollout_order",
  ],
  [
    "py",
    'ops.put_deploy_order(["10.0.0.2", "10.0.0.1", "10.0.0.3"])',
    'ops.put_deploy_order("10.0.0.3,10.0.0.1,10.0.0.2")',
    "get_deploy_order",
  ],
] as const)
  test(`HR-279 HR-280 the rollout order is put as a list or as text, and read (${get})`, async (t) => {
    const session = await Session.start(t);
    const env = session.begin();
    const script = `
said = [ops.${get}()]
${list}.raise_for_status()
said.append(ops.${get}())
${text}.raise_for_status()
said.append(ops.${get}())
print(json.dumps(said))`;
    assert.deepEqual(await session.scripts.answer(language, script, env), ORDERS);
    assert.equal(session.api.kv.get("ops/job/a", "rollout_order"), ORDERS[2]);
  });

test("HR-279 HR-280 the rollout order is put as a list or as text, and read (ts)", async (t) => {
  const session = await Session.start(t);
  const text = `
const said = [await ops.getRolloutOrder()];
for (const order of [["10.0.0.2 ", "10.0.0.1", "10.0.0.3"], "10.0.0.3,10.0.0.1,10.0.0.2"]) {
  (await ops.putRolloutOrder(order)).raiseForStatus();
  said.push(await ops.getRolloutOrder());
}
console.log(JSON.stringify(said));`;
  const said = await session.scripts.answer("ts", text, session.begin());
  assert.deepEqual(said, ORDERS);
});

const MISSING: Record<Language, string> = {
  py: `
said = []
for call in [ops.get_rollout_order, lambda: ops.get_kv_value("vars/job/a", "none"),
             lambda: ops.get_store_value("vars/job/a", "none").raise_for_status()]:
    try:
        call()
    except ops.ApiError as error:
        said.append([str(error), error.response.status_code])
print(json.dumps(said))`,
  ts: `
const said: unknown[] = [];
for (const call of [ops.getRolloutOrder, async () => (await ops.getStoreValue("vars/job/a", "none")).raiseForStatus()])
  try {
    await call();
  } catch (error) {
    if (error instanceof ops.ApiError) said.push([error.message, error.response.status]);
  }
console.log(JSON.stringify(said));`,
};

for (const language of LANGUAGES)
  test(`HR-277 HR-280 what returns a value fails with the API's message and what was asked (${language})`, async (t) => {
    const session = await Session.start(t, { workers: () => [] });
    const message = (path: string) => `KV get operation failed (404 for GET ${path})`;
    const order = [message("/kv?namespace=ops/job/a&key=rollout_order"), 404];
    const none = [message("/kv?namespace=vars/job/a&key=none"), 404];
    const said = (await session.answer(language, MISSING, session.begin())) as string[][];
    const decoded = said.map(([text = "", status]) => [decodeURIComponent(text), status]);
    assert.deepEqual(decoded, language === "py" ? [order, none, none] : [order, none]);
  });

test("HR-277 get_kv_value returns the plain value, of a secret too", async (t) => {
  const session = await Session.start(t);
  session.api.kv.put("secrets/job/a", "password", "s3cret\n");
  const text = `print(json.dumps(ops.get_kv_value("secrets/job/a", "password")))`;
  assert.equal(await session.scripts.answer("py", text, session.begin()), "s3cret\n");
});

test("HR-247 HR-252 a ttl reaches the store from both languages", async (t) => {
  const session = await Session.start(t);
  const env = session.begin();
  await session.scripts.succeed("py", 'ops.put_job_variable("py", "x", ttl=60).raise_for_status()', env);
  await session.scripts.succeed("ts", '(await ops.putJobSecret("ts", "x", 60)).raiseForStatus()', env);
  session.api.clock.now += 61_000;
  assert.deepEqual([session.api.kv.keys("vars/job/a"), session.api.kv.keys("secrets/job/a")], [[], []]);
});

calls(
  "HR-267 HR-287 HR-288 HR-289 a semaphore is taken with capacity 1, shown, and released once",
  {
    py: [
      'ops.acquire_semaphore("join")',
      'ops.semaphore_status("join")',
      'ops.release_semaphore("join")',
      'ops.release_semaphore("join")',
    ],
    ts: [
      'ops.acquireSemaphore("join")',
      'ops.semaphoreStatus("join")',
      'ops.releaseSemaphore("join")',
      'ops.releaseSemaphore("join")',
    ],
  },
  [
    { name: "join", allocation_id: "00000000-0000-5000-8000-000000006131", capacity: 1, acquired: true },
    { name: "join", capacity: 1, holders: ["00000000-0000-5000-8000-000000006131"], waiting: 0, available: 0 },
    { name: "join", allocation_id: "00000000-0000-5000-8000-000000006131", released: true },
    [409, { error: "Semaphore acquire or release failed" }],
  ],
);

calls(
  "HR-329 a wait for a semaphore that is over answers 408",
  { py: ['ops.acquire_semaphore("join", 1, 1)'], ts: ['ops.acquireSemaphore("join", 1, 1)'] },
  [[408, { error: "Timed out waiting for semaphore" }]],
  {
    prepare: ({ api }) => {
      void api.script({ worker: "10.0.0.2" }).ask("POST", "/semaphore/acquire", { body: { name: "join" } });
    },
  },
);

const SECTION: Record<Language, string> = {
  py: `
ops.acquire_semaphore("section", timeout_seconds=60).raise_for_status()
try:
    print(json.dumps(ops.semaphore_status("section").json()["holders"]), flush=True)
finally:
    ops.release_semaphore("section").raise_for_status()`,
  ts: `
(await ops.acquireSemaphore("section", 1, 60)).raiseForStatus();
try {
  console.log(JSON.stringify((await ops.semaphoreStatus("section")).json().holders));
} finally {
  (await ops.releaseSemaphore("section")).raiseForStatus();
}`,
};

test("HR-039 scripts of both languages pass a critical section one after the other", async (t) => {
  const session = await Session.start(t);
  const about = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map((worker) => session.begin({ worker }));
  const said = await Promise.all(about.map((env, index) => session.answer(index === 1 ? "ts" : "py", SECTION, env)));
  assert.deepEqual(
    said,
    about.map((env) => [env.ALLOCATION_ID]),
  );
});

for (const language of LANGUAGES)
  test(`T-96 a script that is killed while it waits leaves the queue (${language})`, async (t) => {
    const session = await Session.start(t);
    const holder = session.api.script({ worker: "10.0.0.2" });
    await holder.ask("POST", "/semaphore/acquire", { body: { name: "section" } });
    const waiting = async () => (await holder.ask("GET", "/semaphore/status?name=section")).body.waiting as number;
    const stop = new AbortController();
    const ended = session.scripts.run(language, SECTION[language], session.begin(), { signal: stop.signal });
    await until("it waits", async () => (await waiting()) === 1);
    stop.abort();
    assert.equal((await ended).reason, "cancelled");
    await until("it is gone from the queue", async () => (await waiting()) === 0);
  });

test("HR-241 the three headers come from the environment: another event is refused", async (t) => {
  const session = await Session.start(t);
  const env = { ...session.begin(), EVENT: "cli" };
  for (const language of LANGUAGES)
    assert.deepEqual(
      await session.answer(language, { py: CALLS.py(["ops.list_job_keys()"]), ts: CALLS.ts(["ops.listJobKeys()"]) }, env),
      [[400, false, { error: "EVENT does not match the running hook" }]],
    );
});

for (const [language, call] of [
  ["py", "ops.list_job_keys()"],
  ["ts", "ops.listJobKeys()"],
] as const)
  test(`without HOOK_API_PORT a script asks on port 8080 (${language})`, async (t) => {
    let session = await Session.start(t);
    // Another test takes this port on all addresses for a moment.
    await until("port 8080 of some address", async () => {
      if (session.api.runtime.port !== 8080) session = await Session.start(t);
      return session.api.runtime.port === 8080;
    });
    const { HOOK_API_PORT: _, ...env } = session.begin();
    assert.equal((await session.scripts.succeed(language, CALLS[language]([call]), env)).exitCode, 0);
  });

for (const [language, text, expected] of [
  ["py", "ops.list_job_keys()", /ConnectionRefusedError: /],
  ["ts", "await ops.listJobKeys()", /Error: connect ECONNREFUSED /],
] as const)
  test(`an API that is not there is an error (${language})`, async (t) => {
    const session = await Session.start(t);
    // Nobody listens on port 1. A port that was just closed may be taken by another test.
    const env = { ...session.begin(), HOOK_API_PORT: "1" };
    const { exitCode, stderr } = await session.scripts.run(language, text, env);
    assert.equal(exitCode, 1);
    assert.match(stderr, expected);
  });

test("a script may ask by HTTP itself, with the arguments of a GET in a JSON body", async (t) => {
  const session = await Session.start(t);
  session.api.kv.put("ops/bucket", "a_http", "30001");
  const text = `
import urllib.request
url = f"http://{os.environ['HOOK_API_HOST']}:{os.environ['HOOK_API_PORT']}/kv"
headers = {"X-ALLOCATION-ID": ops.get_allocation_id(), "EVENT": ops.get_event(), "COMMAND": ops.get_command(),
           "Content-Type": "application/json"}
body = json.dumps({"namespace": "ops/bucket", "key": "a_http"}).encode()
with urllib.request.urlopen(urllib.request.Request(url, body, headers, method="GET"), timeout=5) as answer:
    print(json.dumps(json.load(answer)["value"]))`;
  assert.equal(await session.scripts.answer("py", text, session.begin()), "30001");
});

test("a secret is made once, the way scripts do it", async (t) => {
  const session = await Session.start(t);
  const text = `
import secrets
ns = f"secrets/job/{ops.job_name()}"
response = ops.get_store_value(ns, "password")
if response.status_code == 404:
    ops.put_job_secret("password", secrets.token_urlsafe(24)).raise_for_status()
elif not response.ok:
    response.raise_for_status()
print(json.dumps(ops.get_store_value(ns, "password").json()["value"]))`;
  const env = session.begin();
  const first = (await session.scripts.answer("py", text, env)) as string;
  assert.equal(first.length, 32);
  assert.equal(await session.scripts.answer("py", text, env), first);
  assert.deepEqual(session.api.secrets, [first]);
});

test("the older names of the Python functions are there", async (t) => {
  const text = `
old = {"get_allocation_id": "allocation_id", "get_allocation_ip": "allocation_ip", "get_job": "job_name",
       "get_allocation_index": "allocation_index", "get_event": "hook_event", "get_command": "hook_name",
       "kv_get": "get_store_value", "kv_put": "put_job_variable", "kv_put_secret": "put_job_secret",
       "get_demands": "list_hook_demands", "put_deploy_order": "put_rollout_order",
       "get_deploy_order": "get_rollout_order"}
print(json.dumps([name for name, new in old.items() if getattr(ops, name) is not getattr(ops, new)]))`;
  assert.deepEqual(await new HookScripts(t).answer("py", text, {}), []);
});

test("HR-029 HR-278 the TypeScript library has no functions for ssh and none for a plain value", async (t) => {
  const text = `console.log(JSON.stringify(Object.keys(ops).filter((name) => /ssh|target|kvvalue/i.test(name))))`;
  assert.deepEqual(await new HookScripts(t).answer("ts", text, {}), []);
});

test("ops.py is Python 3.9 and imports nothing but the standard library", async (t) => {
  const text = `
import ast
tree = ast.parse(open(ops.__file__).read(), feature_version=(3, 9))
names = {name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
names |= {node.module.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
print(json.dumps(sorted(names - set(getattr(sys, "stdlib_module_names", names)))))`;
  assert.deepEqual(await new HookScripts(t).answer("py", text, {}), []);
});
