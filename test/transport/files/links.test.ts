import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, readdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { describe, type TestContext, test } from "node:test";
import { lastLogs, makeStatus } from "../../../lib/transport/ask/inspect.ts";
import { lastTarget, RUNNER_EXIT, runTarget } from "../../../lib/transport/ask/runner.ts";
import { compareTrees, readText } from "../../../lib/transport/files/compare.ts";
import { discardJob, type SyncFile, syncTree, WORKER_TREE } from "../../../lib/transport/files/sync.ts";
import { patience } from "../../../scripts/patience.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";
import {
  contentOf,
  installJob,
  syncFile,
  type TestWorker,
  temporaryWorker,
  USERLANDS,
  type Userland,
} from "../../helpers/worker.ts";

const { signal } = new AbortController();
const LONG_MS = patience(60_000);
const FILES = [syncFile("a", "1"), syncFile("conf/b", "2"), syncFile("conf/sub/c", "3")];
const PROMOTED = Object.fromEntries(FILES.map(({ path, sha256 }): [string, string] => [path, `644:${sha256}`]));

function sync({ transport }: TestWorker, files: readonly SyncFile[] = FILES) {
  return syncTree(transport, { name: "web", folder: "jobs/web", files }, { signal });
}

async function compare({ transport }: TestWorker): Promise<string[]> {
  const { files = [] } = (await compareTrees(transport, new Map([["web", PROMOTED]]), signal)).get("web") ?? {};
  return files.map(({ state, path }) => `${state} ${path}`);
}

/** The same without files that a job adds. */
async function deviations(worker: TestWorker): Promise<string[]> {
  return (await compare(worker)).filter((one) => !one.startsWith("extra"));
}

/** Moves a folder of the worker elsewhere and leaves a link to it; answers where it is now. */
function moved(t: TestContext, { folder }: TestWorker, name: string): string {
  const elsewhere = path.join(temporaryFolder(t), "moved");
  renameSync(path.join(folder, name), elsewhere);
  symlinkSync(elsewhere, path.join(folder, name));
  return elsewhere;
}

/** A worker with the files of the job on it. */
async function synced(t: TestContext, userland: Userland): Promise<TestWorker> {
  const worker = await temporaryWorker(t, userland);
  await sync(worker);
  assert.deepEqual(await compare(worker), []);
  return worker;
}

for (const userland of USERLANDS)
  describe(`a folder that is a link to equal files, with the ${userland} programs`, { concurrency: 4 }, () => {
    for (const [name, told, changed] of [
      ["jobs", "link ..", ["a", "conf/b", "conf/sub/c"]],
      ["jobs/web", "link .", ["a", "conf/b", "conf/sub/c"]],
      ["jobs/web/conf", "link conf", ["conf/b", "conf/sub/c"]],
      ["jobs/web/conf/sub", "link conf/sub", ["conf/sub/c"]],
    ] as const)
      test(`${name} is told, and replaced by a sync that touches nothing behind it`, async (t) => {
        const worker = await synced(t, userland);
        const elsewhere = moved(t, worker, name);
        const before = await contentOf(elsewhere);
        assert.deepEqual(await deviations(worker), [told]);
        assert.deepEqual((await sync(worker)).changed, changed);
        assert.ok(lstatSync(path.join(worker.folder, name)).isDirectory());
        assert.deepEqual(await compare(worker), []);
        assert.deepEqual((await sync(worker)).changed, []);
        assert.deepEqual(await contentOf(elsewhere), before);
      });

    test("a sync that removes files removes none behind a link", async (t) => {
      const worker = await synced(t, userland);
      const elsewhere = moved(t, worker, "jobs/web/conf");
      const before = await contentOf(elsewhere);
      assert.deepEqual((await sync(worker, FILES.slice(0, 1))).removed, ["conf/b", "conf/sub/c"]);
      assert.deepEqual(await contentOf(elsewhere), before);
      assert.equal(existsSync(path.join(worker.folder, "jobs/web/conf")), false);
    });

    test("a link behind which a job keeps data stays, and the sync says so", async (t) => {
      for (const name of ["jobs", "jobs/web"]) {
        const worker = await synced(t, userland);
        mkdirSync(path.join(worker.folder, "jobs/web/data"));
        const elsewhere = moved(t, worker, name);
        const sentence = new RegExp(`${name} is a symbolic link on the worker, and a job keeps files behind it`);
        await assert.rejects(sync(worker), sentence);
        assert.ok(lstatSync(path.join(worker.folder, name)).isSymbolicLink());
        assert.ok(readdirSync(elsewhere).length > 0);
      }
    });

    test("links in the place of the job's own data, logs and bin are never touched", async (t) => {
      const worker = await synced(t, userland);
      for (const name of ["data", "logs", "bin"]) {
        mkdirSync(path.join(worker.folder, "jobs/web", name));
        moved(t, worker, `jobs/web/${name}`);
      }
      writeFileSync(path.join(worker.folder, "jobs/web/logs/web.log"), "ready\n");
      assert.deepEqual(await deviations(worker), []);
      await sync(worker, [...FILES, syncFile("d", "4")]);
      for (const name of ["data", "logs", "bin"])
        assert.ok(lstatSync(path.join(worker.folder, "jobs/web", name)).isSymbolicLink());
      const logs = await lastLogs(worker.transport, "web", { files: 1, bytes: 100, timeoutMs: LONG_MS });
      assert.deepEqual(logs, [], "nothing behind a link is read");
    });

    test("a link in the place of ops' own records is refused by sync, compare and discard", async (t) => {
      const worker = await synced(t, userland);
      const elsewhere = moved(t, worker, ".sync");
      const before = await contentOf(elsewhere);
      const sentence = /\.sync is a symbolic link on the worker, which ops does not follow: remove it/;
      await assert.rejects(sync(worker, [syncFile("a", "2")]), sentence);
      await assert.rejects(compare(worker), sentence);
      await assert.rejects(discardJob(worker.transport, "web", signal), sentence);
      assert.deepEqual(await contentOf(elsewhere), before);
    });

    test("a record of a sync that is a link is dropped, not followed", async (t) => {
      const worker = await synced(t, userland);
      const elsewhere = writeCommit(temporaryFolder(t));
      const before = await contentOf(elsewhere);
      symlinkSync(elsewhere, path.join(worker.folder, ".sync/web"));
      const list = moved(t, worker, ".sync/web.list");
      await sync(worker, [...FILES, syncFile("d", "4")]);
      assert.deepEqual(await contentOf(elsewhere), before);
      assert.ok(lstatSync(path.join(worker.folder, ".sync/web.list")).isFile());
      assert.ok(lstatSync(list).isFile());
      assert.equal(existsSync(path.join(worker.folder, "jobs/web/planted")), false);
    });

    test("the runner and a question for the status refuse, and logs and texts are not read", async (t) => {
      for (const name of ["jobs", "jobs/web", "bin", ".runner"]) {
        const worker = await temporaryWorker(t, userland);
        await installJob(worker, "web", "start status:\n\t@touch ran\n");
        mkdirSync(path.join(worker.folder, ".runner"));
        mkdirSync(path.join(worker.folder, "jobs/web/logs"));
        writeFileSync(path.join(worker.folder, "jobs/web/logs/web.log"), "x");
        const elsewhere = moved(t, worker, name);
        const order = { job: "web", target: "start", runId: "r", timeoutMs: LONG_MS };
        const outcome = await runTarget(worker.transport, order);
        assert.equal(outcome.exitCode, RUNNER_EXIT.link, name);
        assert.match(outcome.stderr, new RegExp(`^${name} is a symbolic link on the worker`, "m"));
        assert.equal(existsSync(path.join(worker.folder, "jobs/web/ran")), false);
        if (name === ".runner") await assert.rejects(lastTarget(worker.transport, "web"), /symbolic link/);
        if (!name.startsWith("jobs")) continue;
        const status = await makeStatus(worker.transport, "web", { timeoutMs: LONG_MS });
        assert.equal(status.exitCode, RUNNER_EXIT.link);
        assert.equal(await readText(worker.transport, { job: "web", path: "Makefile", bytes: 100 }, signal), "");
        const limits = { files: 1, bytes: 100, timeoutMs: LONG_MS };
        assert.deepEqual(await lastLogs(worker.transport, "web", limits), []);
        if (name === "jobs") await assert.rejects(discardJob(worker.transport, "web", signal), /jobs is a symbolic link/);
        else await discardJob(worker.transport, "web", signal);
        assert.ok(readdirSync(elsewhere, { recursive: true }).some((one) => String(one).endsWith("web.log")));
      }
    });

    test("bin of the worker is replaced by a sync", async (t) => {
      const worker = await temporaryWorker(t, userland);
      const files = [syncFile("bin/runner", "#!", 0o755)];
      const tree = { name: WORKER_TREE, folder: ".", files };
      await syncTree(worker.transport, tree, { signal });
      const elsewhere = moved(t, worker, "bin");
      assert.deepEqual((await syncTree(worker.transport, tree, { signal })).changed, ["bin/runner"]);
      assert.ok(lstatSync(path.join(worker.folder, "bin")).isDirectory());
      assert.deepEqual(readdirSync(elsewhere), ["runner"]);
    });
  });

test("the bucket's folder that is a link is refused, the worker's root may be one", async (t) => {
  const worker = await temporaryWorker(t);
  await sync(worker);
  const root = path.dirname(worker.folder);
  renameSync(root, `${root}-moved`);
  symlinkSync(`${root}-moved`, root);
  t.after(() => rmSync(`${root}-moved`, { recursive: true }));
  assert.deepEqual(await compare(worker), []);
  moved(t, worker, "");
  await assert.rejects(compare(worker), /it must be a folder of the user who runs ops/);
});

/** Makes what a sync leaves behind when it is cut off after its commit file was made; answers the folder. */
function writeCommit(folder: string): string {
  mkdirSync(path.join(folder, "new"));
  for (const [name, text] of Object.entries({
    commit: "",
    parents: "",
    moves: "jobs/web/planted\n",
    "new/1": createHash("sha256").digest("hex"),
  }))
    writeFileSync(path.join(folder, name), text);
  return folder;
}
