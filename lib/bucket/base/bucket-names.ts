import type { Database } from "./database.ts";

const NAMES = `
  SELECT bucket_id AS name FROM bucket
  UNION SELECT worker_ip FROM worker UNION SELECT worker_id FROM worker UNION SELECT hostname FROM worker
  UNION SELECT root FROM worker UNION SELECT ssh_user FROM worker UNION SELECT ssh_jump FROM worker
  UNION SELECT label FROM worker_labels UNION SELECT key FROM worker_tags
  UNION SELECT name FROM job UNION SELECT job_id FROM job UNION SELECT version FROM job
  UNION SELECT name FROM job_ports UNION SELECT name FROM job_certs UNION SELECT common_name FROM job_certs
  UNION SELECT path FROM job_files UNION SELECT name FROM hooks
  UNION SELECT alloc_id FROM allocations UNION SELECT new_version FROM allocations
  UNION SELECT current_version FROM hash
  UNION SELECT namespace FROM kv_version UNION SELECT key FROM kv_version`;

/** All names in a bucket: those of workers, labels, jobs, versions, ports, files, hooks, allocations and keys. */
export function bucketNames(db: Database): string[] {
  return db.all<{ name: string | null }>(NAMES).flatMap(({ name }) => name || []);
}
