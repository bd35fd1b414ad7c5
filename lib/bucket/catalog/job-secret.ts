import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { type Database, openDatabase } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { unknownName } from "../base/problems.ts";
import { KvStore } from "../kv/kv.ts";
import { loadKvKey, NOTIFY_SECRETS } from "../kv/kv-access.ts";
import { jobNames } from "./catalog.ts";

/** The key of a secret: one line of text. */
export const SECRET_KEY = /^[^\p{C}]{1,253}$/u;

/** A secret that a person stores, or removes: without a value. */
export interface JobSecret {
  /** null for a secret that notify.json may name. */
  job: string | null;
  key: string;
  value?: string | undefined;
  ttlSeconds?: number | undefined;
}

/**
 * Stores a secret sealed, or removes it; templates and hooks of its job read it under `secrets/job/<job>`. The
 * caller holds the lock of the bucket. Throws `unknown_name` where the catalog has no such job, and `not_found` for a
 * secret to remove that is not there.
 */
export async function changeJobSecret(layout: Layout, { job, key, value, ttlSeconds }: JobSecret): Promise<void> {
  using db: Database = openDatabase(layout.database);
  const namespace = job === null ? NOTIFY_SECRETS : `secrets/job/${job.toLowerCase()}`;
  const jobs = jobNames(db);
  if (job !== null && !jobs.has(job.toLowerCase())) throw new Failure("unknown_name", unknownName("job", job, jobs));
  const kv = new KvStore(db, await loadKvKey(layout));
  if (value === undefined) {
    if (kv.get(namespace, key) === undefined) throw new Failure("not_found", `${ownerOfSecret(job)} has no secret ${quote(key)}`);
    kv.delete(namespace, key);
  } else kv.put(namespace, key, value, ttlSeconds);
  kv.flush();
}

/** Whose a secret is, in words. */
export function ownerOfSecret(job: string | null): string {
  return job === null ? "notify.json" : `job ${quote(job)}`;
}
