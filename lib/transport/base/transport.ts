import { Failure, type FailureCode } from "../../core/errors.ts";
import { shortNames } from "../../core/short-names.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import type { Uncut } from "../../core/streams.ts";

/** What became of a command that was cut short: out of time, cancelled, or without its connection. */
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

/** How to reach a worker, as the catalog has it from workers.json and ops.conf. */
export interface WorkerAddress {
  /** The `host` of workers.json, which is the worker's name everywhere. */
  host: string;
  connection: "ssh" | "local";
  /** The folder of `<bucket_id>/` on the worker; absolute. */
  root: string;
  sshUser?: string;
  sshPort?: number;
  sshJump?: string;
}

/** More workers than these are not named one by one in a command. */
const MOST_NAMED = 5;

/** A worker that is of no use. Workers with the same text have the same trouble. */
export class WorkerFailure extends Failure {
  /** See {@link aboutWorkers}. */
  readonly text: string;
  /** True for what goes away only when a person changes something. */
  readonly lasts: boolean;

  constructor(code: FailureCode, host: string, text: string, { lasts = code !== "unreachable", note = "" } = {}) {
    super(code, aboutWorkers(text, [host]) + note);
    this.text = text;
    this.lasts = lasts;
  }
}

/** A sentence in which these workers stand for `{workers}`, and the option of a command that names them for `{only}`. */
export function aboutWorkers(text: string, hosts: readonly string[]): string {
  const workers = `${hosts.length === 1 ? "worker" : "workers"} ${shortNames(hosts)}`;
  return text.replace("{workers}", workers).replace("{only}", hosts.length > MOST_NAMED ? "" : ` -w ${hosts.join(",")}`);
}

/** How a script is run on a worker. */
export interface ScriptOptions {
  /** The positional parameters `$1`, `$2`, …: values never become part of the script's text. */
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
   * The script answers in moments and leaves nothing running. Over ssh, short scripts run one after the other in one
   * shell, which saves sessions; with a stream or more than 1 MiB as input they have a session of their own. A script that
   * may take longer, and leaves nothing running either, uses that shell `where_free`: it waits for no other script there,
   * but others may wait for it.
   */
  isShort?: boolean | "where_free";
  /**
   * Over ssh, a lost connection does not end the script, whose input must be text then: what the script prints is kept
   * on the worker, and read on there over a new connection. The text says in one line what the script is, for the next
   * run that comes there where this one cannot read on.
   */
  survivesAs?: string;
  /** A missing folder of the bucket is not made: then the script runs in the home folder of its user. */
  isFolderOptional?: boolean;
}

/** Gets what runs that are over have left on workers. */
export interface LeftListener {
  onLine(worker: string, line: string, stream: "stdout" | "stderr"): void;
  onSentence(sentence: string): void;
  secrets: Uncut;
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
   * Runs a POSIX shell script in a process group of its own and answers how the script ended. Exit codes are not
   * errors; over ssh, a signal that ends a script is told as 128 plus the signal's number. Where time is over or the
   * signal is aborted, the group is ended first, and the outcome has a receipt for that. Throws `unreachable` where
   * there is no connection or login, or the connection is lost for good; `failed` where the worker answers and nothing can be
   * run there; `cancelled` when the signal was aborted before the start.
   */
  script(text: string, options?: ScriptOptions): Promise<CommandOutcome>;
  close(): Promise<void>;
}
