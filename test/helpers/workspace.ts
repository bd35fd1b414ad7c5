import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { bucketIdOf, type Database, openDatabase } from "../../lib/bucket/base/database.ts";
import { type Layout, layoutOf } from "../../lib/bucket/base/layout.ts";
import { RunLog } from "../../lib/bucket/base/logs.ts";
import { KvStore } from "../../lib/bucket/kv/kv.ts";
import { loadKvKey } from "../../lib/bucket/kv/kv-access.ts";
import { initBucket } from "../../lib/bucket/workspace/init.ts";
import { uuidV7 } from "../../lib/codec/uuid.ts";
import { Redactor } from "../../lib/core/redact.ts";
import { Launcher } from "../../lib/core/spawn.ts";
import { type OperationContext, ProgressBoard } from "../../lib/operation/base/context.ts";
import type { RunKind } from "../../lib/run/protocol.ts";
import { temporaryFolder } from "./temporary.ts";

/** What a small workspace holds. */
export interface WorkspaceSpec {
  /** By folder name: the manifest. Each job gets a Makefile, and an empty script for each of its hooks. */
  jobs?: Record<string, Record<string, unknown>>;
  /** Hosts, or whole entries of workers.json. */
  workers?: readonly (string | Record<string, unknown>)[];
  /** More files, by path from the bucket's folder; null removes one. What starts with `#!` is executable. */
  files?: Record<string, string | null>;
}

/** What a template may ask of its dot, for job web on its only worker. */
export const TEMPLATE_FIELDS = {
  AllocationID: "id",
  Job: "web",
  CurrentVersion: "0.0.0",
  NewVersion: "1.0.0",
  BucketID: "b",
  WorkerID: "w",
  WorkerIP: "10.0.0.1",
  Labels: ["worker"],
  UpdateSeq: 3,
  BucketPath: "/r/b",
  JobPath: "/r/b/jobs/web",
};

const MAKEFILE = "start stop restart reload status:\n\t@true\n";

/** Writes a workspace below a bucket's folder, replacing the jobs and workers that were there. */
export function makeWorkspace(dir: string, { jobs = {}, workers = [], files = {} }: WorkspaceSpec): void {
  const all: Record<string, string | null> = {
    "workspace/workers.json": JSON.stringify(workers.map((one) => (typeof one === "string" ? { host: one } : one))),
  };
  for (const [name, manifest] of Object.entries(jobs)) {
    const folder = `workspace/jobs/${name}`;
    all[`${folder}/manifest.json`] = JSON.stringify(manifest);
    all[`${folder}/Makefile`] = MAKEFILE;
    for (const hook of Object.keys((manifest.hooks as object | undefined) ?? {})) all[`${folder}/_hooks/${hook}.py`] = "";
  }
  rmSync(path.join(dir, "workspace", "jobs"), { recursive: true, force: true });
  mkdirSync(path.join(dir, "workspace", "jobs"), { recursive: true });
  for (const [file, text] of Object.entries({ ...all, ...files })) {
    const target = path.join(dir, file);
    mkdirSync(path.dirname(target), { recursive: true });
    if (existsSync(target)) rmSync(target);
    if (text !== null) writeFileSync(target, text, { mode: text.startsWith("#!") ? 0o755 : 0o644 });
  }
}

/** A bucket in a temporary folder, with what an operation needs to work in it. */
export interface TestBucket {
  dir: string;
  layout: Layout;
  bucketId: string;
  db: Database;
  /** A store of its own for every call, as every run has. */
  kv(): KvStore;
  /** What the operations said in Activity. */
  activity: string[];
  context(kind?: RunKind, signal?: AbortSignal): OperationContext;
}

/** Makes an initialised bucket with this workspace; without one it has no source at all. Gone after the test. */
export async function makeBucket(t: Pick<TestContext, "after">, spec?: WorkspaceSpec): Promise<TestBucket> {
  const layout = layoutOf(temporaryFolder(t));
  await initBucket(layout.root, { source: false });
  if (spec) makeWorkspace(layout.root, spec);
  return await testBucketIn(t, layout);
}

/** An initialised bucket that there is, with its key as it is now. */
export async function testBucketIn(t: Pick<TestContext, "after">, layout: Layout): Promise<TestBucket> {
  const dir = layout.root;
  const db = openDatabase(layout.database);
  const bucketId = bucketIdOf(db);
  t.after(() => db.close());
  const key = await loadKvKey(layout);
  const activity: string[] = [];
  const context = (kind: RunKind = "build", signal = new AbortController().signal): OperationContext => {
    const id = uuidV7();
    const say = (text: string) => activity.push(text);
    const log = new RunLog({ layout, runId: id, command: kind, redactor: new Redactor(), activity: say, format: "kv" as const });
    t.after(() => log.close());
    const launcher = new Launcher(process.env, () => {});
    const run = { id, kind, bucketId };
    const progress = new ProgressBoard(() => {}, signal);
    return { layout, db, kv: new KvStore(db, key), log, signal, launcher, run, server: null, progress };
  };
  return { dir, layout, bucketId, db, kv: () => new KvStore(db, key), activity, context };
}
