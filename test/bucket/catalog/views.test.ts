import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { copyFileSync, rmSync } from "node:fs";
import { test } from "node:test";
import { beginRotation } from "../../../lib/bucket/base/authority-change.ts";
import { makePair } from "../../../lib/bucket/base/certificates.ts";
import type { Database } from "../../../lib/bucket/base/database.ts";
import { setLastOutcome } from "../../../lib/bucket/catalog/info.ts";
import { cursorOf, keyOf, type PageKey } from "../../../lib/bucket/catalog/pages.ts";
import { beginChange, promote, recordSynced, setStopped } from "../../../lib/bucket/catalog/promotions.ts";
import { bucketSummary } from "../../../lib/bucket/catalog/summary.ts";
import { catalogView, VIEW_NAMES, type ViewName, type ViewQuery, viewSources } from "../../../lib/bucket/catalog/views.ts";
import { fingerprintsOf } from "../../../lib/bucket/kv/kv-access.ts";
import { build } from "../../../lib/operation/build/build.ts";
import { makeBucket, makeWorkspace } from "../../helpers/workspace.ts";

const WORKERS = [
  { host: "10.0.0.2", labels: ["web"], tags: { zone: "b" }, memory: "2 gb", cpu: "4 ghz", hostname: "two" },
  { host: "10.0.0.1", labels: ["web", "db"], tags: { zone: "a" }, memory: "1 gb" },
];
const JOBS = {
  store: {
    version: "1.2.0",
    selectors: ["db"],
    resources: { ports: { store_tcp: 5432 } },
    hooks: { ready: { executed_on: ["cli", "post_deploy"] } },
  },
  site: {
    version: "2.0.0",
    after: ["store"],
    selectors: ["web"],
    resources: { memory: { min: "64 mb", max: "128 mb" } },
    hooks: { wait: { executed_on: ["pre_deploy"], demands: { job: "store", hook: "ready", config: { min_version: "1" } } } },
  },
};
const ALL = { limit: 1000 };

async function built(t: Parameters<typeof makeBucket>[0]) {
  const bucket = await makeBucket(t, { workers: WORKERS, jobs: JOBS });
  await build(bucket.context(), {});
  const view = (name: ViewName, query: ViewQuery = {}) => catalogView(bucket.db, name, query, ALL);
  const cells = (name: ViewName, columns: string[], query: ViewQuery = {}) =>
    view(name, query).items.map((item) => columns.map((column) => item[column]));
  return { ...bucket, view, cells };
}

test("HR-085 HR-086 each view shows what was built, in a fixed order", async (t) => {
  const { cells, view } = await built(t);
  assert.deepEqual(cells("workers", ["worker_ip", "hostname", "zone", "cpu_mhz", "memory_mb", "labels"]), [
    ["10.0.0.2", "two", "b", 4000, 2048, "web,worker"],
    ["10.0.0.1", null, "a", 0, 1024, "db,web,worker"],
  ]);
  assert.deepEqual(
    cells("jobs", ["job", "version", "disabled", "deployment_seq", "after", "memory_mb", "memory_source", "selectors"]),
    [
      ["site", "2.0.0", 0, 1, "store", 128, "manifest", "web"],
      ["store", "1.2.0", 0, 0, null, 0, "manifest", "db"],
    ],
  );
  assert.deepEqual(cells("allocations", ["job", "worker_ip", "zone", "deployment_seq", "disabled", "removed"]), [
    ["site", "10.0.0.2", "b", 1, false, false],
    ["site", "10.0.0.1", "a", 1, false, false],
    ["store", "10.0.0.1", "a", 0, false, false],
  ]);
  assert.deepEqual(cells("deployments", ["job", "deployment_seq"]), [
    ["site", 1],
    ["site", 1],
    ["store", 0],
  ]);
  assert.deepEqual(cells("hooks", ["job", "hook", "executed_on", "demand_job", "demand_hook", "demand_config"]), [
    ["site", "wait", "pre_deploy", "store", "ready", '{"min_version":"1"}'],
    ["store", "ready", "cli", "", "", "{}"],
    ["store", "ready", "post_deploy", "", "", "{}"],
  ]);
  assert.deepEqual(view("ports").items, [{ job: "store", name: "store_tcp", port: 5432 }]);
  for (const name of VIEW_NAMES)
    for (const item of view(name).items) assert.deepEqual(Object.keys(item), [...view(name).columns]);
});

test("HR-144 HR-145 HR-233 deployments tell how far each allocation is", async (t) => {
  const { db, cells, context, dir } = await built(t);
  const rollouts = () => Object.fromEntries(cells("deployments", ["worker_ip", "rollout"], { jobs: ["site"] }));
  const ids = new Map(cells("allocations", ["worker_ip", "allocation_id"], { jobs: ["site"] }) as [string, string][]);
  const one = ids.get("10.0.0.1") as string;
  assert.deepEqual(rollouts(), { "10.0.0.1": "new", "10.0.0.2": "new" });
  beginChange(db, "site", [one]);
  recordSynced(db, "site", [{ id: one, hash: "h1", files: {}, updateSeq: 1 }]);
  promote(db, { job: "site", id: one }, "2.0.0", "pending");
  const columns = ["rollout", "gate", "current_version", "new_version"];
  assert.deepEqual(cells("deployments", columns, { jobs: ["site"] }), [
    ["new", "", "0.0.0", "2.0.0"],
    ["promoted", "pending", "2.0.0", "2.0.0"],
  ]);
  beginChange(db, "site", [one]);
  assert.equal(rollouts()["10.0.0.1"], "update");
  recordSynced(db, "site", [{ id: one, hash: "h1", files: {}, updateSeq: 1 }]);
  promote(db, { job: "site", id: one }, "2.0.0");
  makeWorkspace(dir, {
    workers: WORKERS.filter(({ host }) => host === "10.0.0.1"),
    jobs: { site: { ...JOBS.site, version: "2.1.0", after: [], hooks: {} } },
    files: { "workspace/disabled.json": JSON.stringify({ jobs: { site: {} } }) },
  });
  await build(context(), {});
  assert.deepEqual(rollouts(), { "10.0.0.1": "stop", "10.0.0.2": "removed" });
  setStopped(db, "site", one, "done");
  assert.deepEqual(rollouts(), { "10.0.0.1": "disabled", "10.0.0.2": "removed" });
  assert.deepEqual(cells("deployments", ["worker_ip"], { jobs: ["site"], active: true }), []);
});

for (const [what, name, query, expected] of [
  ["jobs", "allocations", { jobs: ["store"] }, ["store@10.0.0.1"]],
  ["jobs in capitals", "allocations", { jobs: ["STORE"] }, ["store@10.0.0.1"]],
  ["workers", "allocations", { workers: ["10.0.0.2"] }, ["site@10.0.0.2"]],
  ["both", "allocations", { jobs: ["site"], workers: ["10.0.0.1"] }, ["site@10.0.0.1"]],
  ["jobs of which one is unknown", "allocations", { jobs: ["store", "nowhere"] }, ["store@10.0.0.1"]],
] as [string, ViewName, ViewQuery, string[]][])
  test(`a view filters by ${what}`, async (t) => {
    const { view } = await built(t);
    assert.deepEqual(
      view(name, query).items.map((item) => `${item.job}@${item.worker_ip}`),
      expected,
    );
  });

test("a filter whose names are all unknown, or that the view does not have, is refused", async (t) => {
  const { view } = await built(t);
  assert.throws(() => view("jobs", { jobs: ["stor"] }), {
    code: "not_found",
    message: 'in the catalog there is no job "stor"; did you mean "store"?',
  });
  assert.throws(() => view("allocations", { workers: ["10.0.0.9"] }), {
    code: "not_found",
    message: /^in the catalog there is no worker "10\.0\.0\.9"/,
  });
  assert.throws(() => view("ports", { workers: ["10.0.0.1"] }), { code: "invalid_request" });
  assert.throws(() => view("jobs", { deleted: true }), { code: "invalid_request" });
});

test("each view has its own filters, and refuses all others unless they say nothing", async (t) => {
  const { view } = await built(t);
  const given: ViewQuery = {
    jobs: ["site"],
    workers: ["10.0.0.1"],
    active: true,
    state: ["new"],
    outcome: ["ok"],
    deleted: true,
  };
  const has = (name: ViewName) =>
    Object.entries(given).flatMap(([filter, value]) => {
      view(name, { [filter]: undefined });
      if (value === true) view(name, { [filter]: false });
      try {
        view(name, { [filter]: value });
        return filter;
      } catch (error) {
        const message = `${filter}: cat ${name} has no such filter`;
        assert.deepEqual([(error as { code?: string }).code, (error as Error).message], ["invalid_request", message]);
        return [];
      }
    });
  assert.deepEqual(Object.fromEntries(VIEW_NAMES.map((name) => [name, has(name).join(" ")])), {
    workers: "workers active",
    jobs: "jobs active",
    allocations: "jobs workers active state outcome",
    deployments: "jobs workers active state outcome",
    hooks: "jobs",
    ports: "jobs",
    kv: "jobs active deleted",
    certs: "jobs workers",
  });
  for (const name of VIEW_NAMES)
    for (const item of view(name).items)
      for (const [column, cell] of Object.entries(item))
        if (
          ["disabled", "removed", "deleted"].includes(column) &&
          !(name === "workers" && column === "disabled") &&
          name !== "jobs"
        )
          assert.equal(typeof cell, "boolean", `${name} ${column}`);
});

test("pages keep their order and tell whether more follows", async (t) => {
  const { db } = await built(t);
  const first = catalogView(db, "allocations", {}, { limit: 2 });
  const second = catalogView(db, "allocations", {}, { after: first.next ?? [], limit: 2 });
  assert.deepEqual([first.items.length, first.next !== null, second.items.length, second.next], [2, true, 1, null]);
  assert.deepEqual([...first.items, ...second.items], catalogView(db, "allocations", {}, ALL).items);
});

/** All rows of a view, read with pages of `limit`. */
function paged(db: Database, name: ViewName, query: ViewQuery, limit: number) {
  const items = [];
  for (let after: PageKey | undefined; ; ) {
    const page = catalogView(db, name, query, { after: keyOf(cursorOf(after ?? null) ?? undefined), limit });
    assert.ok(page.items.length <= limit);
    items.push(...page.items);
    if (page.next === null) return items;
    after = page.next;
  }
}

test("CP-382 pages of any size, with any filters, have all rows in order and none twice", async (t) => {
  const { db, view } = await built(t);
  const [one] = view("allocations").items;
  setLastOutcome(db, String(one?.allocation_id), "run", { action: "sync", outcome: "failed", reason: "" });
  const jobs = ["site", "store"];
  const queries: Record<ViewName, ViewQuery[]> = {
    workers: [{}, { workers: ["10.0.0.1", "10.0.0.2"], active: true }],
    jobs: [{}, { jobs, active: true }],
    allocations: [{}, { jobs }, { workers: ["10.0.0.1"] }, { jobs, workers: ["10.0.0.1"], state: ["new"] }],
    deployments: [{ state: ["new", "promoted"] }, { outcome: ["failed", "ok"], jobs }, { state: ["unsettled", "new"] }],
    hooks: [{}, { jobs }],
    ports: [{}, { jobs }],
    kv: [{}, { jobs }, { jobs, deleted: true }],
    certs: [{}, { jobs }],
  };
  for (const [name, some] of Object.entries(queries) as [ViewName, ViewQuery[]][])
    for (const query of some) {
      const { items, next } = view(name, query);
      assert.equal(next, null);
      for (const limit of [1, 2, 3, 7])
        assert.deepEqual(paged(db, name, query, limit), items, `${name} ${JSON.stringify(query)} ${limit}`);
    }
});

test("a row that comes or goes between two pages moves no other row", async (t) => {
  const { db, view } = await built(t);
  const all = view("allocations").items;
  const first = catalogView(db, "allocations", {}, { limit: 2 });
  db.run("DELETE FROM allocations WHERE alloc_id = ?", String(all[0]?.allocation_id));
  const second = catalogView(db, "allocations", {}, { after: first.next ?? [], limit: 2 });
  assert.deepEqual([...first.items, ...second.items], all);
});

test("what is no cursor of this list is refused", async (t) => {
  const { db } = await built(t);
  for (const text of ["50", "x", Buffer.from('{"a":1}').toString("base64url"), Buffer.from("[null]").toString("base64url")])
    assert.throws(() => keyOf(text), {
      code: "invalid_request",
      message: "cursor: expected the next_cursor of an earlier answer",
    });
  assert.throws(() => catalogView(db, "ports", {}, { after: ["site"], limit: 1 }), { code: "invalid_request" });
});

test("CP-380 CP-381 states and outcomes follow what is recorded, and are counted for each job and worker", async (t) => {
  const { db, cells, dir, context } = await built(t);
  const columns = ["allocations", "promoted", "failed", "unreachable", "unsettled", "waiting", "new", "update", "disabled"];
  const site = () => cells("jobs", columns, { jobs: ["site"] })[0];
  const of = (query: ViewQuery) => cells("deployments", ["worker_ip"], { jobs: ["site"], ...query }).flat();
  const ids = cells("allocations", ["allocation_id"], { jobs: ["site"] }).flat() as string[];
  const [two, one] = ids as [string, string];
  assert.deepEqual(site(), [2, 0, 0, 0, 0, 2, 2, 0, 0]);
  beginChange(db, "site", [two, one]);
  assert.deepEqual(
    [site(), of({ state: ["unsettled"] })],
    [
      [2, 0, 0, 0, 2, 2, 2, 0, 0],
      ["10.0.0.2", "10.0.0.1"],
    ],
  );
  recordSynced(db, "site", [{ id: two, hash: "h1", files: {}, updateSeq: 1 }]);
  promote(db, { job: "site", id: two }, "2.0.0");
  setLastOutcome(db, two, "run", { action: "gate", outcome: "ok", reason: "" });
  setLastOutcome(db, one, "run", { action: "sync", outcome: "unreachable", reason: "no route" });
  assert.deepEqual(site(), [2, 1, 0, 1, 1, 0, 1, 0, 0], "what is unreachable does not count as waiting, too");
  assert.deepEqual([of({ state: ["promoted"] }), of({ outcome: ["unreachable"] })], [["10.0.0.2"], ["10.0.0.1"]]);
  assert.deepEqual(of({ state: ["promoted", "unsettled"] }), ["10.0.0.2", "10.0.0.1"]);
  assert.deepEqual(
    [of({ state: ["promoted"], outcome: ["unreachable"] }), of({ state: ["new"], workers: ["10.0.0.2"] })],
    [[], []],
  );
  assert.deepEqual(cells("workers", ["worker_ip", "allocations", "behind", "disabled"]), [
    ["10.0.0.2", 1, 0, 0],
    ["10.0.0.1", 2, 2, 0],
  ]);
  beginChange(db, "site", [two]);
  recordSynced(db, "site", [{ id: two, hash: "h1", files: {}, updateSeq: 2 }]);
  assert.deepEqual(
    [site(), of({ state: ["unsettled"] })],
    [[2, 0, 0, 1, 1, 1, 1, 1, 0], ["10.0.0.1"]],
    "the promoted files are back",
  );
  promote(db, { job: "site", id: two }, "2.0.0");
  makeWorkspace(dir, {
    workers: [...WORKERS].reverse(),
    jobs: { site: { ...JOBS.site, version: "2.1.0", after: [], hooks: {} } },
    files: { "workspace/disabled.json": JSON.stringify({ jobs: { site: { allocations: ["10.0.0.1"] } } }) },
  });
  await build(context(), {});
  assert.deepEqual(site(), [2, 0, 0, 1, 1, 1, 0, 1, 1]);
  assert.deepEqual(cells("deployments", ["worker_ip", "rollout"], { jobs: ["site"] }), [
    ["10.0.0.1", "stop"],
    ["10.0.0.2", "update"],
  ]);
  setStopped(db, "site", one, "done");
  assert.deepEqual(of({ state: ["disabled"] }), ["10.0.0.1"]);
  assert.throws(() => of({ state: ["promotd"] }), {
    code: "invalid_request",
    message: /^state: expected one of new, .*promoted.*, found "promotd"$/,
  });
});

test("the view of keys never shows a secret, and deleted keys only when asked", async (t) => {
  const { kv, cells, view } = await built(t);
  const store = kv();
  store.put("secrets/job/site", "password", "hunter2-hunter2");
  for (const namespace of ["secrets/job/site", "vars/job/site"]) store.put(namespace, "gone", "x");
  store.flush();
  for (const namespace of ["secrets/job/site", "vars/job/site"]) store.delete(namespace, "gone");
  store.flush();
  assert.ok(!JSON.stringify(view("kv", { deleted: true })).includes("hunter2"));
  const mine = (query: ViewQuery) =>
    cells("kv", ["namespace", "key", "value", "version", "deleted"], query).filter(([namespace]) =>
      ["secrets/job/site", "vars/job/site"].includes(String(namespace)),
    );
  assert.deepEqual(mine({}), [["secrets/job/site", "password", "[encrypted]", 1, false]]);
  assert.deepEqual(mine({ deleted: true }), [
    ["secrets/job/site", "gone", "[encrypted]", 2, true],
    ["secrets/job/site", "password", "[encrypted]", 1, false],
    ["vars/job/site", "gone", "", 2, true],
  ]);
});

test("HR-206 a key whose ttl has passed is not among the keys, nor counted; with the deleted ones it is shown until it is purged", async (t) => {
  const { db, kv, cells } = await built(t);
  const count = () => bucketSummary(db, null).totals.kv;
  const before = count();
  const store = kv();
  store.put("vars/job/site", "past", "x", 60);
  store.put("vars/job/site", "kept", "x", 6_000);
  store.flush();
  assert.equal(count(), Number(before) + 2);
  db.run("UPDATE kv_version SET created_date = created_date - 120 WHERE namespace = 'vars/job/site'");
  // A number counts for a while as long as no version is added.
  store.put("vars/job/site", "later", "x");
  store.flush();
  const mine = (query: ViewQuery) => cells("kv", ["namespace", "key"], query).filter(([name]) => name === "vars/job/site");
  const keys = (...names: string[]) => names.map((name) => ["vars/job/site", name]);
  assert.deepEqual(mine({}), keys("kept", "later"));
  assert.equal(count(), Number(before) + 2);
  assert.deepEqual(mine({ deleted: true }), keys("kept", "later", "past"));
});

test("equal secrets of a bucket have the same fingerprint, and nobody without its key can make one", async (t) => {
  const buckets = [await built(t), await built(t)] as const;
  for (const { kv } of buckets) {
    const store = kv();
    for (const [key, value] of Object.entries({ pin: "1234", same: "1234", other: "1235", gone: "1234" }))
      store.put("secrets/job/site", key, value);
    store.put("secrets/job/store", "pin", "1234");
    store.put("vars/job/site", "pin", "1234");
    store.flush();
    store.delete("secrets/job/site", "gone");
    store.flush();
  }
  const shown = async ({ db, layout }: (typeof buckets)[0]) => {
    const { items } = catalogView(db, "kv", { deleted: true }, { ...ALL, fingerprintOf: await fingerprintsOf(layout) });
    assert.doesNotMatch(JSON.stringify(items), /enc:v2/);
    return new Map(items.map((item) => [`${item.namespace} ${item.key}`, item.fingerprint]));
  };
  const [own, foreign] = [await shown(buckets[0]), await shown(buckets[1])];
  const pin = String(own.get("secrets/job/site pin"));
  assert.match(pin, /^[0-9a-f]{12}$/);
  assert.deepEqual([own.get("secrets/job/site same"), own.get("secrets/job/store pin")], [pin, pin]);
  assert.notEqual(own.get("secrets/job/site other"), pin);
  assert.notEqual(foreign.get("secrets/job/site pin"), pin, "another bucket has another key");
  assert.deepEqual([own.get("secrets/job/site gone"), own.get("vars/job/site pin")], ["", ""]);
  assert.ok(!pin.startsWith(createHash("sha256").update("1234").digest("hex").slice(0, 12)));
  const without = new Set(buckets[0].view("kv").items.map(({ fingerprint }) => fingerprint));
  assert.deepEqual([...without], [""], "without the key there is none");
  copyFileSync(buckets[1].layout.kvKey, buckets[0].layout.kvKey);
  assert.equal((await shown(buckets[0])).get("secrets/job/site pin"), "", "nor with that of another bucket");
  rmSync(buckets[0].layout.kvKey);
  assert.equal((await shown(buckets[0])).get("secrets/job/site pin"), "");
});

test("fingerprints are for the view of keys, and authorities for that of certificates, during a rotation", async (t) => {
  const { db, layout, view } = await built(t);
  const sources = async () =>
    Promise.all(VIEW_NAMES.map(async (name) => Object.values(await viewSources(layout, name)).map((one) => typeof one)));
  const none = VIEW_NAMES.slice(0, 6).map(() => []);
  assert.deepEqual(await sources(), [...none, ["function"], ["undefined"]]);
  await beginRotation(layout, await makePair("next"));
  assert.deepEqual(await sources(), [...none, ["function"], ["function"]]);
  const { columns, items } = catalogView(db, "certs", {}, { ...ALL, ...(await viewSources(layout, "certs")) });
  assert.deepEqual([columns.at(-1), new Set(items.map(({ authority }) => authority))], ["authority", new Set(["old"])]);
  assert.equal(view("certs").columns.includes("authority"), false);
  const other = catalogView(db, "ports", {}, { ...ALL, ...(await viewSources(layout, "certs")) });
  assert.equal(other.columns.includes("authority"), false);
});

test("the keys of a job are those that its allocations may read, upstream jobs included", async (t) => {
  const { cells } = await built(t);
  const namespaces = (jobs: string[]) => new Set(cells("kv", ["namespace"], { jobs }).flat());
  assert.ok(namespaces(["site"]).has("ops/job/store") && namespaces(["site"]).has("ops/bucket"));
  assert.ok(!namespaces(["store"]).has("ops/job/site"));
});
