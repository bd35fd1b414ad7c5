// The state of each allocation stands in its row, beside what the build stores there: pages, filters and counts of the
// catalog cost what they show, and not a look at everything that was ever promoted.

/** The words of hook-runtime.md, States. `stop` is what the next deploy does first. Health is in the gate. */
export const ROLLOUTS = ["new", "update", "promoted", "stop", "disabled", "removed"] as const;

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
