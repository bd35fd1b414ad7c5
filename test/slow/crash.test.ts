import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { after, before, type TestContext, test } from "node:test";
import { fileURLToPath } from "node:url";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { readLock } from "../../lib/bucket/base/lock.ts";
import { STATE_PATHS } from "../../lib/bucket/source/swap.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { mark, marks, marksOf, snapshotFile } from "../helpers/snapshots.ts";
import { archiveBytes, readTree } from "../helpers/sources.ts";
import { temporaryFolder } from "../helpers/temporary.ts";

const SERVER = fileURLToPath(new URL("../fixtures/faulty-server.ts", import.meta.url));
const IMPORTS = new URL("../../lib/cli/imports.ts", import.meta.url).href;
const DYING_RUN = new URL("../fixtures/dying-run.ts", import.meta.url).href;
const OLD = { "ops.conf": "# old\n", "workspace/workers.json": "[]\n", "workspace/same": "same", "templates/t/x": "old" };
const NEW = { "workspace/workers.json": "[ ]\n", "workspace/same": "same", "workspace/more/new": "new" };

type Request = [method: string, target: string, body?: Buffer | string, type?: string];
const KEY = { "idempotency-key": "the-key-of-this-request" };

/** Sends a request to a server that dies at a point while it, or the run it started, works on it; the process is gone when this resolves. */
async function dieAt(point: string, root: string, [method, target, body, type]: Request): Promise<void> {
  const child: ChildProcess = spawn(process.execPath, [SERVER, root, point, TOKEN], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, NODE_OPTIONS: `--import=${IMPORTS} --import=${DYING_RUN}`, OPS_TEST_FAULT: point },
  });
  const exited = once(child, "exit");
  const [line] = await once(createInterface({ input: child.stdout as NodeJS.ReadableStream }), "line");
  const headers = { ...KEY, authorization: `Bearer ${TOKEN}`, ...(type !== undefined && { "content-type": type }) };
  const url = String(line).replace("listening on ", "") + target;
  await fetch(url, { method, headers, ...(body !== undefined && { body: body as string }) }).catch(() => {});
  const [, signal] = await exited;
  assert.equal(signal, "SIGKILL");
}

/** A root with a bucket that was pushed to twice, first NEW, then OLD; made once and copied for each test. */
let template = { root: "", id: "", revisions: [] as string[] };

const cleanUp: (() => unknown)[] = [];
after(async () => {
  for (const one of cleanUp) await one();
});

before(async () => {
  const server = await TestServer.start({ after: (one) => void cleanUp.push(one as () => unknown) });
  const bucket = await server.createBucket();
  for (const source of [NEW, OLD]) {
    const options = { body: await archiveBytes(source), headers: { "content-type": "application/x-tar" } };
    const { body } = await server.call("POST", `${bucket.path}/push`, options);
    assert.equal((await server.ended(bucket.path, body.run_id)).status, "succeeded");
  }
  const { items } = (await server.call("GET", `${bucket.path}/source/revisions`)).body;
  await server.stop();
  template = { root: server.root, id: bucket.id, revisions: items.map(({ id }: { id: string }) => id) };
});

function copied(t: TestContext) {
  const { root: from, id, revisions } = template;
  const root = path.join(temporaryFolder(t), "root");
  cpSync(from, root, { recursive: true });
  const layout = layoutOf(path.join(root, id));
  return { root, id, layout, revisions, at: `/api/buckets/${id}` };
}

/** Nothing is left of work that nobody does any more. */
async function assertNoOrphans(layout: Layout): Promise<void> {
  assert.equal(await readLock(layout), undefined);
  assert.deepEqual(readdirSync(layout.uploads), []);
  assert.deepEqual(
    readdirSync(layout.internal).filter(
      (name) => !["messages", "revisions", "revisions.json", "uploads", "snapshots"].includes(name),
    ),
    [],
  );
}

function liveTree(layout: Layout): Record<string, string> {
  const files = Object.entries(readTree(layout.root)).filter(([name]) => !name.endsWith("/"));
  return Object.fromEntries(files);
}

const SWAPPED = ["swap: replaced", "swap: recorded", "swap: tmp emptied", "swap: journal removed"];
const swapOf = (...paths: string[]) => [...paths.flatMap((name) => [`swap: ${name} out`, `swap: ${name} in`]), ...SWAPPED];
/** A push replaces what differs, a rollback all. */
const IN_PLACE = swapOf("workspace/more", "workspace/workers.json", "ops.conf", "templates");
const WHOLE = swapOf("ops.conf", "workspace", "templates");
const RUN = ["run: recorded", "run: launched", "run: ordered", "run: exited", "run: unlocked"];
const POINTS = {
  push: {
    untouched: ["push: received", "push: kept", "swap: staged"],
    changed: ["swap: journal", ...IN_PLACE, "run: folder", ...RUN],
  },
  rollback: { untouched: ["swap: staged"], changed: ["swap: journal", ...WHOLE, ...RUN] },
};

test("CP-168 CP-169 CP-170 CP-216 CP-217 CP-443 a server that is killed at any step of a push or a rollback leaves the old source or the new one, no orphan, and a failed run, which the same request names again; without a run it starts one", async (parent) => {
  const archive = await archiveBytes(NEW);
  for (const [what, { untouched, changed }] of Object.entries(POINTS))
    for (const point of [...untouched, ...changed])
      await parent.test(`${what} at ${point}`, async (t) => {
        const { root, id, layout, revisions, at } = copied(t);
        const runsBefore = readdirSync(layout.runs);
        const request: Request =
          what === "push"
            ? ["POST", `${at}/push`, archive, "application/x-tar"]
            : ["POST", `${at}/source/rollback`, JSON.stringify({ revision_id: revisions[1] }), "application/json"];
        await dieAt(point, root, request);
        const server = await TestServer.start(t, { root });
        assert.deepEqual(liveTree(layout), untouched.includes(point) ? OLD : NEW);
        await assertNoOrphans(layout);
        const listed = (await server.call("GET", `${at}/source/revisions`)).body.items;
        const wanted = what === "push" && changed.includes(point) ? 3 : 2;
        assert.equal(listed.length, wanted);
        assert.deepEqual(readdirSync(layout.revisions).sort(), listed.map((one: { id: string }) => one.id).sort());
        const runs = (await server.call("GET", `${at}/runs`)).body.items;
        const fresh = runs.filter((run: { id: string }) => !runsBefore.includes(run.id));
        assert.deepEqual(
          fresh.map(({ status, error, kind }: Record<string, string>) => [kind, status, error]),
          RUN.includes(point) ? [[what, "failed", "server restarted before run completed"]] : [],
        );
        assert.equal((await server.call("GET", at)).body.active_run, null);
        assert.equal(path.basename(layout.root), id);
        // The others leave the same as one of these.
        if (![...RUN, "run: folder", "swap: staged", "swap: journal"].includes(point)) return;
        const [method, target, body, type = ""] = request;
        const headers = { ...KEY, "content-type": type };
        const again = await server.call(method, target, { body: Buffer.from(body ?? ""), headers });
        assert.equal(again.status, 202, again.text);
        if (RUN.includes(point)) assert.equal(again.body.run_id, fresh[0].id);
        const next = RUN.includes(point) ? await server.call("POST", `${at}/build`) : again;
        assert.equal((await server.ended(at, next.body.run_id)).status, "succeeded");
        assert.equal((await server.call("GET", `${at}/runs`)).body.items.length, runs.length + 1);
      });
});

test("CP-107 CP-216 CP-217 a server that is killed at any step of a restore leaves the old state or the new one, the source as it was, and a failed run", async (parent) => {
  const kept = STATE_PATHS.filter((name) => name !== "data/ops.db-shm");
  const places = kept.flatMap((name) => [`swap: ${name} out`, `swap: ${name} in`]);
  for (const point of ["swap: staged", "swap: journal", ...places, "swap: tmp emptied", "swap: journal removed"])
    await parent.test(point, async (t) => {
      const { root, layout, at } = copied(t);
      await mark(layout, "saved");
      const name = path.basename(await snapshotFile(layout), ".tar.gz");
      await mark(layout, "present");
      await dieAt(point, root, ["POST", `${at}/snapshots/${name}/restore`]);
      const server = await TestServer.start(t, { root });
      const state = point === "swap: staged" ? "present" : "saved";
      assert.deepEqual(await marksOf(layout), marks(state, "present"));
      await assertNoOrphans(layout);
      const [run] = (await server.call("GET", `${at}/runs`)).body.items;
      assert.deepEqual(
        [run.kind, run.status, run.error],
        ["snapshot_restore", "failed", "server restarted before run completed"],
      );
    });
});

test("CP-080 CP-235 a server that is killed at any step of a bucket's creation leaves the whole bucket or none", async (parent) => {
  for (const point of ["create: folders", "create: database", "create: renamed"])
    await parent.test(point, async (t) => {
      const root = path.join(temporaryFolder(t), "root");
      await dieAt(point, root, ["POST", "/api/buckets", '{"project":"p","name":"n"}', "application/json"]);
      const server = await TestServer.start(t, { root });
      const { items } = (await server.call("GET", "/api/buckets")).body;
      const isWhole = point === "create: renamed";
      assert.equal(items.length, isWhole ? 1 : 0);
      assert.deepEqual(server.inRoot(), isWhole ? [items[0].id] : []);
      if (!isWhole) return;
      const at = `/api/buckets/${items[0].id}`;
      const { body } = await server.call("POST", `${at}/build`);
      assert.equal((await server.ended(at, body.run_id)).status, "succeeded");
    });
});

test("CP-237 a server that is killed at any step of a bucket's deletion leaves the whole bucket or none", async (parent) => {
  for (const point of ["delete: locked", "delete: renamed", "delete: removed"])
    await parent.test(point, async (t) => {
      const { root, id, layout, at } = copied(t);
      const key = readFileSync(layout.kvKey);
      await dieAt(point, root, ["DELETE", at]);
      const server = await TestServer.start(t, { root });
      const isWhole = point === "delete: locked";
      assert.deepEqual(server.inRoot(), isWhole ? [id] : []);
      assert.equal((await server.call("GET", at)).status, isWhole ? 200 : 404);
      if (!isWhole) return;
      assert.deepEqual(liveTree(layout), OLD);
      assert.deepEqual(readFileSync(layout.kvKey), key);
      await assertNoOrphans(layout);
      const { body } = await server.call("POST", `${at}/build`);
      assert.equal((await server.ended(at, body.run_id)).status, "succeeded");
    });
});
