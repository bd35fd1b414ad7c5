import { createHmac, hkdfSync, randomBytes } from "node:crypto";
import { unseal } from "../../codec/crypto/seal.ts";
import { Failure } from "../../core/errors.ts";
import { createExclusive, readBounded } from "../../core/files.ts";
import type { Database } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { isSealed } from "./kv-access.ts";

const KEY_BYTES = 32;

/** Reads the key that secrets are sealed with: `secrets/kv.key`, 32 raw bytes. */
export async function loadKvKey(layout: Layout): Promise<Buffer> {
  const key = await readBounded(layout.kvKey, 1024);
  if (!key) throw new Failure("bucket_not_initialized", "Cannot read secrets/kv.key: there is none; run `ops init`");
  if (key.length !== KEY_BYTES)
    throw new Failure("failed", `Cannot read secrets/kv.key: it has ${key.length} bytes instead of ${KEY_BYTES}`);
  return key;
}

/** Makes the key where there is none, readable by its owner only; never replaces one. */
export async function createKvKey(layout: Layout): Promise<void> {
  await createExclusive(layout.kvKey, randomBytes(KEY_BYTES));
}

const PURPOSE = "ops fingerprints of secrets";
const SHOWN_LENGTH = 12;

/** Tells whether two sealed values are equal, not what they are; empty for what cannot be opened. */
export type Fingerprint = (namespace: string, key: string, sealed: string) => string;

/** The fingerprint of any value where there is no key. */
export const noFingerprint: Fingerprint = () => "";

/**
 * The fingerprints of a bucket's secrets: the first 12 hexadecimal digits of an HMAC-SHA256 under a key derived from
 * `secrets/kv.key`. Equal values have equal ones in the bucket, and without its key nobody can try out a guess, however
 * short the value is. A bucket whose key cannot be read shows none.
 */
export async function fingerprintsOf(layout: Layout): Promise<Fingerprint> {
  const kvKey = await loadKvKey(layout).catch(() => undefined);
  if (!kvKey) return noFingerprint;
  const hmacKey = Buffer.from(hkdfSync("sha256", kvKey, "", PURPOSE, KEY_BYTES));
  return (namespace, key, sealed) => {
    const value = opened(kvKey, namespace, key, sealed);
    if (value === undefined) return "";
    return createHmac("sha256", hmacKey).update(value).digest("hex").slice(0, SHOWN_LENGTH);
  };
}

function opened(kvKey: Buffer, namespace: string, key: string, sealed: string): string | undefined {
  try {
    return unseal(kvKey, namespace, key, sealed);
  } catch {
    return undefined;
  }
}

/** The place that the contents of secret files are sealed for; the name is their SHA-256. */
export const SEALED_CONTENTS = "contents";

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
