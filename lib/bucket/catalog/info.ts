import { type Database, SCHEMA_VERSION } from "../base/database.ts";

/** What a bucket is and how much it holds. */
interface BucketInfo {
  bucket_id: string;
  schema_version: number;
  /** Rises with each wave of a deploy that had work. */
  update_seq: number;
  /** When the last build stored the catalog; null before the first. */
  built_at: string | null;
  workers: number;
  jobs: number;
  /** Those that are not removed. */
  allocations: number;
}

/** Reads it from the catalog. */
export function bucketInfo(db: Database): BucketInfo {
  const info = db.get<Omit<BucketInfo, "schema_version">>(
    `SELECT bucket_id, update_seq, built_at,
      (SELECT COUNT(*) FROM worker WHERE removed = 0) AS workers, (SELECT COUNT(*) FROM job) AS jobs,
      (SELECT COUNT(*) FROM allocations WHERE removed = 0) AS allocations FROM bucket`,
  ) as Omit<BucketInfo, "schema_version">;
  return { ...info, schema_version: SCHEMA_VERSION };
}
