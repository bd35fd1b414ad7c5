import { createHmac, generateKeyPair, hash } from "node:crypto";
import { promisify } from "node:util";
import {
  type Authority,
  authorityCert,
  CLOCK_SKEW_MS,
  certKey,
  expiringFrom,
  type IssuedCert,
  issuedCerts,
  loadAuthority,
  REQUEST,
  saveCert,
  utc,
} from "../../bucket/base/certificates.ts";
import type { Database } from "../../bucket/base/database.ts";
import type { CatalogAllocation } from "../../bucket/base/model.ts";
import { isAltName } from "../../bucket/base/names.ts";
import type { Problems } from "../../bucket/base/problems.ts";
import type { KvStore } from "../../bucket/kv/kv.ts";
import { allocationNamespace, loadKvKey } from "../../bucket/kv/kv-access.ts";
import type { JobSource } from "../../bucket/workspace/jobs.ts";
import type { OpsConf } from "../../bucket/workspace/settings.ts";
import { type SealKey, sealingKey } from "../../codec/crypto/seal.ts";
import { leaf } from "../../codec/crypto/x509.ts";
import { mapAll } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import { counted } from "../../core/plain-text.ts";
import type { OperationContext } from "../base/context.ts";

/** The certificates of a build, for {@link writeCertificates}. */
export type Certificates = Awaited<ReturnType<typeof issueCertificates>>;

/** A pair that the workspace wants: for one allocation of a job, or the same for all of them. */
type WantedPair = ReturnType<typeof wantedPairs>[number];

const DAY_MS = 86_400_000;
const AT_ONCE = 8;
const RSA_BITS = 3072;

const generate = promisify(generateKeyPair);

/**
 * Issues the certificates of all allocations that are not removed: those that are missing, end within
 * `certs_renewal_buffer` days or were made from something else than workspace and CA say now. All others stay as they
 * are; those near their end are warned about. Keys and signatures are made off the main thread, a few at a time.
 * Stores nothing. Throws `failed` for a CA that cannot be used or has ended, and `cancelled`.
 */
export async function issueCertificates(
  { db, kv, layout, log, signal }: OperationContext,
  { jobs, settings }: { jobs: readonly JobSource[]; settings: OpsConf },
  allocations: readonly CatalogAllocation[],
  problems: Problems,
) {
  const authority = await loadAuthority(layout);
  const ca = authorityCert(authority);
  const now = Date.now();
  const wanted = wantedPairs(jobs, allocations, { ca, key: await loadKvKey(layout), times: timesOf(ca, settings, now) });
  // One query for a job, not one for each of its allocations.
  for (const { name, manifest } of jobs) if (manifest.certs.length > 0) kv.loadAllocations(name);
  const last = new Map(issuedCerts(db).map((cert) => [certKey(cert), cert]));
  const renewalFrom = now + settings.certsRenewalBuffer * DAY_MS;
  const isDuePair = ({ certs, earlier }: WantedPair) =>
    certs.some((cert) => isDue(cert, { before: last.get(certKey(cert)), earlier, kv, renewalFrom }));
  const { due = [], kept = [] } = Object.groupBy(wanted, (pair) => (isDuePair(pair) ? "due" : "kept"));
  const lastCerts = (pair: WantedPair) => pair.certs.flatMap((cert) => last.get(certKey(cert)) ?? []);
  const keptCerts = kept.map((pair) => ({ pair, certs: lastCerts(pair) }));
  warnAboutEnds(ca, keptCerts, now, problems);
  if (due.length > 0) log.info(`issuing ${counted(due.length, "certificate")}`);
  const ended = `the CA in secrets/ca.crt ended on ${utc(ca.notAfter)}; replace it with \`ops ca import --replace\``;
  if (due.length > 0 && ca.notAfter <= now) throw new Failure("failed", `Cannot issue certificates: ${ended}`);
  const issued = await mapAll(due, AT_ONCE, (pair) => issue(pair, authority, now), signal);
  const restated = keptCerts.flatMap(({ pair, certs }) => {
    // In the present form: what they were made from is the same.
    const request = pair.certs[0]?.request ?? "";
    return certs.filter((cert) => cert.request !== request).map((cert) => ({ ...cert, request }));
  });
  // The certificates that stay in `last` are no longer wanted.
  for (const cert of [ca, ...wanted.flatMap((pair) => pair.certs)]) last.delete(certKey(cert));
  return {
    /** The text of the CA's certificate. */
    pem: authority.pem,
    ca,
    issued,
    /** Kept certificates whose rows an earlier version has written. */
    restated,
    /** No longer wanted. */
    dropped: [...last.values()],
  };
}

/** Stores the answer of {@link issueCertificates} in the build's transaction, the keys and values at the next flush. */
export function writeCertificates(db: Database, kv: KvStore, { ca, issued, restated, dropped }: Certificates): void {
  for (const cert of [ca, ...restated]) saveCert(db, cert);
  for (const { certificate, key, certs } of issued)
    for (const cert of certs) {
      const namespace = allocationNamespace(cert.job, cert.worker);
      kv.put(namespace, `certs/${cert.name}.crt`, certificate);
      kv.put(namespace, `certs/${cert.name}.key`, key);
      saveCert(db, cert);
    }
  for (const cert of dropped) {
    const namespace = allocationNamespace(cert.job, cert.worker);
    kv.delete(namespace, `certs/${cert.name}.crt`);
    kv.delete(namespace, `certs/${cert.name}.key`);
    db.run("DELETE FROM job_certs WHERE job = ? AND worker_ip = ? AND name = ?", cert.job, cert.worker, cert.name);
  }
}

/** When a certificate ends that is issued now: not after the CA. */
function timesOf(ca: IssuedCert, settings: OpsConf, now: number): { expiringFrom: number; notAfter: number } {
  const end = Math.min(now + settings.certsTtl * DAY_MS, ca.notAfter);
  const notAfter = Math.floor(end / 1000) * 1000;
  return { expiringFrom: expiringFrom(now, notAfter), notAfter };
}

function wantedPairs(
  jobs: readonly JobSource[],
  allocations: readonly CatalogAllocation[],
  by: { ca: IssuedCert; key: SealKey; times: { expiringFrom: number; notAfter: number } },
) {
  const kept = allocations.filter((one) => !one.removed);
  const present = Map.groupBy(kept, (one) => one.job);
  return jobs.flatMap(({ name: job, file, manifest }) =>
    manifest.certs.flatMap((request) => {
      const hosts = (present.get(job) ?? []).map((one) => one.worker);
      const inputs = JSON.stringify([by.ca.request, request, request.one ? hosts.toSorted() : []]);
      const fingerprint = `${REQUEST}${hash("sha256", inputs)}`;
      /** What an earlier version stored as the request of the rows. */
      const earlier = createHmac("sha256", sealingKey(by.key)).update(inputs).digest("hex");
      /** The rows to store if the pair is issued now. */
      const certs = hosts.map((worker): IssuedCert => {
        return { job, worker, name: request.name, request: fingerprint, commonName: request.commonName, ...by.times };
      });
      if (!request.one) return certs.map((cert) => ({ file, request, earlier, certs: [cert] }));
      return certs.length === 0 ? [] : [{ file, request, earlier, certs }];
    }),
  );
}

function isDue(
  cert: IssuedCert,
  known: { before: IssuedCert | undefined; earlier: string; kv: KvStore; renewalFrom: number },
): boolean {
  const { before, earlier, kv, renewalFrom } = known;
  if (!before || ![cert.request, earlier].includes(before.request)) return true;
  const namespace = allocationNamespace(cert.job, cert.worker);
  // A private key that was sealed with another kv.key cannot be opened.
  if (![".crt", ".key"].every((end) => kv.has(namespace, `certs/${cert.name}${end}`))) return true;
  // When the CA ends soon, a new certificate may end no later than the one before.
  return before.notAfter <= renewalFrom && before.notAfter < cert.notAfter;
}

/** One warning for each certificate of a manifest, however many workers have it. */
function warnAboutEnds(
  ca: IssuedCert,
  kept: readonly { pair: WantedPair; certs: IssuedCert[] }[],
  now: number,
  problems: Problems,
): void {
  if (ca.expiringFrom <= now) {
    const advice = "replace it with `ops ca rotate`";
    problems.warn("secrets/ca.crt", "", `the CA ends on ${utc(ca.notAfter)}: ${advice}`);
  }
  for (const [{ name }, pairs] of Map.groupBy(kept, ({ pair }) => pair.request)) {
    const certs = pairs.flatMap((one) => one.certs);
    const ends = certs.filter((cert) => cert.expiringFrom <= now).map((cert) => cert.notAfter);
    if (ends.length === 0) continue;
    const which = ends.length > 1 ? `the first of ${ends.length} ends` : "ends";
    const rule = "certs_renewal_buffer in ops.conf says how long before its end it is renewed";
    const first = utc(ends.reduce((one, other) => Math.min(one, other)));
    problems.warn(pairs[0]?.pair.file ?? "", `certs/${name}`, `${which} on ${first}; ${rule}`);
  }
}

async function issue({ request, certs }: WantedPair, { issuer }: Authority, now: number) {
  const { publicKey, privateKey } =
    request.key === "rsa" ? await generate("rsa", { modulusLength: RSA_BITS }) : await generate("ec", { namedCurve: "P-256" });
  const own = [...certs.map((cert) => cert.worker), request.commonName].filter(isAltName);
  const altNames = [...new Set(["127.0.0.1", "localhost", ...own, ...request.altNames])];
  const validity = { notBefore: new Date(now - CLOCK_SKEW_MS), notAfter: new Date(certs[0]?.notAfter ?? now) };
  const certificate = await leaf({ commonName: request.commonName, altNames, publicKey, validity }, issuer);
  const old = request.key === "rsa" ? "pkcs1" : "sec1";
  const key = privateKey.export({ type: request.pkcs8 ? "pkcs8" : old, format: "pem" }).toString();
  return { certificate, key, certs };
}
