import assert from "node:assert/strict";
import { test } from "node:test";
import { TOKEN_ROLES } from "../../../lib/auth/access-file.ts";
import { covers } from "../../../lib/auth/role.ts";
import { ruleOf } from "../../../lib/server/people/permission.ts";
import { ROUTES } from "../../../lib/server/routes/table.ts";
import { TestServer } from "../../helpers/server.ts";
import { until } from "../../helpers/temporary.ts";

const NO_BUCKET = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";

/** A path of a route: of a bucket that is not there, so that what is allowed has no effect. */
function pathOf(path: string): string {
  return path.replace("{bucket_id}", NO_BUCKET).replaceAll(/\{\w+\*?\}/g, "x");
}

test("CP-500 every route of the table, asked with every role: 403 forbidden with less than the column says, and never with as much", async (t) => {
  const server = await TestServer.start(t);
  for (const role of TOKEN_ROLES) {
    const { authorization } = await server.makeToken({ name: role, role });
    for (const route of ROUTES) {
      const rule = ruleOf(route.role);
      const least = rule.or?.role ?? rule.role;
      const body = route.method === "GET" || route.method === "DELETE" ? undefined : {};
      const { status, body: answer } = await server.call(route.method, pathOf(route.path), { authorization, body });
      const what = `${role}: ${route.method} ${route.path} is ${status} ${answer?.error ?? ""}`;
      assert.notEqual(status, 401, what);
      assert.notEqual(status, 500, what);
      assert.equal(answer?.error === "forbidden", !covers(role, least), what);
      if (answer?.error !== "forbidden") continue;
      assert.deepEqual([status, answer.details], [403, { role: least }], what);
      assert.equal(answer.message, `this needs the role ${least}; the token "${role}" has ${role}`);
    }
  }
});

test("CP-502 every route below a bucket, asked with a token of another one, is 403, there or not, for every role", async (t) => {
  const server = await TestServer.start(t);
  const [mine, other] = [await server.createBucket(), await server.createBucket()];
  for (const role of TOKEN_ROLES) {
    const { authorization } = await server.makeToken({ name: role, role, buckets: [mine.id] });
    for (const { method, path } of ROUTES.filter((route) => route.path.startsWith("/api/buckets/")))
      for (const id of [other.id, other.id.toUpperCase(), NO_BUCKET]) {
        const target = path.replace("{bucket_id}", id).replaceAll(/\{\w+\*?\}/g, "x");
        const { status, body } = await server.call(method, target, { authorization });
        assert.deepEqual([status, body?.error], [403, "forbidden"], `${role}: ${method} ${target}`);
      }
    assert.equal((await server.call("GET", mine.path, { authorization })).status, 200);
    for (const [method, path] of ROUTES.filter(({ role: needs }) => ruleOf(needs).everywhere).map((r) => [r.method, r.path])) {
      const { status, body } = await server.call(method as string, pathOf(path as string), { authorization });
      assert.deepEqual([status, body?.error], [403, "forbidden"], `${role}: ${method} ${path}`);
    }
  }
  assert.equal(server.inRoot().filter((name) => name !== "access.json").length, 2, "both buckets are there");
});

test("CP-502 lists, summaries and metrics show a token of one bucket that bucket alone", async (t) => {
  const server = await TestServer.start(t);
  const [mine, other] = [await server.createBucket({ name: "mine" }), await server.createBucket({ name: "other" })];
  const { authorization } = await server.makeToken({ name: "ci", role: "admin", buckets: [mine.id] });
  for (const target of ["/api/buckets", "/api/summary"]) {
    const { body } = await server.call("GET", target, { authorization });
    assert.deepEqual(
      body.items.map(({ id }: { id: string }) => id),
      [mine.id],
    );
  }
  const { text } = await server.call("GET", "/metrics", { authorization });
  assert.match(text, /ops_bucket_readable\{.*mine/);
  assert.doesNotMatch(text, new RegExp(`${other.id}|other|ops_runs_total|ops_http|process_`));
  assert.match((await server.call("GET", "/metrics")).text, /ops_http_connections/);
});

test("CP-501 what a role may do depends on the body: a dry run, one's own run, one's own place in line", async (t) => {
  const server = await TestServer.start(t);
  const { path } = await server.createBucket();
  const operator = await server.makeToken({ name: "olga", role: "operate" });
  const deployer = await server.makeToken({ name: "dora", role: "deploy" });
  const start = (authorization: string, what: string, body: object, headers = {}) =>
    server.call("POST", `${path}/${what}`, { authorization, body, headers });
  for (const body of [{}, { dry_run: true, build: true }, { dry_run: true, with_hooks: true }, { retry_of: NO_BUCKET }]) {
    const refused = await start(operator.authorization, "deploy", body);
    assert.deepEqual([refused.status, refused.body.details], [403, { role: "deploy" }], JSON.stringify(body));
  }
  server.hold();
  const dry = await start(operator.authorization, "deploy", { dry_run: true });
  assert.equal(dry.status, 202, dry.body.message);
  const cancel = (authorization: string, id: string) => start(authorization, `runs/${id}/cancel`, {});
  assert.equal((await cancel(operator.authorization, dry.body.run_id)).status, 202);
  server.release();
  const ended = await server.ended(path, dry.body.run_id);
  assert.deepEqual(
    ended.audit.slice(0, 2).map((entry: { actor: { name: string } }) => entry.actor.name),
    ["olga", "olga"],
  );
  server.hold();
  const build = (await start(deployer.authorization, "build", {})).body.run_id;
  const foreign = await cancel(operator.authorization, build);
  assert.deepEqual([foreign.status, foreign.body.details], [403, { role: "deploy" }]);
  const waiting = start(deployer.authorization, "build", {}, { "Idempotency-Key": "of-dora-1", "Ops-Wait": "30" });
  await untilWaiting(server, path);
  const leave = (authorization: string) => server.call("DELETE", `${path}/queue/of-dora-1`, { authorization });
  assert.equal((await leave(operator.authorization)).status, 403);
  assert.equal((await leave(deployer.authorization)).status, 204);
  assert.equal((await waiting).status, 409);
  assert.equal((await cancel(deployer.authorization, build)).status, 202);
  server.release();
  await server.ended(path, build);
});

async function untilWaiting(server: TestServer, path: string): Promise<void> {
  await until("the place in line", async () => (await server.call("GET", `${path}/queue`)).body.items.length === 1);
}
