import type { CommandOutcome } from "../../core/spawn.ts";
import type { Uncut } from "../../core/streams.ts";

/** What became of a command that was out of time, cancelled or cut off. */
export type Receipt = NonNullable<CommandOutcome["receipt"]>;

const RECEIPTS: Readonly<Record<Receipt, string>> = {
  stopped: "stopped",
  killed: "killed",
  gone: "already gone",
  remaining: "still there although it was killed",
  unreachable: "in an unknown state: the worker is unreachable",
};

/** A receipt in words. */
export function describeReceipt(receipt: Receipt): string {
  return RECEIPTS[receipt];
}

/** What became of a command at its time limit, in words. */
export function describeCut(receipt: Receipt | undefined, seconds: number): string {
  const limit = `at its time limit of ${seconds} s`;
  if (receipt === "killed") return `killed ${limit}`;
  const isOver = receipt !== "remaining" && receipt !== "unreachable";
  return isOver ? `stopped ${limit}` : `to be stopped ${limit} and is ${describeReceipt(receipt)}`;
}

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
  /** Called when the command begins to run on the worker. */
  onBegin?: () => void;
  /** How much of each output stream the outcome keeps; default 1 MiB. */
  keepBytes?: number;
  /** Texts within which no long line and no kept output is cut. */
  secrets?: Uncut;
  signal?: AbortSignal;
  /** Counts from the command's start on the worker, without the wait for a free place or for the connection. */
  timeoutMs?: number;
  /**
   * It answers in moments and leaves nothing running: where that saves a session, it may share a shell with others of
   * its kind, one after the other. Its input may then be text up to 64 KiB or bytes up to 1 MiB.
   */
  isShort?: boolean;
  /** Where the bucket's folder is missing it is not made: the script runs in the home folder of its user. */
  isFolderOptional?: boolean;
}

/**
 * The one way to a worker. Implementations: `local` (this machine) and `ssh`.
 * A script runs in the bucket's folder on the worker (`<root>/<bucket_id>`, made where it is missing).
 */
export interface Transport {
  readonly worker: WorkerAddress;
  /** The bucket's folder on the worker, absolute. */
  readonly folder: string;
  /**
   * Runs a POSIX shell script in a process group of its own and answers how it ended. Exit codes are not errors; over
   * ssh, a script that a signal ended has the code 128 and the signal's number. When it is out of time or cancelled its
   * group is ended first, and the outcome has a receipt for that. Throws `unreachable` where there is no connection
   * or login, or the connection is lost; `failed` where the worker answers and nothing can be run there; `cancelled` when
   * the signal was aborted before it started.
   */
  script(text: string, options?: ScriptOptions): Promise<CommandOutcome>;
  close(): Promise<void>;
}
