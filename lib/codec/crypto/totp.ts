import { createHmac } from "node:crypto";

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

/** What an authenticator app reads from a QR code. The labels may hold any text, with an @ as it is; a colon divides them. */
export function otpauthUri(key: { issuer: string; account: string; secret: Uint8Array }): string {
  const label = (text: string) => encodeURIComponent(text).replaceAll("%40", "@");
  const [issuer, account] = [label(key.issuer), label(key.account)];
  const seconds = TOTP_STEP_MS / 1000;
  const kind = `algorithm=SHA1&digits=${TOTP_DIGITS}&period=${seconds}`;
  return `otpauth://totp/${issuer}:${account}?secret=${base32Encode(key.secret)}&issuer=${issuer}&${kind}`;
}

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/** Characters of a last group of eight that a whole number of bytes can end with. */
const LAST_GROUP: ReadonlySet<number> = new Set([0, 2, 4, 5, 7]);

/** Bytes as base32 (RFC 4648) in capitals, without padding. */
export function base32Encode(bytes: Uint8Array): string {
  let text = "";
  let [value, bits] = [0, 0];
  for (const byte of bytes) {
    value = (value << 8) | byte;
    for (bits += 8; bits >= 5; bits -= 5) text += ALPHABET[(value >> (bits - 5)) & 31];
  }
  return bits === 0 ? text : text + ALPHABET[(value << (5 - bits)) & 31];
}

/**
 * The bytes of a base32 text in capitals, with its padding or without. Undefined for anything that no encoder writes:
 * other characters, an impossible length, a wrong padding, bits left over that are not 0.
 */
export function base32Decode(text: string): Buffer | undefined {
  const [, digits = "", padding = ""] = /^([A-Z2-7]*)(=*)$/.exec(text) ?? [];
  const isPadded = padding === "" || (text.length % 8 === 0 && padding.length < 8);
  if (digits.length + padding.length !== text.length || !isPadded || !LAST_GROUP.has(digits.length % 8)) return undefined;
  const bytes: number[] = [];
  let [value, bits] = [0, 0];
  for (const digit of digits) {
    value = (value << 5) | ALPHABET.indexOf(digit);
    bits += 5;
    if (bits < 8) continue;
    bits -= 8;
    bytes.push(value >> bits);
    value &= (1 << bits) - 1;
  }
  return value === 0 ? Buffer.from(bytes) : undefined;
}
