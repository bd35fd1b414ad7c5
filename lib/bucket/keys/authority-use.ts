import { hash } from "node:crypto";
import { countOf, firstOf } from "../../core/plain-text.ts";
import type { Database } from "../base/database.ts";

/** Which running allocations have a text as their `certs/ca.crt`. */
export type AuthorityUse = ReturnType<typeof authorityUse>;

/** How many allocations or machines a sentence names. */
export const MOST_IN_A_SENTENCE = 10;
const BUILT = "SELECT value FROM key_value WHERE namespace = 'ops/worker' AND key = 'certs/ca.crt' ORDER BY version DESC LIMIT 1";
// A digest is `<mode>:<SHA-256>`.
const ALLOCATIONS = `SELECT a.job || '@' || a.worker_ip AS place,
    h.unfinished OR COALESCE(json_extract(h.previous_files, '$."certs/ca.crt"'), '') NOT LIKE '%:' || ? AS waits
  FROM allocations a JOIN hash h ON h.namespace = a.job || '_allocation' AND h.key = a.alloc_id
  WHERE a.runs AND NOT a.removed ORDER BY a.job, a.position, a.worker_ip`;

/** How far the text of ca.crt has come: built, and deployed to which allocations. */
export function authorityUse(db: Database, text: string) {
  const rows = db.all<{ place: string; waits: number }>(ALLOCATIONS, hash("sha256", text));
  return {
    /** The last build knows the text, and tells it to jobs. */
    isBuilt: db.get<{ value: string }>(BUILT)?.value === text,
    /** How many allocations run, the removed ones left out: those are only to be stopped. */
    running: rows.length,
    /** `<job>@<worker>` of those that have another text, or whose files are not whole. */
    waiting: rows.filter(({ waits }) => waits === 1).map(({ place }) => place),
  };
}

/** What is missing until the next step of a rotation of the CA can be taken; undefined where nothing is. */
export function whatWaits({ isBuilt, waiting, running }: AuthorityUse): string | undefined {
  if (!isBuilt) return "no build knows the present ca.crt";
  if (waiting.length === 0) return undefined;
  return `${countOf(waiting.length, running, "running allocation")} not deployed with the present ca.crt: ${firstOf(waiting, MOST_IN_A_SENTENCE)}`;
}
