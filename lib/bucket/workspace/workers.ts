import { isIPv6 } from "node:net";
import { formatJson } from "../../codec/config/json.ts";
import { Failure } from "../../core/errors.ts";
import {
  check,
  described,
  type Infer,
  integer,
  join,
  list,
  oneOf,
  optional,
  otherwise,
  quote,
  record,
  refined,
  type Shape,
  withDefault,
} from "../../core/shape.ts";
import type { Layout } from "../base/layout.ts";
import { cpu, fields, folder, host, jump, line, memory, name, reportTwice, SCHEMA_KEY, user } from "../base/names.ts";
import { type FileProblems, Problems, unknownName } from "../base/problems.ts";
import { parseSourceJson, readSource, relative, writeSourceFile } from "../source/source-file.ts";
import type { OpsConf } from "./settings.ts";

/** A worker as `workspace/workers.json` and the defaults of ops.conf describe it. */
export type Worker = ReturnType<typeof workerOf>;

/** What `workspace/disabled.json` takes out of service. */
export type Disabled = Awaited<ReturnType<typeof readDisabled>>;

const WORKER_SHAPE = fields({
  host: described(host, "IPv4 or IPv6 address or host name; unique in the file"),
  hostname: described(optional(line(253)), "A name for templates and hooks to read"),
  connection: described(withDefault(oneOf("ssh", "local"), "ssh"), "How the worker is reached; local is this very machine"),
  root: described(optional(folder), "Where the jobs of the bucket live there (default: worker_root of ops.conf)"),
  ssh_user: described(optional(user), "Instead of ssh_user of ops.conf"),
  ssh_port: described(optional(integer({ min: 1, max: 65_535 })), "Instead of ssh_port of ops.conf"),
  ssh_jump: described(optional(jump), "A host to go through, as [user@]host[:port], instead of ssh_jump of ops.conf"),
  labels: described(withDefault(labels(), []), "What the selectors of jobs look for; each once; worker is always among them"),
  tags: described(otherwise(tags(), new Map()), "Texts for templates and hooks to read, by name"),
  memory: described(otherwise(memory, 0), "What the worker has, such as 4 gb; needed where jobs reserve memory"),
  cpu: described(otherwise(cpu, 0), "What the worker has, such as 2.5 ghz; needed where jobs reserve cpu"),
  position: described(optional(integer()), "The order of deployment (default: the place in the file)"),
});

const HOSTS = withDefault(list(line()), []);
const DISABLED = fields({
  $schema: SCHEMA_KEY,
  workers: described(HOSTS, "Hosts that take part in nothing"),
  jobs: described(
    withDefault(record(fields({ allocations: described(HOSTS, "The hosts; none means all of them") })), {}),
    "Jobs that are out of service, everywhere or on some hosts",
  ),
});
/** The JSON Schema of disabled.json. */
export const DISABLED_SCHEMA = DISABLED.schema;

/** Reads `workspace/workers.json`, in the order of the file; no workers where there is none (`ErrInvalidWorkerJSON`). */
export async function readWorkers(layout: Layout, settings: OpsConf, problems: Problems): Promise<Worker[]> {
  const found = problems.in(relative(layout, layout.workersJson), "ErrInvalidWorkerJSON");
  const value = await readSource(parseSourceJson, layout, found);
  const given = found.take(check(WORKER_LIST, value ?? [])) ?? [];
  const workers = given.map((one, index) => workerOf(one, index, settings));
  reportTwice(
    workers.map(({ connection, root }) => (connection === "local" ? root : "")),
    (index, root) =>
      found.warn(`${index}/root`, `${root} is there twice: deploys to two workers in one folder of this machine fail`),
  );
  return workers;
}

/** One entry of workers.json as a request gives it: it is checked, and stays as it is written. */
export const WORKER_ENTRY: Shape<Record<string, unknown>> = {
  schema: { ...WORKER_SHAPE.schema, additionalProperties: false, examples: [{ host: "10.0.0.4", labels: ["web"] }] },
  check(value, path, report) {
    WORKER_SHAPE.check(value, path, (at, message) => report(at, message));
    return value as Record<string, unknown>;
  },
};

/**
 * Replaces the entry of a host in workers.json: with another one, or with none. Without a host the entry comes last. Only
 * for the holder of the bucket's lock. Throws `not_found`, and `invalid_source` for what a build would refuse.
 */
export async function changeWorker(layout: Layout, host?: string, entry?: Record<string, unknown>): Promise<void> {
  const problems = new Problems();
  const found = problems.in(relative(layout, layout.workersJson), "invalid_source");
  const entries = (await readSource(parseSourceJson, layout, found)) ?? [];
  const given = checkedList(entries, found, problems);
  const place = host === undefined ? given.length : given.findIndex((one) => canonical(one.host) === canonical(host));
  if (place < 0) throw new Failure("not_found", `there is no worker ${quote(host ?? "")} in ${found.file}`);
  const changed = (entries as unknown[]).toSpliced(place, 1, ...(entry ? [entry] : []));
  checkedList(changed, found, problems);
  await writeSourceFile(layout.workersJson, formatJson(JSON.stringify(changed)));
}

function checkedList(entries: unknown, found: FileProblems, problems: Problems): Infer<typeof WORKER_LIST> {
  const given = found.take(check(WORKER_LIST, entries)) ?? [];
  const sentence = problems.sentence();
  if (sentence !== null) throw new Failure("invalid_source", sentence);
  return given;
}

/** The list of workers, in which no host may be twice. */
const WORKER_LIST = refined(list(WORKER_SHAPE), (workers, _, report) => {
  const hosts = workers.map(({ host }) => (typeof host === "string" ? canonical(host) : ""));
  reportTwice(hosts, (index) => report(`${index}/host`, `${workers[index]?.host} is there twice`));
  return workers;
});

/** The JSON Schema of workers.json. */
export const WORKERS_SCHEMA = WORKER_LIST.schema;

/** Equal for hosts that are the same however they are written. */
function canonical(host: string): string {
  return isIPv6(host) && !host.includes("%") ? new URL(`http://[${host}]`).hostname : host.toLowerCase();
}

function workerOf(given: Infer<typeof WORKER_SHAPE>, index: number, settings: OpsConf) {
  const sshJump = given.ssh_jump ?? settings.sshJump;
  return {
    host: given.host,
    hostname: given.hostname || null,
    connection: given.connection,
    root: given.root ?? settings.workerRoot,
    // Only for workers that are reached over ssh.
    ...(given.connection === "ssh" && {
      sshUser: given.ssh_user ?? settings.sshUser,
      sshPort: given.ssh_port ?? settings.sshPort,
      ...(sshJump !== undefined && { sshJump }),
    }),
    /** In small letters, sorted; every worker has `worker`. */
    labels: [...new Set([...given.labels, "worker"])].sort(),
    /** 0 where nothing is said. */
    memoryMb: given.memory,
    cpuMhz: given.cpu,
    tags: given.tags,
    position: given.position ?? index,
  };
}

/** Labels, each once; `worker` may be among them, but need not be. */
function labels(): Shape<string[]> {
  const all = list(name);
  return refined({ ...all, schema: { ...all.schema, uniqueItems: true } }, (labels, path, report) => {
    reportTwice(labels, (at, label) => report(join(path, at), `the label ${quote(label)} is there twice`));
    return labels;
  });
}

/** Tags; keys and values are taken in small letters. */
function tags(): Shape<Map<string, string>> {
  return refined(record(line()), (given, path, report) => {
    const tags = new Map<string, string>();
    for (const [key, text] of Object.entries(given)) {
      const name = key.trim().toLowerCase();
      if (name === "" || /\p{Cc}/u.test(name)) report(join(path, key), "expected text on one line as name");
      if (tags.has(name)) report(join(path, key), "is there twice, in other capitals");
      tags.set(name, String(text).toLowerCase());
    }
    return tags;
  });
}

/** Reads `workspace/disabled.json`; nothing is disabled where there is none (`ErrInvalidDisabledJSON`). */
export async function readDisabled(layout: Layout, problems: Problems) {
  const found = problems.in(relative(layout, layout.disabledJson), "ErrInvalidDisabledJSON");
  const given = found.take(check(DISABLED, (await readSource(parseSourceJson, layout, found)) ?? {}));
  /** By job: the hosts, or all of them. */
  const jobs = new Map<string, ReadonlySet<string> | "all">();
  for (const [written, { allocations }] of Object.entries(given?.jobs ?? {})) {
    const job = written.trim().toLowerCase();
    if (jobs.has(job)) found.error(join("jobs", written), "is there twice, in other capitals");
    jobs.set(job, allocations.length === 0 ? "all" : new Set(allocations));
  }
  return { workers: new Set(given?.workers), jobs };
}

/** Warns about the jobs and hosts in disabled.json that do not exist. */
export function warnAboutDisabledStrangers(
  layout: Layout,
  { workers, jobs }: Disabled,
  known: { jobs: ReadonlySet<string>; hosts: ReadonlySet<string> },
  problems: Problems,
): void {
  const file = relative(layout, layout.disabledJson);
  const checkHosts = (path: string, given: Iterable<string>) => {
    for (const one of given) if (!known.hosts.has(one)) problems.warn(file, path, unknownName("worker", one, known.hosts));
  };
  checkHosts("workers", workers);
  for (const [job, hosts] of jobs) {
    if (!known.jobs.has(job)) problems.warn(file, "jobs", unknownName("job", job, known.jobs));
    else if (hosts !== "all") checkHosts(`jobs/${job}/allocations`, hosts);
  }
}
