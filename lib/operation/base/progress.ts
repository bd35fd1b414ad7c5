import type { Progress, RolloutProgress } from "../../run/protocol.ts";

/** How often at most a change is reported. */
const REPORT_MS = 250;

/** What an operation itself tells of how far it is; of its rollouts when that is reported. */
export interface Step extends Pick<Progress, "phase" | "done" | "total"> {
  rollouts?: () => RolloutProgress[];
}

/**
 * What a run is doing and waiting for: one for each run, the only one who reports progress. A new phase is reported at
 * once; other changes that follow each other closely are reported together, the last one always.
 */
export class ProgressBoard {
  readonly #send: (progress: Progress) => void;
  readonly #waits = new Set<Progress["waiting"][number]>();
  /** What the run waited for when it was cancelled. */
  #cancelled: ReadonlySet<unknown> | undefined;
  #unconfirmed = 0;
  #step: Step = { phase: "", done: 0, total: 0 };
  #sentAt = Number.NEGATIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;

  /** `signal` is the run's. */
  constructor(send: (progress: Progress) => void, signal: AbortSignal) {
    this.#send = send;
    signal.addEventListener("abort", () => this.#cancel(), { once: true });
  }

  /** Where the run is now. */
  report(step: Step): void {
    const isNewPhase = step.phase !== this.#step.phase;
    this.#step = step;
    if (isNewPhase) this.#now();
    else this.#changed();
  }

  /**
   * Waits for something, which until then is among what the run waits for: `on` names it in a few words
   * (`10.0.0.7: connecting`), `limitMs` is what whoever does it allows it, null where nothing bounds it. The limit of work
   * that is given as a function begins when that calls `begun`: until then it waits for its turn.
   */
  async during<T>(
    on: string,
    limitMs: number | null,
    work: Promise<T> | ((begun: () => void) => Promise<T>),
  ): Promise<T> {
    const now = Date.now();
    const wait: Progress["waiting"][number] = { on, since: new Date(now).toISOString(), until: null };
    const begin = (at: number) => {
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

  /** One of the commands that a cancel ended may still be running, or nobody knows. */
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
    // What is not reported any more at the end of a run is of no use to anybody.
    if (left > 0) this.#timer = setTimeout(() => this.#now(), left).unref();
    else this.#now();
  }

  #now(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#sentAt = performance.now();
    const { rollouts = () => [], ...step } = this.#step;
    const cancel = this.#cancelled ? this.#confirmed(this.#cancelled) : null;
    this.#send({ ...step, rollouts: rollouts(), waiting: [...this.#waits], cancel });
  }

  #confirmed(before: ReadonlySet<unknown>): Progress["cancel"] {
    const ended = before.difference(this.#waits).size;
    return { confirmed: Math.max(0, ended - this.#unconfirmed), total: before.size };
  }
}
