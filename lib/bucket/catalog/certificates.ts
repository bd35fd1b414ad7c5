import type { Authority } from "../base/authority.ts";
import type { Database } from "../base/database.ts";

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

const DAY_MS = 86_400_000;
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
