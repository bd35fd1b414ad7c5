import { createHmac, hkdfSync } from "node:crypto";
import { unseal } from "../../codec/crypto/seal.ts";
import { loadKvKey } from "../base/kv-key.ts";
import type { Layout } from "../base/layout.ts";

const PURPOSE = "ops fingerprints of secrets";
const KEY_BYTES = 32;
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
