import { randomBytes } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { Failure } from "../core/errors.ts";
import { peerOf } from "./connections.ts";
import type { HttpRequest, StreamedBody } from "./message.ts";

/** The most characters of path and query together; headers do not count. */
const MOST_TARGET = 16 * 1024;

/**
 * Refuses, before path and query are read, what Node's parser lets pass: a request of HTTP/1.1 without Host or with two,
 * a request line without a version, a transfer coding other than chunked, a path and query that are too long. Throws
 * `invalid_request`.
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

/** The id of a request: 128 random bits as 32 digits. */
export function requestId(): string {
  return randomBytes(16).toString("hex");
}

/** What the server tells a new request. */
interface RequestOptions {
  /** Milliseconds for the answer, from the end of the request's body. */
  writeMs: number;
  /** The client sends its body only when the server asks for the body (`Expect: 100-continue`). */
  isUnasked: boolean;
  /** Called when the request is known to be authenticated. */
  onAdmitted: () => void;
}

/** A request that is not over yet. */
export class OpenRequest implements HttpRequest {
  readonly id = requestId();
  readonly method: string;
  readonly path: string;
  readonly query: string;
  readonly headers: IncomingMessage["headers"];
  readonly peer: string;
  readonly scheme: "http" | "https";
  readonly noted: HttpRequest["noted"] = { route: undefined, authenticated: undefined, name: undefined, refused: undefined };
  #ends: AbortSignal | undefined;
  onBody: (piece: Uint8Array) => void = () => {};
  /** When the request began, as `performance.now` tells the time. */
  readonly startedAt = performance.now();
  /** The bytes of the answer's body that were given to be sent. */
  sentBytes = 0;
  readonly #incoming: IncomingMessage;
  readonly #response: ServerResponse;
  readonly #options: RequestOptions;
  readonly #end = new AbortController();
  readonly signal = this.#end.signal;
  /** Cuts the connection when the time for the answer is used up. */
  #cut: NodeJS.Timeout | undefined;
  /** Whether the client still waits to be asked for its body. */
  isUnasked: boolean;

  constructor(incoming: IncomingMessage, response: ServerResponse, options: RequestOptions) {
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
    this.#options = options;
    this.isUnasked = options.isUnasked;
    if (hasNoBody(incoming)) this.#hurry();
    else incoming.once("end", () => this.#hurry());
  }

  get body(): AsyncIterable<Uint8Array> {
    if (this.isUnasked) this.#response.writeContinue();
    this.isUnasked = false;
    return bodyOf(this.#incoming, this.signal, (piece) => this.onBody(piece));
  }

  admitted(ends?: AbortSignal): void {
    this.#options.onAdmitted();
    this.#ends = ends;
    ends?.addEventListener("abort", this.abort);
  }

  longPoll(): void {
    clearTimeout(this.#cut);
    this.#cut = undefined;
  }

  /** Starts the time for the answer again after a long-poll. */
  answered(): void {
    if (!this.#cut) this.#hurry();
  }

  #hurry(): void {
    clearTimeout(this.#cut);
    if (this.#response.destroyed) return;
    this.#cut = setTimeout(() => this.#incoming.socket.destroy(), this.#options.writeMs);
  }

  /** The pieces of a body, counted on their way. Of a live body the waits between the pieces take none of the time. */
  async *counted(body: StreamedBody): AsyncIterable<Uint8Array> {
    const { isLive } = body;
    if (isLive) this.longPoll();
    for await (const piece of body.read()) {
      this.sentBytes += piece.length;
      if (isLive) this.#hurry();
      yield piece;
      if (isLive) this.longPoll();
    }
    this.answered();
  }

  /** Whether the handler waits for something to happen. */
  get isWaiting(): boolean {
    return this.#cut === undefined;
  }

  /** Whether a part of the answer is on its way over this connection. */
  isBeingAnswered(socket: Socket): boolean {
    return this.#incoming.socket === socket && this.#response.headersSent && !this.#response.writableFinished;
  }

  /** Ends the waits of the handler. */
  readonly abort = (): void => {
    this.#end.abort();
  };

  /** The answer was sent, or the client has left. */
  over(): void {
    this.longPoll();
    this.#ends?.removeEventListener("abort", this.abort);
    if (!this.#response.writableFinished) this.abort();
  }
}

/** True when the headers say that no body follows. */
function hasNoBody(incoming: IncomingMessage): boolean {
  const { "content-length": length, "transfer-encoding": encoding } = incoming.headers;
  return encoding === undefined && Number(length ?? 0) === 0;
}

/** The pieces of a body. A body that is cut, because the client left or the server stops, ends with a failure. */
async function* bodyOf(
  incoming: IncomingMessage,
  signal: AbortSignal,
  onPiece: (piece: Uint8Array) => void,
): AsyncIterable<Uint8Array> {
  try {
    for await (const chunk of incoming.iterator({ destroyOnReturn: false })) {
      if (signal.aborted) throw new Error("stopped");
      onPiece(chunk as Buffer);
      yield chunk as Buffer;
    }
  } catch (error) {
    throw new Failure("cancelled", "the request ended before its body was complete", { cause: error });
  }
}
