import { LARGEST_ROW_BYTES } from "./contents.ts";

// The state of each allocation stands in its row, beside what the build stores there: pages, filters and counts of the
// catalog cost what they show, and not a look at everything that was ever promoted.

/** The rollout, from whether the service `runs` and the `version` whose files are promoted and whole on the worker. */
function rolloutOf(runs: string, version: string): string {
  return `CASE WHEN (removed OR disabled) AND ${runs} THEN 'stop' WHEN removed THEN 'removed' WHEN disabled THEN 'disabled'
    WHEN ${version} IS NULL THEN 'new' WHEN ${version} <> new_version THEN 'update' ELSE 'promoted' END`;
}

type State = Record<"runs" | "promoted_version" | "unsettled", string>;

/** What the row of an allocation takes from a row in `hash`. */
function stateIn(row: string): State {
  const differs = `${row}.current_hash <> ${row}.previous_hash`;
  return {
    runs: `(${row}.stopped <> 1 AND (${row}.unfinished OR ${row}.previous_hash <> ''))`,
    promoted_version: `(CASE WHEN ${row}.previous_hash = '' THEN NULL WHEN ${row}.unfinished OR ${differs} THEN ''
      ELSE ${row}.current_version END)`,
    unsettled: `(${row}.unfinished AND (${row}.previous_hash = '' OR ${differs}))`,
  };
}

const [NOW, BEFORE, STORED] = ["NEW", "OLD", "h"].map(stateIn) as [State, State, State];
const listOf = (state: State) => `(${Object.values(state).join(", ")})`;
const TAKEN = "(runs, promoted_version, unsettled)";
const TAKE = `BEGIN UPDATE allocations SET ${TAKEN} = ${listOf(NOW)}, rollout = ${rolloutOf(NOW.runs, NOW.promoted_version)}
    WHERE alloc_id = NEW.key; END`;

const positionsOf = (table: string) =>
  `UPDATE ${table} SET position = w.position FROM worker w WHERE w.worker_ip = ${table}.worker_ip AND ${table}.position <> w.position;`;
const ROLLOUT = rolloutOf("runs", "promoted_version");

/** Brings the rows of a new build in line: the positions of workers, and the rollouts of allocations that it changed. */
export const SETTLE = `${positionsOf("allocations")} ${positionsOf("job_certs")}
  UPDATE allocations SET rollout = ${ROLLOUT} WHERE rollout <> ${ROLLOUT};`;

/**
 * Adds the columns of the state: the worker's `position`, which each build stores, and those that triggers take from the
 * tables `hash` and `last_outcome`.
 */
export const ADD_STATES = `
  ALTER TABLE allocations ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE allocations ADD COLUMN rollout TEXT NOT NULL DEFAULT 'new';
  ALTER TABLE allocations ADD COLUMN outcome TEXT NOT NULL DEFAULT '';
  -- The files on the worker may differ from those that the last finished deploy left there.
  ALTER TABLE allocations ADD COLUMN unsettled INTEGER NOT NULL DEFAULT 0;
  ALTER TABLE allocations ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
  -- Empty while the files are not whole, NULL before the first promotion.
  ALTER TABLE allocations ADD COLUMN promoted_version TEXT;
  ALTER TABLE job_certs ADD COLUMN position INTEGER NOT NULL DEFAULT 0;
  CREATE TRIGGER promotion_new AFTER INSERT ON hash ${TAKE};
  CREATE TRIGGER promotion_changed AFTER UPDATE OF current_hash, previous_hash, current_version, unfinished, stopped ON hash
    WHEN ${listOf(NOW)} IS NOT ${listOf(BEFORE)} ${TAKE};
  CREATE TRIGGER outcome_new AFTER INSERT ON last_outcome
    BEGIN UPDATE allocations SET outcome = NEW.outcome WHERE alloc_id = NEW.alloc_id; END;
  UPDATE allocations SET ${TAKEN} = ${listOf(STORED)} FROM hash h WHERE h.namespace = job || '_allocation' AND h.key = alloc_id;
  UPDATE allocations SET outcome = o.outcome FROM last_outcome o WHERE o.alloc_id = allocations.alloc_id;
  ${SETTLE}
  CREATE INDEX allocations_by_job ON allocations (job, position, worker_ip);
  CREATE INDEX allocations_by_state ON allocations (unsettled, rollout, outcome, job, position, worker_ip, removed);
  CREATE INDEX workers_in_order ON worker (position, worker_ip);
  CREATE INDEX certs_in_order ON job_certs (job, position, worker_ip, name);
`;

/** The condition for a row of an allocation that a person has to look at, or whose rollout goes on. */
const troubled = (row: string) => `(${row}.outcome IN ('failed', 'unreachable') OR ${row}.unsettled)`;
const NOW_TEXT = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";

/**
 * Adds when the trouble of an allocation began: kept while one action after the other fails, is cancelled or has no known
 * end, and gone when an action succeeds and the promoted files are those on the worker. Of older troubles the beginning
 * of the last run is known.
 */
export const ADD_TROUBLE = `
  ALTER TABLE allocations ADD COLUMN troubled_since TEXT;
  UPDATE allocations SET troubled_since =
    COALESCE((SELECT began(run_id) FROM last_outcome o WHERE o.alloc_id = allocations.alloc_id), ${NOW_TEXT})
    WHERE ${troubled("allocations")};
  CREATE TRIGGER trouble AFTER UPDATE OF outcome, unsettled ON allocations
    WHEN NEW.outcome <> OLD.outcome OR NEW.unsettled <> OLD.unsettled
    BEGIN UPDATE allocations SET troubled_since = CASE WHEN ${troubled("NEW")} THEN COALESCE(NEW.troubled_since, ${NOW_TEXT})
      WHEN NEW.outcome IN ('', 'changed', 'ok') THEN NULL ELSE NEW.troubled_since END WHERE alloc_id = NEW.alloc_id; END;
`;

/** Adds the history of health: a row for each change, not for each check. */
export const ADD_HEALTH = `
  CREATE TABLE health_change (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, job TEXT NOT NULL, worker_ip TEXT NOT NULL, aspect TEXT NOT NULL,
    state TEXT NOT NULL, reason TEXT NOT NULL, run_id TEXT NOT NULL
  ) STRICT;
  CREATE INDEX health_by_place ON health_change (job, worker_ip, aspect, id);
`;

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
