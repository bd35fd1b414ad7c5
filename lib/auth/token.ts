import { hash, randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

/** By this scanners for secrets find a token, and people tell it from other texts: `ops_[0-9a-f]{72}`. */
const PREFIX = "ops_";
const SECRET_BYTES = 32;
const FORM = /^ops_([0-9a-f]{64})([0-9a-f]{8})$/;

/** A new token: `ops_`, 256 random bits as 64 digits, and 8 digits that tell a mistyped one. */
export function newTokenText(): string {
  const secret = randomBytes(SECRET_BYTES).toString("hex");
  return PREFIX + secret + checksum(secret);
}

/** Whether a text was meant as a token of {@link newTokenText} but has a wrong or missing character. */
export function isMistyped(text: string): boolean {
  const [, secret = "", sum] = FORM.exec(text) ?? [];
  return text.startsWith(PREFIX) && sum !== checksum(secret);
}

/** What is kept of a token: 256 random bits cannot be found again from their SHA-256. */
export function tokenSum(text: string): Buffer {
  return hash("sha256", text, "buffer");
}

function checksum(secret: string): string {
  return crc32(PREFIX + secret)
    .toString(16)
    .padStart(8, "0");
}
