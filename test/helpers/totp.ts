import { execFileSync } from "node:child_process";

/** The secret of the vectors of RFC 6238, and how its file reads. */
export const SECRET = Buffer.from("12345678901234567890");
export const SECRET_TEXT = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";

/** The code that an independent client shows for a secret in base32 at a time, in milliseconds. */
export function oathtoolCode(secret: string, at: number = Date.now()): string {
  const time = `@${Math.floor(at / 1000)}`;
  return execFileSync("oathtool", ["--totp", "--base32", secret, "--now", time], { encoding: "utf8" }).trim();
}
