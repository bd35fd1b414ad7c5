import { createHash } from "node:crypto";

/** The types of keys that are used, the preferred first. */
export const KEY_TYPES = ["ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa"] as const;

/** A public key as OpenSSH writes it: its type and its bytes in base64. */
export interface PublicKey {
  type: (typeof KEY_TYPES)[number];
  base64: string;
}

/** A key as people compare it: the fingerprint is `SHA256:…`, as ssh-keygen shows it. */
export interface KeyFingerprint {
  type: string;
  fingerprint: string;
}

const MOST_CHARACTERS = 16 * 1024;

/** The key that `<type> <base64>` says, or undefined unless type and bytes are one of {@link KEY_TYPES} and agree. */
export function parsePublicKey(type: string, base64: string): PublicKey | undefined {
  const known = KEY_TYPES.find((one) => one === type);
  if (known === undefined || base64.length > MOST_CHARACTERS) return undefined;
  const bytes = Buffer.from(base64, "base64");
  if (bytes.toString("base64") !== base64 || bytes.length <= 4) return undefined;
  // The bytes begin with the type, behind its length.
  const named = bytes.subarray(4, 4 + bytes.readUInt32BE(0)).toString("latin1");
  return named === type ? { type: known, base64 } : undefined;
}

/** Type and fingerprint of a key. */
export function fingerprintOf({ type, base64 }: PublicKey): KeyFingerprint {
  const hash = createHash("sha256").update(Buffer.from(base64, "base64")).digest("base64");
  return { type, fingerprint: `SHA256:${hash.replace(/=+$/, "")}` };
}
