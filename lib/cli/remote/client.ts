import { readFile } from "node:fs/promises";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { getCACertificates } from "node:tls";
import { cancelledFailure, Failure, type FailureCode, messageOf } from "../../core/errors.ts";
import { isObject, parsedJson, quote } from "../../core/shape.ts";

/** The options of a request. */
export interface CallOptions {
  /** Sent as JSON. */
  json?: unknown;
  /** Sent in chunks as it is produced; needs a `type`. */
  body?: AsyncIterable<Uint8Array>;
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** How long the connection may be silent; default 2 minutes. */
  silenceMs?: number;
  /** Nobody is asked for a TOTP code. */
  isAside?: boolean;
}

const SILENCE_MS = 120_000;
const ANSWER_BYTES = 16 * 1024 * 1024;
const PROBLEMS_SHOWN = 20;
const TOTP_WANTED = "the server asks for a TOTP code: give a fresh one with --totp, or sign in with `ops login`";
/** A proxy says that the server behind it gives no answer. */
const OF_PROXY: readonly number[] = [502, 503, 504];

/**
 * The address of a server. `http` is accepted only for a loopback host: elsewhere the token would travel in the clear.
 * Throws `usage`.
 */
export function parseBaseUrl(text: string): URL {
  const fail = (why: string) => new Failure("usage", `Cannot use the address ${quote(text)}: ${why}`);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol)) throw fail("expected a URL such as https://ops.example:9090");
  if (url.pathname.includes("//")) throw fail("its path has an empty part");
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw fail("it may hold no user, password, query or fragment");
  if (url.protocol === "http:" && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname))
    throw fail("without TLS the token would travel in the clear; use https, or http on a loopback host only");
  return url;
}

/** A client of one server's API. One connection per request; redirects are not followed. */
export interface ApiClient {
  base: URL;
  /**
   * Sends a request and answers the JSON object of its answer (at most 16 MiB; of an answer without a body an empty one),
   * which may come before the body was sent whole. Throws the server's sentence with its code; `failed` with
   * `details.unreachable` where there is no answer; `cancelled` where the signal is aborted.
   */
  call(method: string, path: string, options?: CallOptions): Promise<Record<string, unknown>>;
  /** The body of an answer as it comes. Fails like `call`, also in its middle. */
  stream(method: string, path: string, options?: CallOptions): AsyncGenerator<Buffer>;
  /**
   * Verifies a TOTP code; its session goes with every later call. Fails like `call`, and with `usage` for text that is no
   * code.
   */
  verifyTotp(code: string): Promise<void>;
  /** The sessions that the server has opened for this client, as a `Cookie` header. */
  cookies(): string;
}

/** What proves to a server who asks: its API token, or the sessions of an earlier client. */
export interface Proof {
  token?: string | undefined;
  cookies?: string | undefined;
  /** PEM certificates to trust besides the system's. */
  caFile?: string | undefined;
  /** Asks a person for a TOTP code; undefined where nobody is there. */
  askCode?: (() => Promise<string | undefined>) | undefined;
  /** Gets the sessions, as a `Cookie` header, once a code has opened one. */
  verified?: ((cookies: string) => Promise<void>) | undefined;
}

/** A whole answer. */
interface Reply {
  status: number;
  text: string;
}

/** The server of a client, and what goes with every request. */
interface Server {
  base: URL;
  token: string | undefined;
  certificates: string[] | undefined;
  /** By name: the sessions, once there are some. */
  cookies: Map<string, string>;
  askCode: () => Promise<string | undefined>;
  verified: (cookies: string) => Promise<void>;
  /** The question for a code that is open. */
  asking: Promise<void> | undefined;
}

/** A client. Throws `usage` for a token or a file of certificates that cannot be used. */
export async function openClient(base: URL, { cookies = "", caFile, ...proof }: Proof): Promise<ApiClient> {
  const { token, askCode = async () => undefined, verified = async () => {} } = proof;
  if (token !== undefined && !/^[\x21-\x7e]+$/.test(token))
    throw new Failure("usage", "Cannot use the token: it is empty or has characters that a token cannot have");
  const certificates = caFile === undefined ? undefined : [...getCACertificates("default"), await readCertificates(caFile)];
  const server: Server = { base, token, certificates, cookies: new Map(), askCode, verified, asking: undefined };
  keepCookies(server, cookies.split("; "));
  return {
    base,
    call: async (method, path, options = {}) => {
      const { status, text } = await afterCode(server, options, () => acceptedReply(server, method, path, options));
      const body = status === 204 ? {} : parseObject(text);
      if (body) return body;
      throw refusalOf(server, status, undefined);
    },
    stream: (method, path, options = {}) => streamedBody(server, method, path, options),
    verifyTotp: (code) => verifyTotp(server, code),
    cookies: () => cookieHeader(server),
  };
}

/** What a request answers; where the server wants a code and a person is there, after the code. */
async function afterCode<T>(server: Server, options: CallOptions, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    // A body that was produced once cannot be sent again.
    if (!(error instanceof Failure) || error.code !== "totp_required" || options.body || options.isAside) throw error;
    // Requests that go on at the same time wait for the same code.
    server.asking ??= verifiedByPerson(server, error).finally(() => {
      server.asking = undefined;
    });
    await server.asking;
    return await ask();
  }
}

async function verifiedByPerson(server: Server, refusal: Failure): Promise<void> {
  const code = await server.askCode();
  if (code === undefined) throw refusal;
  await verifyTotp(server, code);
}

async function verifyTotp(server: Server, code: string): Promise<void> {
  if (!/^[0-9]{6}$/.test(code)) throw new Failure("usage", "Cannot use the TOTP code: expected 6 digits");
  await acceptedReply(server, "POST", "/api/auth/totp/verify", { json: { code } });
  await server.verified(cookieHeader(server));
}

async function acceptedReply(server: Server, method: string, path: string, options: CallOptions): Promise<Reply> {
  const request = startRequest(server, method, path, options);
  try {
    const response = await responseTo(request, options);
    const text = await readText(response);
    const { statusCode: status = 0, headers } = response;
    if (status >= 200 && status < 300) {
      keepCookies(server, headers["set-cookie"] ?? []);
      return { status, text };
    }
    throw refusalOf(server, status, parseObject(text));
  } catch (error) {
    throw failureOf(server, options, error);
  } finally {
    request.destroy();
  }
}

async function* streamedBody(server: Server, method: string, path: string, options: CallOptions): AsyncGenerator<Buffer> {
  try {
    // An answer that is left early closes its connection.
    yield* await afterCode(server, options, async () => {
      const given = await responseTo(startRequest(server, method, path, options), options);
      const { statusCode: status = 0 } = given;
      if (status !== 200) throw refusalOf(server, status, parseObject(await readText(given)));
      return given;
    });
  } catch (error) {
    throw failureOf(server, options, error);
  }
}

function startRequest(server: Server, method: string, path: string, options: CallOptions) {
  const { base, token, certificates } = server;
  const url = new URL(base);
  const [below = "", ...query] = path.split("?");
  url.pathname = base.pathname.replace(/\/$/, "") + below;
  url.search = query.join("?");
  const silenceMs = options.silenceMs ?? SILENCE_MS;
  const type = options.json === undefined ? options.type : "application/json";
  const cookie = cookieHeader(server);
  const request = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, {
    method,
    agent: false,
    headers: {
      Accept: "application/json",
      ...options.headers,
      // With `close`, a server would cut the connection right behind an early answer, before it can be read.
      Connection: "keep-alive",
      ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      ...(type !== undefined && { "Content-Type": type }),
      // A change by a session has to come from a page of the server itself, as this client is in place of one.
      ...(cookie !== "" && { Cookie: cookie, Origin: base.origin, "X-Ops-CSRF": "1" }),
    },
    timeout: silenceMs,
    signal: options.signal,
    ...(certificates && { ca: certificates }),
  });
  const silent = `it has not said anything for ${silenceMs / 1000} s`;
  return request.on("timeout", () => request.destroy(new Error(silent)));
}

function responseTo(request: ClientRequest, { json, body }: CallOptions): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    let answered = false;
    request.on("response", (response) => {
      answered = true;
      resolve(response);
    });
    let isConnected = false;
    const noteConnection = () => {
      isConnected = true;
    };
    request.once("socket", (socket) => socket.once("encrypted" in socket ? "secureConnect" : "connect", noteConnection));
    // An answer that has begun tells more than the reason why the rest of the body could not be sent.
    request.on("error", (error) => answered || reject(Object.assign(error, { isConnected })));
    if (!body) request.end(json === undefined ? undefined : JSON.stringify(json));
    // An error of the body or of the request reaches the request's own "error".
    else pipeline(Readable.from(body), request).catch(() => {});
  });
}

function cookieHeader({ cookies }: Server): string {
  return [...cookies].map(([name, value]) => `${name}=${value}`).join("; ");
}

/** Keeps the cookies that a server sets; an empty one is gone. */
function keepCookies({ cookies }: Server, set: readonly string[]): void {
  for (const one of set) {
    const [, name, value] = /^\s*([\w-]+)=([\x21-\x3a\x3c-\x7e]*)/.exec(one) ?? [];
    if (name === undefined) continue;
    if (value) cookies.set(name, value);
    else cookies.delete(name);
  }
}

/** What a request failed with, as a failure that tells whether an answer came. */
function failureOf({ base }: Server, { signal }: CallOptions, error: unknown): Failure {
  if (error instanceof Failure) return error;
  if (signal?.aborted) return cancelledFailure();
  const { isConnected = true } = error as { isConnected?: boolean };
  const details = { unreachable: true, sent: isConnected };
  return new Failure("failed", `Cannot reach ${base.origin}: ${connectionTrouble(error)}`, { details, cause: error });
}

/** True for the failure of a call that got no answer; with `sent` only where the request may have reached the server. */
export function isUnreachable(error: unknown, { sent = false } = {}): boolean {
  if (!(error instanceof Failure) || !isObject(error.details)) return false;
  return error.details.unreachable === true && (!sent || error.details.sent === true);
}

async function readCertificates(file: string): Promise<string> {
  const fail = (why: string) => new Failure("usage", `Cannot use the certificates in ${file}: ${why}`);
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    throw fail(messageOf(error));
  });
  if (!text.includes("-----BEGIN CERTIFICATE-----")) throw fail("it has no PEM certificate");
  return text;
}

async function readText(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > ANSWER_BYTES)
      throw new Failure("failed", `Cannot use the server's answer: it has more than ${ANSWER_BYTES} bytes`);
  }
  return Buffer.concat(chunks).toString();
}

function parseObject(text: string): Record<string, unknown> | undefined {
  const value = parsedJson(text);
  return isObject(value) ? value : undefined;
}

/** The server's sentence, and each problem of its details that the sentence does not tell. */
function refusalOf({ base, token }: Server, status: number, body: Record<string, unknown> | undefined): Failure {
  if (typeof body?.error !== "string" || typeof body.message !== "string") {
    if (!OF_PROXY.includes(status))
      return new Failure("failed", `${base.origin} answered ${status} and no reason; is it an ops server?`);
    const details = { unreachable: true, sent: true };
    return new Failure("failed", `Cannot reach ${base.origin}: a proxy answered ${status}`, { details });
  }
  const { error, message, details } = body;
  const code = error as FailureCode;
  // The server's sentences tell how to prove oneself over HTTP.
  if (code === "totp_required") return new Failure(code, TOTP_WANTED);
  if (code === "unauthorized" && token === undefined)
    return new Failure(code, `the session with ${base.origin} has ended: sign in with \`ops login ${base.origin}\``);
  const problems = (Array.isArray(details) ? details : [])
    .filter(isObject)
    .filter((problem) => !message.includes(String(problem.message)))
    .slice(0, PROBLEMS_SHOWN)
    .map((problem) => `\n  ${problem.path}: ${problem.message}`);
  return new Failure(code, `${message}${problems.join("")}`, { details });
}

function connectionTrouble(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (code === "ECONNREFUSED") return "the connection was refused; does the server run, on this port?";
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "the host name is not known";
  if (code === "ECONNRESET" || code === "EPIPE") return "the connection was closed without an answer";
  if (/^(CERT_|ERR_TLS_CERT|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/.test(code))
    return `its certificate is not trusted (${messageOf(error)}); name the CA it is from with --ca-file`;
  if (/^(EPROTO|ERR_SSL_|HPE_)/.test(code)) return "the program that answers there does not speak this protocol";
  return messageOf(error);
}
