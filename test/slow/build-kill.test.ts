import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { statSync } from "node:fs";
import { test } from "node:test";
import { openForReading } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import { sleep } from "../../lib/core/async.ts";
import { PROGRAM } from "../../scripts/local-server.ts";
import { seeded } from "../helpers/random.ts";
import { temporaryFolder } from "../helpers/temporary.ts";
import { makeWorkspace } from "../helpers/workspace.ts";

/** Kills that met a build between its first write and its commit. */
const HITS = 2;
const MISSES_PER_HIT = 15;
/** About as long as a build goes on after its first write. */
const STORING_MS = 60;
const WORKERS = Array.from({ length: 40 }, (_, index) => ({ host: `10.0.0.${index}`, tags: { zone: "a" } }));

/** A workspace in which every round differs from the one before: versions, files, ports, one worker more or less. */
function writeRound(dir: string, round: number): void {
  const names = Array.from({ length: 40 }, (_, index) => `job_${index + (round % 2)}`);
  const job = (name: string) => ({
    version: `1.0.${round}`,
    selectors: ["worker"],
    resources: { ports: { [`${name}_p${round % 3}`]: {} } },
  });
  makeWorkspace(dir, {
    workers: WORKERS.slice(round % 2),
    jobs: Object.fromEntries(names.map((name) => [name, job(name)])),
    files: Object.fromEntries(names.map((name) => [`workspace/jobs/${name}/big.conf`, `${round}\n`.repeat(20_000)])),
  });
}

/** All rows of all tables, without what only counts builds. */
function contents(dir: string): string {
  using db = openForReading(layoutOf(dir).database);
  const tables = db.all<{ name: string }>("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name");
  const rows = tables.map(({ name }) => {
    const columns = name === "bucket" ? "bucket_id, update_seq" : name === "job_files" ? "job, path, sha256" : "*";
    const all = db.all(`SELECT ${columns} FROM ${name}`);
    return [name, ...all.map((row) => JSON.stringify(Object.values(row))).sort()].join("\n");
  });
  return rows.join("\n");
}

/** A build that has ended leaves no such file, or an empty one. */
function hasWritten(dir: string): boolean {
  return (statSync(`${layoutOf(dir).database}-wal`, { throwIfNoEntry: false })?.size ?? 0) > 0;
}

function startBuild(dir: string) {
  return spawn(process.execPath, [PROGRAM, "build", "--bucket-dir", dir], { stdio: "ignore" });
}

async function finishBuild(dir: string): Promise<number> {
  const started = performance.now();
  const [code] = await once(startBuild(dir), "exit");
  assert.equal(code, 0);
  return performance.now() - started;
}

test("HR-314 a build that is killed at any moment has stored all or nothing, and the next one succeeds", async (t) => {
  const dir = temporaryFolder(t);
  await initBucket(dir, { source: false });
  const random = seeded();
  writeRound(dir, 0);
  await finishBuild(dir);
  writeRound(dir, 1);
  const duration = await finishBuild(dir);
  let hits = 0;
  for (let round = 2; hits < HITS; round++) {
    assert.ok(round < HITS * MISSES_PER_HIT, `only ${hits} kills met a build that stored, in ${round} rounds`);
    const before = contents(dir);
    writeRound(dir, round);
    const child = startBuild(dir);
    const gone = once(child, "exit");
    // At any moment, and, since few of those meet a build that stores, mostly soon after the first write.
    if (round % 4 === 0) await sleep(duration * random());
    else {
      while (!hasWritten(dir) && child.exitCode === null) await sleep(1);
      await sleep(STORING_MS * random());
    }
    child.kill("SIGKILL");
    await gone;
    const wasStoring = hasWritten(dir);
    const after = contents(dir);
    await finishBuild(dir);
    if (after !== before) assert.equal(contents(dir), after, `round ${round}: the killed build had stored a part`);
    else if (wasStoring) hits++;
  }
});
