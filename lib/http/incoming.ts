import { randomUUID } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { Failure } from "../core/errors.ts";
import type { HttpRequest } from "./message.ts";

/** True when the headers say that no body follows. */
export function hasNoBody(incoming: IncomingMessage): boolean {
  const { "content-length": length, "transfer-encoding": encoding } = incoming.headers;
  return encoding === undefined && Number(length ?? 0) === 0;
}

/** A request that is not over yet. */
export class OpenRequest implements HttpRequest {
  readonly id = randomUUID();
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headers: IncomingMessage["headers"];
  readonly peer: string;
  readonly scheme: "http" | "https";
  readonly noted: HttpRequest["noted"] = { route: undefined, authenticated: undefined };
  readonly #incoming: IncomingMessage;
  readonly #clock: WriteClock;
  readonly #onRead: () => void;
  #end: AbortController | undefined;
  #isAborted = false;

  /** `onRead` is called when the body is wanted; long-polls pause the clock. */
  constructor(incoming: IncomingMessage, clock: WriteClock, onRead: () => void) {
    const target = incoming.url ?? "";
    const at = target.indexOf("?");
    this.method = incoming.method ?? "";
    this.path = at < 0 ? target : target.slice(0, at);
    this.query = at < 0 ? "" : target.slice(at + 1);
    this.headers = incoming.headers;
    this.peer = peerOf(incoming.socket);
    this.scheme = "encrypted" in incoming.socket ? "https" : "http";
    this.#incoming = incoming;
    this.#clock = clock;
    this.#onRead = onRead;
  }

  /** Made when it is asked for: a signal costs more than all the rest, and most requests are over before they wait. */
  get signal(): AbortSignal {
    this.#end ??= new AbortController();
    if (this.#isAborted) this.#end.abort();
    return this.#end.signal;
  }

  get body(): AsyncIterable<Uint8Array> {
    this.#onRead();
    return bodyOf(this.#incoming, this.signal);
  }

  async longPoll<T>(work: () => Promise<T>): Promise<T> {
    this.#clock.pause();
    try {
      return await work();
    } finally {
      this.#clock.run();
    }
  }

  /** Ends its waits. */
  abort(): void {
    this.#isAborted = true;
    this.#end?.abort();
  }
}

/** A body that ends early, because its sender left or the server stops, ends with a failure and never as if whole. */
async function* bodyOf(incoming: IncomingMessage, signal: AbortSignal): AsyncIterable<Uint8Array> {
  try {
    for await (const chunk of incoming.iterator({ destroyOnReturn: false })) {
      if (signal.aborted) throw new Error("stopped");
      yield chunk as Buffer;
    }
  } catch (error) {
    throw new Failure("cancelled", "the request ended before its body was complete", { cause: error });
  }
}

/** The address of a socket's other end: `::ffff:127.0.0.1` and `127.0.0.1` are one peer. */
export function peerOf(socket: Socket): string {
  return (socket.remoteAddress ?? "unknown").replace(/^::ffff:(?=\d+\.)/i, "");
}

/** Counts down while it runs, and cuts the connection when the time is used up. */
export class WriteClock {
  readonly #expired: () => void;
  #leftMs: number;
  #since = 0;
  #timer: NodeJS.Timeout | undefined;
  #stopped = false;

  constructor(limitMs: number, expired: () => void) {
    this.#leftMs = limitMs;
    this.#expired = expired;
  }

  run(): void {
    if (this.#timer || this.#stopped) return;
    this.#since = performance.now();
    this.#timer = setTimeout(this.#expired, Math.max(0, this.#leftMs));
  }

  pause(): void {
    if (!this.#timer) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#leftMs -= performance.now() - this.#since;
  }

  stop(): void {
    this.pause();
    this.#stopped = true;
  }
}
