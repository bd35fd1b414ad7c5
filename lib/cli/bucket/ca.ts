import { X509Certificate } from "node:crypto";
import { beginRotation, certificatesIn, readRotation, replaceAuthority } from "../../bucket/base/authority-change.ts";
import {
  AUTHORITY_BYTES,
  type Authority,
  type AuthorityFiles,
  authorityOf,
  isAuthorityInUse,
  loadAuthority,
  utc,
} from "../../bucket/base/certificates.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import { uuidV7 } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { readBounded, realPlace } from "../../core/files.ts";
import { takeBucket } from "../../run/recovery.ts";
import { openBucket } from "../../server/reading.ts";
import { stdinBytes } from "../base/ask.ts";
import { bucketDir, type Parsed } from "../base/flags.ts";
import { printAnswer } from "../base/terminal.ts";
import { initialisedBucket } from "./bucket.ts";

/** What became of an authority that was given. */
type Import = "imported" | "unchanged" | "rotation_begun";

/**
 * `ops ca import`: makes an existing authority that of the bucket, under the bucket's lock. One that jobs trust already is
 * replaced only with `--replace`, or, with `--rotate`, as the next one of a rotation.
 */
export async function importAuthorityCommand(input: Parsed): Promise<number> {
  const layout = await initialisedBucket(bucketDir(input));
  const { switches } = input;
  if (switches.has("rotate") && switches.has("replace")) throw new Failure("usage", "give --rotate or --replace, not both");
  const { files, authority } = await givenAuthority(input.operands);
  await using _ = await takeBucket(layout, uuidV7(), "ca import");
  const done = await imported(layout, files, authority, switches);
  const { commonName: common_name, fingerprint, notAfter } = authority;
  return printAnswer(
    input,
    { outcome: done, common_name, fingerprint, not_after: notAfter.toISOString() },
    `${sentenceOf(done)}: ${common_name}, until ${utc(notAfter.getTime())}, SHA-256 ${fingerprint}\n`,
  );
}

function sentenceOf(done: Import): string {
  if (done === "unchanged") return "the CA of the bucket is this one already";
  if (done === "imported") return "the CA of the bucket is this one now; build, then deploy";
  return "the rotation to this CA has begun: build and deploy, so that jobs trust it too, then `ops ca rotate`";
}

async function imported(
  layout: Layout,
  files: AuthorityFiles,
  authority: Authority,
  switches: ReadonlySet<string>,
): Promise<Import> {
  const rotation = await readRotation(layout);
  // A pair that cannot be used, or none, is what an import is to mend.
  const present = await loadAuthority(layout).catch(() => undefined);
  if (present?.fingerprint === authority.fingerprint && present.pem === files.certificate && !rotation) return "unchanged";
  const isInUse = await usedIn(layout);
  if (switches.has("rotate")) {
    const refused = (why: string) => new Failure("usage", `--rotate: ${why}`);
    if (rotation) throw refused("a rotation of the CA is going on: end it with `ops ca rotate`");
    if (present?.fingerprint === authority.fingerprint) throw refused("this certificate is the CA's already");
    await beginRotation(layout, files);
    return "rotation_begun";
  }
  if (!switches.has("replace") && (isInUse || rotation)) {
    const ways =
      "--rotate lets jobs trust both until no certificate of the present one is in use; --replace puts it in place at once, and jobs that are not yet deployed trust no new certificate";
    const why = rotation ? "a rotation of the CA is going on" : "the jobs of the bucket trust the present CA";
    throw new Failure("usage", `Cannot replace the CA: ${why}; ${ways}`);
  }
  await replaceAuthority(layout, files);
  return "imported";
}

async function usedIn(layout: Layout): Promise<boolean> {
  using db = await openBucket(layout);
  return isAuthorityInUse(db);
}

/** The authority in the file of the certificate and in that of the key, or on stdin. Throws `usage` for one that cannot be used. */
async function givenAuthority([certificateFile = "", keyFile]: readonly string[]) {
  const text = (await givenFile(certificateFile)).toString();
  const key = keyFile === undefined ? await keyOnStdin() : await givenFile(keyFile);
  const names = { certificate: certificateFile, key: keyFile ?? "stdin" };
  const files = { certificate: certificatesIn(text).join(""), key: `${key.toString().trim()}\n` };
  const refuse = (why: string, cause?: unknown) => new Failure("usage", `Cannot import the CA: ${why}`, { cause });
  if (/ENCRYPTED/.test(files.key)) throw refuse(`${names.key} is protected by a passphrase; give the key without one`);
  const authority = authorityOf(files, names, refuse);
  const { validFromDate } = new X509Certificate(files.certificate);
  const now = Date.now();
  if (authority.notAfter.getTime() <= now) throw refuse(`${names.certificate} ended on ${utc(authority.notAfter.getTime())}`);
  if (validFromDate.getTime() > now) throw refuse(`${names.certificate} begins only on ${utc(validFromDate.getTime())}`);
  return { files, authority };
}

async function givenFile(file: string): Promise<Buffer> {
  const bytes = await readBounded(realPlace(file), AUTHORITY_BYTES);
  if (!bytes) throw new Failure("usage", `there is no file ${file}`);
  return bytes;
}

async function keyOnStdin(): Promise<Buffer> {
  if (process.stdin.isTTY) throw new Failure("usage", "name the file of the key, or give the key on stdin");
  return await stdinBytes(AUTHORITY_BYTES);
}
