// The floor under a build for `npm run bench -- build`, a bare script in a process of its own:
//   node bench/build-floor.ts <workspace> <database> <rows>
// Reads all files, hashes them, writes that many rows of the KV store in one transaction; prints what it took as JSON.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";

const [workspace = "", database = "", rows = "0"] = process.argv.slice(2);
for (const entry of readdirSync(workspace, { recursive: true, withFileTypes: true }))
  if (entry.isFile())
    createHash("sha256")
      .update(readFileSync(path.join(entry.parentPath, entry.name)))
      .digest("hex");
const db = new DatabaseSync(database);
db.exec(`PRAGMA journal_mode = WAL; CREATE TABLE key_value (
  namespace TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, value TEXT NOT NULL,
  ttl INTEGER NOT NULL, created_date INTEGER NOT NULL, deleted INTEGER NOT NULL,
  PRIMARY KEY (namespace, key, version)) STRICT`);
const insert = db.prepare("INSERT INTO key_value VALUES (?, ?, 1, ?, 0, 1700000000, 0)");
db.exec("BEGIN");
for (let row = 0; row < Number(rows); row++)
  insert.run(`ops/job/job_${Math.floor(row / 150)}/worker/10.0.0.${Math.floor(row / 3) % 50}`, `key_${row}`, `value ${row}`);
db.exec("COMMIT");
db.close();
const { user, system } = process.cpuUsage();
console.log(JSON.stringify({ ms: performance.now(), cpuMs: (user + system) / 1000 }));
