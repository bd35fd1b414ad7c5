import type { Database } from "../../bucket/base/database.ts";
import type { Layout } from "../../bucket/base/layout.ts";
import type { RunLog } from "../../bucket/base/logs.ts";
import type { KvStore } from "../../bucket/kv/kv.ts";
import type { ProcessIdentity } from "../../core/process.ts";
import type { Launcher } from "../../core/spawn.ts";
import { NO_DEPLOY, type Progress, type WaitReason } from "../../run/progress.ts";
import type { RunKind, RunSecrets, ServerMeans } from "../../run/protocol.ts";

/** All that an operation may use. It is handed down only where it is needed, never to plan, codec or transport. */
export interface OperationContext extends ServerMeans {
  layout: Layout;
  db: Database;
  kv: KvStore;
  log: RunLog;
  signal: AbortSignal;
  launcher: Launcher;
  /** The run that the operation is carried out for. */
  run: { id: string; kind: RunKind; bucketId: string };
  /** What the run was given and nothing keeps, such as the passphrase of a snapshot. */
  secrets?: RunSecrets | undefined;
  /** The server that has started the run; null on the command line. */
  server: ProcessIdentity | null;
  /** The run's progress: how far the run is and what it waits for. */
  progress: ProgressBoard;
}

/** Carries out a run: checks the run's parameters, and answers its result or throws a Failure. */
export type Operation = (context: OperationContext, params: Record<string, unknown>) => Promise<unknown>;

/** The shortest time between two reports of changes. */
const REPORT_MS = 250;

/** More waits than these are told by job and reason. */
const MOST_WAITS = 200;

/** How far an operation is. How far a deploy is is asked for when a report is sent. */
interface Step extends Pick<Progress, "phase" | "done" | "total"> {
  deploy?: () => Pick<Progress, keyof typeof NO_DEPLOY>;
}

type Wait = Progress["waiting"][number];

/** What a run waits for: the work in a few words (`make start`), and where it is done. */
interface Waited {
  reason: WaitReason;
  /** Empty for what is of no job. */
  job?: string;
  worker: string;
  detail: string;
}

/**
 * What a run is doing and waiting for. Each run has one board, and only the board reports progress: a new phase at once,
 * other changes at most every 250 ms, the last change always.
 */
export class ProgressBoard {
  readonly #send: (progress: Progress) => void;
  readonly #waits = new Set<Wait>();
  /** What the run waited for when it was cancelled. */
  #cancelled: ReadonlySet<unknown> | undefined;
  #unconfirmed = 0;
  #step: Step = { phase: "", done: 0, total: 0 };
  #sentAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  /** `signal` is the run's. */
  constructor(send: (progress: Progress) => void, signal: AbortSignal) {
    this.#send = send;
    signal.addEventListener("abort", () => this.#cancel());
  }

  /** Where the run is now. */
  report(step: Step): void {
    const isNewPhase = step.phase !== this.#step.phase;
    this.#step = step;
    if (isNewPhase) this.#now();
    else this.#changed();
  }

  /** Reports a phase of so many parts, none of which is done. Answers a function that reports one more part as done. */
  counting(phase: string, total: number): () => void {
    let done = 0;
    this.report({ phase, done, total });
    return () => this.report({ phase, done: ++done, total });
  }

  /**
   * Shows work among the things that the run waits for until the work ends. `limitMs` is its time limit, null without
   * one. For work that is given as a function the limit counts from its call of `begun`: until then the work waits for its
   * turn.
   */
  async during<T>(
    { reason, job, worker, detail }: Waited,
    limitMs: number | null,
    work: Promise<T> | ((begun: () => void) => Promise<T>),
  ): Promise<T> {
    const now = Date.now();
    const on = `${job ? `${job}@` : ""}${worker}: ${detail}`;
    const times = { since: new Date(now).toISOString(), until: null };
    const wait: Wait = { on, ...times, reason: "slot", job: job || null, worker, detail, more: 0 };
    const begin = (at: number) => {
      wait.reason = reason;
      if (limitMs !== null) wait.until = new Date(at + limitMs).toISOString();
      this.#changed();
    };
    this.#waits.add(wait);
    if (typeof work === "function") this.#changed();
    else begin(now);
    try {
      return await (typeof work === "function" ? work(() => begin(Date.now())) : work);
    } finally {
      this.#waits.delete(wait);
      this.#changed();
    }
  }

  /** Counts a command that a cancel did not end for certain. */
  unconfirmed(): void {
    this.#unconfirmed++;
  }

  #cancel(): void {
    this.#cancelled = new Set(this.#waits);
    this.#now();
  }

  #changed(): void {
    if (this.#timer !== undefined) return;
    const left = this.#sentAt + REPORT_MS - performance.now();
    // A report that is due after the end of the run is not needed.
    if (left > 0) this.#timer = setTimeout(() => this.#now(), left).unref();
    else this.#now();
  }

  #now(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sentAt = performance.now();
    const { deploy = () => NO_DEPLOY, ...step } = this.#step;
    const cancel = this.#cancelled ? this.#confirmed(this.#cancelled) : null;
    this.#send({ ...step, ...deploy(), waiting: grouped([...this.#waits]), cancel });
  }

  #confirmed(before: ReadonlySet<unknown>): Progress["cancel"] {
    const ended = before.difference(this.#waits).size;
    return { confirmed: Math.max(0, ended - this.#unconfirmed), total: before.size };
  }
}

/** The waits, where there are many those of a job for the same reason as one: a report goes to the server often. */
function grouped(waits: readonly Wait[]): Wait[] {
  if (waits.length <= MOST_WAITS) return [...waits];
  const groups = [...Map.groupBy(waits, ({ reason, job }) => `${reason} ${job ?? ""}`).values()];
  return groups.slice(0, MOST_WAITS).map((own) => {
    const [first] = own as [Wait];
    if (own.length === 1) return first;
    const until = own.reduce<string | null>(
      (last, one) => last && one.until && (one.until > last ? one.until : last),
      first.until,
    );
    const on = `${first.job === null ? "" : `${first.job}: `}${first.detail}, and ${own.length - 1} more`;
    return { ...first, on, until, worker: null, more: own.length - 1 };
  });
}
