import assert from "node:assert/strict";
import { copyFileSync, mkdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import path from "node:path";
import { LocalServer, ops } from "../../scripts/local-server.ts";

/** What a takeover took, and of how much. */
export interface Takeover {
  allocations: number;
  snapshotBytes: number;
  restoreMs: number;
  startMs: number;
  deployMs: number;
}

interface DeployResult {
  jobs: { outcome: string }[];
}

/**
 * A cold standby takes over: a server deploys to `workers` workers, makes a snapshot and is killed in the middle of a run.
 * A second root, which knows nothing but the file of the snapshot, is restored and served. Its first deploy finds nothing
 * to do, and its next one carries out a change.
 */
export async function takeOverBySnapshot(folder: string, size: { workers: number; jobs: number }): Promise<Takeover> {
  const at = (...parts: string[]) => path.join(folder, ...parts);
  const servers: LocalServer[] = [];
  const serve = async (root: string) => {
    const server = await LocalServer.start(root);
    servers.push(server);
    return server;
  };
  try {
    const first = await serve(at("first"));
    const bucket = await first.createBucket();
    writeFleet(at("source"), at("workers"), size);
    assert.equal((await first.push(bucket, at("source"))).code, 0);
    assert.equal((await first.run(bucket, "deploy")).status, "succeeded");
    const { name, signer } = (await first.run(bucket, "snapshots")).result as { name: string; signer: string };
    const file = at("last.tar.gz");
    copyFileSync(at("first", bucket, ".ops", "snapshots", `${name}.tar.gz`), file);
    const history = () => readFileSync(at("workers", "127.0.0.1", bucket, "jobs", "job_0", "data", "history"), "utf8");
    const before = history();
    await first.startRun(bucket, "health_check");
    await first.stop("SIGKILL");

    const started = performance.now();
    mkdirSync(at("second"), { mode: 0o700 });
    const restored = await ops(["snapshot", "restore", file, "--signer", signer, "--bucket-dir", at("second", bucket)]);
    assert.equal(restored.code, 0, restored.stderr);
    const isRestored = performance.now();
    const second = await serve(at("second"));
    const isServed = performance.now();
    const deployed = await second.run(bucket, "deploy");
    const isDeployed = performance.now();
    assert.equal(deployed.status, "succeeded", String(deployed.error));
    const outcomes = (deployed.result as DeployResult).jobs.map(({ outcome }) => outcome);
    assert.deepEqual(
      outcomes,
      Array.from({ length: size.jobs }, () => "skipped"),
    );
    assert.equal(history(), before, "nothing was restarted");

    writeFileSync(at("source", "workspace", "jobs", "job_0", "page"), "changed\n");
    assert.equal((await second.push(bucket, at("source"))).code, 0);
    assert.equal((await second.run(bucket, "deploy")).status, "succeeded");
    assert.notEqual(history(), before, "the standby deploys");
    return {
      allocations: size.workers * size.jobs,
      snapshotBytes: statSync(file).size,
      restoreMs: isRestored - started,
      startMs: isServed - isRestored,
      deployMs: isDeployed - isServed,
    };
  } finally {
    for (const server of servers) await server.stop("SIGKILL");
  }
}

/** A source with jobs on all of many workers, each of them a folder of this machine. */
function writeFleet(folder: string, workersRoot: string, { workers, jobs }: { workers: number; jobs: number }): void {
  const write = (file: string, content: string) => {
    const target = path.join(folder, "workspace", file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, content);
  };
  const hosts = Array.from({ length: workers }, (_, index) => `127.0.${Math.floor(index / 250)}.${(index % 250) + 1}`);
  const fleet = hosts.map((host) => ({ host, connection: "local", root: path.join(workersRoot, host), labels: ["all"] }));
  write("workers.json", JSON.stringify(fleet));
  for (let job = 0; job < jobs; job++) {
    write(`jobs/job_${job}/manifest.json`, JSON.stringify({ version: "1.0.0", selectors: ["all"] }));
    write(`jobs/job_${job}/Makefile`, "start restart stop reload status:\n\t@mkdir -p data; echo $@ >> data/history\n");
    write(`jobs/job_${job}/page`, "page\n");
  }
}
