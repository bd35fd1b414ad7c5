import { DatabaseSync } from "node:sqlite";

/** Brings a database back to schema 1, as the first version of the program left it. */
export function toSchema1(file: string): void {
  const database = new DatabaseSync(file);
  toSchema2(database);
  database.exec("DROP TABLE last_outcome; ALTER TABLE job DROP COLUMN drift_ignore; UPDATE schema_version SET version = 1");
  database.close();
}

/** Brings a database back to schema 2, in which the rows of allocations have no states. */
export function toSchema2(database: DatabaseSync): void {
  const columns = ["position", "rollout", "outcome", "unsettled", "runs", "promoted_version"];
  database.exec(`DROP TRIGGER promotion_new; DROP TRIGGER promotion_changed; DROP TRIGGER outcome_new;
    DROP INDEX allocations_by_job; DROP INDEX allocations_by_state; DROP INDEX workers_in_order; DROP INDEX certs_in_order;
    ${columns.map((column) => `ALTER TABLE allocations DROP COLUMN ${column};`).join("")}
    ALTER TABLE job_certs DROP COLUMN position; UPDATE schema_version SET version = 2`);
}
