import { createHmac } from "node:crypto";
import { base32Encode } from "./base32.ts";

/** How long a code is the current one, in milliseconds (RFC 6238, X). */
export const TOTP_STEP_MS = 30_000;
/** Digits of a code. */
const TOTP_DIGITS = 6;

/** The code of a time step, which is counted from 1970: RFC 6238 with HMAC-SHA-1. */
export function totpCode(secret: Uint8Array, step: number): string {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(step));
  const hash = createHmac("sha1", secret).update(counter).digest();
  // RFC 4226, 5.3: the last half byte says where the number begins, whose sign bit is dropped.
  const number = hash.readUInt32BE((hash[hash.length - 1] as number) & 15) & 0x7fffffff;
  return String(number % 10 ** TOTP_DIGITS).padStart(TOTP_DIGITS, "0");
}

/** What an authenticator app reads from a QR code. The labels may hold any text; a colon divides them. */
export function otpauthUri(key: { issuer: string; account: string; secret: Uint8Array }): string {
  const [issuer, account] = [encodeURIComponent(key.issuer), encodeURIComponent(key.account)];
  const seconds = TOTP_STEP_MS / 1000;
  const kind = `algorithm=SHA1&digits=${TOTP_DIGITS}&period=${seconds}`;
  return `otpauth://totp/${issuer}:${account}?secret=${base32Encode(key.secret)}&issuer=${issuer}&${kind}`;
}
