import type { CommandOutcome } from "../core/spawn.ts";

/** How to reach a worker: what the catalog keeps of workers.json and ops.conf. */
export interface WorkerAddress {
  /** The `host` of workers.json; what everything else calls the worker. */
  host: string;
  connection: "ssh" | "local";
  /** Where `<root>/<bucket_id>/` lives on the worker; absolute. */
  root: string;
  sshUser?: string;
  sshPort?: number;
  sshJump?: string;
}

/** How a script is run on a worker. */
export interface ScriptOptions {
  /** Positional parameters `$1`, `$2`, … of the script: values never become part of its text. */
  args?: readonly string[];
  /** Exported before the script starts. */
  env?: Record<string, string>;
  /** The script's standard input; empty without it. */
  input?: string | Uint8Array | AsyncIterable<Uint8Array>;
  onLine?: (line: string, stream: "stdout" | "stderr") => void;
  /** How much of each output stream the outcome keeps; default 1 MiB. */
  keepBytes?: number;
  signal?: AbortSignal;
  timeoutMs?: number;
}

/**
 * The one way to a worker. Implementations: `local` (this machine) and, with the ssh issue, `ssh`.
 * A script runs in the bucket's folder on the worker (`<root>/<bucket_id>`, made where it is missing).
 */
export interface Transport {
  readonly worker: WorkerAddress;
  /** The bucket's folder on the worker, absolute. */
  readonly folder: string;
  /**
   * Runs a POSIX shell script in a process group of its own and answers how it ended. Exit codes are not errors.
   * Throws `failed` when the worker cannot be reached, `cancelled` when the signal was aborted before it started.
   */
  script(text: string, options?: ScriptOptions): Promise<CommandOutcome>;
  close(): Promise<void>;
}
