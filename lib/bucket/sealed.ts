import { unseal } from "../codec/seal.ts";
import type { Database } from "./database.ts";
import { isSealed } from "./kv-access.ts";

/**
 * Opens the newest version of every value that is sealed with `secrets/kv.key` and tells how many there are, and which
 * (`<namespace> <key>`) the key does not open. No value leaves this function.
 */
export function sealedValues(db: Database, key: Buffer): { sealed: number; unreadable: string[] } {
  const rows = db.tuples<[namespace: string, name: string, version: number, value: string, deleted: number]>(
    `SELECT namespace, key, MAX(version), value, deleted FROM kv_version
     WHERE namespace LIKE 'secrets/%' OR namespace LIKE 'ops/job/%' GROUP BY namespace, key`,
  );
  const sealed = rows.filter(([namespace, name, , , deleted]) => deleted === 0 && isSealed(namespace, name));
  const unreadable = sealed.filter(([namespace, name, , value]) => !opens(key, namespace, name, value));
  return { sealed: sealed.length, unreadable: unreadable.map(([namespace, name]) => `${namespace} ${name}`) };
}

function opens(key: Buffer, namespace: string, name: string, value: string): boolean {
  try {
    unseal(key, namespace, name, value);
    return true;
  } catch {
    return false;
  }
}
