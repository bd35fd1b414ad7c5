// The records of a bucket that all its parts share, and the tables of the catalog that hold them.

import type { Content } from "./contents.ts";
import { column, type RecordOf } from "./table.ts";

/** The events a hook may be run on (hook-runtime.md, Events). */
export const HOOK_EVENTS = [
  "post_build",
  "pre_deploy",
  "post_deploy",
  "job_control",
  "health_check",
  "cli",
  "after_allocation_started",
  "after_allocation_stopped",
] as const;

/** One of them. */
export type HookEvent = (typeof HOOK_EVENTS)[number];

const WORKER_COLUMNS = {
  host: column.plain<string>("worker_ip"),
  /** A random UUID from the first build that saw the worker. */
  id: column.plain<string>("worker_id"),
  hostname: column.plain<string | null>("hostname"),
  connection: column.plain<"ssh" | "local">("connection"),
  /** Absolute; the bucket's folder on the worker is `<root>/<bucket_id>`. */
  root: column.plain<string>("root"),
  sshUser: column.optional<string>("ssh_user"),
  sshPort: column.optional<number>("ssh_port"),
  sshJump: column.optional<string>("ssh_jump"),
  position: column.plain<number>("position"),
  /** The worker is not in workers.json any more, and allocations on it still wait for gc. */
  removed: column.flag("removed"),
};

/** Table `worker` as deploys read it. */
export const WORKER = {
  name: "worker",
  columns: {
    ...WORKER_COLUMNS,
    /** The update sequence of the last sync to the worker. */
    syncedSeq: column.plain<number>("synced_seq"),
  },
};

/** Table `worker` as a build writes it. */
export const BUILT_WORKER = {
  name: "worker",
  columns: {
    ...WORKER_COLUMNS,
    memoryMb: column.plain<number>("available_memory_mb"),
    cpuMhz: column.plain<number>("available_cpu_mhz"),
  },
};

/** A worker as the last build stored it. */
export interface CatalogWorker extends RecordOf<typeof WORKER> {
  /** Sorted. */
  labels: string[];
}

/** Table `job`; the reservations of a job are in columns that only a build writes. */
export const JOB = {
  name: "job",
  columns: {
    name: column.plain<string>("name"),
    id: column.plain<string>("job_id"),
    /** The version in the manifest, or `unknown`. */
    version: column.plain<string>("version"),
    /** The jobs that `after` in the manifest names; those that hooks demand come before the job as well. */
    after: column.json<string[]>("after_jobs"),
    deploymentSeq: column.plain<number>("deployment_seq"),
    maxConcurrentUpgrades: column.plain<number>("max_concurrent_upgrades"),
    /** 0 = all new allocations in one batch. */
    maxConcurrentStarts: column.plain<number>("max_concurrent_starts"),
    restartPolicy: column.plain<"always" | "reload" | "never">("restart_policy"),
    restartGlobs: column.json<string[]>("restart_globs"),
    /** Globs of the files that the job changes or removes itself on its workers. */
    driftIgnore: column.json<string[]>("drift_ignore"),
    healthCheck: column.json<HealthCheck | null>("health_check"),
    /** Limit of each start, stop, restart and reload on a worker. */
    lifecycleTimeoutSeconds: column.plain<number>("lifecycle_timeout_seconds"),
    /** Whether a failed batch is left as it is, or put back to the tree and version before it. */
    onFailure: column.plain<"stop" | "restore">("on_failure"),
    /** Mode, on a worker, of a rendered file that reads a secret: 0o600, 0o640 or 0o644. */
    secretMode: column.plain<number>("secret_mode"),
    /** The share of unreachable workers, in percent, up to which a rollout goes on. */
    tolerateUnreachable: column.plain<number>("tolerate_unreachable"),
  },
};

/** A job as the last build stored it. */
export interface CatalogJob extends RecordOf<typeof JOB> {
  ports: Record<string, number>;
  /** By name. */
  hooks: CatalogHook[];
}

/** Table `hooks`: one row for each event of a hook. */
export const HOOK = {
  name: "hooks",
  columns: {
    job: column.plain<string>("job"),
    name: column.plain<string>("name"),
    event: column.plain<string>("executed_on"),
    /** Empty where the hook demands nothing, as `demandHook`. */
    demandJob: column.plain<string>("demand_job"),
    demandHook: column.plain<string>("demand_hook"),
    demandConfig: column.json<Record<string, unknown>>("demand_config"),
  },
};

/** A hook of a job with all its events. */
export interface CatalogHook extends Omit<RecordOf<typeof HOOK>, "job" | "event"> {
  events: string[];
}

/** How to tell that an allocation works. Without checks the waiting values still count for hooks. */
export interface HealthCheck {
  checks: Probe[];
  timeoutSeconds: number;
  wait: { attempts: number; intervalSeconds: number };
}

/** One check of a worker; `port` is the name of a port of the job. */
export type Probe =
  | { type: "tcp"; port: string; timeoutSeconds: number }
  | { type: "http"; port: string; path: string; expectStatus: number; scheme: "http" | "https"; timeoutSeconds: number }
  | { type: "ssh"; command: string; timeoutSeconds: number };

/** Table `allocations`. A removed allocation is kept until gc; an active one is neither disabled nor removed. */
export const ALLOCATION = {
  name: "allocations",
  columns: {
    /** Name-based: the same job on the same worker of a bucket always has the same id. */
    id: column.plain<string>("alloc_id"),
    worker: column.plain<string>("worker_ip"),
    job: column.plain<string>("job"),
    disabled: column.flag("disabled"),
    removed: column.flag("removed"),
    deploymentSeq: column.plain<number>("deployment_seq"),
    newVersion: column.plain<string>("new_version"),
  },
};

/** A job on a worker. */
export type CatalogAllocation = RecordOf<typeof ALLOCATION>;

/** Table `job_files`, without the column of the job. */
export const JOB_FILE = {
  name: "job_files",
  columns: {
    /** Below the job's folder. */
    path: column.plain<string>("path"),
    /** 0o755 or 0o644. */
    mode: column.plain<number>("mode"),
    sha256: column.plain<string>("sha256"),
    sizeBytes: column.plain<number>("size_bytes"),
    /** Absent where it is too large for the database. */
    content: column.blob("content"),
  },
};

/** A file of a job as it is in the workspace. */
export interface CatalogFile extends Omit<RecordOf<typeof JOB_FILE>, "sizeBytes" | "content"> {
  content: Content;
}
