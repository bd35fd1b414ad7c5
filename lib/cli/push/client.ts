import { readFile } from "node:fs/promises";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { getCACertificates } from "node:tls";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { isObject, quote } from "../../core/shape.ts";

/** The options of a request. */
interface CallOptions {
  /** Sent in chunks as it is produced; needs a `type`. */
  body?: AsyncIterable<Uint8Array>;
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
  /** How long the connection may be silent; default 2 minutes. */
  silenceMs?: number;
}

/** A whole answer; `cookies` are its `Set-Cookie` headers. */
interface Reply {
  status: number;
  text: string;
  cookies: string[];
}

const SILENCE_MS = 120_000;
const ANSWER_BYTES = 4 * 1024 * 1024;
const PROBLEMS_SHOWN = 20;
const TOTP_MISSING = "the server asks for a TOTP code: give a fresh one with --totp";
const TOTP_ENDED = "the TOTP session of this command has ended; the run that it started on the server goes on";

/**
 * The address of a server. `http` is accepted only for a loopback host: elsewhere the token would travel in the clear.
 * Throws `usage`.
 */
export function parseBaseUrl(text: string): URL {
  const fail = (why: string) => new Failure("usage", `Cannot use the address ${quote(text)}: ${why}`);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol)) throw fail("expected a URL such as https://ops.example:9090");
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw fail("it may hold no user, password, query or fragment");
  if (url.protocol === "http:" && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname))
    throw fail("without TLS the token would travel in the clear; use https, or http on a loopback host only");
  return url;
}

/** A client of one server's API. One connection per request; redirects are not followed. */
export interface ApiClient {
  /**
   * Sends a request and answers the JSON object of its answer (at most 4 MiB), which may come before the body was sent
   * whole. Throws the server's sentence as `bucket_busy` or `failed`; `failed` with `details.unreachable` where there is no
   * answer; `cancelled` where the signal is aborted.
   */
  call(method: string, path: string, options?: CallOptions): Promise<Record<string, unknown>>;
  /**
   * Verifies a TOTP code; the session of the code goes with every later call. Fails like `call`, and with `usage` for text
   * that is no code.
   */
  verifyTotp(code: string, signal: AbortSignal): Promise<void>;
}

/** The server of a client, and what goes with every request. */
interface Server {
  base: URL;
  token: string;
  certificates: string[] | undefined;
  /** The TOTP session, once a code was verified. */
  cookie: string | undefined;
}

/**
 * A client that trusts the certificates in `caFile` (PEM) besides the system's. Throws `usage` for a token or a file that
 * cannot be used.
 */
export async function openClient(base: URL, token: string, caFile: string | undefined): Promise<ApiClient> {
  if (!/^[\x21-\x7e]+$/.test(token))
    throw new Failure("usage", "Cannot use the token: it is empty or has characters that a token cannot have");
  const certificates = caFile === undefined ? undefined : [...getCACertificates("default"), await readCertificates(caFile)];
  const server: Server = { base, token, certificates, cookie: undefined };
  return {
    call: async (method, path, options = {}) => (await acceptedReply(server, method, path, options)).body,
    async verifyTotp(code, signal) {
      if (!/^[0-9]{6}$/.test(code)) throw new Failure("usage", "Cannot use the TOTP code: it has 6 digits");
      const sent = { ...jsonOf({ code }), signal };
      const { cookies } = await acceptedReply(server, "POST", "/api/auth/totp/verify", sent);
      server.cookie = cookies.map((one) => one.split(";")[0] as string).join("; ");
    },
  };
}

async function acceptedReply(server: Server, method: string, path: string, options: CallOptions) {
  const request = startRequest(server, method, path, options);
  const { status, text, cookies } = await replyTo(request, options.body).catch((error: unknown) => {
    throw options.signal?.aborted ? cancelledFailure() : unreachable(server.base, error);
  });
  const body = parseObject(text);
  if (status >= 200 && status < 300 && body) return { body, cookies };
  // The server's sentence tells how to send a code over HTTP; on the command line the code is a flag.
  if (body?.error === "totp_required") throw new Failure("failed", server.cookie ? TOTP_ENDED : TOTP_MISSING);
  throw refusalOf(server.base, status, body);
}

function startRequest({ base, token, certificates, cookie }: Server, method: string, path: string, options: CallOptions) {
  const url = new URL(base.pathname.replace(/\/$/, "") + path, base);
  const silenceMs = options.silenceMs ?? SILENCE_MS;
  const request = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, {
    method,
    agent: false,
    headers: {
      Authorization: `Bearer ${token}`,
      Accept: "application/json",
      ...options.headers,
      // With `close`, a server would cut the connection right behind an early answer, before it can be read.
      Connection: "keep-alive",
      ...(options.type !== undefined && { "Content-Type": options.type }),
      ...(cookie !== undefined && { Cookie: cookie }),
    },
    timeout: silenceMs,
    signal: options.signal,
    ...(certificates && { ca: certificates }),
  });
  const silent = `it has not said anything for ${silenceMs / 1000} s`;
  return request.on("timeout", () => request.destroy(new Error(silent)));
}

function replyTo(request: ClientRequest, body: CallOptions["body"]): Promise<Reply> {
  return new Promise((resolve, reject) => {
    let answered = false;
    request.on("response", (response) => {
      answered = true;
      const { statusCode: status = 0, headers } = response;
      readText(response)
        .then((text) => resolve({ status, text, cookies: headers["set-cookie"] ?? [] }), reject)
        .finally(() => request.destroy());
    });
    // An answer that has begun tells more than the reason why the rest of the body could not be sent.
    request.on("error", (error) => answered || reject(error));
    if (!body) request.end();
    // An error of the body or of the request reaches the request's own "error".
    else pipeline(Readable.from(body), request).catch(() => {});
  });
}

function unreachable(base: URL, error: unknown): Failure {
  if (error instanceof Failure) return error;
  const details = { unreachable: true };
  return new Failure("failed", `Cannot reach ${base.origin}: ${connectionTrouble(error)}`, { details, cause: error });
}

/** True for the failure of a call that got no answer. */
export function isUnreachable(error: unknown): boolean {
  return error instanceof Failure && isObject(error.details) && error.details.unreachable === true;
}

async function readCertificates(file: string): Promise<string> {
  const fail = (why: string) => new Failure("usage", `Cannot use the certificates in ${file}: ${why}`);
  const text = await readFile(file, "utf8").catch((error: unknown) => {
    throw fail(messageOf(error));
  });
  if (!text.includes("-----BEGIN CERTIFICATE-----")) throw fail("it has no PEM certificate");
  return text;
}

/** A value as the body of a call. */
export function jsonOf(value: unknown): Required<Pick<CallOptions, "body" | "type">> {
  return { body: toBody(JSON.stringify(value)), type: "application/json" };
}

async function* toBody(text: string): AsyncGenerator<Uint8Array> {
  yield Buffer.from(text);
}

async function readText(response: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response) {
    chunks.push(chunk);
    size += chunk.length;
    if (size > ANSWER_BYTES) throw new Error(`its answer has more than ${ANSWER_BYTES} bytes`);
  }
  return Buffer.concat(chunks).toString();
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return isObject(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The server's sentence, and each problem of its details that the sentence does not tell. */
function refusalOf(base: URL, status: number, body: Record<string, unknown> | undefined): Failure {
  if (typeof body?.error !== "string" || typeof body.message !== "string")
    return new Failure("failed", `${base.origin} answered ${status} and no reason; is it an ops server?`);
  const { error, message, details } = body;
  const problems = (Array.isArray(details) ? details : [])
    .filter(isObject)
    .filter((problem) => !message.includes(String(problem.message)))
    .slice(0, PROBLEMS_SHOWN)
    .map((problem) => `\n  ${problem.path}: ${problem.message}`);
  const code = error === "bucket_busy" ? "bucket_busy" : "failed";
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
