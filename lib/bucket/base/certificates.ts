import { createPrivateKey, generateKeyPair, hash, X509Certificate } from "node:crypto";
import { promisify } from "node:util";
import { issuerOf, selfSigned } from "../../codec/crypto/x509.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { createExclusive, flushFolder, PRIVATE_FILE, readBounded, remove } from "../../core/files.ts";
import type { Database } from "./database.ts";
import type { Layout } from "./layout.ts";
import { type Column, column, type RecordOf, readRecords, rowOf, writeRows } from "./table.ts";

/** The certificate authority of a bucket: `secrets/ca.crt` and `secrets/ca.key`. */
export type Authority = ReturnType<typeof authorityOf>;

/** Clocks of workers may be this much behind. */
export const CLOCK_SKEW_MS = 5 * 60_000;

const VALID_DAYS = 3_650;
const DAY_MS = 86_400_000;
/** The most that a file of an authority may have. */
export const AUTHORITY_BYTES = 64 * 1024;
/** Of ca.crt, which is no secret. */
export const CERTIFICATE_MODE = 0o644;

const generate = promisify(generateKeyPair);

/**
 * Makes the authority of a bucket that has none: an EC key (P-384) and a certificate for ten years whose common name is
 * the bucket id. Never replaces a file. A call that was interrupted is finished by the next one, and two calls at once
 * make one pair. Throws `failed` for a pair that cannot be used, and where both files are missing although `isInUse`.
 */
export async function ensureAuthority(layout: Layout, bucketId: string, isInUse: boolean): Promise<void> {
  await finishAuthority(layout);
  const { certificate, key } = await readPair(layout);
  if (certificate === undefined && key === undefined) {
    const missing = `the bucket was built with the one in ${layout.caCertificate} and ca.key, which are missing`;
    const advice = "bring them back from a backup or put another pair there";
    if (isInUse) throw new Failure("failed", `Cannot make a CA: ${missing}; ${advice}`);
    await createExclusive(layout.caPending, JSON.stringify(await makePair(bucketId)));
  }
  await finishAuthority(layout);
  await loadAuthority(layout);
}

/** The texts of ca.crt and ca.key. */
export type AuthorityFiles = Record<"certificate" | "key", string>;

/** Writes ca.crt and ca.key from the one file that holds both, so that a crash between the two loses nothing. */
async function finishAuthority(layout: Layout): Promise<void> {
  const pending = await readBounded(layout.caPending, AUTHORITY_BYTES);
  if (!pending) return;
  const pair = JSON.parse(pending.toString()) as AuthorityFiles;
  await createExclusive(layout.caKey, pair.key, PRIVATE_FILE);
  await createExclusive(layout.caCertificate, pair.certificate, CERTIFICATE_MODE);
  await flushFolder(layout.secrets);
  await remove(layout.caPending);
}

/** Makes an EC key (P-384) and a certificate for ten years. */
export async function makePair(commonName: string): Promise<AuthorityFiles> {
  const keys = await generate("ec", { namedCurve: "P-384" });
  const now = Date.now();
  const validity = { notBefore: new Date(now - CLOCK_SKEW_MS), notAfter: new Date(now + VALID_DAYS * DAY_MS) };
  const certificate = await selfSigned(commonName, keys, validity);
  return { certificate, key: keys.privateKey.export({ type: "pkcs8", format: "pem" }).toString() };
}

/** The two files of an authority; undefined for one that is missing. */
export async function readPair(layout: Layout) {
  const texts = [layout.caCertificate, layout.caKey].map(async (file) => (await readBounded(file, AUTHORITY_BYTES))?.toString());
  const [certificate, key] = await Promise.all(texts);
  return { certificate, key };
}

/**
 * Reads the authority. Throws `bucket_not_initialized` where there is none, `failed` where one of the two files is
 * missing or unreadable, where key and certificate are no pair, or where the certificate is not that of an authority.
 */
export async function loadAuthority(layout: Layout): Promise<Authority> {
  const { certificate: pem, key } = await readPair(layout);
  const none = `Cannot read ${layout.caCertificate}: the bucket has no CA; run \`ops init\``;
  if (pem === undefined && key === undefined) throw new Failure("bucket_not_initialized", none);
  if (pem === undefined || key === undefined) {
    const [here, missing] = pem === undefined ? ["ca.key", "ca.crt"] : ["ca.crt", "ca.key"];
    const advice = "bring it back from a backup, or run `ops init` if that was interrupted";
    throw unusable(layout, `${here} is there, but not ${missing}; ${advice}`);
  }
  return authorityOf({ certificate: pem, key }, { certificate: "ca.crt", key: "ca.key" }, (why, cause) =>
    unusable(layout, why, cause),
  );
}

/**
 * The authority that the texts of a certificate and its key are; the certificate may have others behind it. `names` are
 * those of the files, for the failure that `refuse` makes where they are no authority that this program can sign with.
 */
export function authorityOf(
  { certificate: pem, key }: AuthorityFiles,
  names: AuthorityFiles,
  refuse: (why: string, cause?: unknown) => Failure,
) {
  const parse = <T>(file: string, work: () => T): T => {
    try {
      return work();
    } catch (error) {
      const isOpenSsl = String((error as NodeJS.ErrnoException).code).startsWith("ERR_OSSL");
      throw refuse(`${file} cannot be read: ${isOpenSsl ? "it is not in PEM form" : messageOf(error)}`, error);
    }
  };
  const certificate = parse(names.certificate, () => new X509Certificate(pem));
  const privateKey = parse(names.key, () => createPrivateKey(key));
  if (!certificate.ca) throw refuse(`${names.certificate} is not the certificate of an authority`);
  if (!certificate.checkPrivateKey(privateKey)) throw refuse(`${names.key} is not the key of ${names.certificate}`);
  const issuer = parse(names.key, () => issuerOf(certificate, privateKey));
  const [, commonName = ""] = /^CN=(.*)$/m.exec(certificate.subject) ?? [];
  return {
    /** The text of ca.crt; after its own certificate there may be others that jobs are to trust. */
    pem,
    /** SHA-256 of the certificate: another one means other certificates. */
    fingerprint: digestOfCertificate(certificate),
    commonName,
    notAfter: certificate.validToDate,
    issuer,
  };
}

/** SHA-256 of a certificate, in hexadecimal. */
export function digestOfCertificate({ raw }: X509Certificate): string {
  return hash("sha256", raw);
}

function unusable(layout: Layout, why: string, cause?: unknown): Failure {
  return new Failure("failed", `Cannot use the CA in ${layout.secrets}: ${why}`, { cause });
}

/** Table `job_certs`: what is known of a certificate without opening it. Certificate and key are in the KV store. */
const CERTIFICATE = {
  name: "job_certs",
  columns: {
    /** Empty for the CA's own certificate, as `worker` and `name`. */
    job: column.plain<string>("job"),
    worker: column.plain<string>("worker_ip"),
    name: column.plain<string>("name"),
    /**
     * Stands for everything that the certificate was made from: {@link REQUEST} and a SHA-256. Where that differs, a new
     * certificate is issued. Earlier versions have stored an HMAC under kv.key.
     */
    request: column.plain<string>("request"),
    commonName: column.plain<string>("common_name"),
    /** From when on operators should know of the end. Times are milliseconds since 1970, whole seconds. */
    expiringFrom: secondsColumn("expiring_from"),
    notAfter: secondsColumn("not_after"),
  },
};

/** How the request of a job's certificate begins. */
export const REQUEST = "sha256:";

/** True where a build of an earlier version has stored the requests of certificates, which hold only for its kv.key. */
export function hasEarlierRequests(db: Database): boolean {
  return db.get("SELECT 1 FROM job_certs WHERE job <> '' AND request NOT LIKE ?", `${REQUEST}%`) !== undefined;
}

/** A certificate of the last build. */
export type IssuedCert = RecordOf<typeof CERTIFICATE>;

function secondsColumn(name: string): Column<number> {
  return { name, read: (stored) => Number(stored) * 1000, store: (time) => time / 1000 };
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
  return readRecords(db, CERTIFICATE);
}

/** True once a build has told jobs to trust the authority. */
export function isAuthorityInUse(db: Database): boolean {
  return db.get("SELECT 1 FROM key_value WHERE namespace = 'ops/worker' AND key = 'certs/ca.crt'") !== undefined;
}

/** Stores a certificate in the place of the one before. To be called in a transaction. */
export function saveCert(db: Database, cert: IssuedCert): void {
  writeRows(db, CERTIFICATE.name, [rowOf(CERTIFICATE, cert)]);
}

/** A time in UTC, to the second: `2026-01-31T12:00:00Z`. */
export function utc(time: number): string {
  return new Date(time).toISOString().replace(/\.\d+Z$/, "Z");
}
