import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import path from "node:path";
import { initBucket } from "../lib/bucket/workspace/init.ts";
import type { DeployResult } from "../lib/operation/deploy/deploy-result.ts";
import { COMMAND } from "../scripts/local-server.ts";
import { median } from "./measure.ts";

const JOBS = 50;
const WORKERS = 50;
const UNCHANGED_ROUNDS = 5;

/**
 * Deploys of 50 jobs to 50 workers: the first one, one with a changed job, and one with nothing to do, with the time of
 * each step. The workers are folders of this machine, so that the first two measure mostly what sh and make cost here.
 */
export async function deploy(): Promise<void> {
  const place = existsSync("/dev/shm") ? "/dev/shm" : tmpdir();
  const folder = mkdtempSync(path.join(place, "ops-bench-"));
  const bucket = path.join(folder, "bucket");
  try {
    await initBucket(bucket, { source: true });
    writeWorkspace(bucket, folder);
    console.log(`deploy of ${JOBS} jobs to ${WORKERS} workers, ${cpus().length} cores; seconds, by step`);
    ops(bucket, "build");
    print("first", measured(bucket));
    writeFileSync(path.join(bucket, "workspace/jobs/job_7/page"), "changed");
    ops(bucket, "build");
    print("one job changed", measured(bucket));
    const rounds = Array.from({ length: UNCHANGED_ROUNDS }, () => measured(bucket));
    const middle = median(rounds.map(({ seconds }) => seconds));
    print("nothing changed", rounds.find(({ seconds }) => seconds === middle) as Measured);
    console.log(`  wanted: nothing changed in less than 3 s; found ${middle.toFixed(2)} s`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Measured {
  seconds: number;
  result: DeployResult;
}

function measured(bucket: string): Measured {
  const started = performance.now();
  const result = JSON.parse(ops(bucket, "deploy", "--json")) as DeployResult;
  return { seconds: (performance.now() - started) / 1000, result };
}

function ops(bucket: string, ...args: string[]): string {
  const done = spawnSync(COMMAND[0], [...COMMAND.slice(1), ...args, "--bucket-dir", bucket], {
    encoding: "utf8",
    maxBuffer: 1024 ** 3,
  });
  if (done.status !== 0) throw new Error(`ops ${args.join(" ")}: ${done.stderr.slice(-2000)}`);
  return done.stdout;
}

function print(title: string, { seconds, result }: Measured): void {
  const { changed, skipped } = result.summary.allocations;
  console.log(`\n${title}: ${seconds.toFixed(2)} s; allocations: ${changed} changed, ${skipped} skipped`);
  for (const { step, duration_ms } of result.steps)
    console.log(`  ${step.padEnd(24)} ${(duration_ms / 1000).toFixed(3).padStart(9)}`);
}

function writeWorkspace(bucket: string, folder: string): void {
  const write = (file: string, text: string) => {
    const target = path.join(bucket, "workspace", file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, text);
  };
  const workers = Array.from({ length: WORKERS }, (_, index) => ({
    host: `10.0.0.${index + 1}`,
    connection: "local",
    root: path.join(folder, `w${index + 1}`),
  }));
  write("workers.json", JSON.stringify(workers));
  for (let number = 0; number < JOBS; number++) {
    const job = `jobs/job_${number}`;
    const manifest = { version: "1.0.0", selectors: ["worker"], max_concurrent_upgrades: 10 };
    write(`${job}/manifest.json`, JSON.stringify(manifest));
    write(`${job}/Makefile`, "start restart stop:\n\t@true\n");
    write(`${job}/page`, `page of ${number}`);
    write(`${job}/app.conf.tpl`, "{{ .Job }} {{ .NewVersion }} on {{ .WorkerIP }} of {{ .BucketID }}\n");
  }
}
