import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readdir, readlink, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { sleep } from "../../../lib/core/async.ts";
import { signalProcess } from "../../../lib/core/process.ts";
import { jobsJson, runnerText, runTarget } from "../../../lib/transport/ask/runner.ts";
import type { Transport } from "../../../lib/transport/base/transport.ts";
import { syncTree, WORKER_TREE } from "../../../lib/transport/files/sync.ts";
import { patience } from "../../../scripts/patience.ts";
import { seeded } from "../../helpers/random.ts";
import {
  contentOf,
  numberedTree,
  processesIn,
  syncFile,
  type TestWorker,
  temporaryWorker,
  USERLANDS,
} from "../../helpers/worker.ts";

const FOREIGN = ["data/db", "logs/a.log", "bin/tool", "conf/own", "own"];
const FIXTURE = fileURLToPath(new URL("../../fixtures/sync-forever.ts", import.meta.url));

/** A worker with bin/runner and files in the job's folder that are not ours. */
async function preparedWorker(...setting: Parameters<typeof temporaryWorker>): Promise<TestWorker & { syncMs: number }> {
  const worker = await temporaryWorker(...setting);
  const files = [syncFile("jobs.json", jobsJson([{ job: "web", disabled: false }])), syncFile("bin/runner", runnerText(), 0o755)];
  await syncTree(worker.transport, { name: WORKER_TREE, folder: ".", files });
  for (const name of FOREIGN) {
    const file = path.join(worker.folder, "jobs/web", name);
    await mkdir(path.dirname(file), { recursive: true });
    await writeFile(file, "mine");
  }
  const started = performance.now();
  await syncTree(worker.transport, numberedTree(0));
  return { ...worker, syncMs: performance.now() - started };
}

/** Which tree the job's folder holds; fails when it is a mixture, or when a foreign file has suffered. */
async function wholeTree({ folder }: TestWorker, when: string, names?: number): Promise<number> {
  const found = await contentOf(path.join(folder, "jobs/web"));
  const number = Number(found.number);
  const wanted: Record<string, string> = Object.fromEntries(FOREIGN.map((name) => [name, "mine"]));
  for (const file of numberedTree(number, names).files)
    for await (const chunk of file.open()) wanted[file.path] = chunk.toString();
  for (const name of new Set([...Object.keys(found), ...Object.keys(wanted)]))
    assert.ok(found[name] === wanted[name], `${when}: ${name} is not that of tree ${number}`);
  return number;
}

/** What bin/runner says when it is the next to come: it finishes what was committed. */
async function numberByRunner({ transport }: TestWorker): Promise<number> {
  const order = { job: "web", target: "status", runId: "r", timeoutMs: patience(60_000) };
  const outcome = await runTarget(transport, order);
  assert.equal(outcome.exitCode, 0, outcome.stdout + outcome.stderr);
  assert.match(outcome.stdout, /^\d+\n$/);
  return Number(outcome.stdout);
}

describe("an interrupted sync", { concurrency: 4 }, () => {
  for (const userland of USERLANDS)
    test(`a sync whose script is killed at any moment leaves the old tree or the new one (${userland})`, async (t) => {
      const worker = await preparedWorker(t, userland);
      const seen = { old: 0, new: 0, committed: 0 };
      const random = seeded();
      let current = 0;
      for (let round = 1; round <= 14; round++) {
        const delay = random() * worker.syncMs;
        const when = `round ${round}, killed after ${delay} ms`;
        const next = current + 1 + Math.floor(random() * 3);
        const syncing = syncTree(worker.transport, numberedTree(next)).catch((error: Error) => error);
        await sleep(delay);
        for (const group of worker.launcher.groups) signalProcess(-group.pgid, "SIGKILL");
        await syncing;
        const isCommitted = existsSync(path.join(worker.folder, ".sync/web/commit"));
        if (!isCommitted) await wholeTree(worker, when);
        const byRunner = await numberByRunner(worker);
        assert.equal(await wholeTree(worker, when), byRunner);
        assert.ok(byRunner === current || byRunner === next, `${when}: ${byRunner}`);
        if (isCommitted) assert.equal(byRunner, next, when);
        seen[isCommitted ? "committed" : byRunner === next ? "new" : "old"]++;
        current = byRunner;
      }
      t.diagnostic(JSON.stringify(seen));
      const last = numberedTree(current + 1);
      await syncTree(worker.transport, last);
      assert.equal(await wholeTree(worker, "at the end"), current + 1);
      assert.equal((await syncTree(worker.transport, last)).sentBytes, 0);
      assert.deepEqual(await readdir(path.join(worker.folder, ".sync")), [".worker.list", "web.list"]);
    });

  test("a sync whose control host dies at any moment leaves the old tree or the new one", async (t) => {
    const worker = await preparedWorker(t);
    const [root, bucketId] = [path.dirname(worker.folder), path.basename(worker.folder)];
    const random = seeded();
    for (let round = 1, current = 0; round <= 6; round++) {
      const child = spawn(process.execPath, [FIXTURE, root, bucketId, String(current + 1)], {
        stdio: ["ignore", "pipe", "inherit"],
      });
      await once(child.stdout, "data");
      const delay = random() * worker.syncMs;
      await sleep(delay);
      child.kill("SIGKILL");
      await once(child, "exit");
      const when = `round ${round}, killed after ${delay} ms`;
      // The script on the worker may still be at work: who comes next waits for it.
      const number = await numberByRunner(worker);
      assert.ok(number > current, `${when}: ${number} after ${current}`);
      assert.equal(await wholeTree(worker, when), number);
      await syncTree(worker.transport, numberedTree(number + 1));
      current = await wholeTree(worker, when);
      assert.equal(current, number + 1);
    }
    assert.deepEqual(processesIn(worker.folder), []);
  });

  for (const [what, names] of [
    ["of other files", undefined],
    ["of the same files", 0],
  ] as const)
    test(`a sync ${what} that is killed before any one of its steps leaves the old tree or the new one`, async (t) => {
      const worker = await preparedWorker(t, "busybox");
      const bin = path.join(path.dirname(worker.folder), "busybox-bin");
      const count = path.join(path.dirname(worker.folder), "count");
      // Each program counts itself; the one whose turn it is ends the whole group, `mv` of many files after two of them.
      for (const program of ["ln", "mkdir", "tar", "sha256sum", "mv", "rm", "rmdir"]) {
        const real = await readlink(path.join(bin, program));
        await rm(path.join(bin, program));
        const text = `#!/bin/sh
IFS= read -r left <'${count}'
echo $((left - 1)) >'${count}'
if [ "$left" = 1 ]; then
  for last; do :; done
  [ ${program} != mv ] || [ $# -lt 5 ] || ${real} mv -f "$2" "$3" "$last"
  kill -9 0
fi
exec ${real} ${program} "$@"
`;
        await writeFile(path.join(bin, program), text, { mode: 0o755 });
      }
      let [isThrough, commits] = [false, 0];
      for (let step = 1, current = 0; !isThrough; step++) {
        await writeFile(count, `${step}\n`);
        isThrough = await syncTree(worker.transport, numberedTree(current + 1, names)).then(
          () => true,
          () => false,
        );
        await writeFile(count, "0\n");
        const isCommitted = existsSync(path.join(worker.folder, ".sync/web/commit"));
        if (isCommitted) commits++;
        else await wholeTree(worker, `step ${step}`, names);
        const byRunner = await numberByRunner(worker);
        assert.equal(await wholeTree(worker, `step ${step}`, names), byRunner);
        assert.ok(isCommitted || isThrough ? byRunner === current + 1 : byRunner - current <= 1, `step ${step}`);
        current = byRunner;
        if (isThrough) assert.equal((await syncTree(worker.transport, numberedTree(current, names))).sentBytes, 0);
        assert.ok(step < 60);
      }
      assert.ok(commits > 1, "some were killed while they moved the files");
    });

  test("what was committed is finished by the next sync too", async (t) => {
    const worker = await preparedWorker(t);
    const upToTheCommit: Transport = {
      ...worker.transport,
      script: (text, options) =>
        worker.transport.script(text.replace(/ && finish "\$name" "\$from\.lock" \|\| exit 1\n/, "\n"), options),
    };
    await syncTree(upToTheCommit, numberedTree(1));
    assert.ok(existsSync(path.join(worker.folder, ".sync/web/commit")));
    assert.equal(await wholeTree(worker, "before"), 0);
    const result = await syncTree(worker.transport, numberedTree(1));
    assert.deepEqual([result.changed, result.removed, result.sentBytes], [[], [], 0]);
    assert.equal(await wholeTree(worker, "afterwards"), 1);
  });
});
