/** Who reads from the KV store: an allocation's templates and scripts. */
export interface Reader {
  job: string;
  worker: string;
  /** The jobs that the manifest's demands name. */
  upstream: readonly string[];
}

/** The namespaces that a job's templates and scripts may read (hook-runtime.md, KV namespaces). */
export function readableNamespaces(reader: Reader): Set<string> {
  const { job, worker, upstream } = reader;
  return new Set([
    "ops/bucket",
    "vars/bucket",
    "ops/worker",
    `ops/worker/${worker}`,
    `ops/worker/${worker}/tags`,
    `ops/job/${job}`,
    `ops/job/${job}/worker/${worker}`,
    `vars/bucket/job/${job}`,
    ...[job, ...upstream].flatMap((one) => [`ops/job/${one}`, `vars/job/${one}`, `secrets/job/${one}`]),
  ]);
}

/** The two short names that stand for a namespace: `tags` for the own worker's tags, `ops` for `ops/bucket`. */
export function fullNamespace(name: string, worker: string): string {
  if (name === "tags") return `ops/worker/${worker}/tags`;
  return name === "ops" ? "ops/bucket" : name;
}

/** True for namespaces whose values are secrets. */
export function isSecretNamespace(name: string): boolean {
  return name.startsWith("secrets/");
}
