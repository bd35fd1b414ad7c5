import { describeAuthority } from "./authority.ts";
import type { Database, Row } from "./database.ts";
import type { Layout } from "./layout.ts";
import { Problems } from "./problems.ts";
import { type OpsConf, readOpsConf } from "./settings.ts";

/** What is known of a certificate without opening it; certificate and key themselves are in the KV store. */
export interface IssuedCert {
  job: string;
  worker: string;
  name: string;
  /** Stands for all that it was made from: it is issued anew when that differs. */
  request: string;
  /** The fingerprint of the authority. */
  ca: string;
  commonName: string;
  /** Milliseconds since 1970, whole seconds. */
  notAfter: number;
}

/** The identity of a certificate in the bucket. */
export function certKey({ job, worker, name }: Pick<IssuedCert, "job" | "worker" | "name">): string {
  return `${job}|${worker}|${name}`;
}

/** All certificates that were issued, by job, worker and name. */
export function issuedCerts(db: Database): IssuedCert[] {
  return db.all("SELECT * FROM job_certs ORDER BY job, worker_ip, name").map((row: Row) => ({
    job: String(row.job),
    worker: String(row.worker_ip),
    name: String(row.name),
    request: String(row.request),
    ca: String(row.ca),
    commonName: String(row.common_name),
    notAfter: Number(row.not_after) * 1000,
  }));
}

/** Notes a certificate that takes the place of the one before. To be called in a transaction. */
export function saveCert(db: Database, cert: IssuedCert): void {
  db.run(
    "INSERT OR REPLACE INTO job_certs (job, worker_ip, name, request, ca, common_name, not_after) VALUES (?, ?, ?, ?, ?, ?, ?)",
    ...[cert.job, cert.worker, cert.name, cert.request, cert.ca, cert.commonName, cert.notAfter / 1000],
  );
}

/** Forgets a certificate. To be called in a transaction. */
export function deleteCert(db: Database, { job, worker, name }: IssuedCert): void {
  db.run("DELETE FROM job_certs WHERE job = ? AND worker_ip = ? AND name = ?", job, worker, name);
}

const DAY_MS = 86_400_000;
const CA_NEAR_END_DAYS = 180;
const NEAR_END_DAYS = 30;

/** True when operators should know that a job's certificate ends: in the last quarter of `certs_ttl`, at most 30 days. */
export function isNearEnd(notAfter: number, now: number, settings: OpsConf): boolean {
  const days = Math.max(settings.certsRenewalBuffer, Math.min(NEAR_END_DAYS, settings.certsTtl / 4));
  return notAfter - now <= days * DAY_MS;
}

/** True when operators should replace the authority: in its last 180 days. */
export function isAuthorityNearEnd(notAfter: number, now: number): boolean {
  return notAfter - now <= CA_NEAR_END_DAYS * DAY_MS;
}

/** A certificate as people see it. */
export interface CertificateRow {
  scope: "ca" | "job";
  /** Empty for the CA, as worker and cert are. */
  job: string;
  worker: string;
  cert: string;
  common_name: string;
  /** UTC, as in `2026-01-31T12:00:00Z`; empty for a CA that cannot be read. */
  not_after: string;
  /** Whole days, rounded down: negative once it has ended. */
  days_left: number;
  /** `invalid`: the CA cannot be read, or is not the one that issued the certificate; the next build issues it anew. */
  status: "ok" | "expiring" | "expired" | "invalid";
}

/** The bucket's CA and the certificates of its jobs, by job, worker and name; no keys. `now`: milliseconds since 1970. */
export async function catalogCertificates(
  db: Database,
  layout: Layout,
  now: number = Date.now(),
): Promise<CertificateRow[]> {
  const settings = await readOpsConf(layout, new Problems());
  const authority = await describeAuthority(layout);
  const jobs = issuedCerts(db).map(({ job, worker, name, ca, commonName, notAfter }): CertificateRow => {
    const status = statusOf(notAfter, now, isNearEnd(notAfter, now, settings));
    return {
      ...{ scope: "job", job, worker, cert: name, common_name: commonName },
      ...timesOf(notAfter, now),
      status: ca === authority?.fingerprint ? status : "invalid",
    };
  });
  return [authorityRow(authority, now), ...jobs];
}

function authorityRow(
  authority: { commonName: string; notAfter: Date } | undefined,
  now: number,
): CertificateRow {
  const none = { scope: "ca", job: "", worker: "", cert: "" } as const;
  if (!authority) return { ...none, common_name: "", not_after: "", days_left: 0, status: "invalid" };
  const end = authority.notAfter.getTime();
  return {
    ...none,
    common_name: authority.commonName,
    ...timesOf(end, now),
    status: statusOf(end, now, isAuthorityNearEnd(end, now)),
  };
}

function timesOf(notAfter: number, now: number): { not_after: string; days_left: number } {
  return { not_after: utc(notAfter), days_left: Math.floor((notAfter - now) / DAY_MS) };
}

/** A time in UTC, to the second. */
export function utc(time: number): string {
  return new Date(time).toISOString().replace(/\.\d+Z$/, "Z");
}

function statusOf(notAfter: number, now: number, isNear: boolean): "ok" | "expiring" | "expired" {
  if (notAfter <= now) return "expired";
  return isNear ? "expiring" : "ok";
}
