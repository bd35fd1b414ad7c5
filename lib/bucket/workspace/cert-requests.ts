import { boolean, type Infer, list, oneOf, record, withDefault } from "../../core/shape.ts";
import { altName, fields, line } from "../base/names.ts";

/** A certificate that a job's manifest asks for. */
export interface CertRequest {
  name: string;
  /** The key is written as PKCS#8, else in the older form of its kind (SEC 1 or PKCS#1). */
  pkcs8: boolean;
  /** The same pair for all workers of the job. */
  one: boolean;
  key: "ec" | "rsa";
  commonName: string;
  /** IP addresses and DNS names besides those that every certificate has. */
  altNames: string[];
}

/** X.520 bounds common names. */
const COMMON_NAME_MAX = 64;

const SUBJECT = fields({
  common_name: withDefault(line(COMMON_NAME_MAX), ""),
  alt_names: withDefault(list(altName, { max: 1_000 }), []),
});

const CERT = fields({
  pkcs8: withDefault(boolean(), false),
  one: withDefault(boolean(), false),
  key: withDefault(oneOf("ec", "rsa"), "ec"),
  subject: withDefault(SUBJECT, { common_name: "", alt_names: [] }),
});

/** The field `certs` of a manifest. */
export function certs() {
  return record(CERT, {
    // Beside the job's certificates lies the CA's.
    key: /^(?!ca$)[a-z][a-z0-9_]{0,99}$/,
    means: "small letters, digits and _, the first a letter, at most 100 and not ca,",
  });
}

/** What a job asks for, by name; without a common name it is the job's. */
export function certRequests(job: string, given: Infer<ReturnType<typeof certs>>): CertRequest[] {
  return Object.entries(given)
    .map(([name, { pkcs8, one, key, subject }]) => ({
      name,
      pkcs8,
      one,
      key,
      commonName: subject.common_name || job.slice(0, COMMON_NAME_MAX),
      altNames: subject.alt_names,
    }))
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** True for the path of a workspace file where the certificates have to be. */
export function isCertFile(requests: readonly CertRequest[], file: string): boolean {
  const target = file.replace(/\.tpl$/, "");
  if (target !== "certs" && !target.startsWith("certs/")) return false;
  const names = ["ca.crt", ...requests.flatMap(({ name }) => [`${name}.crt`, `${name}.key`])];
  return target === "certs" || names.some((name) => `${target}/`.startsWith(`certs/${name}/`));
}
