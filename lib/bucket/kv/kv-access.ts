import { createHmac, hkdfSync, randomBytes } from "node:crypto";
import path from "node:path";
import { type SealKey, sealingKey, unseal, unsealedLength, unsealPieces } from "../../codec/crypto/seal.ts";
import { Failure } from "../../core/errors.ts";
import { createExclusive, readBounded } from "../../core/files.ts";
import { digestOf, sealedPieces } from "../base/contents.ts";
import type { Database } from "../base/database.ts";
import type { Layout } from "../base/layout.ts";
import type { HookEvent } from "../base/model.ts";

/** How long a value may live at most: 100 years, in seconds. */
export const LONGEST_TTL = 100 * 366 * 86_400;

/** Says in SQL of the last version of a key that the key is found: it is not deleted, and its ttl has not passed. */
export const IS_FOUND = "deleted = 0 AND (ttl = 0 OR created_date + ttl > unixepoch())";

/** A namespace that a job's templates and scripts may read, and what of it its scripts may write. */
interface NamespaceRule {
  /** `<job>` and `<worker>` are the reader's own, `<upstream>` is each job that the manifest's demands name. */
  name: string;
  /** The route of the hook API that puts and deletes there; without one nobody but ops writes. */
  write?: "/kv" | "/kv/secret";
  /** The only key that may be written. */
  key?: string;
  /** The only events on which it may be written. */
  events?: readonly HookEvent[];
}

/** hook-runtime.md, KV namespaces: what is not in this table is neither read nor written. Names compare exactly. */
const NAMESPACES: readonly NamespaceRule[] = [
  { name: "ops/bucket" },
  { name: "ops/worker" },
  { name: "ops/worker/<worker>" },
  { name: "ops/worker/<worker>/tags" },
  { name: "vars/bucket" },
  { name: "vars/bucket/job/<job>" },
  { name: "ops/job/<job>/worker/<worker>" },
  { name: "ops/job/<job>", write: "/kv", key: "rollout_order", events: ["pre_deploy", "cli"] },
  { name: "vars/job/<job>", write: "/kv" },
  { name: "secrets/job/<job>", write: "/kv/secret" },
  { name: "ops/job/<upstream>" },
  { name: "vars/job/<upstream>" },
  { name: "secrets/job/<upstream>" },
];

/** Who uses the KV store: an allocation's templates and scripts. */
interface Reader {
  job: string;
  worker: string;
  /** The jobs that the manifest's demands name. */
  upstream: Iterable<string>;
}

/** The namespaces that a job's templates and scripts may read. */
export function readableNamespaces(reader: Reader): Set<string> {
  return new Set(NAMESPACES.flatMap(({ name }) => namespacesFor(name, reader)));
}

/** A key that a hook's script puts or deletes, with the route of the hook API. */
interface KeyWrite {
  route: "/kv" | "/kv/secret";
  namespace: string;
  key: string;
}

/** True when a script of `job` that runs on `event` may put and delete this key with this route of the hook API. */
export function mayWrite(job: string, event: HookEvent, { route, namespace, key }: KeyWrite): boolean {
  return NAMESPACES.some((rule) => {
    const isPlace = rule.write === route && rule.name.replace("<job>", job) === namespace;
    return isPlace && (rule.key ?? key) === key && (rule.events?.includes(event) ?? true);
  });
}

function namespacesFor(name: string, { job, worker, upstream }: Reader): string[] {
  if (name.includes("<upstream>")) return [...upstream].map((one) => name.replace("<upstream>", one));
  return [name.replace("<job>", job).replace("<worker>", worker)];
}

/** The two short names that stand for a namespace: `tags` for the own worker's tags, `ops` for `ops/bucket`. */
export function fullNamespace(name: string, worker: string): string {
  if (name === "tags") return `ops/worker/${worker}/tags`;
  return name === "ops" ? "ops/bucket" : name;
}

/** The KV namespace of an allocation. */
export function allocationNamespace(job: string, worker: string): string {
  return `ops/job/${job}/worker/${worker}`;
}

/** The namespaces of a job's allocations are those from the first name up to the second. */
export function allocationsRange(job: string): [from: string, to: string] {
  // "0" follows "/".
  return [allocationNamespace(job, ""), `ops/job/${job}/worker0`];
}

/** The job of a namespace that is an allocation's, else undefined. */
export function jobOfAllocation(name: string): string | undefined {
  return /^ops\/job\/([^/]+)\/worker\//.exec(name)?.[1];
}

/** True for the private key of a certificate: it leaves the store as a file in `certs/` only, never as a value. */
export function isPrivateKey(namespace: string, key: string): boolean {
  return key.startsWith("certs/") && key.endsWith(".key") && namespace.startsWith("ops/job/");
}

/** True for values that are sealed in the database. */
export function isSealed(namespace: string, key: string): boolean {
  return isSecretNamespace(namespace) || isPrivateKey(namespace, key);
}

/**
 * True for the namespaces that a deploy or a hook of this job writes to. What one job's hooks wrote can so be stored or
 * dropped while other jobs' hooks are at work.
 */
export function isOfJob(name: string, job: string): boolean {
  const [kind = "", second, owner] = name.split("/");
  return ["ops", "vars", "secrets"].includes(kind) && second === "job" && owner === job;
}

/** True for namespaces whose values are secrets. */
export function isSecretNamespace(name: string): boolean {
  return name.startsWith("secrets/");
}

/** What notify.json may name: no job reads it. */
export const NOTIFY_SECRETS = "secrets/notify";

/** What a build knows of the jobs' monitoring. Every template may read it. */
export const PROMETHEUS_NAMESPACE = "ops/prometheus";

/** The template functions that read the KV store and the catalog. */
export const BUCKET_FUNCTIONS = ["get", "getOptional", "getSecret", "keys", "scrapeConfigs", "ruleFiles"] as const;

const KV_KEY_BYTES = 32;

/**
 * Reads the key that secrets are sealed with: `secrets/kv.key`, 32 raw bytes; while it is changed, the key before it opens
 * too. Throws where it is missing or broken.
 */
export async function loadKvKey(layout: Layout): Promise<SealKey> {
  const [key, old] = [await readKvKey(layout.kvKey), await readKvKey(layout.kvKeyOld)];
  if (!key) throw new Failure("bucket_not_initialized", "Cannot read secrets/kv.key: there is none; run `ops init`");
  return old ? [key, old] : key;
}

/** A key in a file of `secrets/`; undefined where there is none. Throws `failed` for one of another length. */
export async function readKvKey(file: string): Promise<Buffer | undefined> {
  const key = await readBounded(file, 1024);
  if (!key || key.length === KV_KEY_BYTES) return key;
  const found = `it has ${key.length} bytes instead of ${KV_KEY_BYTES}`;
  throw new Failure("failed", `Cannot read secrets/${path.basename(file)}: ${found}`);
}

/** Makes a key where there is none, readable by its owner only; never replaces one. */
export async function createKvKey(file: string): Promise<void> {
  await createExclusive(file, randomBytes(KV_KEY_BYTES));
}

const PURPOSE = "ops fingerprints of secrets";
const SHOWN_LENGTH = 12;

/** The text that was sealed; undefined where the key does not open it. */
export function tryUnseal(kvKey: SealKey, namespace: string, name: string, sealed: string): string | undefined {
  try {
    return unseal(kvKey, namespace, name, sealed);
  } catch {
    return undefined;
  }
}

/** Tells whether two sealed values are equal, not what they are; empty for a value that cannot be opened. */
export type Fingerprint = (namespace: string, key: string, sealed: string) => string;

/** The fingerprint of any value where there is no key. */
export const noFingerprint: Fingerprint = () => "";

/**
 * The fingerprints of a bucket's secrets: the first 12 hexadecimal digits of an HMAC-SHA256 under a key derived from
 * `secrets/kv.key`. Equal values of a bucket have equal fingerprints. Without the key nobody can try out a guess,
 * however short the value is. A bucket whose key cannot be read shows none.
 */
export async function fingerprintsOf(layout: Layout): Promise<Fingerprint> {
  const kvKey = await loadKvKey(layout).catch(() => undefined);
  if (!kvKey) return noFingerprint;
  const hmacKey = Buffer.from(hkdfSync("sha256", sealingKey(kvKey), "", PURPOSE, KV_KEY_BYTES));
  return (namespace, key, sealed) => {
    const value = tryUnseal(kvKey, namespace, key, sealed);
    return value === undefined ? "" : createHmac("sha256", hmacKey).update(value).digest("hex").slice(0, SHOWN_LENGTH);
  };
}

/** The place that the contents of secret files are sealed for; the name is their SHA-256. */
export const SEALED_CONTENTS = "contents";

const NEWEST_SECRETS = `SELECT namespace, key, value, MAX(version) FROM kv_version
  WHERE namespace LIKE 'secrets/%' OR namespace LIKE 'ops/job/%' GROUP BY namespace, key HAVING deleted = 0`;
const SEALED_ROWS = "SELECT sha256, size_bytes, content FROM contents WHERE sealed = 1";
/** A row of these. */
type SealedRow = [sha256: string, bytes: number, content: Uint8Array | null];

/**
 * Opens everything that is sealed with `secrets/kv.key`, the newest version of each value and the kept contents of
 * files. Answers how many there are, and which of them (`<namespace> <key>`) the key does not open, never a value.
 */
export function sealedValues(db: Database, key: SealKey): { sealed: number; unreadable: string[] } {
  const values = db.tuples<[namespace: string, key: string, value: string]>(NEWEST_SECRETS);
  const contents = db.tuples<SealedRow>(SEALED_ROWS);
  const all = values.filter(([namespace, name]) => isSealed(namespace, name));
  const unreadable = [
    ...all.filter(([namespace, name, value]) => tryUnseal(key, namespace, name, value) === undefined),
    ...contents.filter((row) => !opens(db, key, row)).map(([sha256]) => [SEALED_CONTENTS, sha256]),
  ];
  return { sealed: all.length + contents.length, unreadable: unreadable.map(([namespace, name]) => `${namespace} ${name}`) };
}

function opens(db: Database, key: SealKey, [sha256, bytes, content]: SealedRow): boolean {
  if (content !== null) return tryUnseal(key, SEALED_CONTENTS, sha256, Buffer.from(content).toString()) !== undefined;
  const sealed = () => sealedPieces(db.contents, sha256, bytes);
  const pieces = () => unsealPieces(key, [SEALED_CONTENTS, sha256], sealed(), unsealedLength(bytes));
  try {
    return digestOf(pieces) === sha256;
  } catch {
    return false;
  }
}
