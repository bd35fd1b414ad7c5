import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf, runLayout } from "../../lib/bucket/base/layout.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { ops } from "../../scripts/local-server.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

const REASON = "The site is down – “now”";

test("CP-520 the reason of a broken glass is in the run, in the list of runs, and in the first lines of Activity", async (t) => {
  const server = await TestServer.start(t);
  const { path, folder } = await server.createBucket();
  const headers = { "Ops-Break-Glass": encodeURIComponent(REASON) };
  const { body } = await server.call("POST", `${path}/build`, { body: {}, headers });
  const run = await server.ended(path, body.run_id);
  assert.equal(run.break_glass, REASON);
  const { items } = (await server.call("GET", `${path}/runs`)).body;
  assert.equal(items[0].break_glass, REASON);
  const [first, second] = readFileSync(runLayout(layoutOf(folder), run.id).activity, "utf8").split("\n");
  assert.match(first ?? "", /^build of bucket /);
  assert.equal(second, `warning: BREAK GLASS: ${REASON}`);
  const plain = await server.call("POST", `${path}/build`, { body: {} });
  assert.equal((await server.ended(path, plain.body.run_id)).break_glass, null);
});

test("CP-520 a blank, long or undecodable reason is refused, and starts nothing", async (t) => {
  const server = await TestServer.start(t);
  const { path } = await server.createBucket();
  for (const reason of ["", "%20%20", "a%0Ab", "%E0", "x".repeat(201), "%E2%80%AE"]) {
    const headers = { "Ops-Break-Glass": reason };
    const { status, body } = await server.call("POST", `${path}/build`, { body: {}, headers });
    assert.deepEqual([status, body.error, body.details[0].path], [400, "invalid_request", "Ops-Break-Glass"], reason);
  }
  assert.deepEqual((await server.call("GET", `${path}/runs`)).body.items, []);
});

test("CP-520 a secret of the bucket in the reason is masked before it is stored", async (t) => {
  const server = await TestServer.start(t);
  const { path, folder } = await server.createBucket();
  const layout = layoutOf(folder);
  const key = await loadKvKey(layout);
  {
    using db = openDatabase(layout.database);
    const kv = new KvStore(db, key);
    kv.put("secrets/job/web", "password", "correct-horse");
    kv.flush("web");
  }
  const headers = { "Ops-Break-Glass": "because%20correct-horse%20leaked" };
  const { body } = await server.call("POST", `${path}/build`, { body: {}, headers });
  const { break_glass } = await server.ended(path, body.run_id);
  assert.match(break_glass, /^because \S+ leaked$/);
  assert.ok(!break_glass.includes("correct-horse"));
});

test("CP-520 --break-glass sends its reason, and the command says last what it has done, here and on a server", async (t) => {
  const server = await TestServer.start(t);
  const { id, folder } = await server.createBucket();
  makeWorkspace(folder, { workers: ["127.0.0.1"] });
  const env = { OPS_SERVE_TOKEN: TOKEN, OPS_SERVER: server.url, OPS_BUCKET: id };
  for (const where of [[], ["--local", "--bucket-dir", folder]]) {
    const { code, stderr } = await ops(["build", "--break-glass", REASON, ...where], { env });
    assert.equal(code, 0, stderr);
    assert.match(
      stderr.trimEnd().split("\n").at(-1) ?? "",
      /^BREAK GLASS: run \w{8} went past what holds runs back: The site is down/,
    );
  }
  const { stdout } = await ops(["runs"], { env });
  assert.equal(stdout.match(/BREAK GLASS: The site is down/g)?.length, 2, stdout);
  assert.match((await ops(["runs", "show"], { env })).stdout, /BREAK GLASS +The site is down/);
  const blank = await ops(["build", "--break-glass", " "], { env });
  assert.deepEqual(
    [blank.code, blank.stderr],
    [2, "ops: --break-glass: expected a reason, one line of at most 200 characters\n"],
  );
});
