import type { Writable } from "node:stream";
import { aborted, expired } from "../../core/async.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { feed, Output } from "../../core/streams.ts";
import type { Receipt, ScriptOptions } from "../base/transport.ts";

/**
 * How many bytes of output are read after a script was cut off, for what it prints while it ends. Endless output would
 * keep this process from noticing the script's end.
 */
const CUT_BYTES = 64 * 1024;

/** One script under way: takes what it says, and tells when it is to be cut short. */
export class Execution {
  /** Resolves when the caller's signal is aborted, the time is over, or the caller cannot go on with what came. */
  readonly cut: Promise<"timeout" | "cancelled">;
  readonly #options: ScriptOptions;
  readonly #begun = Promise.withResolvers<void>();
  #started = performance.now();
  #room = Number.POSITIVE_INFINITY;
  readonly #trouble = new AbortController();
  readonly #over = new AbortController();
  readonly #outputs: Record<"stdout" | "stderr", Output>;

  constructor(options: ScriptOptions) {
    this.#options = options;
    this.#outputs = {
      stdout: new Output("stdout", options, this.#trouble),
      stderr: new Output("stderr", options, this.#trouble),
    };
    this.cut = Promise.race([
      aborted(options.signal, this.#over.signal),
      aborted(this.#trouble.signal, this.#over.signal),
      this.#begun.promise.then(() => expired(options.timeoutMs, this.#over.signal)),
    ]);
    void this.cut.then(() => {
      this.#room = CUT_BYTES;
    });
  }

  /** Called when the script begins to run on the worker: its time limit begins. */
  begin(): void {
    this.#started = performance.now();
    this.#begun.resolve();
    this.#options.onBegin?.();
  }

  /** Takes a part of the script's output. */
  take(chunk: Buffer, stream: "stdout" | "stderr"): void {
    if (this.#room <= 0) return;
    this.#room -= chunk.length;
    this.#outputs[stream].take(chunk);
  }

  /** Writes the script's whole input and closes it; never throws. */
  feed(stdin: Writable): Promise<void> {
    return feed(stdin, this.#options.input ?? "", this.#trouble);
  }

  /** How the script ended. Throws the error of the input's source or of the reader of the lines. */
  outcome(reason: CommandOutcome["reason"], exitCode: number | null, receipt?: Receipt): CommandOutcome {
    const texts = { stdout: this.#outputs.stdout.finish(), stderr: this.#outputs.stderr.finish() };
    this.#trouble.signal.throwIfAborted();
    const durationMs = performance.now() - this.#started;
    return { reason, ...(receipt && { receipt }), exitCode, signal: null, ...texts, durationMs };
  }

  /** Nothing is waited for any more. */
  close(): void {
    this.#over.abort("over");
  }
}
