import { createHmac, hkdfSync, randomBytes } from "node:crypto";
import { unseal } from "../../codec/crypto/seal.ts";
import { Failure } from "../../core/errors.ts";
import { createExclusive, readBounded } from "../../core/files.ts";
import type { Database } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import { isSealed } from "./kv-access.ts";

const KEY_BYTES = 32;

/** Reads the key that secrets are sealed with: `secrets/kv.key`, 32 raw bytes. Throws where it is missing or broken. */
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

/** The text that was sealed; undefined where the key does not open it. */
export function tryUnseal(kvKey: Buffer, namespace: string, name: string, sealed: string): string | undefined {
  try {
    return unseal(kvKey, namespace, name, sealed);
  } catch {
    return undefined;
  }
}

/** Tells whether two sealed values are equal, not what they are; empty for a value that cannot be opened. */
export type Fingerprint = (namespace: string, key: string, sealed: string) => string;

/** The fingerprint of any value where there is no key. */
export const noFingerprint: Fingerprint = () => "";

/**
 * The fingerprints of a bucket's secrets: the first 12 hexadecimal digits of an HMAC-SHA256 under a key derived from
 * `secrets/kv.key`. Equal values of a bucket have equal fingerprints. Without the key nobody can try out a guess,
 * however short the value is. A bucket whose key cannot be read shows none.
 */
export async function fingerprintsOf(layout: Layout): Promise<Fingerprint> {
  const kvKey = await loadKvKey(layout).catch(() => undefined);
  if (!kvKey) return noFingerprint;
  const hmacKey = Buffer.from(hkdfSync("sha256", kvKey, "", PURPOSE, KEY_BYTES));
  return (namespace, key, sealed) => {
    const value = tryUnseal(kvKey, namespace, key, sealed);
    return value === undefined ? "" : createHmac("sha256", hmacKey).update(value).digest("hex").slice(0, SHOWN_LENGTH);
  };
}

/** The place that the contents of secret files are sealed for; the name is their SHA-256. */
export const SEALED_CONTENTS = "contents";

const NEWEST_SECRETS = `SELECT namespace, key, value, MAX(version) FROM kv_version
  WHERE namespace LIKE 'secrets/%' OR namespace LIKE 'ops/job/%' GROUP BY namespace, key HAVING deleted = 0`;

/**
 * Opens everything that is sealed with `secrets/kv.key`, the newest version of each value and the kept contents of
 * files. Answers how many there are, and which of them (`<namespace> <key>`) the key does not open, never a value.
 */
export function sealedValues(db: Database, key: Buffer): { sealed: number; unreadable: string[] } {
  const values = db.tuples<[namespace: string, key: string, value: string]>(NEWEST_SECRETS);
  const contents = db.tuples<[sha256: string, content: Uint8Array]>(
    "SELECT sha256, content FROM contents WHERE sealed = 1",
  );
  const all = values.filter(([namespace, name]) => isSealed(namespace, name));
  for (const [sha256, content] of contents) all.push([SEALED_CONTENTS, sha256, Buffer.from(content).toString()]);
  const unreadable = all.filter(([namespace, name, value]) => tryUnseal(key, namespace, name, value) === undefined);
  return { sealed: all.length, unreadable: unreadable.map(([namespace, name]) => `${namespace} ${name}`) };
}
