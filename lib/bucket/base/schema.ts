import { LARGEST_ROW_BYTES } from "./contents.ts";
import { ADD_HEALTH, ADD_STATES, ADD_TROUBLE } from "./states.ts";

/** The schema this program writes. */
export const SCHEMA_VERSION = 9;

/**
 * Each entry takes the schema from its index to the next version; all of them run in one transaction. `set_aside` puts
 * a content beside the database and answers NULL; `began` answers when a run began, RFC 3339, or NULL for no id of a run.
 */
export const MIGRATIONS = [
  `
  CREATE TABLE bucket (
    bucket_id TEXT PRIMARY KEY, update_seq INTEGER NOT NULL DEFAULT 0, build_seq INTEGER NOT NULL DEFAULT 0, built_at TEXT
  ) STRICT;
  CREATE TABLE worker (
    worker_ip TEXT PRIMARY KEY, worker_id TEXT NOT NULL UNIQUE, hostname TEXT, position INTEGER NOT NULL,
    connection TEXT NOT NULL, root TEXT NOT NULL, ssh_user TEXT, ssh_port INTEGER, ssh_jump TEXT,
    available_memory_mb REAL NOT NULL, available_cpu_mhz REAL NOT NULL,
    synced_seq INTEGER NOT NULL DEFAULT 0, removed INTEGER NOT NULL DEFAULT 0
  ) STRICT;
  CREATE TABLE worker_labels (worker_ip TEXT NOT NULL, label TEXT NOT NULL, PRIMARY KEY (worker_ip, label)) STRICT;
  CREATE TABLE worker_tags (worker_ip TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (worker_ip, key)) STRICT;
  CREATE TABLE worker_facts (worker_ip TEXT PRIMARY KEY, taken_at TEXT NOT NULL, facts TEXT NOT NULL) STRICT;
  CREATE TABLE job (
    name TEXT PRIMARY KEY, job_id TEXT NOT NULL, version TEXT NOT NULL, deployment_seq INTEGER NOT NULL,
    max_concurrent_upgrades INTEGER NOT NULL, max_concurrent_starts INTEGER NOT NULL,
    min_memory_mb REAL NOT NULL, max_memory_mb REAL NOT NULL, current_memory_mb REAL NOT NULL, current_memory_source TEXT NOT NULL,
    min_cpu_mhz REAL NOT NULL, max_cpu_mhz REAL NOT NULL, current_cpu_mhz REAL NOT NULL, current_cpu_source TEXT NOT NULL,
    restart_policy TEXT NOT NULL, restart_globs TEXT NOT NULL, health_check TEXT NOT NULL,
    lifecycle_timeout_seconds INTEGER NOT NULL, on_failure TEXT NOT NULL, secret_mode INTEGER NOT NULL,
    tolerate_unreachable REAL NOT NULL
  ) STRICT;
  CREATE TABLE job_selectors (job TEXT NOT NULL, selector TEXT NOT NULL, PRIMARY KEY (job, selector)) STRICT;
  CREATE TABLE job_ports (job TEXT NOT NULL, name TEXT NOT NULL, port INTEGER NOT NULL, PRIMARY KEY (job, name)) STRICT;
  CREATE TABLE job_certs (
    job TEXT NOT NULL, worker_ip TEXT NOT NULL, name TEXT NOT NULL, request TEXT NOT NULL, common_name TEXT NOT NULL,
    expiring_from INTEGER NOT NULL, not_after INTEGER NOT NULL, PRIMARY KEY (job, worker_ip, name)
  ) STRICT;
  CREATE TABLE job_files (
    job TEXT NOT NULL, path TEXT NOT NULL, mode INTEGER NOT NULL, sha256 TEXT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (job, path)
  ) STRICT;
  CREATE TABLE hooks (
    job TEXT NOT NULL, name TEXT NOT NULL, executed_on TEXT NOT NULL,
    demand_job TEXT NOT NULL, demand_hook TEXT NOT NULL, demand_config TEXT NOT NULL,
    PRIMARY KEY (job, name, executed_on)
  ) STRICT;
  CREATE TABLE allocations (
    alloc_id TEXT NOT NULL UNIQUE, worker_ip TEXT NOT NULL, job TEXT NOT NULL,
    disabled INTEGER NOT NULL, removed INTEGER NOT NULL, deployment_seq INTEGER NOT NULL, new_version TEXT NOT NULL,
    PRIMARY KEY (worker_ip, job)
  ) STRICT, WITHOUT ROWID;
  CREATE TABLE hash (
    namespace TEXT NOT NULL, key TEXT NOT NULL, current_hash TEXT NOT NULL, previous_hash TEXT NOT NULL,
    current_files TEXT NOT NULL, previous_files TEXT NOT NULL, current_version TEXT NOT NULL,
    gate TEXT NOT NULL DEFAULT '', unfinished INTEGER NOT NULL DEFAULT 0, stopped INTEGER NOT NULL DEFAULT 0,
    update_seq INTEGER NOT NULL DEFAULT 0, before_hash TEXT NOT NULL DEFAULT '',
    before_files TEXT NOT NULL DEFAULT '', before_version TEXT NOT NULL DEFAULT '', PRIMARY KEY (namespace, key)
  ) STRICT;
  CREATE TABLE contents (sha256 TEXT PRIMARY KEY, sealed INTEGER NOT NULL, content BLOB NOT NULL) STRICT, WITHOUT ROWID;
  CREATE TABLE host_list (id INTEGER PRIMARY KEY, hosts TEXT NOT NULL UNIQUE) STRICT;
  CREATE TABLE kv_version (
    namespace TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, value TEXT NOT NULL, list INTEGER,
    ttl INTEGER NOT NULL DEFAULT 0, created_date INTEGER NOT NULL, deleted INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, key, version)
  ) STRICT, WITHOUT ROWID;
  -- Where a version names a list of hosts, its value is the host that is not read.
  CREATE VIEW key_value AS SELECT namespace, key, version,
    CASE WHEN list IS NULL THEN value ELSE trim(replace(',' || hosts || ',', ',' || value || ',', ','), ',') END AS value,
    ttl, created_date, deleted FROM kv_version LEFT JOIN host_list ON host_list.id = list;
  `,
  `
  CREATE TABLE last_outcome (
    alloc_id TEXT PRIMARY KEY, action TEXT NOT NULL, outcome TEXT NOT NULL, run_id TEXT NOT NULL, reason TEXT NOT NULL
  ) STRICT, WITHOUT ROWID;
  ALTER TABLE job ADD COLUMN drift_ignore TEXT NOT NULL DEFAULT '[]';
  -- Schema 1 kept the tree that was synced last although the next sync may have begun.
  UPDATE hash SET current_hash = '' WHERE unfinished = 1;
  `,
  ADD_STATES,
  `
  -- A content of more than 1 MiB is NULL: it lies beside the database. Sealed ones of schema 3 stay as they are, because
  -- only kv.key opens them; they go when they are promoted no more.
  ALTER TABLE job_files RENAME TO old_job_files;
  CREATE TABLE job_files (
    job TEXT NOT NULL, path TEXT NOT NULL, mode INTEGER NOT NULL, sha256 TEXT NOT NULL, size_bytes INTEGER NOT NULL,
    content BLOB, PRIMARY KEY (job, path)
  ) STRICT;
  INSERT INTO job_files SELECT job, path, mode, sha256, length(content),
    CASE WHEN length(content) > ${LARGEST_ROW_BYTES} THEN set_aside(sha256, content) ELSE content END FROM old_job_files;
  DROP TABLE old_job_files;
  ALTER TABLE contents RENAME TO old_contents;
  CREATE TABLE contents (
    sha256 TEXT PRIMARY KEY, sealed INTEGER NOT NULL, size_bytes INTEGER NOT NULL, content BLOB
  ) STRICT;
  INSERT INTO contents SELECT sha256, sealed, length(content), CASE WHEN sealed = 0 AND length(content) > ${LARGEST_ROW_BYTES}
    THEN set_aside(sha256, content) ELSE content END FROM old_contents;
  DROP TABLE old_contents;
  `,
  ADD_TROUBLE,
  `ALTER TABLE job ADD COLUMN after_jobs TEXT NOT NULL DEFAULT '[]'`,
  // What schedules.json said in the last build.
  `ALTER TABLE bucket ADD COLUMN schedules TEXT NOT NULL DEFAULT '{}'`,
  ADD_HEALTH,
  // What notify.json and its templates said in the last build.
  `ALTER TABLE bucket ADD COLUMN notify TEXT NOT NULL DEFAULT '{}'`,
];
