// The records of a bucket that all its parts speak of. There is no code here, and nothing is imported.

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

/** A worker of the catalog: what the last build knew of it. */
export interface CatalogWorker {
  host: string;
  /** A random UUID from the first build that saw the worker. */
  id: string;
  hostname: string | null;
  connection: "ssh" | "local";
  /** Absolute; the bucket's folder on the worker is `<root>/<bucket_id>`. */
  root: string;
  sshUser?: string;
  sshPort?: number;
  sshJump?: string;
  /** Sorted. */
  labels: string[];
  position: number;
  /** It left workers.json while allocations on it still wait for gc. */
  removed: boolean;
  /** The update sequence last synced there. */
  syncedSeq: number;
}

/** A job of the catalog. */
export interface CatalogJob {
  name: string;
  id: string;
  /** As in the manifest; `unknown` where it has none. */
  version: string;
  deploymentSeq: number;
  maxConcurrentUpgrades: number;
  /** 0 = all new allocations in one batch. */
  maxConcurrentStarts: number;
  restartPolicy: "always" | "reload" | "never";
  restartGlobs: string[];
  /** Globs of the files that the job changes or removes itself on its workers. */
  driftIgnore: string[];
  healthCheck: HealthCheck | null;
  /** Bounds each start, stop, restart and reload on a worker. */
  lifecycleTimeoutSeconds: number;
  /** Whether a failed batch is left as it is, or brought back to the tree and version before it. */
  onFailure: "stop" | "restore";
  /** Rights, on a worker, of a rendered file that reads a secret: 0o600, 0o640 or 0o644. */
  secretMode: number;
  /** The share of unreachable workers that a rollout goes on past, in percent. */
  tolerateUnreachable: number;
  ports: Record<string, number>;
  /** By name. */
  hooks: CatalogHook[];
}

/** A hook of a job; `demandJob` and `demandHook` are empty where it demands nothing. */
export interface CatalogHook {
  name: string;
  events: string[];
  demandJob: string;
  demandHook: string;
  demandConfig: Record<string, unknown>;
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

/** A job on a worker. Active = neither disabled nor removed; removed ones are kept until gc. */
export interface CatalogAllocation {
  /** Name-based: the same job on the same worker of a bucket always has the same id. */
  id: string;
  worker: string;
  job: string;
  disabled: boolean;
  removed: boolean;
  deploymentSeq: number;
  newVersion: string;
}

/** A file of a job as it is in the workspace; `path` is relative to the job's folder. */
export interface CatalogFile {
  path: string;
  /** 0o755 or 0o644. */
  mode: number;
  sha256: string;
  content: Buffer;
}
