import type { IncomingMessage, OutgoingHttpHeaders, Server, ServerResponse } from "node:http";
import type { Server as HttpsServer } from "node:https";
import { type AddressInfo, isIPv6, type Socket } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { within } from "../core/async.ts";
import { Failure, hasErrno, messageOf } from "../core/errors.ts";
import { type ConnectionCaps, Connections, peerOf } from "./connections.ts";
import { OpenRequest, requestId, requireSound } from "./incoming.ts";
import { type Answer, failureAnswer, type HttpRequest, json, type StreamedBody, wireText } from "./message.ts";
import { LIMITS, type Limits, nodeServer, TLS_RULES, type TlsPair } from "./node-server.ts";

/** These headers are on every answer, also where the parser refuses a request (decisions: HTTP conventions). */
const SECURITY_HEADERS = {
  "Content-Security-Policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'",
  "X-Frame-Options": "DENY",
  "X-Content-Type-Options": "nosniff",
  "Referrer-Policy": "no-referrer",
};
const HSTS = { "Strict-Transport-Security": "max-age=31536000" };

/** A request and its answer, once both are over. */
export interface Exchange {
  request: Pick<HttpRequest, "id" | "method" | "path" | "peer" | "noted">;
  status: number;
  /** Bytes of the answer's body; 0 where the body could not be sent whole. */
  bytes: number;
  durationMs: number;
}

/** The two ends of a connection. Addresses are in their usual text form, and unknown once the connection is closed. */
export type Connection = Pick<Socket, "localAddress" | "localPort" | "remoteAddress" | "remotePort">;

/** Where a server listens, and what it calls. */
export interface ListenOptions {
  /** An address or name; empty for all addresses. */
  host: string;
  /** 0 for any free port. */
  port: number;
  /** With a certificate the server speaks HTTPS only. */
  tls?: TlsPair;
  limits?: Limits;
  /** Without caps the server takes any number of connections. */
  caps?: ConnectionCaps;
  /** The connection is the same object for all requests that come over it. */
  handle: (request: HttpRequest, connection: Connection) => Answer | Promise<Answer>;
  /** A better reason for an error of `handle`, if there is one. */
  explain?: (error: unknown, request: HttpRequest) => Promise<unknown>;
  /** Called after each answer, or after a client left without one (status 499). */
  onExchange?: (exchange: Exchange) => void;
  /** Gets each defect with its stack, which is never sent to the client. */
  onDefect?: (requestId: string, error: unknown) => void;
}

/** A server that listens. */
export interface Listener {
  readonly port: number;
  readonly url: string;
  /** Shows this certificate to every new connection. Throws where the pair cannot be used. */
  replaceTls(pair: TlsPair): void;
  /**
   * Takes no new connections, aborts the signal of every request so that long-polls answer at once, and resolves when
   * all answers are sent; after `waitMs` the connections that are left are cut.
   */
  close(waitMs: number): Promise<void>;
  /** What goes on now: open connections, requests that are being answered, and those of them that wait for something. */
  load(): { connections: number; requests: number; waiting: number };
}

/** Starts a server. Throws `failed` where it cannot listen at the address. */
export async function listen(options: ListenOptions): Promise<Listener> {
  const server = new WebServer(options);
  await server.open();
  return server;
}

class WebServer implements Listener {
  port = 0;
  url = "";
  readonly #options: ListenOptions;
  readonly #limits: Limits;
  readonly #server: Server;
  readonly #connections: Connections | undefined;
  /** The connections below TLS: Node's server cannot end one whose handshake goes on. */
  readonly #belowTls = new Set<Socket>();
  readonly #refused = new WeakSet<object>();
  readonly #open = new Set<OpenRequest>();
  readonly #commonHeaders: Readonly<Record<string, string>>;
  #stopping = false;

  constructor(options: ListenOptions) {
    this.#options = options;
    this.#limits = options.limits ?? LIMITS;
    this.#commonHeaders = { ...SECURITY_HEADERS, ...(options.tls && HSTS), "Cache-Control": "no-store" };
    this.#server = nodeServer(options.tls, this.#limits);
    this.#connections = options.caps && new Connections(this.#server, options.caps);
    if (options.tls)
      this.#server.on("connection", (socket: Socket) => {
        this.#belowTls.add(socket);
        socket.once("close", () => this.#belowTls.delete(socket));
      });
    this.#server.on("request", (incoming, response) => void this.#exchange(incoming, response, false));
    // A client that asks first is told to go on when the handler reads the body.
    this.#server.on("checkContinue", (incoming, response) => void this.#exchange(incoming, response, true));
    // Other expectations are ignored: Node's own refusal would lack the security headers.
    this.#server.on("checkExpectation", (incoming, response) => void this.#exchange(incoming, response, false));
    this.#server.on("clientError", (error, socket) => this.#refuse(error, socket as Socket));
  }

  async open(): Promise<void> {
    const { host, port } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once("error", reject);
    this.#server.listen({ port, ...(host !== "" && { host }) }, resolve);
    try {
      await promise;
    } catch (error) {
      const why = hasErrno(error, "EADDRINUSE") ? "another process listens there" : messageOf(error);
      throw new Failure("failed", `Cannot listen on ${host}:${port}: ${why}`, { cause: error });
    }
    const { address, port: taken } = this.#server.address() as AddressInfo;
    this.port = taken;
    this.url = `${this.#options.tls ? "https" : "http"}://${isIPv6(address) ? `[${address}]` : address}:${taken}`;
  }

  load(): { connections: number; requests: number; waiting: number } {
    const requests = [...this.#open];
    const waiting = requests.filter(({ isWaiting }) => isWaiting).length;
    return { connections: this.#connections?.open ?? 0, requests: requests.length, waiting };
  }

  replaceTls(pair: TlsPair): void {
    (this.#server as HttpsServer).setSecureContext({ ...pair, ...TLS_RULES });
  }

  async close(waitMs: number): Promise<void> {
    const closed = new Promise<void>((resolve) => this.#server.close(() => resolve()));
    this.#stopping = true;
    for (const request of this.#open) request.abort();
    await within(closed, waitMs);
    this.#server.closeAllConnections();
    for (const socket of this.#belowTls) socket.destroy();
    await closed;
  }

  async #exchange(incoming: IncomingMessage, response: ServerResponse, isUnasked: boolean): Promise<void> {
    const onAdmitted = () => this.#connections?.admit(incoming.socket);
    const request = new OpenRequest(incoming, response, { writeMs: this.#limits.writeMs, isUnasked, onAdmitted });
    this.#open.add(request);
    response.on("close", () => this.#end(response, request));
    const answer = await this.#answerTo(request, incoming);
    request.answered();
    this.#send(response, request, answer);
    if (!incoming.complete && !request.isUnasked) incoming.once("end", this.#linger(incoming.socket)).resume();
  }

  async #answerTo(request: OpenRequest, incoming: IncomingMessage): Promise<Answer> {
    try {
      if (this.#stopping) throw new Failure("shutting_down", "the server is shutting down");
      requireSound(incoming);
      return await this.#options.handle(request, incoming.socket);
    } catch (thrown) {
      const error = (await this.#options.explain?.(thrown, request).catch(() => thrown)) ?? thrown;
      const answer = failureAnswer(error, request.id);
      if (answer.status === 500) this.#options.onDefect?.(request.id, error);
      return answer;
    }
  }

  #end(response: ServerResponse, request: OpenRequest): void {
    request.over();
    this.#open.delete(request);
    const status = response.headersSent ? response.statusCode : 499;
    const bytes = response.writableFinished ? request.sentBytes : 0;
    const durationMs = performance.now() - request.startedAt;
    this.#options.onExchange?.({ request, status, bytes, durationMs });
  }

  #send(response: ServerResponse, request: OpenRequest, answer: Answer): void {
    const { status, body } = answer;
    if (response.destroyed) return void (isStreamed(body) && this.#closeBody(request.id, body));
    const length = bodyLength(body);
    if (request.method !== "HEAD" && !isStreamed(body)) request.sentBytes = length as number;
    const headers: OutgoingHttpHeaders = { ...this.#commonHeaders, ...answer.headers, "X-Request-Id": request.id };
    if (status !== 204 && status !== 304 && length !== undefined) headers["Content-Length"] = length;
    // A body that was not asked for may still follow: the next request could not be told from the body.
    if (request.isUnasked || this.#stopping) headers.Connection = "close";
    response.writeHead(status, headers);
    if (isStreamed(body)) void this.#stream(response, request, body);
    else response.end(body);
  }

  /** A body that ends early ends the connection, so that no client takes a part for the whole. */
  async #stream(response: ServerResponse, request: OpenRequest, body: StreamedBody): Promise<void> {
    try {
      if (request.method === "HEAD") response.end();
      else await pipeline(Readable.from(request.counted(body), { highWaterMark: 1 }), response);
    } catch (error) {
      if (!hasErrno(error, "ERR_STREAM_PREMATURE_CLOSE")) this.#options.onDefect?.(request.id, error);
    }
    await this.#closeBody(request.id, body);
  }

  async #closeBody(requestId: string, body: StreamedBody): Promise<void> {
    await body.close().catch((error: unknown) => this.#options.onDefect?.(requestId, error));
  }

  /** Cuts the connection after `lingerMs`, unless the function that this returns is called before. */
  #linger(socket: Socket): () => void {
    if (socket.destroyed) return () => {};
    const cut = setTimeout(() => socket.destroy(), this.#limits.lingerMs);
    const callOff = () => {
      clearTimeout(cut);
      socket.removeListener("close", callOff);
    };
    socket.once("close", callOff);
    return callOff;
  }

  /** Answers what the parser refuses: bytes that are malformed, too many or too slow to become a request. */
  #refuse(error: Error, socket: Socket): void {
    if (this.#refused.has(socket)) return;
    // A refusal must not be written into an answer that is on its way, and cannot be before TLS is agreed on.
    const isAnswering = this.#open.values().some((request) => request.isBeingAnswered(socket));
    if (!socket.writable || isAnswering || hasErrno(error, "ERR_TLS_HANDSHAKE_TIMEOUT")) return void socket.destroy();
    this.#refused.add(socket);
    const [status, message] = parserRefusal(error);
    const id = requestId();
    const answer = json(status, { error: "invalid_request", message });
    socket.end(wireText(status, answer, { ...this.#commonHeaders, "X-Request-Id": id }));
    this.#linger(socket);
    const noted = { route: undefined, authenticated: undefined, name: undefined, refused: undefined };
    const request = { id, method: "-", path: "-", peer: peerOf(socket), noted };
    const bytes = Buffer.byteLength(answer.body as string);
    this.#options.onExchange?.({ request, status, bytes, durationMs: 0 });
  }
}

function isStreamed(body: Answer["body"]): body is StreamedBody {
  return typeof body === "object" && "read" in body;
}

/** The length in bytes; undefined for a body whose length is known at its end only. */
function bodyLength(body: Answer["body"] = ""): number | undefined {
  return isStreamed(body) ? body.length : Buffer.byteLength(body);
}

function parserRefusal(error: Error): [number, string] {
  if (hasErrno(error, "HPE_HEADER_OVERFLOW")) return [431, "the headers of the request are too large"];
  if (hasErrno(error, "ERR_HTTP_REQUEST_TIMEOUT")) return [408, "the request took too long to arrive"];
  return [400, "this is not an HTTP request that the server understands"];
}
