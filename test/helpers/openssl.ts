import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { temporaryFolder } from "./temporary.ts";

/** What openssl prints when it is given this text; throws with what it said when it fails. */
export function openssl(args: readonly string[], input = ""): string {
  return execFileSync("openssl", args, { input, encoding: "utf8", stdio: ["pipe", "pipe", "pipe"] });
}

/** Has openssl check a certificate against a CA, strictly as RFC 5280 says; throws when it refuses. */
export function verify(t: TestContext, ca: string, certificate: string, ...args: string[]): void {
  const folder = temporaryFolder(t);
  const [caFile, file] = [path.join(folder, "ca.crt"), path.join(folder, "leaf.crt")];
  writeFileSync(caFile, ca);
  writeFileSync(file, certificate);
  openssl(["verify", "-x509_strict", "-CAfile", caFile, ...args, file]);
}

/** The fields and extensions of a certificate as openssl shows them, white space made single blanks. */
export function textOf(certificate: string): string {
  return openssl(["x509", "-noout", "-text"], certificate).replace(/\s+/g, " ");
}
