import assert from "node:assert/strict";
import { chmodSync, symlinkSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import type { Identity } from "../../../lib/auth/guard.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { Answer, StreamedBody } from "../../../lib/http/message.ts";
import { createRecord } from "../../../lib/run/record.ts";
import type { Context } from "../../../lib/server/context.ts";
import { ROUTES } from "../../../lib/server/routes/table.ts";
import { writeTree } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";
const RUN = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e71";
const ADA = { name: "ada", role: "admin" } as Identity;

interface Asked {
  params?: Record<string, string>;
  query?: object;
  body?: object;
  request?: object;
}

/** A bucket below a root, and what its routes ask of services that only tell what they were asked. */
async function setUp(t: TestContext, more: object = {}) {
  const root = temporaryFolder(t);
  await createBucket(root, { id: ID, project: "p", name: "n" }, async () => {});
  const layout = layoutOf(path.join(root, ID));
  const told = async (...asked: unknown[]) => ({
    status: 200,
    body: JSON.stringify(asked.filter((one) => (one as { root?: string })?.root !== layout.root)),
  });
  const polled = { count: 0 };
  const request = { id: "r", signal: new AbortController().signal, headers: {}, longPoll: () => void polled.count++ };
  const ask = async (address: string, { params = {}, query = {}, body = {}, request: own = {} }: Asked = {}, identity = ADA) => {
    const [method, place = ""] = address.split(" ");
    const route = ROUTES.find((one) => one.method === method && one.path === place.replace("…", "/api/buckets/{bucket_id}"));
    const handle = (route ?? assert.fail(address)).handle as (call: object, context: Context) => Promise<Answer>;
    const call = { params: { bucket_id: ID, ...params }, query, body, headers: {}, request: { ...request, ...own } };
    const context = {
      root,
      labels: "bucket.json",
      identity,
      beside: { answer: told },
      logReadings: { answer: (task: object) => told(task) },
    };
    const answer = await handle(call, { ...context, ...more } as unknown as Context);
    const { headers, status, body: answered } = answer;
    if (answered === undefined || typeof answered === "string")
      return { status, headers, value: answered && JSON.parse(answered) };
    const streamed = answered as StreamedBody;
    const text = Buffer.concat(await Array.fromAsync(streamed.read())).toString();
    await streamed.close();
    return { status, headers, value: text };
  };
  return { root, layout, ask, polled };
}

test("each reading asks for what its request says, with names in lists and ids in small letters", async (t) => {
  const { ask } = await setUp(t);
  const asked = async (address: string, more: Asked = {}) => (await ask(`GET …${address}`, more)).value;
  const cursor = Buffer.from('["web",1]').toString("base64url");
  assert.deepEqual(await asked("/summary"), ["summary", null]);
  assert.deepEqual(await asked("/map"), ["map", null]);
  assert.deepEqual(await asked("/map/{job}/{worker}", { params: { job: "WEB", worker: "A" } }), [
    "cell",
    { job: "web", worker: "A" },
  ]);
  assert.deepEqual(await asked("/workers/facts", { query: { limit: 5, cursor } }), ["facts", { after: ["web", 1], limit: 5 }]);
  const query = { jobs: "a,b", job: "c", workers: "w", state: "new, update", outcome: "ok", active: true, limit: 9, cursor };
  const names = { jobs: ["a", "b", "c"], workers: ["w"], state: ["new", "update"], outcome: ["ok"] };
  const page = { after: ["web", 1], limit: 9 };
  assert.deepEqual(await asked("/cat/jobs", { query }), ["view", { name: "jobs", query: { active: true, ...names }, page }]);
  assert.deepEqual(await asked("/cat/kv", { query: { worker: "x", deleted: true, limit: 1 } }), [
    ...["view", { name: "kv", query: { deleted: true, workers: ["x"] }, page: { limit: 1 } }],
  ]);
  const run = { params: { run_id: RUN.toUpperCase() } };
  assert.deepEqual(await asked("/runs/{run_id}/plan", run), ["plan", RUN]);
  assert.deepEqual(await asked("/runs", { query: { limit: 3, kind: "build" } }), ["runs", { limit: 3, kind: "build" }]);
  const lines = { q: "text", case: true, job: "web", worker: "w", stream: "ops" };
  const filter = { text: "text", matchCase: true, job: "web", worker: "w", stream: "ops" };
  assert.deepEqual(await asked("/runs/{run_id}/logs/map", { ...run, query: lines }), ["logMap", { id: RUN, filter }]);
  assert.deepEqual(await asked("/runs/{run_id}/logs/search", { ...run, query: { ...lines, limit: 5 } }), [
    ...["search", { id: RUN, query: { ...lines, limit: 5, ...filter } }],
  ]);
  assert.deepEqual(await asked("/runs/{run_id}/logs/lines", { ...run, query: { ...lines, timeout: 30, tail: true } }), [
    ...["lines", { id: RUN, query: { ...lines, tail: true, ...filter } }],
  ]);
  const place = { job: "web", worker: "w" };
  assert.deepEqual(await asked("/runs/{run_id}/evidence", { ...run, query: place }), ["evidence", { id: RUN, ...place }]);
  assert.deepEqual(await asked("/runs/{run_id}/evidence", run), ["evidence", { id: RUN }]);
  for (const half of [{ job: "web" }, { worker: "w" }])
    await assert.rejects(asked("/runs/{run_id}/evidence", { ...run, query: half }), {
      code: "invalid_request",
      message: "expected both a job and a worker, or neither",
    });
});

test("processes that read logs get the bucket, the names and how much is wanted", async (t) => {
  const { ask, layout } = await setUp(t);
  const task = async (address: string, more: Asked = {}) => (await ask(`GET …${address}`, more)).value[0];
  const own = { bucketDir: layout.root, bucketId: ID };
  assert.deepEqual(await task("/doctor"), { name: "doctor", ...own, input: null });
  const filter = { run: ["a", "b"], worker: ["-"], job: ["web"], phase: ["p"], event: ["e"] };
  const query = { run: "a,b", worker: "-", job: "web", phase: "p", event: "e", tail: 7 };
  assert.deepEqual(await task("/logs", { query }), { name: "run_logs", ...own, input: { filter, tail: 7 } });
  assert.deepEqual(await task("/logs", { query: { job: undefined } }), { name: "run_logs", ...own, input: { filter: {} } });
  const input = { job: "web", workers: ["w", "v"], tail: 100, follow: true };
  const logs = await task("/jobs/{job}/logs", { params: { job: "web" }, query: { worker: "w, v", tail: 100, follow: true } });
  assert.deepEqual(logs, { name: "job_logs", ...own, input });
});

test("a path that names no run by its id is told as that, and no file is looked for", async (t) => {
  const { ask } = await setUp(t);
  for (const run_id of ["x", "..", `../${ID}`, `${RUN}/x`, `${RUN}0`, ""])
    for (const below of ["", "/plan", "/logs/map"])
      await assert.rejects(
        ask(`GET …/runs/{run_id}${below}`, { params: { run_id } }),
        { code: "run_not_found", message: `run ${JSON.stringify(run_id)} does not exist` },
        run_id,
      );
});

test("a run is shown with its progress, and its own files are downloaded under names that tell it", async (t) => {
  const { ask, layout } = await setUp(t, { supervisor: { progress: (id: string) => `of ${id}` } });
  const run = { params: { run_id: RUN } };
  assert.deepEqual((await ask("GET …/runs/{run_id}", run)).value, ["run", { id: RUN, progress: `of ${RUN}` }]);
  const files = ["activity.log", "activity.times"].map((name) => `GET …/runs/{run_id}/${name}`);
  for (const address of [...files, "GET …/runs/{run_id}/logs/text"])
    await assert.rejects(ask(address, { ...run, query: {} }), { code: "run_not_found" });
  const actor = { name: "ada", address: "", via: "bearer" } as const;
  await createRecord(layout, { id: RUN, bucket_id: ID, origin: "server", kind: "build", params: {}, actor, requestId: null });
  for (const address of files) {
    const { status, headers } = await ask(address, run);
    assert.deepEqual([status, headers?.["Content-Type"], headers?.ETag], [200, "text/plain; charset=utf-8", '"empty"']);
  }
  const { headers } = await ask("GET …/runs/{run_id}/logs/text", { ...run, query: { times: false } });
  assert.equal(headers?.["Content-Disposition"], `attachment; filename="build-${RUN}.log"`);
});

test("a run is cancelled, and a waiting start given up, by whoever began it or who may deploy", async (t) => {
  const cancelled: unknown[] = [];
  const left: unknown[] = [];
  const supervisor = {
    async cancel(...asked: unknown[]) {
      cancelled.push(asked.slice(1));
      throw new Failure("run_not_active", "it has ended");
    },
  };
  const lines = { waiting: () => [{ key: "k", by: { name: "ada" } }], leave: (...asked: unknown[]) => left.push(asked) === 1 };
  const { ask, layout } = await setUp(t, { supervisor, lines });
  const actor = { name: "ada", address: "", via: "bearer" } as const;
  await createRecord(layout, { id: RUN, bucket_id: ID, origin: "server", kind: "build", params: {}, actor, requestId: null });
  const as = (name: string, role: string) => ({ name, role, address: "192.0.2.1", via: "bearer" }) as Identity;
  const cancel = (who: Identity) => ask("POST …/runs/{run_id}/cancel", { params: { run_id: RUN } }, who);
  for (const who of [as("ada", "operate"), as("bob", "deploy")]) await assert.rejects(cancel(who), { code: "run_not_active" });
  await assert.rejects(cancel(as("bob", "operate")), { code: "forbidden" });
  assert.deepEqual(
    cancelled.map((asked) => (asked as [string, { name: string }, string]).map((one) => (one as { name?: string }).name ?? one)),
    [
      [RUN, "ada", "r"],
      [RUN, "bob", "r"],
    ],
  );
  assert.deepEqual((await ask("GET …/queue")).value, { items: lines.waiting() });
  const leave = (start_key: string, who: Identity) => ask("DELETE …/queue/{start_key}", { params: { start_key } }, who);
  assert.equal((await leave("k", as("ada", "operate"))).status, 204);
  await assert.rejects(leave("k", as("bob", "operate")), { code: "forbidden" });
  await assert.rejects(leave("x", as("ada", "operate")), { code: "forbidden" });
  const message = 'no start with the key "x" waits here';
  await assert.rejects(leave("x", as("bob", "deploy")), { code: "not_found", message });
  assert.deepEqual(left, [
    [ID, "k"],
    [ID, "x"],
  ]);
});

test("events are those of buckets in reach, and their wait is told as one", async (t) => {
  const asked: { after?: string; timeoutMs: number; shown: boolean[] }[] = [];
  const events = {
    async after(after: string, wait: { timeoutMs: number; isShown(event: object): boolean }) {
      asked.push({ after, timeoutMs: wait.timeoutMs, shown: [ID, RUN].map((bucket_id) => wait.isShown({ bucket_id })) });
      return { next: "n" };
    },
  };
  const { ask, polled } = await setUp(t, { supervisor: { events } });
  assert.deepEqual((await ask("GET /api/events", { query: { after: "a", timeout: 90 } })).value, { next: "n" });
  await ask("GET /api/events", { query: { timeout: -1 } }, { ...ADA, buckets: [ID] });
  assert.deepEqual(structuredClone(asked), [
    { after: "a", timeoutMs: 60_000, shown: [true, true] },
    { after: undefined, timeoutMs: 0, shown: [true, false] },
  ]);
  assert.equal(polled.count, 2);
});

test("files of the source, templates and settings are listed page by page and downloaded as they are", async (t) => {
  const { ask, layout } = await setUp(t);
  const files = { "ops.conf": "use_sudo = false\n", "workspace/a": "1", "templates/t/x": "1", "templates/u/x": "1" };
  writeTree(layout.root, { ...files, "workspace/disabled.json": "{}", "workspace/bucket.jobs.prod.conf": "" });
  chmodSync(path.join(layout.workspace, "a"), 0o755);
  symlinkSync("a", path.join(layout.workspace, "link"));
  const page = async (address: string, query: object) => {
    const { items, next_cursor } = (await ask(`GET …${address}`, { query })).value;
    return [items.map((one: { path?: string; name?: string }) => one.path ?? one.name), next_cursor];
  };
  assert.deepEqual(await page("/files", { limit: 2 }), [["ops.conf", "templates/t/x"], "templates/t/x"]);
  const rest = ["templates/u/x", "workspace/a", "workspace/bucket.jobs.prod.conf", "workspace/disabled.json"];
  assert.deepEqual(await page("/files", { limit: 4, cursor: "templates/t/x" }), [rest, null]);
  assert.deepEqual(
    [await page("/templates", { limit: 1 }), await page("/templates", { limit: 1, cursor: "t" })],
    [
      [["t"], "t"],
      [["u"], null],
    ],
  );
  const typeOf = async (address: string, params = {}) => (await ask(`GET …${address}`, { params })).headers?.["Content-Type"];
  assert.equal(await typeOf("/files/{path*}", { path: "workspace/a" }), "application/octet-stream");
  assert.equal(await typeOf("/workspace/disabled.json"), "application/json");
  for (const place of ["workspace/link", "", "data/ops.db"])
    await assert.rejects(ask("GET …/files/{path*}", { params: { path: place } }), { code: "file_not_found" });
  assert.deepEqual((await ask("GET …/settings/maand")).value.values, { use_sudo: false });
  assert.equal((await ask("GET …/settings/bucket")).value.path, "workspace/bucket.conf");
  const resources = async (selector: string) =>
    (await ask("GET …/settings/job_resources/{selector}", { params: { selector } })).value.path;
  assert.deepEqual(
    [await resources("prod"), await resources("default")],
    ["workspace/bucket.jobs.prod.conf", "workspace/bucket.jobs.conf"],
  );
  await assert.rejects(resources("none"), { code: "file_not_found" });
});

test("workers are told as their file defines them, page by page, or what is wrong with it", async (t) => {
  const { ask, layout } = await setUp(t);
  const local = { host: "b", connection: "local", tags: { zone: "x" }, memory: "1 gb", cpu: "2 ghz", hostname: "h" };
  writeTree(layout.root, {
    "ops.conf": 'ssh_jump = "gate"\n',
    "workspace/workers.json": JSON.stringify([{ host: "a", labels: ["x"] }, local]),
  });
  const own = { hostname: null, root: "/opt/worker", memory_mb: 0, cpu_mhz: 0, tags: {}, position: 0 };
  const a = { ...own, host: "a", connection: "ssh", ssh_user: "agent", ssh_port: 22, ssh_jump: "gate", labels: ["worker", "x"] };
  const none = { ssh_user: null, ssh_port: null, ssh_jump: null };
  const amounts = { memory_mb: 1024, cpu_mhz: 2000, tags: { zone: "x" }, position: 1, hostname: "h" };
  const b = { ...own, host: "b", connection: "local", ...none, labels: ["worker"], ...amounts };
  const asked = async (query: object) => (await ask("GET …/workers", { query })).value;
  assert.deepEqual(await asked({ limit: 2 }), { items: [a, b], next_cursor: null, problems: [] });
  assert.deepEqual(
    [await asked({ limit: 1 }), await asked({ limit: 1, cursor: "1" })],
    [
      { items: [a], next_cursor: "1", problems: [] },
      { items: [b], next_cursor: null, problems: [] },
    ],
  );
  writeTree(layout.root, { "workspace/workers.json": "[5]" });
  const { items, problems } = await asked({ limit: 5 });
  assert.deepEqual([items, problems.length, problems[0].code], [[], 1, "ErrInvalidWorkerJSON"]);
});

test("a secret is stored and removed by a task of its bucket; what is no key, or of no job, is told", async (t) => {
  const asked: unknown[] = [];
  const state: { error?: Error } = {};
  const supervisor = {
    exclusively: async (_: object, what: string, work: () => Promise<unknown>) => {
      asked.push(what);
      return await work();
    },
    async task({ name, bucketId, input }: { name: string; bucketId: string; input: object }, what: string) {
      asked.push([name, bucketId, input, what]);
      if (state.error) throw state.error;
    },
  };
  const { ask } = await setUp(t, { supervisor });
  const at = { params: { job: "web", key: "k" } };
  const taken = async (address: string, more: Asked) => {
    assert.equal((await ask(address, more)).status, 204);
    return structuredClone(asked.splice(0));
  };
  const of = (input: object, what: string) => ["job_secret", ["job_secret", ID, input, what]];
  assert.deepEqual(
    await taken("PUT …/secrets/jobs/{job}/{key}", { ...at, body: { value: "v", ttl: 5 } }),
    of({ job: "web", key: "k", value: "v", ttlSeconds: 5 }, 'change the secret "k" of job "web"'),
  );
  assert.deepEqual(
    await taken("DELETE …/secrets/jobs/{job}/{key}", at),
    of({ job: "web", key: "k" }, 'change the secret "k" of job "web"'),
  );
  const notify = of({ job: null, key: "k", value: "v", ttlSeconds: undefined }, 'change the secret "k" of notify.json');
  assert.deepEqual(await taken("PUT …/secrets/notify/{key}", { params: { key: "k" }, body: { value: "v" } }), notify);
  for (const key of ["", "a\nb", "x".repeat(254)])
    await assert.rejects(ask("DELETE …/secrets/notify/{key}", { params: { key } }), {
      code: "invalid_request",
      message: `key: expected one line of text, found ${JSON.stringify(key.length > 200 ? `${key.slice(0, 100)}…` : key)}`,
    });
  state.error = new Failure("unknown_name", "there is no job");
  await assert.rejects(ask("DELETE …/secrets/jobs/{job}/{key}", at), {
    code: "not_found",
    message: "there is no job",
    cause: state.error,
  });
  state.error = new Failure("bucket_busy", "busy");
  await assert.rejects(ask("DELETE …/secrets/jobs/{job}/{key}", at), state.error);
});
