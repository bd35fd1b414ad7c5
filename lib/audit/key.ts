import { hkdfSync } from "node:crypto";
import { readFileSync } from "node:fs";
import { Failure, hasErrno, messageOf } from "../core/errors.ts";
import type { SigningKey } from "../core/signing-key.ts";

/** What signatures of lines are for: none that was made for anything else passes for one. */
export const AUDIT_PURPOSE = "ops audit";

const PUBLIC_KEY = /^[A-Za-z0-9+/]{43}=$/;
const LONGEST_KEY_FILE = 4096;

/** The key of the fingerprints of secrets, which follows from the private key. */
export function fingerprintKey({ privateKey }: SigningKey): Buffer {
  const { d = "" } = privateKey.export({ format: "jwk" });
  return Buffer.from(hkdfSync("sha256", Buffer.from(d, "base64url"), "", "ops audit fingerprints", 32));
}

/** The public key that a word is, or that is in the file of this name. Throws `usage`. */
export function publicKeyNamed(given: string): string {
  const text = PUBLIC_KEY.test(given) ? given : contentOf(given).trim();
  if (PUBLIC_KEY.test(text)) return text;
  const wanted = "expected 44 characters of base64, as the server prints them at its start, or a file with them";
  throw new Failure("usage", `${given} is no public key of an audit: ${wanted}`);
}

function contentOf(file: string): string {
  try {
    return readFileSync(file, "utf8").slice(0, LONGEST_KEY_FILE);
  } catch (error) {
    if (hasErrno(error, "ENOENT", "ENAMETOOLONG")) return "";
    throw new Failure("usage", `Cannot read the public key ${file}: ${messageOf(error)}`, { cause: error });
  }
}
