import {
  boolean,
  described,
  type Infer,
  integer,
  isObject,
  list,
  oneOf,
  optional,
  quote,
  type Report,
  record,
  type Shape,
  string,
  withDefault,
} from "../../core/shape.ts";
import type { HealthCheck, Probe } from "../base/model.ts";
import { altName, fields, line } from "../base/names.ts";

/** How long a job is waited for where its manifest does not say. */
export const DEFAULT_WAIT = { attempts: 30, intervalSeconds: 1 };

const PROBE = fields({
  type: described(string({ max: 100 }), "tcp, http or ssh"),
  port: described(withDefault(string({ max: 100 }), ""), "For tcp and http: a name of resources.ports"),
  path: described(withDefault(string({ max: 2_000 }), ""), "For http (default /)"),
  expect_status: described(positive(999, 200), "For http: the status of a job that is well"),
  scheme: described(withDefault(string({ max: 100 }), ""), "For http: http (default) or https"),
  command: described(withDefault(string({ max: 100_000 }), ""), "For ssh: a command that ends with 0 on the worker"),
  timeout_seconds: described(optional(integer({ max: 86_400 })), "For this probe, instead of the limit of all"),
});
/** What {@link probeOf} asks for. */
const PROBE_KINDS = [
  { required: ["port"], properties: { type: { const: "tcp" }, port: { minLength: 1 } } },
  {
    required: ["port"],
    properties: {
      type: { const: "http" },
      port: { minLength: 1 },
      path: { pattern: "^(/[\\x21-\\x7e]*)?$" },
      scheme: { enum: ["", "http", "https"] },
      expect_status: { anyOf: [{ maximum: 0 }, { minimum: 100 }] },
    },
  },
  { required: ["command"], properties: { type: { const: "ssh" }, command: { pattern: "\\S" } } },
];

const WAIT = fields({
  attempts: described(positive(100_000, DEFAULT_WAIT.attempts), "How often the checks are tried"),
  interval_seconds: described(positive(86_400, DEFAULT_WAIT.intervalSeconds), "The longest pause between two attempts"),
});

const BLOCK = fields({
  checks: described(
    withDefault(list({ ...PROBE, schema: { ...PROBE.schema, anyOf: PROBE_KINDS } }, { max: 100 }), []),
    "The probes; the job is well where all succeed",
  ),
  timeout_seconds: described(positive(86_400, 5), "For each probe"),
  wait: described(
    withDefault(WAIT, { attempts: DEFAULT_WAIT.attempts, interval_seconds: DEFAULT_WAIT.intervalSeconds }),
    "How long a deploy waits for the job",
  ),
});

/**
 * The `health_check` block of a manifest. A probe without a limit of its own gets the block's `timeout_seconds`.
 * Whether the ports exist is checked by {@link checkProbePorts}.
 */
export function healthCheck(): Shape<HealthCheck> {
  return {
    schema: BLOCK.schema,
    check(value, path, report) {
      const block = BLOCK.check(value, path, report);
      if (!isObject(value)) return block as never;
      const at = path === "" ? "" : `${path}/`;
      const { checks, timeout_seconds: limit, wait } = block;
      return {
        checks: checks.map((probe, index) => probeOf(probe, limit, `${at}checks/${index}`, report)),
        timeoutSeconds: limit,
        wait: { attempts: wait?.attempts, intervalSeconds: wait?.interval_seconds },
      };
    },
  };
}

/** Reports the probes that name a port which the job does not declare. */
export function checkProbePorts(check: HealthCheck | undefined, ports: ReadonlyMap<string, unknown>, report: Report): void {
  for (const [index, probe] of (check?.checks ?? []).entries()) {
    if (probe.type === "ssh" || typeof probe.port !== "string" || probe.port === "" || ports.has(probe.port)) continue;
    const message = `${quote(probe.port)} is not a port of this job: declare it in resources/ports`;
    report(`health_check/checks/${index}/port`, message);
  }
}

/** A whole number; 0 and less mean the default, as an absent one does. */
export function positive(max: number, otherwise: number): Shape<number> {
  const number = integer({ max });
  return {
    schema: { ...number.schema, default: otherwise },
    check(value, path, report) {
      const given = number.check(value, path, report);
      return given > 0 ? given : otherwise;
    },
    absent: () => otherwise,
  };
}

function probeOf(given: Infer<typeof PROBE>, limit: number, path: string, report: Report): Probe {
  const wrong = (field: string, message: string) => report(`${path}/${field}`, message);
  const { timeout_seconds: own = 0, expect_status: expectStatus } = given;
  const port = typeof given.port === "string" ? given.port.trim() : given.port;
  const timeoutSeconds = own > 0 ? own : limit;
  const command: Probe = { type: "ssh", command: given.command, timeoutSeconds };
  if (typeof given.type !== "string") return command;
  const type = given.type.trim().toLowerCase();
  if (type !== "tcp" && type !== "http") {
    if (type !== "ssh") wrong("type", `expected one of tcp, http, ssh, found ${quote(given.type)}`);
    else if (String(given.command).trim() === "") wrong("command", "is missing");
    return command;
  }
  if (port === "") wrong("port", "is missing: it names a port of resources/ports");
  if (type === "tcp") return { type, port, timeoutSeconds };
  const scheme = String(given.scheme).trim().toLowerCase() || "http";
  if (scheme !== "http" && scheme !== "https") wrong("scheme", `expected http or https, found ${quote(scheme)}`);
  const target = given.path === "" ? "/" : given.path;
  if (!/^\/[\x21-\x7e]*$/.test(target)) wrong("path", `must start with / and have no spaces, found ${quote(target)}`);
  if (expectStatus < 100) wrong("expect_status", `expected an HTTP status from 100 to 999, found ${expectStatus}`);
  return { type, port, path: target, expectStatus, scheme: scheme === "https" ? "https" : "http", timeoutSeconds };
}

/** X.520 bounds common names. */
const COMMON_NAME_MAX = 64;

const SUBJECT = fields({
  common_name: described(withDefault(line(COMMON_NAME_MAX), ""), "Default: the job's name"),
  alt_names: described(withDefault(list(altName, { max: 1_000 }), []), "Addresses and names besides those of the worker"),
});

const CERT = fields({
  pkcs8: described(withDefault(boolean(), false), "Write the key as PKCS#8, else in the older form of its kind"),
  one: described(withDefault(boolean(), false), "The same pair for all workers of the job"),
  key: described(withDefault(oneOf("ec", "rsa"), "ec"), "The kind of key: P-256 or RSA-3072"),
  subject: described(withDefault(SUBJECT, { common_name: "", alt_names: [] }), "The names in the certificate"),
});

/** A certificate that a job's manifest asks for. */
export interface CertRequest extends Pick<Infer<typeof CERT>, "pkcs8" | "one" | "key"> {
  name: string;
  commonName: string;
  /** IP addresses and DNS names besides those that every certificate has. */
  altNames: string[];
}

/** The field `certs` of a manifest. */
export function certs() {
  return record(CERT, {
    // The CA's certificate lies beside those of the job.
    key: /^(?!ca$)[a-z][a-z0-9_]{0,99}$/,
    means: "small letters, digits and _, the first a letter, at most 100 and not ca,",
  });
}

/** What a job asks for, by name. Without a common name the certificate has that of the job. */
export function certRequests(job: string, given: Infer<ReturnType<typeof certs>>): CertRequest[] {
  const requests = Object.entries(given).map(([name, { subject, ...rest }]) => {
    const commonName = subject.common_name || job.slice(0, COMMON_NAME_MAX);
    return { name, ...rest, commonName, altNames: subject.alt_names };
  });
  return requests.sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** True for the path of a workspace file where the certificates have to be. */
export function isCertFile(requests: readonly CertRequest[], file: string): boolean {
  const target = file.replace(/\.tpl$/, "");
  if (target !== "certs" && !target.startsWith("certs/")) return false;
  const names = ["ca.crt", ...requests.flatMap(({ name }) => [`${name}.crt`, `${name}.key`])];
  return target === "certs" || names.some((name) => `${target}/`.startsWith(`certs/${name}/`));
}
