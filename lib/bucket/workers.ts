import { parseCpuMhz, parseMemoryMb } from "../codec/units.ts";
import {
  check,
  type Infer,
  integer,
  list,
  object,
  oneOf,
  optional,
  record,
  withDefault,
} from "../core/shape.ts";
import type { Layout } from "./layout.ts";
import { folder, host, jump, line, name, quantity, user } from "./names.ts";
import { type Problems, unknownName } from "./problems.ts";
import type { OpsConf } from "./settings.ts";
import { readSourceJson, relative } from "./source-file.ts";

/** A worker as `workspace/workers.json` and the defaults of ops.conf describe it. */
export interface Worker {
  host: string;
  hostname: string | null;
  connection: "ssh" | "local";
  root: string;
  /** Only for workers that are reached over ssh. */
  sshUser?: string;
  sshPort?: number;
  sshJump?: string;
  /** In small letters, sorted; every worker has `worker`. */
  labels: string[];
  /** 0 where nothing is said. */
  memoryMb: number;
  cpuMhz: number;
  tags: Map<string, string>;
  position: number;
}

/** What `workspace/disabled.json` takes out of service. */
export interface Disabled {
  workers: Set<string>;
  /** By job: the hosts, or all of them. */
  jobs: Map<string, ReadonlySet<string> | "all">;
}

const LENIENT = { lenient: true, unknown: "warn" } as const;

const WORKER = object(
  {
    host: host(),
    hostname: optional(line(253)),
    connection: withDefault(oneOf("ssh", "local"), "ssh"),
    root: optional(folder()),
    ssh_user: optional(user()),
    ssh_port: optional(integer({ min: 1, max: 65_535 })),
    ssh_jump: optional(jump()),
    labels: withDefault(list(name()), []),
    tags: withDefault(record(line()), {}),
    memory: withDefault(quantity(parseMemoryMb), 0),
    cpu: withDefault(quantity(parseCpuMhz), 0),
    position: optional(integer()),
  },
  LENIENT,
);

const DISABLED = object(
  {
    workers: withDefault(list(line()), []),
    jobs: withDefault(record(object({ allocations: withDefault(list(line()), []) }, LENIENT)), {}),
  },
  LENIENT,
);

/** Reads `workspace/workers.json`, in the order of the file; no workers where there is none (`ErrInvalidWorkerJSON`). */
export async function readWorkers(layout: Layout, settings: OpsConf, problems: Problems): Promise<Worker[]> {
  const code = "ErrInvalidWorkerJSON";
  const file = relative(layout, layout.workersJson);
  const value = await readSourceJson(layout, layout.workersJson, code, problems);
  const given = problems.take(code, file, check(list(WORKER), value ?? [])) ?? [];
  const hosts = new Set<string>();
  return given.map((one, index) => {
    const wrong = (path: string, message: string) => problems.error(code, file, `${index}/${path}`, message);
    if (hosts.has(one.host.toLowerCase())) wrong("host", `${one.host} is there twice`);
    hosts.add(one.host.toLowerCase());
    const labels = new Set(one.labels);
    if (labels.size < one.labels.length) wrong("labels", "has a label twice");
    return workerOf(one, index, settings, labels.add("worker"), tagsOf(one.tags, wrong));
  });
}

function workerOf(
  given: Infer<typeof WORKER>,
  index: number,
  settings: OpsConf,
  labels: ReadonlySet<string>,
  tags: Map<string, string>,
): Worker {
  const sshJump = given.ssh_jump ?? settings.sshJump;
  return {
    host: given.host,
    hostname: given.hostname || null,
    connection: given.connection,
    root: given.root ?? settings.workerRoot,
    ...(given.connection === "ssh" && {
      sshUser: given.ssh_user ?? settings.sshUser,
      sshPort: given.ssh_port ?? settings.sshPort,
      ...(sshJump !== undefined && { sshJump }),
    }),
    labels: [...labels].sort(),
    memoryMb: given.memory,
    cpuMhz: given.cpu,
    tags,
    position: given.position ?? index,
  };
}

function tagsOf(
  given: Record<string, string>,
  wrong: (path: string, message: string) => void,
): Map<string, string> {
  const tags = new Map<string, string>();
  for (const [key, value] of Object.entries(given)) {
    const name = key.trim().toLowerCase();
    if (name === "") wrong("tags", "has a tag without a name");
    if (tags.has(name)) wrong(`tags/${key}`, "is there twice, in other capitals");
    tags.set(name, value.toLowerCase());
  }
  return tags;
}

/** Reads `workspace/disabled.json`; nothing is disabled where there is none (`ErrInvalidDisabledJSON`). */
export async function readDisabled(layout: Layout, problems: Problems): Promise<Disabled> {
  const code = "ErrInvalidDisabledJSON";
  const value = await readSourceJson(layout, layout.disabledJson, code, problems);
  const given = problems.take(code, relative(layout, layout.disabledJson), check(DISABLED, value ?? {}));
  const jobs = Object.entries(given?.jobs ?? {}).map(
    ([job, { allocations }]) =>
      [job.trim().toLowerCase(), allocations.length === 0 ? "all" : new Set(allocations)] as const,
  );
  return { workers: new Set(given?.workers), jobs: new Map(jobs) };
}

/** Warns about the jobs and hosts in disabled.json that do not exist. */
export function warnAboutDisabledStrangers(
  layout: Layout,
  disabled: Disabled,
  known: { jobs: ReadonlySet<string>; hosts: ReadonlySet<string> },
  problems: Problems,
): void {
  const file = relative(layout, layout.disabledJson);
  const checkHosts = (path: string, given: Iterable<string>) => {
    for (const one of given)
      if (!known.hosts.has(one)) problems.warn(file, path, unknownName("worker", one, known.hosts));
  };
  checkHosts("workers", disabled.workers);
  for (const [job, allocations] of disabled.jobs) {
    if (!known.jobs.has(job)) problems.warn(file, "jobs", unknownName("job", job, known.jobs));
    else if (allocations !== "all") checkHosts(`jobs/${job}/allocations`, allocations);
  }
}
