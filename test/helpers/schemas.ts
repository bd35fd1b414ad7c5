import { DatabaseSync } from "node:sqlite";

/** Brings a database to schema 1, as the program that knew no other left it. */
export function toSchema1(file: string): void {
  const database = new DatabaseSync(file);
  database.exec(
    "DROP TABLE last_outcome; ALTER TABLE job DROP COLUMN drift_ignore; UPDATE schema_version SET version = 1",
  );
  database.close();
}
