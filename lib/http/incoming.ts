import { randomUUID } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Failure } from "../core/errors.ts";
import type { HttpRequest } from "./message.ts";

/** True when the headers say that no body follows. */
function hasNoBody(incoming: IncomingMessage): boolean {
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
  /** Where it stands among those that are open. */
  place = 0;
  /** What was given to be sent of the answer's body. */
  sentBytes = 0;
  readonly #incoming: IncomingMessage;
  readonly #response: ServerResponse;
  /** Runs while nothing but the answer is waited for. */
  readonly #clock: Clock;
  readonly #onRead: () => void;
  #end: AbortController | undefined;
  #isAborted = false;

  /** `writeMs` is the time for the answer once the body has come; `onRead` is called when the body is wanted. */
  constructor(incoming: IncomingMessage, response: ServerResponse, writeMs: number, onRead: () => void) {
    const target = incoming.url ?? "";
    const at = target.indexOf("?");
    this.method = incoming.method ?? "";
    this.path = at < 0 ? target : target.slice(0, at);
    this.query = at < 0 ? "" : target.slice(at + 1);
    this.headers = incoming.headers;
    this.peer = peerOf(incoming.socket);
    this.scheme = "encrypted" in incoming.socket ? "https" : "http";
    this.#incoming = incoming;
    this.#response = response;
    this.#clock = new Clock(writeMs);
    this.#onRead = onRead;
    if (hasNoBody(incoming)) this.#clock.run();
    else incoming.once("end", () => this.#clock.run());
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

  /** From now on nothing but the sending of the answer takes time. */
  answered(): void {
    this.#clock.run();
  }

  /** Counts what is sent of a body that is read meanwhile. */
  async *counted(pieces: AsyncIterable<Uint8Array>): AsyncIterable<Uint8Array> {
    for await (const piece of pieces) {
      this.sentBytes += piece.length;
      yield piece;
    }
  }

  /** Whether a part of its answer is on its way over this connection. */
  isBeingAnswered(socket: Socket): boolean {
    return this.#incoming.socket === socket && this.#response.headersSent && !this.#response.writableFinished;
  }

  /** Cuts the connection when the time for the answer is used up. */
  cutIfLate(): void {
    if (this.#clock.isOver()) this.#incoming.socket.destroy();
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

/** Counts time down while it runs. */
class Clock {
  #leftMs: number;
  #since: number | undefined;

  constructor(limitMs: number) {
    this.#leftMs = limitMs;
  }

  run(): void {
    this.#since ??= performance.now();
  }

  pause(): void {
    if (this.#since !== undefined) this.#leftMs -= performance.now() - this.#since;
    this.#since = undefined;
  }

  isOver(): boolean {
    return this.#since !== undefined && performance.now() - this.#since >= this.#leftMs;
  }
}
