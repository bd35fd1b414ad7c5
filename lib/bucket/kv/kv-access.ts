import type { HookEvent } from "../base/model.ts";

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
  return new Set(NAMESPACES.flatMap(({ name }) => namesOf(name, reader)));
}

/** True when a script of `job` that runs on `event` may put and delete this key with this route of the hook API. */
export function mayWrite(
  job: string,
  event: HookEvent,
  route: "/kv" | "/kv/secret",
  namespace: string,
  key: string,
): boolean {
  return NAMESPACES.some(
    (rule) =>
      rule.write === route &&
      rule.name.replace("<job>", job) === namespace &&
      (rule.key ?? key) === key &&
      (rule.events?.includes(event) ?? true),
  );
}

function namesOf(name: string, { job, worker, upstream }: Reader): string[] {
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

/** The template functions that read the KV store. */
export const KV_FUNCTIONS = ["get", "getOptional", "getSecret", "keys"] as const;
