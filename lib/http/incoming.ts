import { randomFillSync } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Failure } from "../core/errors.ts";
import type { HttpRequest } from "./message.ts";
import { peerOf } from "./peer.ts";

/** True when the headers say that no body follows. */
function hasNoBody(incoming: IncomingMessage): boolean {
  const { "content-length": length, "transfer-encoding": encoding } = incoming.headers;
  return encoding === undefined && Number(length ?? 0) === 0;
}

/** The most characters of path and query together; headers do not count. */
const MOST_TARGET = 16 * 1024;

/**
 * Throws `invalid_request` for requests that Node's parser lets pass, before path and query are looked at: without Host
 * in HTTP/1.1 or with several, a request line without a version, a transfer coding other than chunked, a path and query
 * that are too long.
 */
export function requireSound({ rawHeaders, headers, httpVersion, url = "" }: IncomingMessage): void {
  const refused = (message: string) => new Failure("invalid_request", message);
  if (url.length > MOST_TARGET) throw refused(`path and query have more than ${MOST_TARGET} characters together`);
  if (!["1.0", "1.1"].includes(httpVersion)) throw refused("the request line must end with HTTP/1.1");
  const hosts = rawHeaders.filter((name, at) => at % 2 === 0 && name.toLowerCase() === "host").length;
  if (hosts > 1) throw refused("the request has two Host headers");
  if (hosts === 0 && httpVersion === "1.1") throw refused("the request has no Host header");
  const coding = headers["transfer-encoding"] ?? "chunked";
  if (coding.toLowerCase() !== "chunked") throw refused("Transfer-Encoding can only be chunked");
}

/** Random bytes for the next ids: to ask for each alone would cost ten times as much. */
const RANDOM = Buffer.alloc(4 * 1024);
const ID_BYTES = 16;
let usedBytes = RANDOM.length;

/** 128 random bits as 32 digits, in one piece: a UUID is put together from 14, which stay as long as the request. */
export function requestId(): string {
  if (usedBytes === RANDOM.length) {
    randomFillSync(RANDOM);
    usedBytes = 0;
  }
  usedBytes += ID_BYTES;
  return RANDOM.toString("hex", usedBytes - ID_BYTES, usedBytes);
}

const NONE: readonly never[] = [];

/** A request that is not over yet. */
export class OpenRequest implements HttpRequest {
  readonly id = requestId();
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headers: IncomingMessage["headers"];
  readonly peer: string;
  readonly scheme: "http" | "https";
  readonly noted: HttpRequest["noted"] = { route: undefined, authenticated: undefined, refused: undefined };
  isAdmitted = false;
  /** Where it stands among those that are open. */
  place = 0;
  /** What was given to be sent of the answer's body. */
  sentBytes = 0;
  readonly #incoming: IncomingMessage;
  readonly #response: ServerResponse;
  /** When it began, as `performance.now` tells it. */
  readonly startedAt = performance.now();
  readonly #writeMs: number;
  /** When the time for the answer is used up; never while a body or something else is waited for. */
  #lateAt = Number.POSITIVE_INFINITY;
  /** The client sends its body only when it is told to. */
  #asks: boolean;
  aborted = false;
  #end: AbortController | undefined;
  /** Made anew at each change: of almost all requests there is one or none, and a Set would cost more than all the rest. */
  #onAbort: readonly (() => void)[] = NONE;

  /** `writeMs` is the time for the answer once the body has come; `asks`: whether the client asks before it sends one. */
  constructor(incoming: IncomingMessage, response: ServerResponse, writeMs: number, asks: boolean) {
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
    this.#writeMs = writeMs;
    this.#asks = asks;
    if (hasNoBody(incoming)) this.#hurry(this.startedAt);
    else incoming.once("end", () => this.#hurry(performance.now()));
  }

  /** Made when it is asked for: a signal costs more than all the rest, and most requests are over before they wait. */
  get signal(): AbortSignal {
    this.#end ??= new AbortController();
    if (this.aborted) this.#end.abort();
    return this.#end.signal;
  }

  addEventListener(_type: "abort", listener: () => void): void {
    this.#onAbort = this.#onAbort.concat(listener);
  }

  removeEventListener(_type: "abort", listener: () => void): void {
    this.#onAbort = this.#onAbort.filter((one) => one !== listener);
  }

  get body(): AsyncIterable<Uint8Array> {
    if (this.#asks) this.#response.writeContinue();
    this.#asks = false;
    return bodyOf(this.#incoming, this.signal);
  }

  admitted(): void {
    this.isAdmitted = true;
  }

  longPoll(): void {
    this.#lateAt = Number.POSITIVE_INFINITY;
  }

  /** From now on nothing but the sending of the answer takes time. */
  answered(): void {
    if (this.#lateAt === Number.POSITIVE_INFINITY) this.#hurry(performance.now());
  }

  #hurry(now: number): void {
    this.#lateAt = now + this.#writeMs;
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
    if (performance.now() >= this.#lateAt) this.#incoming.socket.destroy();
  }

  /** Whether the client still waits to be asked for its body. */
  get isUnasked(): boolean {
    return this.#asks;
  }

  /** Ends its waits. */
  abort(): void {
    if (this.aborted) return;
    this.aborted = true;
    this.#end?.abort();
    for (const listener of this.#onAbort) listener();
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
