import { createHash, createPrivateKey, generateKeyPair, X509Certificate } from "node:crypto";
import { promisify } from "node:util";
import { type Issuer, issuerOf, selfSigned } from "../../codec/crypto/x509.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { createExclusive, flushFolder, PRIVATE_FILE, readBounded, remove } from "../../core/files.ts";
import type { Database } from "./database.ts";
import type { Layout } from "./layout.ts";

/** The certificate authority of a bucket: `secrets/ca.crt` and `secrets/ca.key`. */
export interface Authority {
  /** The text of ca.crt; after its own certificate there may be others that jobs are to trust. */
  pem: string;
  /** SHA-256 of the certificate: another one means other certificates. */
  fingerprint: string;
  commonName: string;
  notAfter: Date;
  issuer: Issuer;
}

/** Clocks of workers may be this much behind. */
export const CLOCK_SKEW_MS = 5 * 60_000;

const VALID_DAYS = 3_650;
const DAY_MS = 86_400_000;
const LIMIT_BYTES = 64 * 1024;
const CERTIFICATE_MODE = 0o644;

const generate = promisify(generateKeyPair);

/**
 * Makes the authority of a bucket where it has none: an EC key (P-384) and a certificate for ten years whose common
 * name is the bucket id. Never replaces a file; where it was interrupted, or runs twice at once, the next call or the
 * other one finishes the same pair. Throws `failed` for a pair that cannot be used, and where both files are missing
 * although `isInUse`.
 */
export async function ensureAuthority(layout: Layout, bucketId: string, isInUse: boolean): Promise<void> {
  await finish(layout);
  const { certificate, key } = await readPair(layout);
  if (certificate === undefined && key === undefined) {
    if (isInUse)
      throw new Failure(
        "failed",
        `Cannot make a CA: the bucket was built with the one in ${layout.caCertificate} and ca.key, which are missing; bring them back from a backup or put another pair there`,
      );
    await createExclusive(layout.caPending, JSON.stringify(await makePair(bucketId)));
  }
  await finish(layout);
  await loadAuthority(layout);
}

/** Both files of a pair spring from one that holds both, so that a crash between them loses nothing. */
async function finish(layout: Layout): Promise<void> {
  const pending = await readBounded(layout.caPending, LIMIT_BYTES);
  if (!pending) return;
  const pair = JSON.parse(pending.toString()) as { certificate: string; key: string };
  await createExclusive(layout.caKey, pair.key, PRIVATE_FILE);
  await createExclusive(layout.caCertificate, pair.certificate, CERTIFICATE_MODE);
  await flushFolder(layout.secrets);
  await remove(layout.caPending);
}

async function makePair(bucketId: string): Promise<{ certificate: string; key: string }> {
  const keys = await generate("ec", { namedCurve: "P-384" });
  const now = Date.now();
  const validity = { notBefore: new Date(now - CLOCK_SKEW_MS), notAfter: new Date(now + VALID_DAYS * DAY_MS) };
  const certificate = await selfSigned(bucketId, keys, validity);
  return { certificate, key: keys.privateKey.export({ type: "pkcs8", format: "pem" }).toString() };
}

async function readPair(layout: Layout): Promise<{ certificate?: string; key?: string }> {
  const certificate = await readBounded(layout.caCertificate, LIMIT_BYTES);
  const key = await readBounded(layout.caKey, LIMIT_BYTES);
  return { ...(certificate && { certificate: certificate.toString() }), ...(key && { key: key.toString() }) };
}

/**
 * Reads the authority. Failures: `bucket_not_initialized` where there is none, `failed` where one of the files is
 * missing, unreadable or not the other's, or where the certificate is none of an authority.
 */
export async function loadAuthority(layout: Layout): Promise<Authority> {
  const { certificate: pem, key } = await readPair(layout);
  if (pem === undefined && key === undefined)
    throw new Failure(
      "bucket_not_initialized",
      `Cannot read ${layout.caCertificate}: the bucket has no CA; run \`ops init\``,
    );
  if (pem === undefined || key === undefined) {
    const [here, missing] = pem === undefined ? ["ca.key", "ca.crt"] : ["ca.crt", "ca.key"];
    throw unusable(
      layout,
      `${here} is there, but not ${missing}; bring it back from a backup, or run \`ops init\` if that was interrupted`,
    );
  }
  const certificate = parse(layout, "ca.crt", () => new X509Certificate(pem));
  const privateKey = parse(layout, "ca.key", () => createPrivateKey(key));
  if (!certificate.ca) throw unusable(layout, "ca.crt is not the certificate of an authority");
  if (!certificate.checkPrivateKey(privateKey)) throw unusable(layout, "ca.key is not the key of ca.crt");
  const issuer = parse(layout, "ca.key", () => issuerOf(certificate, privateKey));
  const [, commonName = ""] = /^CN=(.*)$/m.exec(certificate.subject) ?? [];
  const fingerprint = createHash("sha256").update(certificate.raw).digest("hex");
  return { pem, fingerprint, commonName, notAfter: certificate.validToDate, issuer };
}

function parse<T>(layout: Layout, file: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw unusable(layout, `${file} cannot be read: ${messageOf(error)}`, error);
  }
}

function unusable(layout: Layout, why: string, cause?: unknown): Failure {
  return new Failure("failed", `Cannot use the CA in ${layout.secrets}: ${why}`, { cause });
}

/** What is known of a certificate without opening it; certificate and key themselves are in the KV store. */
export interface IssuedCert {
  /** Empty for the CA's own, as worker and name are. */
  job: string;
  worker: string;
  name: string;
  /** Stands for all that it was made from: it is issued anew when that differs. */
  request: string;
  commonName: string;
  /** From when on operators should know that it ends. Times are milliseconds since 1970, whole seconds. */
  expiringFrom: number;
  notAfter: number;
}

const CA_NEAR_END_DAYS = 180;
const NEAR_END_DAYS = 30;

/** The identity of a certificate in the bucket. */
export function certKey({ job, worker, name }: Pick<IssuedCert, "job" | "worker" | "name">): string {
  return `${job}|${worker}|${name}`;
}

/** The certificate of the CA; it is near its end in the last 180 days. */
export function authorityCert({ fingerprint, commonName, notAfter }: Authority): IssuedCert {
  const end = notAfter.getTime();
  const expiringFrom = end - CA_NEAR_END_DAYS * DAY_MS;
  return { job: "", worker: "", name: "", request: fingerprint, commonName, expiringFrom, notAfter: end };
}

/** From when on a job's certificate is near its end: the last quarter of its time, at most 30 days. */
export function expiringFrom(issuedAt: number, notAfter: number): number {
  const time = Math.min(NEAR_END_DAYS * DAY_MS, (notAfter - issuedAt) / 4);
  return Math.floor((notAfter - time) / 1000) * 1000;
}

/** The certificates of all jobs, and the CA's, as the last build left them. */
export function issuedCerts(db: Database): IssuedCert[] {
  const times = "expiring_from * 1000 AS expiringFrom, not_after * 1000 AS notAfter";
  const columns = `job, worker_ip AS worker, name, request, common_name AS commonName, ${times}`;
  return db.all<IssuedCert>(`SELECT ${columns} FROM job_certs`).map((row) => ({ ...row }));
}

/** Notes a certificate that takes the place of the one before. To be called in a transaction. */
export function saveCert(db: Database, cert: IssuedCert): void {
  db.run(
    "INSERT OR REPLACE INTO job_certs (job, worker_ip, name, request, common_name, expiring_from, not_after) VALUES (?, ?, ?, ?, ?, ?, ?)",
    ...[cert.job, cert.worker, cert.name, cert.request, cert.commonName],
    ...[cert.expiringFrom / 1000, cert.notAfter / 1000],
  );
}

/** Forgets a certificate. To be called in a transaction. */
export function deleteCert(db: Database, { job, worker, name }: IssuedCert): void {
  db.run("DELETE FROM job_certs WHERE job = ? AND worker_ip = ? AND name = ?", job, worker, name);
}

/** A time in UTC, to the second: `2026-01-31T12:00:00Z`. */
export function utc(time: number): string {
  return new Date(time).toISOString().replace(/\.\d+Z$/, "Z");
}
