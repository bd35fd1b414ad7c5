import path from "node:path";
import { sleep } from "../../core/async.ts";
import { messageOf } from "../../core/errors.ts";
import { writeAtomic } from "../../core/files.ts";
import { type Answer, type HttpRequest, raw } from "../../http/message.ts";
import { requireReading } from "../../http/router.ts";

/** The paths of the signs of life. */
export const SIGN_PATHS: ReadonlySet<string> = new Set(["/healthz", "/readyz"]);

const BEAT_MS = 60_000;
/** A watch that has not looked for so long hangs. */
const STALLED_MS = 180_000;
const CALL_LIMIT_MS = 10_000;

/** How a server shows that it lives. */
export interface PulseConfig {
  /** The folder of the buckets. */
  root: string;
  /** What is called every minute; undefined for nothing. */
  heartbeatUrl: string | undefined;
  log: (message: string) => void;
  /** For tests: between two beats, and a clock that only goes on. */
  beatMs?: number;
  monotonic?: () => number;
}

/**
 * The dead man's switch of a server: every minute it writes `.server/alive` and calls an address, as long as the server
 * looks at what is due. Whoever asks without credentials learns that it lives, and nothing else.
 */
export class Pulse {
  readonly #config: PulseConfig;
  readonly #monotonic: () => number;
  #lookedAt: number;
  /** Why the last beat went wrong, by what it was for. */
  readonly #troubles = new Map<"file" | "call", string>();

  constructor(config: PulseConfig) {
    this.#config = config;
    this.#monotonic = config.monotonic ?? (() => performance.now());
    this.#lookedAt = this.#monotonic();
  }

  /** The server has looked at what is due. */
  looked(): void {
    this.#lookedAt = this.#monotonic();
  }

  /** The answer to a request for one of {@link SIGN_PATHS}. Throws `method_not_allowed` for anything but GET and HEAD. */
  answer(request: HttpRequest): Answer {
    requireReading(request);
    const isFine = request.path === "/healthz" || (!this.#isStalled() && !this.#troubles.has("file"));
    return { ...raw("text/plain; charset=utf-8", isFine ? "ok\n" : "not ready\n"), status: isFine ? 200 : 503 };
  }

  /** Beats until the signal is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      if (!this.#isStalled())
        await Promise.all([
          this.#beat("file", signal, () => this.#touch()),
          this.#beat("call", signal, () => this.#call(signal)),
        ]);
      await sleep(this.#config.beatMs ?? BEAT_MS, signal).catch(() => {});
    }
  }

  #isStalled(): boolean {
    return this.#monotonic() - this.#lookedAt > STALLED_MS;
  }

  async #touch(): Promise<void> {
    await writeAtomic(path.join(this.#config.root, ".server", "alive"), `${new Date().toISOString()}\n`);
  }

  /** The address may be a secret: no message has it. */
  async #call(signal: AbortSignal): Promise<void> {
    const { heartbeatUrl } = this.#config;
    if (heartbeatUrl === undefined) return;
    const limit = AbortSignal.any([signal, AbortSignal.timeout(CALL_LIMIT_MS)]);
    const { status, body } = await fetch(heartbeatUrl, { redirect: "manual", signal: limit }).catch((error: unknown) => {
      // Messages of the system name hosts and addresses; a code does not.
      const { code = "no connection" } = ((error as Error).cause ?? {}) as NodeJS.ErrnoException;
      throw new Error(limit.aborted ? `no answer within ${CALL_LIMIT_MS / 1000} s` : code);
    });
    await body?.cancel();
    if (status < 200 || status > 299) throw new Error(`the answer is ${status}`);
  }

  /** Does a part of a beat. The log tells when it begins to go wrong, unless the server ends, and when it goes well again. */
  async #beat(what: "file" | "call", signal: AbortSignal, work: () => Promise<void>): Promise<void> {
    const name = what === "file" ? `write ${this.#config.root}/.server/alive` : "call the heartbeat address";
    try {
      await work();
      if (this.#troubles.delete(what)) this.#config.log(`can ${name} again`);
    } catch (error) {
      const why = messageOf(error);
      if (this.#troubles.get(what) !== why && !signal.aborted) this.#config.log(`Cannot ${name}: ${why}`);
      this.#troubles.set(what, why);
    }
  }
}
