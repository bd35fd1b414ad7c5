import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { bootId, identify } from "../../../lib/core/process.ts";
import { examineWorker } from "../../../lib/transport/ask/inspect.ts";
import { workerJson } from "../../../lib/transport/ask/runner.ts";
import type { Transport } from "../../../lib/transport/base/transport.ts";
import { discardJob, syncTree, vacate } from "../../../lib/transport/files/sync.ts";
import { SshFleet } from "../../helpers/ssh-fleet.ts";
import { contentOf, numberedTree, temporaryWorker } from "../../helpers/worker.ts";

const never = new AbortController().signal;

/** The ways to a worker that the scripts must work over. */
const WAYS: Record<string, (t: TestContext) => Promise<Transport>> = {
  local: async (t) => (await temporaryWorker(t)).transport,
  busybox: async (t) => (await temporaryWorker(t, "busybox")).transport,
  ssh: async (t) => (await SshFleet.start(t, { hosts: ["127.0.0.1"] })).one(t),
};

/** Puts the job `web`, with data and logs, and a folder of another job on a worker. */
async function prepare(transport: Transport): Promise<void> {
  await syncTree(transport, numberedTree(1), {});
  const { folder } = transport;
  for (const file of ["jobs/web/data/db", "jobs/web/logs/web.log", "jobs/other/data/db", ".runner/web.last"]) {
    mkdirSync(path.dirname(path.join(folder, file)), { recursive: true });
    writeFileSync(path.join(folder, file), "x");
  }
  const facts = { bucketId: "b", workerId: "w", workerIp: transport.worker.host, labels: [], updateSeq: 1 };
  writeFileSync(path.join(folder, "worker.json"), workerJson(facts));
}

function holder(pid: number, startTime: string): string {
  return `${pid}.${startTime}.${bootId()}.some-run`;
}

for (const [way, make] of Object.entries(WAYS)) {
  test(`${way}: all that a job has on a worker goes, and nothing of another job; twice is the same as once`, async (t) => {
    const transport = await make(t);
    await prepare(transport);
    for (let time = 0; time < 2; time++) {
      await discardJob(transport, "web", never);
      assert.deepEqual(Object.keys(await contentOf(transport.folder)).sort(), [
        ".runner/",
        ".sync/",
        "jobs/other/data/db",
        "worker.json",
      ]);
    }
  });

  test(`${way}: a sync that had committed is dropped with its job, and locks of the dead are no hindrance`, async (t) => {
    const transport = await make(t);
    await prepare(transport);
    const { folder } = transport;
    mkdirSync(path.join(folder, ".sync/web/new"), { recursive: true });
    for (const name of ["commit", "moves", "new/1"]) writeFileSync(path.join(folder, ".sync/web", name), "jobs/web/back\n");
    for (const lock of [".sync/web.lock", ".runner/web.lock"]) symlinkSync(holder(1, "1"), path.join(folder, lock));
    await discardJob(transport, "web", never);
    assert.deepEqual([readdirSync(path.join(folder, "jobs")), readdirSync(path.join(folder, ".sync"))], [["other"], []]);
  });

  test(`${way}: from a worker that left, the bucket's folder goes, but not another worker's, nor under a process`, async (t) => {
    const transport = await make(t);
    await prepare(transport);
    const { folder } = transport;
    const other = { bucketId: "b", workerId: "w", workerIp: "127.0.0.77", labels: [], updateSeq: 1 };
    writeFileSync(path.join(folder, "worker.json"), workerJson(other));
    assert.equal(await vacate(transport, never), false);
    writeFileSync(path.join(folder, "worker.json"), workerJson({ ...other, workerIp: transport.worker.host }));
    const lock = path.join(folder, ".runner/web.lock");
    symlinkSync(holder(process.pid, identify(process.pid)?.start_time ?? ""), lock);
    await assert.rejects(vacate(transport, never), {
      message: `Cannot clean up on ${transport.worker.host}: .runner/web.lock is held by process ${process.pid}`,
    });
    const { held, left } = await examineWorker(transport, [], never);
    assert.deepEqual([held, left], [[".runner/web.lock"], []]);
    rmSync(lock);
    assert.equal(await vacate(transport, never), true);
    assert.ok(!existsSync(folder));
    assert.ok(existsSync(path.dirname(folder)));
  });

  test(`${way}: an examination tells clock, disk and missing tools, and makes no folder`, async (t) => {
    const transport = await make(t);
    rmSync(transport.folder, { recursive: true, force: true });
    const found = await examineWorker(transport, ["sh", "no-such-tool", "tar"], never);
    assert.deepEqual(found.missing, ["no-such-tool"]);
    assert.ok(Math.abs(found.aheadSeconds) <= 1);
    assert.ok(found.diskBytes > found.freeBytes && found.freeBytes > 0);
    assert.deepEqual([found.held, found.left, found.blocked], [[], [], null]);
    assert.ok(!existsSync(transport.folder));
  });
}
