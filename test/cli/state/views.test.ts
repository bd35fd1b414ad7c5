import assert from "node:assert/strict";
import { test } from "node:test";
import type { ViewName } from "../../../lib/bucket/catalog/views.ts";
import type { BucketAccess } from "../../../lib/cli/state/access.ts";
import { showView } from "../../../lib/cli/state/catalog.ts";
import { parsed, printed } from "../../helpers/printed.ts";

type Row = Record<string, string | number | boolean | null>;

/** A bucket with these rows in every view; it notes what is asked for. */
function bucketOf(...items: Row[]) {
  const asked: unknown[] = [];
  const view = async (name: string, query: object) => {
    asked.push({ name, ...query });
    return { columns: Object.keys(items[0] ?? {}), items };
  };
  return { asked, bucket: { view, info: async () => ({ built_at: "2026-11-24T00:00:00Z" }) } as unknown as BucketAccess };
}

test("the flags of ops cat are what the bucket is asked for", async (t) => {
  const { asked, bucket } = bucketOf();
  const lists = { jobs: "web,db", workers: "w1", state: "new", outcome: "failed" };
  const all = parsed(lists, ["active", "deleted"]);
  assert.equal((await printed(t, () => showView("jobs", bucket, all))).out, "there are no jobs with that outcome\n");
  assert.equal((await printed(t, () => showView("kv", bucket, parsed()))).out, "there are no kv\n");
  const some = {
    name: "jobs",
    jobs: ["web", "db"],
    workers: ["w1"],
    active: true,
    state: ["new"],
    outcome: ["failed"],
    deleted: true,
  };
  const none = { jobs: undefined, workers: undefined, active: false, state: undefined, outcome: undefined, deleted: false };
  assert.deepEqual(asked, [some, { name: "kv", ...none }]);
});

test("a table does without some columns, and without those that say nothing in any row; JSON has them", async (t) => {
  const table = async (name: ViewName, ...rows: Row[]) =>
    (await printed(t, () => showView(name, bucketOf(...rows).bucket, parsed()))).out;
  const told = (...names: string[]): Row => Object.fromEntries(names.map((name) => [name, "x"]));
  assert.equal(await table("jobs", told("job", "deployment_seq", "after", "cpu_source", "memory_source")), "job\nx\n");
  const deployments = [
    "job",
    "allocation_id",
    "deployment_seq",
    "current_hash",
    "previous_hash",
    "disabled",
    "removed",
    "last_run",
  ];
  const state = {
    current_version: "1",
    new_version: "2",
    last_action: "start",
    last_outcome: "ok",
    last_reason: "a failed: why",
  };
  assert.equal(
    await table("deployments", { ...told(...deployments), ...state }, { ...told("job"), ...state, new_version: "1" }),
    "job  version  last      reason\nx    1 → 2    start ok  why\nx    1        start ok  why\n",
  );
  const silent: Row = { zero: 0, no: false, empty: "", none: null, one: 1, yes: true, some: "" };
  assert.equal(await table("workers", silent, { ...silent, some: "x" }), "one  yes   some\n  1  true\n  1  true  x\n");
  const json = await printed(t, () => showView("workers", bucketOf(silent).bucket, parsed({}, ["json"])));
  assert.deepEqual(JSON.parse(json.out), [silent]);
  const long = "x".repeat(50);
  const texts = { namespace: `${long}1`, key: `${long}2`, value: `${long}3`, last_reason: `${long}4`, other: `${long}5` };
  assert.equal(
    (await table("kv", texts)).split("\n")[1],
    [`${long}…`, `${long}…`, `${long}…`, `${long}…`, `${long}5`].join("  "),
  );
});
