import assert from "node:assert/strict";
import { mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { Validator } from "@seriousme/openapi-schema-validator";
import { AccessStore } from "../../lib/auth/access-store.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { acquireLock } from "../../lib/bucket/base/lock.ts";
import { accessFile } from "../../lib/bucket/source/root.ts";
import { toYaml } from "../../lib/codec/config/yaml.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { check } from "../../lib/core/shape.ts";
import { EARLIER_GROUPS, EARLIER_ROUTES } from "../../lib/server/earlier/table.ts";
import { EARLIER_ABOUT, openApiDocument } from "../../lib/server/openapi.ts";
import { type CallOptions, TestServer } from "../helpers/server.ts";
import { until, writeFiles } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

async function setUp(t: TestContext) {
  const server = await TestServer.start(t, { earlier: true });
  const env = await server.createBucket();
  const call = (method: string, rest: string, body?: unknown, options: CallOptions = {}) =>
    server.call(method, `${env.path}/${rest}`, { ...options, ...(body !== undefined && { body }) });
  const read = (file: string) => readFileSync(path.join(env.folder, file), "utf8");
  return { server, env, call, read, layout: layoutOf(env.folder, "env.json") };
}

test("CP-902 CP-905 the environments below the root are listed by the names of their folders; there are no buckets", async (t) => {
  const { server, env } = await setUp(t);
  mkdirSync(path.join(server.root, "not-an-id"));
  writeFileSync(path.join(server.root, "not-an-id", "env.json"), "{}");
  const { status, body } = await server.call("GET", "/api/envs");
  assert.deepEqual([status, body.items.map(({ id }: { id: string }) => id)], [200, [env.id]]);
  assert.equal((await server.call("GET", "/api/buckets")).status, 404);
  assert.equal((await server.call("GET", "/api/envs", { authorization: null })).status, 401);
});

test("CP-903 CP-904 CP-905 a new environment has an id of the server's making, and its labels in env.json", async (t) => {
  const { server } = await setUp(t);
  const { status, body } = await server.call("POST", "/api/envs", { body: { project: "shop", name: "live" } });
  assert.equal(status, 201);
  const folder = path.join(server.root, body.id);
  const { project, name } = JSON.parse(readFileSync(path.join(folder, "env.json"), "utf8"));
  assert.deepEqual([project, name, body.initialized], ["shop", "live", true]);
  assert.ok(!readdirSync(folder).includes("bucket.json"));
  const renamed = await server.call("PUT", `/api/envs/${body.id}`, { body: { name: "test" } });
  assert.deepEqual([renamed.body.name, JSON.parse(readFileSync(path.join(folder, "env.json"), "utf8")).name], ["test", "test"]);
  const withId = await server.call("POST", "/api/envs", { body: { id: body.id, project: "shop", name: "live" } });
  assert.deepEqual([withId.status, withId.body.error], [400, "invalid_request"]);
  assert.equal((await server.call("DELETE", `/api/envs/${body.id}`)).status, 204);
  assert.equal((await server.call("GET", `/api/envs/${body.id}`)).body.error, "bucket_not_found");
});

test("CP-913 CP-927 CP-928 CP-929 CP-930 there is no TOTP, session exchange, push or revision", async (t) => {
  const { server, env } = await setUp(t);
  for (const [method, target] of [
    ["POST", "/api/auth/session"],
    ["GET", "/api/auth/session"],
    ["POST", `${env.path}/push`],
    ["GET", `${env.path}/source/revisions`],
    ["GET", `${env.path}/source/revisions/${env.id}/diff`],
    ["POST", `${env.path}/source/rollback`],
    ["POST", "/api/auth/totp/verify"],
  ] as const)
    assert.equal((await server.call(method, target)).status, 404, target);
});

test("CP-910 the server's own token is the only one", async (t) => {
  const { server } = await setUp(t);
  const access = await AccessStore.open(accessFile(server.root), {});
  const { text } = await access.create({
    name: "anna",
    role: "admin",
    buckets: null,
    totp: "common",
    created_by: "root",
    lifetimeMs: undefined,
  });
  await server.stop();
  await server.open();
  assert.equal((await server.call("GET", "/api/envs", { authorization: `Bearer ${text}` })).status, 401);
  assert.equal((await server.call("GET", "/api/envs")).status, 200);
});

test("CP-914 the token is exchanged for a cookie, which reads everything and changes only from the server's own pages", async (t) => {
  const { server } = await setUp(t);
  const { status, headers } = await server.call("POST", "/signin");
  const [setCookie = ""] = headers.getSetCookie();
  assert.equal(status, 200);
  assert.match(setCookie, /^ops_serve_token=[\w-]+\.[\w-]+; Path=\/; Max-Age=43200; HttpOnly; SameSite=Strict$/);
  assert.ok(!setCookie.includes("token-of-this-test"));
  const cookie = setCookie.split(";")[0] as string;
  const by = (method: string, target: string, more: Record<string, string> = {}) =>
    server.call(method, target, { authorization: null, headers: { cookie, ...more }, body: method === "POST" ? {} : undefined });
  for (const target of ["/api/envs", "/openapi.yaml", "/docs/"]) assert.equal((await by("GET", target)).status, 200, target);
  const own = { origin: server.url, "x-ops-csrf": "1" };
  assert.equal((await by("POST", "/api/envs")).body.error, "csrf_failed");
  assert.equal((await by("POST", "/api/envs", own)).body.error, "invalid_request");
  assert.equal((await by("POST", "/signin", own)).status, 401, "a cookie cannot prolong itself");
  assert.equal((await by("DELETE", "/signin", own)).status, 204);
  assert.equal((await by("GET", "/api/envs")).status, 401);
  assert.equal((await server.call("POST", "/signin", { authorization: "Bearer wrong" })).status, 401);
});

test("the cookie of a server with another key, or after 12 hours, is refused", async (t) => {
  const { server } = await setUp(t);
  const signIn = async () => (await server.call("POST", "/signin")).headers.getSetCookie()[0]?.split(";")[0] as string;
  const status = async (cookie: string) =>
    (await server.call("GET", "/api/envs", { authorization: null, headers: { cookie } })).status;
  const cookie = await signIn();
  server.aheadMs = 12 * 3_600_000;
  assert.equal(await status(cookie), 401);
  const present = await TestServer.start(t);
  const other = (await present.call("POST", "/api/auth/session")).headers.getSetCookie()[0]?.split(";")[0] as string;
  assert.equal(await status(other.replace("ops_server_session", "ops_serve_token")), 401);
});

test("CP-915 CP-916 the page, the viewer and the description come from the server itself; only the page is public", async (t) => {
  const { server } = await setUp(t);
  const page = await server.call("GET", "/", { authorization: null });
  assert.equal(page.status, 200);
  for (const [, target = ""] of page.text.matchAll(/(?:src|href)="([^"]+)"/g)) {
    const { status } = await server.call("GET", target);
    assert.deepEqual([target.startsWith("/"), status], [true, 200], target);
  }
  for (const target of ["/docs", "/docs/", "/docs/index.html", "/docs/nothing", "/openapi.yaml", "/openapi.json"])
    assert.equal((await server.call("GET", target, { authorization: null })).status, 401, target);
  const viewer = await server.call("GET", "/docs/");
  assert.doesNotMatch(viewer.text, /https?:\/\//);
  const yaml = await server.call("GET", "/openapi.yaml");
  assert.equal(yaml.text, toYaml(openApiDocument(EARLIER_GROUPS, EARLIER_ABOUT)));
  assert.equal((await server.call("GET", "/index.html", { authorization: null })).text, page.text);
});

test("CP-902 CP-913 CP-916 the description is valid, has every route of this API, and no TOTP", async () => {
  const document = openApiDocument(EARLIER_GROUPS, EARLIER_ABOUT);
  const text = toYaml(document);
  const validator = new Validator();
  const { valid, errors } = await validator.validate(text);
  assert.ok(valid, JSON.stringify(errors));
  validator.resolveRefs();
  const { paths, security } = document as { paths: Record<string, Record<string, { operationId: string }>>; security: object[] };
  const described = Object.entries(paths).flatMap(([place, methods]) =>
    Object.keys(methods).map((method) => `${method} ${place}`),
  );
  const routes = EARLIER_ROUTES.map((route) => `${route.method.toLowerCase()} ${route.path.replace("*}", "}")}`);
  assert.deepEqual(described.sort(), routes.sort());
  const ids = Object.values(paths).flatMap((methods) => Object.values(methods).map(({ operationId }) => operationId));
  assert.equal(new Set(ids).size, ids.length);
  assert.deepEqual(security, [{ bearer: [] }, { session: [] }]);
  assert.doesNotMatch(
    JSON.stringify(paths),
    /totp_(?:required|code|session)|bucket\.json|\/api\/buckets|ops_server_session|\ba bucket\b/,
  );
  for (const { path: place, body } of EARLIER_ROUTES) {
    const media = Object.values(paths[place] ?? {}).flatMap((one) => (one as { requestBody?: unknown }).requestBody ?? []);
    const examples = media.map(
      (one) => (one as { content: Record<string, { example: unknown }> }).content["application/json"]?.example,
    );
    if (body)
      assert.ok(
        examples.some((one) => check(body, one).ok),
        place,
      );
  }
});

test("CP-917 a settings file is replaced, checked as a build does, and whole", async (t) => {
  const { call, read } = await setUp(t);
  for (const [name, file, good, bad] of [
    ["maand", "ops.conf", "ssh_port = 2222\n", "ssh_prt = 2222\n"],
    ["bucket", "workspace/bucket.conf", "port_min = 31000\nport_max = 31999\n", "port_min = 5\nport_max = 1\n"],
    ["job_resources/default", "workspace/bucket.jobs.conf", '[web]\nmemory = "1 gb"\n', "web = 1\n"],
    ["job_resources/live", "workspace/bucket.jobs.live.conf", '[web]\nmemory = "2 gb"\n', "web = 1\n"],
  ] as const) {
    const { status, body } = await call("PATCH", `settings/${name}`, { content: good });
    assert.deepEqual([status, body.path, body.content, body.problem], [200, file, good, null], JSON.stringify(body));
    assert.equal(read(file), good);
    assert.deepEqual((await call("GET", `settings/${name}`)).body, body);
    const refused = await call("PATCH", `settings/${name}`, { content: bad });
    assert.deepEqual([refused.status, refused.body.error], [400, "invalid_source"]);
    assert.match(refused.body.message, new RegExp(`^${file}: `));
    assert.equal(read(file), good);
  }
  assert.equal((await call("PATCH", "settings/job_resources/a%20b", { content: "" })).body.error, "file_not_found");
  assert.equal((await call("PATCH", "settings/maand", {})).body.error, "invalid_request");
});

test("CP-917 nothing is written through a symbolic link", async (t) => {
  const { server, env, call } = await setUp(t);
  const outside = path.join(server.root, "outside");
  mkdirSync(outside);
  symlinkSync(outside, path.join(env.folder, "workspace"));
  assert.equal((await call("PATCH", "settings/bucket", { content: "" })).status, 500);
  assert.deepEqual(readdirSync(outside), []);
});

test("CP-918 CP-919 CP-920 CP-921 workers are listed, added, replaced and removed, one entry of workers.json each", async (t) => {
  const { call, read } = await setUp(t);
  const workers = () => JSON.parse(read("workspace/workers.json"));
  assert.deepEqual((await call("GET", "workers")).body.items, []);
  const first = { host: "10.0.0.1", labels: ["web"], memory: "4 gb" };
  const added = await call("POST", "workers", first);
  assert.deepEqual([added.status, added.body.host, added.body.memory_mb], [201, "10.0.0.1", 4096]);
  assert.equal((await call("POST", "workers", { host: "fd00::1" })).status, 201);
  assert.deepEqual(workers(), [first, { host: "fd00::1" }]);
  assert.deepEqual((await call("GET", "workers")).body.items.length, 2);
  assert.deepEqual((await call("GET", "workers/10.0.0.1")).body, added.body);
  const replaced = await call("PUT", "workers/fd00:0::1", { host: "10.0.0.2", ssh_port: 2222 });
  assert.deepEqual([replaced.status, replaced.body.ssh_port], [200, 2222]);
  assert.deepEqual(workers(), [first, { host: "10.0.0.2", ssh_port: 2222 }]);
  assert.equal((await call("DELETE", "workers/10.0.0.1")).status, 204);
  assert.deepEqual(workers(), [{ host: "10.0.0.2", ssh_port: 2222 }]);
  const third = { host: "10.0.0.3", labels: ["db"] };
  assert.equal((await call("POST", "workers", { host: third.host })).status, 201);
  assert.deepEqual((await call("PUT", "workers", third)).body, (await call("GET", "workers/10.0.0.3")).body);
  assert.deepEqual(workers()[1], third);
  assert.equal((await call("DELETE", "workers", { host: third.host })).status, 204);
  assert.deepEqual(workers(), [{ host: "10.0.0.2", ssh_port: 2222 }]);
  for (const [method, rest, body, status, error] of [
    ["POST", "workers", { host: "10.0.0.2" }, 400, "invalid_source"],
    ["POST", "workers", { host: "10.0.0.3", colour: "red" }, 400, "invalid_request"],
    ["POST", "workers", { labels: [] }, 400, "invalid_request"],
    ["GET", "workers/10.0.0.9", undefined, 404, "not_found"],
    ["PUT", "workers/10.0.0.9", first, 404, "not_found"],
    ["DELETE", "workers/10.0.0.9", undefined, 404, "not_found"],
    ["PUT", "workers", first, 404, "not_found"],
    ["PUT", "workers", { labels: [] }, 400, "invalid_request"],
    ["DELETE", "workers", { host: "10.0.0.9" }, 404, "not_found"],
    ["DELETE", "workers", undefined, 400, "invalid_request"],
  ] as const) {
    const reply = await call(method, rest, body);
    assert.deepEqual([reply.status, reply.body.error], [status, error], `${method} ${rest}`);
  }
  assert.deepEqual(workers(), [{ host: "10.0.0.2", ssh_port: 2222 }]);
});

test("a workers.json that no build would take is not changed", async (t) => {
  const { env, call, read } = await setUp(t);
  writeFiles(env.folder, { "workspace/workers.json": '[{"host": 5}]' });
  const { status, body } = await call("POST", "workers", { host: "10.0.0.1" });
  assert.deepEqual([status, body.error], [400, "invalid_source"]);
  assert.match(body.message, /^workspace\/workers\.json: 0\/host: expected /);
  assert.equal(read("workspace/workers.json"), '[{"host": 5}]');
});

test("CP-922 CP-923 every folder of templates/ is a template, which a new job is a copy of", async (t) => {
  const { env, call, read } = await setUp(t);
  const manifest = '{"version": "1.0.0", "selectors": ["worker"]}';
  for (const name of ["web", "cache"])
    writeFiles(env.folder, { [`templates/${name}/manifest.json`]: manifest, [`templates/${name}/Makefile`]: `# ${name}\n` });
  writeFiles(env.folder, { "templates/bare/Makefile": "# bare\n" });
  const listed = (await call("GET", "templates")).body.items.map(({ name }: { name: string }) => name);
  assert.deepEqual(listed, ["bare", "cache", "web"]);
  for (const template of listed) {
    const { status, body } = await call("POST", "jobs", { name: `my-${template}`, template });
    assert.deepEqual([status, body.name], [201, `my-${template}`]);
    const files = template === "bare" ? ["Makefile"] : ["Makefile", "manifest.json"];
    assert.deepEqual(
      body.files.sort(),
      files.map((file) => `workspace/jobs/my-${template}/${file}`),
    );
    for (const file of files) assert.equal(read(`workspace/jobs/my-${template}/${file}`), read(`templates/${template}/${file}`));
  }
  for (const body of [
    { name: "my-web", template: "web" },
    { name: "other", template: "nothing" },
    { name: "A B", template: "web" },
    { name: "other" },
  ])
    assert.equal((await call("POST", "jobs", body)).body.error, "invalid_request", JSON.stringify(body));
});

test("a change of the source waits for no run: an environment at work refuses it", async (t) => {
  const { call, layout } = await setUp(t);
  await using _ = await acquireLock(layout, uuidV7(), "deploy");
  for (const [method, rest, body] of [
    ["PATCH", "settings/bucket", { content: "" }],
    ["POST", "workers", { host: "10.0.0.1" }],
    ["PUT", "workers/10.0.0.1", { host: "10.0.0.1" }],
    ["DELETE", "workers/10.0.0.1", undefined],
    ["POST", "jobs", { name: "web", template: "service" }],
  ] as const) {
    const reply = await call(method, rest, body);
    assert.deepEqual([reply.status, reply.body.error], [409, "bucket_busy"], rest);
  }
});

test("CP-924 CP-925 CP-926 what was changed here is built and deployed, and its job started, stopped and restarted", async (t) => {
  const { server, env, call } = await setUp(t);
  makeWorkspace(env.folder, {
    workers: [{ host: "127.0.0.1", connection: "local", root: path.join(server.root, "..", "worker") }],
    jobs: { web: { version: "1.0.0", selectors: ["worker"] } },
  });
  const run = async (rest: string) => {
    const { status, body } = await call("POST", rest, {});
    assert.equal(status, 202, body.message);
    const ended = await server.ended(env.path, body.run_id);
    return [ended.kind, ended.status, ended.bucket_id];
  };
  for (const [rest, kind] of [
    ["build", "build"],
    ["deploy", "deploy"],
    ["jobs/web/stop", "job_stop"],
    ["jobs/web/start", "job_start"],
    ["jobs/web/restart", "job_restart"],
  ] as const)
    assert.deepEqual(await run(rest), [kind, "succeeded", env.id]);
});

test("CP-931 CP-932 CP-933 one run at a time in all environments, until it has ended or was cancelled", async (t) => {
  const { server, env, call } = await setUp(t);
  const other = await server.createBucket();
  const build = (place: { path: string }, headers: Record<string, string> = {}) =>
    server.call("POST", `${place.path}/build`, { body: {}, headers });
  server.hold();
  const { body: first } = await build(env);
  for (const place of [env, other]) {
    const { status, body } = await build(place);
    assert.deepEqual([status, body.error, body.run_id], [409, "busy", first.run_id]);
    assert.ok(body.message.includes(`run ${first.run_id} of environment ${env.id}`), body.message);
    assert.equal(body.details.env_id, env.id);
  }
  assert.deepEqual((await server.call("GET", `${other.path}/runs`)).body.items, []);
  const cancelled = await call("POST", `runs/${first.run_id}/cancel`, {});
  assert.equal(cancelled.status, 202);
  server.release();
  assert.equal((await server.ended(env.path, first.run_id)).status, "cancelled");
  const { body: second } = await build(other);
  assert.equal((await server.ended(other.path, second.run_id)).status, "succeeded");
});

test("CP-931 of starts that come together one is taken, and a refused start leaves the place", async (t) => {
  const { server, env, layout } = await setUp(t);
  const other = await server.createBucket();
  const lock = await acquireLock(layout, uuidV7(), "deploy");
  const refused = await server.call("POST", `${env.path}/build`, { body: {} });
  assert.deepEqual([refused.status, refused.body.error], [409, "bucket_busy"]);
  await lock.release();
  server.hold();
  const replies = await Promise.all(
    [env, other, env, other].map((one) => server.call("POST", `${one.path}/build`, { body: {} })),
  );
  assert.deepEqual(replies.map(({ status }) => status).sort(), [202, 409, 409, 409]);
});

test("a start in line waits for the run of another environment", async (t) => {
  const { server, env } = await setUp(t);
  const other = await server.createBucket();
  server.hold();
  const { body: first } = await server.call("POST", `${env.path}/build`, { body: {} });
  const headers = { "Idempotency-Key": "second-start", "Ops-Wait": "60" };
  const waiting = server.call("POST", `${other.path}/build`, { body: {}, headers });
  await until("the start in line", async () => (await server.call("GET", `${other.path}/queue`)).body.items.length === 1);
  server.release();
  await server.ended(env.path, first.run_id);
  const { status, body } = await waiting;
  assert.equal(status, 202, body.message);
  assert.equal((await server.ended(other.path, body.run_id)).status, "succeeded");
});

test("CP-934 CP-935 wrong tokens are counted for each address; then every token from there is refused for a while", async (t) => {
  const { server } = await setUp(t);
  const status = async (authorization: string, from: string) =>
    (await server.call("GET", "/api/envs", { authorization, from })).status;
  for (let failure = 1; failure <= 20; failure++) assert.equal(await status("Bearer wrong", "127.0.0.2"), 401);
  assert.equal(await status("Bearer wrong", "127.0.0.2"), 429);
  assert.equal(await status("Bearer token-of-this-test", "127.0.0.2"), 429);
  assert.equal(await status("Bearer token-of-this-test", "127.0.0.3"), 200);
  server.aheadMs = 60_000;
  assert.equal(await status("Bearer token-of-this-test", "127.0.0.2"), 200);
});

test("a snapshot of an environment leaves its labels as they are", async (t) => {
  const { server, env, call, read } = await setUp(t);
  const labels = read("env.json");
  const run = async (rest: string) => {
    const { status, body } = await call("POST", rest, {});
    assert.equal(status, 202, body.message);
    return await server.ended(env.path, body.run_id);
  };
  assert.equal((await run("snapshots")).status, "succeeded");
  const [{ name }] = (await call("GET", "snapshots")).body.items;
  assert.equal((await run(`snapshots/${name}/restore`)).status, "succeeded");
  assert.equal(read("env.json"), labels);
  assert.equal(statSync(path.join(env.folder, "env.json")).mode & 0o777, 0o600);
  assert.ok(!readdirSync(env.folder).includes("bucket.json"));
});
