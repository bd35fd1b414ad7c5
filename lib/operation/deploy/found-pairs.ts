import { createPrivateKey, X509Certificate } from "node:crypto";
import { certKey, expiringFrom, type IssuedCert, issuedCerts, utc } from "../../bucket/base/certificates.ts";
import { catalogAllocations } from "../../bucket/catalog/catalog.ts";
import { allocationNamespace } from "../../bucket/kv/kv-access.ts";
import type { OperationContext } from "../base/context.ts";
import type { DriftEffects, Place } from "../reach/tree-drift.ts";

/** A certificate and its key, in PEM, as they lie on a worker. */
export interface FoundPair extends Place {
  name: string;
  certificate: string;
  key: string;
  /** The certificate that the build has issued in its place. */
  issued: string;
}

type Store = Pick<OperationContext, "db" | "kv">;

const CERTIFICATE_FILE = /^certs\/(.+)\.(?:crt|key)$/;
/** The names that every certificate of a build has, whoever it is for. */
const EVERY_NAME = ["DNS:localhost", "IP Address:127.0.0.1"];

/** The certificates that these files of an allocation belong to, as far as a build has issued them. */
export function certificatesIn({ kv }: Store, { job, worker }: Place, files: readonly { path: string }[]): string[] {
  const names = new Set(files.flatMap(({ path }) => CERTIFICATE_FILE.exec(path)?.[1] ?? []));
  const isIssued = (name: string) => kv.get(allocationNamespace(job, worker), `certs/${name}.crt`) !== undefined;
  return [...names].filter(isIssued);
}

/**
 * Reads a pair from a worker. Answers the pair where it is as good as the one that the build has issued: the bucket's
 * authority has signed it, it is valid now, has the same common name and every address and name that the issued one has
 * beside these, and the key belongs to it. Else answers why not. Throws where the worker gives no answer.
 */
export async function foundPair({ kv }: Store, effects: DriftEffects, place: Place, name: string): Promise<FoundPair | string> {
  const issued = kv.get(allocationNamespace(place.job, place.worker), `certs/${name}.crt`) ?? "";
  const texts = [".crt", ".key"].map((end) => effects.text(place, `certs/${name}${end}`));
  const [certificate = "", key = ""] = await Promise.all(texts);
  const authority = kv.get("ops/worker", "certs/ca.crt") ?? "";
  const refusal = refusalOf({ certificate, key, issued, authority }, Date.now());
  return refusal ?? { ...place, name, certificate, key, issued };
}

function refusalOf(texts: Record<"certificate" | "key" | "issued" | "authority", string>, now: number): string | undefined {
  try {
    const [found, issued, authority] = [texts.certificate, texts.issued, texts.authority].map((pem) => new X509Certificate(pem));
    if (!found || !issued || !authority) return "there is none";
    if (!found.checkIssued(authority) || !found.verify(authority.publicKey)) return "the bucket's authority has not signed it";
    if (found.validFromDate.getTime() > now) return `it begins on ${utc(found.validFromDate.getTime())}`;
    if (found.validToDate.getTime() <= now) return `it ended on ${utc(found.validToDate.getTime())}`;
    if (commonNameIn(found) !== commonNameIn(issued)) return `it is for ${commonNameIn(found)}`;
    const missing = wantedNames(issued).difference(altNamesIn(found));
    if (missing.size > 0) return `it is not for ${[...missing].join(", ")}`;
    if (!found.checkPrivateKey(createPrivateKey(texts.key))) return "the key there is not its own";
    return undefined;
  } catch {
    return "certificate or key there cannot be read";
  }
}

function commonNameIn({ subject }: X509Certificate): string {
  return /^CN=(.*)$/m.exec(subject)?.[1] ?? "";
}

function altNamesIn({ subjectAltName = "" }: X509Certificate): Set<string> {
  return new Set(subjectAltName.split(", "));
}

function wantedNames(issued: X509Certificate): Set<string> {
  const common = commonNameIn(issued);
  return altNamesIn(issued).difference(new Set([...EVERY_NAME, `DNS:${common}`, `IP Address:${common}`]));
}

/**
 * Puts pairs from workers in the place of those that the build has issued, in a pair that all allocations of a job share
 * for all of them. Answers the rows to be saved with the values, which the caller flushes.
 */
export function putPairs({ db, kv }: Store, pairs: readonly FoundPair[]): IssuedCert[] {
  const rows = new Map(issuedCerts(db).map((cert) => [certKey(cert), cert]));
  const all = catalogAllocations(db).filter(({ removed }) => !removed);
  return pairs.flatMap(({ job, name, certificate, key, issued }) => {
    const { validFromDate, validToDate } = new X509Certificate(certificate);
    const notAfter = validToDate.getTime();
    const times = { notAfter, expiringFrom: expiringFrom(validFromDate.getTime(), notAfter) };
    return all.flatMap((one) => {
      const namespace = allocationNamespace(job, one.worker);
      if (one.job !== job || kv.get(namespace, `certs/${name}.crt`) !== issued) return [];
      kv.put(namespace, `certs/${name}.crt`, certificate);
      kv.put(namespace, `certs/${name}.key`, key);
      const row = rows.get(certKey({ job, worker: one.worker, name }));
      return row ? [{ ...row, ...times }] : [];
    });
  });
}
