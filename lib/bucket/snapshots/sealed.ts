import { unseal } from "../../codec/crypto/seal.ts";
import type { Database } from "../base/database.ts";
import { SEALED_CONTENTS } from "../catalog/contents.ts";
import { isSealed } from "../kv/kv-access.ts";

type Sealed = [namespace: string, key: string, value: string];

/**
 * Opens all that is sealed with `secrets/kv.key`, the newest version of each value and the kept contents of files, and
 * tells how many there are and which (`<namespace> <key>`) the key does not open. No value leaves this function.
 */
export function sealedValues(db: Database, key: Buffer): { sealed: number; unreadable: string[] } {
  const values = db
    .tuples<[namespace: string, key: string, value: string, version: number]>(
      `SELECT namespace, key, value, MAX(version) FROM kv_version
       WHERE namespace LIKE 'secrets/%' OR namespace LIKE 'ops/job/%' GROUP BY namespace, key HAVING deleted = 0`,
    )
    .filter(([namespace, name]) => isSealed(namespace, name))
    .map(([namespace, name, value]): Sealed => [namespace, name, value]);
  const contents = db
    .tuples<[sha256: string, content: Uint8Array]>("SELECT sha256, content FROM contents WHERE sealed = 1")
    .map(([sha256, content]): Sealed => [SEALED_CONTENTS, sha256, Buffer.from(content).toString()]);
  const all = [...values, ...contents];
  const unreadable = all.filter((one) => !opens(key, ...one)).map(([namespace, name]) => `${namespace} ${name}`);
  return { sealed: all.length, unreadable };
}

function opens(key: Buffer, namespace: string, name: string, value: string): boolean {
  try {
    unseal(key, namespace, name, value);
    return true;
  } catch {
    return false;
  }
}
