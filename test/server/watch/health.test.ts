import assert from "node:assert/strict";
import { test } from "node:test";
import { openDatabase } from "../../../lib/bucket/base/database.ts";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { noteHealth, type Observation } from "../../../lib/bucket/health/health-history.ts";
import { uuidV7 } from "../../../lib/codec/uuid.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { ops } from "../../../scripts/local-server.ts";
import { TestServer } from "../../helpers/server.ts";
import { makeBucket } from "../../helpers/workspace.ts";

const DAY_MS = 24 * 3_600_000;
const HOSTS = ["10.0.0.1", "10.0.0.2"];
const found = (worker: string, state: string, reason = ""): Observation => ({
  job: "web",
  worker,
  aspect: "health",
  state,
  reason,
});

test("CP-984 the API shows how everything is and was, in pages, and the summary what is not well", async (t) => {
  const server = await TestServer.start(t);
  const bucket = await server.createBucket();
  {
    using db = openDatabase(layoutOf(bucket.folder).database);
    for (const host of HOSTS) {
      const row = [host, host] as const;
      db.run(
        "INSERT INTO worker (worker_ip, worker_id, position, connection, root, available_memory_mb, available_cpu_mhz) VALUES (?, ?, 0, 'local', '/x', 0, 0)",
        ...row,
      );
      db.run(
        "INSERT INTO allocations (alloc_id, worker_ip, job, disabled, removed, deployment_seq, new_version) VALUES (?, ?, 'web', 0, 0, 0, '1')",
        ...row,
      );
    }
    noteHealth(
      db,
      uuidV7(),
      HOSTS.map((host) => found(host, "healthy")),
      Date.now() - 80 * DAY_MS,
    );
    noteHealth(db, uuidV7(), [found("10.0.0.2", "unhealthy", "no answer")], Date.now() - 40 * DAY_MS);
  }
  const get = async (target: string) => (await server.call("GET", `${bucket.path}${target}`)).body;
  const { items, next_cursor } = await get("/health?limit=1");
  assert.deepEqual([items.length, items[0].worker, items[0].state, items[0].good_percent], [1, "10.0.0.1", "healthy", 100]);
  const rest = await get(`/health?cursor=${next_cursor}`);
  assert.deepEqual(
    [rest.items[0].worker, rest.items[0].state, rest.items[0].good_percent, rest.next_cursor],
    ["10.0.0.2", "unhealthy", 50, null],
  );
  assert.equal((await get("/health?job=other")).items.length, 0);
  const changes = await get("/health/changes?worker=10.0.0.2&limit=1");
  assert.deepEqual([changes.items[0].state, changes.items[0].reason], ["unhealthy", "no answer"]);
  assert.equal((await get(`/health/changes?worker=10.0.0.2&cursor=${changes.next_cursor}`)).items[0].state, "healthy");
  const { unwell } = await get("/summary");
  assert.deepEqual([unwell.total, unwell.items[0].worker], [1, "10.0.0.2"]);
  assert.equal((await server.call("GET", "/api/summary")).body.items[0].unwell_count, 1);
});

test("CP-984 ops health shows since when, how often and for how much of the time", async (t) => {
  const bucket = await makeBucket(t, { workers: HOSTS, jobs: { web: { selectors: ["worker"] } } });
  await build(bucket.context(), {});
  const run = async (...words: string[]) => (await ops(words, { cwd: bucket.dir })).stdout;
  for (const words of [[], ["web"]]) assert.match(await run("health", ...words), /^no run has looked yet/);
  const misspelt = await ops(["health", "wep"], { cwd: bucket.dir });
  assert.deepEqual([misspelt.code, misspelt.stderr], [1, 'ops: in the catalog there is no job "wep"; did you mean "web"?\n']);
  noteHealth(bucket.db, uuidV7(), [found("10.0.0.1", "healthy")], Date.now() - 80 * DAY_MS);
  noteHealth(bucket.db, uuidV7(), [found("10.0.0.1", "unhealthy", "no answer")], Date.now() - 40 * DAY_MS);
  assert.match(await run("health", "web"), /web@10\.0\.0\.1 +health +unhealthy +.*1 +50 % +no answer/);
  assert.equal(JSON.parse(await run("health", "--json"))[0].good_percent, 50);
  assert.match(await run("status"), /not well +web@10\.0\.0\.1 unhealthy/);
});
