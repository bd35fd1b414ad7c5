import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { layoutOf } from "../../../lib/bucket/base/layout.ts";
import { createBucket } from "../../../lib/bucket/source/root.ts";
import { initBucket } from "../../../lib/bucket/workspace/init.ts";
import { Failure } from "../../../lib/core/errors.ts";
import type { Answer } from "../../../lib/http/message.ts";
import type { Context } from "../../../lib/server/context.ts";
import { ROUTES } from "../../../lib/server/routes/table.ts";
import { snapshotFile } from "../../helpers/snapshots.ts";
import { push } from "../../helpers/sources.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

const ID = "0198f3a2-4c1e-7a31-9d52-6f1d8a3c5e70";

async function setUp(t: TestContext) {
  const root = temporaryFolder(t);
  await createBucket(
    root,
    { id: ID, project: "p", name: "n" },
    async (dir, bucketId) => void (await initBucket(dir, { bucketId, source: false })),
  );
  const layout = layoutOf(path.join(root, ID));
  const state = { tasks: [] as unknown[], answer: {} as object | Error, polls: 0 };
  const supervisor = {
    async task(task: { input: object }, what: string) {
      state.tasks.push([task, what]);
      if (state.answer instanceof Error) throw state.answer;
      return state.answer;
    },
    exclusively: async (_: object, what: string, work: () => Promise<unknown>) => {
      state.tasks.push(what);
      return await work();
    },
  };
  const ask = async (address: string, call: object = {}) => {
    const [method, place = ""] = address.split(" ");
    const route = ROUTES.find((one) => one.method === method && one.path === place.replace("…", "/api/buckets/{bucket_id}"));
    const handle = (route ?? assert.fail(address)).handle as (call: object, context: Context) => Promise<Answer>;
    const { params = {}, ...rest } = call as { params?: object };
    const request = { longPoll: () => void state.polls++ };
    const whole = { query: {}, body: {}, headers: {}, request, ...rest, params: { bucket_id: ID, ...params } };
    const { status, body } = await handle(whole, {
      root,
      labels: "bucket.json",
      supervisor,
      identity: { name: "ada", role: "admin" },
    } as never);
    return { status, value: body === undefined ? undefined : JSON.parse(String(body)) };
  };
  return { ask, layout, state };
}

test("a snapshot is listed, verified by a task with what opens it, and removed", async (t) => {
  const { ask, layout, state } = await setUp(t);
  const file = await snapshotFile(layout, "why");
  const { items, next_cursor } = (await ask("GET …/snapshots", { query: { limit: 5 } })).value;
  const name = path.basename(file, ".tar.gz");
  assert.deepEqual([items.length, items[0].name, items[0].note, next_cursor], [1, name, "why", null]);
  const verify = async (given: string, body: object = {}) =>
    (await ask("POST …/snapshots/{name}/verify", { params: { name: given }, body })).value;
  state.answer = { files: 3, size_bytes: 5, sealed_values: 7, rows: 9 };
  assert.deepEqual(await verify(name, { unsigned: true }), { error: null, files: 3, size_bytes: 5, sealed_values: 7 });
  const task = { name: "verify_snapshot", bucketDir: layout.root, bucketId: ID, input: { unsigned: true, file } };
  assert.deepEqual(state.tasks.splice(0), [[task, `restore the snapshot "${name}"`]]);
  assert.equal(state.polls, 1);
  state.answer = new Failure("failed", "it is damaged");
  assert.deepEqual(await verify(`${name}.tar.gz`), {
    error: "it is damaged",
    files: null,
    size_bytes: null,
    sealed_values: null,
  });
  for (const error of [new Failure("schema_too_new", "newer"), new Error("odd")]) {
    state.answer = error;
    await assert.rejects(verify(name), error);
  }
  await assert.rejects(verify("none"), { code: "snapshot_not_found" });
  state.tasks.length = 0;
  const remove = (given: string) => ask("DELETE …/snapshots/{name}", { params: { name: given } });
  assert.deepEqual(await remove(name), { status: 204, value: undefined });
  assert.deepEqual([state.tasks, readdirSync(layout.snapshots)], [["snapshot_delete"], []]);
  await assert.rejects(remove(name), { code: "snapshot_not_found" });
});

test("revisions are listed newest first, and what differs is told from the current one or the one that is named", async (t) => {
  const { ask, layout } = await setUp(t);
  const diff = async (revision_id: string, query: object = {}) =>
    (await ask("GET …/source/revisions/{revision_id}/diff", { params: { revision_id }, query })).value;
  await assert.rejects(diff(ID), { code: "revision_not_found" });
  const first = (await push(layout, { "workspace/a": "1\n" })).id;
  const second = (await push(layout, { "workspace/a": "2\n", "workspace/b": "" })).id;
  const third = (await push(layout, { "workspace/b": "" })).id;
  const list = async (query: object) => {
    const { items, next_cursor } = (await ask("GET …/source/revisions", { query })).value;
    return [items.map(({ id }: { id: string }) => id), next_cursor];
  };
  assert.deepEqual(await list({ limit: 2 }), [[third, second], second]);
  assert.deepEqual(await list({ limit: 2, cursor: second }), [[first], null]);
  const changed = [{ path: "workspace/a", mode: null, diff: "@@ -1 +1 @@\n-1\n+2\n", omitted: null }];
  const told = { revision_id: second, against: first, added: ["workspace/b"], removed: [], changed };
  assert.deepEqual(await diff(second.toUpperCase(), { against: first }), told);
  const fromCurrent = { revision_id: second, against: third, added: ["workspace/a"], removed: [], changed: [] };
  assert.deepEqual(await diff(second), fromCurrent);
  assert.deepEqual(await diff(third), { revision_id: third, against: third, added: [], removed: [], changed: [] });
  await assert.rejects(diff(third, { against: ID }), { code: "revision_not_found" });
});
