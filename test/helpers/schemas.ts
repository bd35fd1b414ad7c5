import { DatabaseSync } from "node:sqlite";

/** Brings a database back to schema 1, as the first version of the program left it. */
export function toSchema1(file: string): void {
  const database = new DatabaseSync(file);
  database.exec("DROP TABLE last_outcome; ALTER TABLE job DROP COLUMN drift_ignore; UPDATE schema_version SET version = 1");
  database.close();
}
