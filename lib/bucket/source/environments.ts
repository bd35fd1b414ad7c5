import { readdir, rename } from "node:fs/promises";
import path from "node:path";
import { isUuid } from "../../codec/uuid.ts";
import { exists, flushFolder } from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";
import { layoutOf } from "../base/layout.ts";
import { findBucket } from "./root.ts";

/** What became of an environment, or would. */
export interface MigratedEnvironment {
  /** The name of its folder. */
  id: string;
  /** `project/name`; empty where the folder has another name than an id. */
  label: string;
  /** Why it stays as it is; null where it becomes a bucket. */
  problem: string | null;
}

/**
 * Turns the environments below a root into buckets, by the names of their folders: env.json gets the name bucket.json, in
 * one step each, so that a killed migration is simply repeated. Changes nothing with `dryRun`; else only for the holder of
 * the root's lock.
 */
export async function* migrateEnvironments(root: string, dryRun: boolean): AsyncGenerator<MigratedEnvironment> {
  const entries = (await readdir(root, { withFileTypes: true })).filter((entry) => entry.isDirectory());
  for (const { name: id } of entries.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const [from, to] = [layoutOf(path.join(root, id), "env.json").bucketJson, layoutOf(path.join(root, id)).bucketJson];
    if (!(await exists(from))) continue;
    const bucket = isUuid(id) ? findBucket(root, id, "env.json") : undefined;
    const problem = !bucket
      ? "its folder is not named by a UUID in small letters"
      : (await exists(to))
        ? "it has a bucket.json too"
        : null;
    if (problem === null && !dryRun) {
      await rename(from, to);
      faultPoint("migrate: renamed");
      await flushFolder(path.dirname(to));
    }
    yield { id, label: bucket ? `${bucket.project}/${bucket.name}` : "", problem };
  }
}
