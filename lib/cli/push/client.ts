import { readFile } from "node:fs/promises";
import { type ClientRequest, request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { getCACertificates } from "node:tls";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { isObject, quote } from "../../core/shape.ts";

/** What goes with a request, beside the token. */
interface CallOptions {
  /** Sent as it is produced, in chunks; must name its `type`. */
  body?: AsyncIterable<Uint8Array>;
  type?: string;
  signal?: AbortSignal;
  /** How long the connection may be silent; default 2 minutes. */
  silenceMs?: number;
}

/** An answer that came whole; `cookies` are its `Set-Cookie` headers. */
interface Reply {
  status: number;
  text: string;
  cookies: string[];
}

const SILENCE_MS = 120_000;
const ANSWER_BYTES = 4 * 1024 * 1024;
const PROBLEMS_SHOWN = 20;
const TOTP_MISSING = "the server asks for a TOTP code: give a fresh one with --totp";
const TOTP_ENDED = "the TOTP session of this command has ended; what it started on the server goes on";

/**
 * The address of a server. `http` is only taken for a loopback host: anywhere else the token would travel in the clear.
 * Throws `usage`.
 */
export function parseBaseUrl(text: string): URL {
  const fail = (why: string) => new Failure("usage", `Cannot use the address ${quote(text)}: ${why}`);
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !["http:", "https:"].includes(url.protocol))
    throw fail("expected a URL such as https://ops.example:9090");
  if (url.username !== "" || url.password !== "" || url.search !== "" || url.hash !== "")
    throw fail("it may hold no user, password, query or fragment");
  if (url.protocol === "http:" && !/^(localhost|127(\.\d+){3}|\[::1\])$/.test(url.hostname))
    throw fail("without TLS the token would travel in the clear; use https, or http on a loopback host only");
  return url;
}

/** A client of one server's API. One connection per request; redirects are not followed. */
export class ApiClient {
  readonly #base: URL;
  readonly #token: string;
  readonly #certificates: string[] | undefined;
  /** The TOTP session, once a code was verified. */
  #cookie: string | undefined;

  constructor(base: URL, token: string, certificates: string[] | undefined) {
    this.#base = base;
    this.#token = token;
    this.#certificates = certificates;
  }

  /** Trusts the certificates in `caFile` (PEM) besides the system's. Throws `usage` for what cannot be used. */
  static async open(base: URL, token: string, caFile: string | undefined): Promise<ApiClient> {
    if (!/^[\x21-\x7e]+$/.test(token))
      throw new Failure("usage", "Cannot use the token: it is empty or has characters that a token cannot have");
    if (caFile === undefined) return new ApiClient(base, token, undefined);
    return new ApiClient(base, token, [...getCACertificates("default"), await readCertificates(caFile)]);
  }

  /**
   * Sends a request and answers the JSON object of its answer (at most 4 MiB), which may come before the body was sent
   * whole. A refusal is a Failure with the server's sentence, `bucket_busy` or else `failed`; no answer is one with
   * `details.unreachable`; an aborted signal `cancelled`.
   */
  async call(method: string, path: string, options: CallOptions = {}): Promise<Record<string, unknown>> {
    return (await this.#accepted(method, path, options)).body;
  }

  /**
   * Verifies a TOTP code; the session that it gives goes with every later call. Fails like {@link call}, and with
   * `usage` for what is no code.
   */
  async verifyTotp(code: string, signal?: AbortSignal): Promise<void> {
    if (!/^[0-9]{6}$/.test(code)) throw new Failure("usage", "Cannot use the TOTP code: it has 6 digits");
    const sent = { ...jsonOf({ code }), ...(signal && { signal }) };
    const { cookies } = await this.#accepted("POST", "/api/auth/totp/verify", sent);
    this.#cookie = cookies.map((one) => one.split(";")[0] as string).join("; ");
  }

  async #accepted(method: string, path: string, options: CallOptions) {
    const { status, text, cookies } = await this.#exchange(method, path, options).catch((error: unknown) => {
      throw options.signal?.aborted ? cancelledFailure() : this.#unreachable(error);
    });
    const body = parseObject(text);
    if (status >= 200 && status < 300 && body) return { body, cookies };
    // The server tells how to send a code over HTTP; here it is a flag.
    if (body?.error === "totp_required") throw new Failure("failed", this.#cookie ? TOTP_ENDED : TOTP_MISSING);
    throw refusal(this.#base, status, body);
  }

  #exchange(method: string, path: string, options: CallOptions): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const request = this.#request(method, path, options);
      let answered = false;
      request.on("response", (response) => {
        answered = true;
        readText(response)
          .then((text) => resolve({ ...headOf(response), text }), reject)
          .finally(() => request.destroy());
      });
      // Once an answer has begun it says more than why the rest of the body could not be sent.
      request.on("error", (error) => answered || reject(error));
      if (!options.body) request.end();
      // An error of either reaches the request's own "error".
      else pipeline(Readable.from(options.body), request).catch(() => {});
    });
  }

  #request(method: string, path: string, options: CallOptions): ClientRequest {
    const url = new URL(this.#base.pathname.replace(/\/$/, "") + path, this.#base);
    const silenceMs = options.silenceMs ?? SILENCE_MS;
    const request = (url.protocol === "https:" ? httpsRequest : httpRequest)(url, {
      method,
      agent: false,
      headers: {
        Authorization: `Bearer ${this.#token}`,
        Accept: "application/json",
        // Told to close, a server would cut the connection right behind an early answer, before it can be read.
        Connection: "keep-alive",
        ...(options.type !== undefined && { "Content-Type": options.type }),
        ...(this.#cookie !== undefined && { Cookie: this.#cookie }),
      },
      timeout: silenceMs,
      signal: options.signal,
      ...(this.#certificates && { ca: this.#certificates }),
    });
    const silent = `it has not said anything for ${silenceMs / 1000} s`;
    return request.on("timeout", () => request.destroy(new Error(silent)));
  }

  #unreachable(error: unknown): Failure {
    if (error instanceof Failure) return error;
    return new Failure("failed", `Cannot reach ${this.#base.origin}: ${reasonOf(error)}`, {
      details: { unreachable: true },
      cause: error,
    });
  }
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

function headOf({ statusCode = 0, headers }: IncomingMessage): Omit<Reply, "text"> {
  return { status: statusCode, cookies: headers["set-cookie"] ?? [] };
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

/** The server's sentence, and each problem of its details that the sentence does not tell already. */
function refusal(base: URL, status: number, body: Record<string, unknown> | undefined): Failure {
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

function reasonOf(error: unknown): string {
  const code = (error as NodeJS.ErrnoException).code ?? "";
  if (code === "ECONNREFUSED") return "the connection was refused; does the server run, on this port?";
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "the host name is not known";
  if (code === "ECONNRESET" || code === "EPIPE") return "the connection was closed without an answer";
  if (/^(CERT_|ERR_TLS_CERT|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/.test(code))
    return `its certificate is not trusted (${messageOf(error)}); name the CA it is from with --ca-file`;
  if (/^(EPROTO|ERR_SSL_|HPE_)/.test(code)) return "what answers there does not speak this protocol";
  return messageOf(error);
}
