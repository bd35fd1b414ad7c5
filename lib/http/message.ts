import { Failure, type FailureCode, isLocked, messageOf, type Problem, systemSentence } from "../core/errors.ts";
import { check, isObject, type Shape } from "../core/shape.ts";

/** A request as handlers see it. Header names are in lower case. */
export interface HttpRequest {
  /** The request's name in the answer (`X-Request-Id`), the log and the audit of a run. */
  readonly id: string;
  readonly method: string;
  /** The path as it was sent: not decoded, not normalised, without the query. */
  readonly path: string;
  /** The text behind the first `?`; empty where there is none. */
  readonly query: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** The address of the socket's other end; an IPv4 address in IPv6 form is an IPv4 address. */
  readonly peer: string;
  /** The scheme the client used: `https` or `http`. */
  readonly scheme: "http" | "https";
  /** Aborted when the client leaves and when the server stops. */
  readonly signal: AbortSignal;
  /** What the access log says of the request; each field is set by the step that finds it out. */
  readonly noted: {
    route: string | undefined;
    authenticated: string | undefined;
    /** The name of the token. */
    name: string | undefined;
    /** Why the request was not authenticated: a credential is missing or wrong. */
    refused: `${"" | "totp_"}${"missing" | "wrong"}` | undefined;
  };
  /** The body as it arrives. A second reader gets what the first one has left. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Gets each piece of the body when a reader gets it. */
  onBody?: (piece: Uint8Array) => void;
  /**
   * Notes that the request is authenticated, so that its connection counts as such. `ends` aborts its signal, as if the
   * client had left.
   */
  admitted(ends?: AbortSignal): void;
  /** Says that the request waits for something that may take long: the time until the answer does not count. */
  longPoll(): void;
}

/** An answer. The server adds `X-Request-Id`, the security headers and the length. */
export interface Answer {
  status: number;
  headers?: Record<string, string | string[]>;
  body?: string | Uint8Array | StreamedBody;
}

/** A body that is read while it is sent. */
export interface StreamedBody {
  /** In bytes: `read` yields exactly as many or throws. A body without a length is sent in chunks. */
  length?: number;
  /** The bytes come when something happens: the time for the answer counts for each piece alone. */
  isLive?: true;
  read(): AsyncIterable<Uint8Array>;
  /** Called once, after the last byte or where the body will not be sent. */
  close(): Promise<void>;
}

/** The most bytes of a JSON body. */
export const BODY_BYTES = 1024 * 1024;

const CODES_BY_STATUS: readonly (readonly [status: number, ...FailureCode[]])[] = [
  [400, "invalid_request", "invalid_bucket_id", "invalid_source", "unknown_name"],
  [401, "unauthorized", "invalid_totp_code"],
  [403, "totp_required", "csrf_failed", "forbidden", "approval_required"],
  [404, "not_found", "bucket_not_found", "run_not_found", "file_not_found", "revision_not_found", "snapshot_not_found"],
  [404, "proposal_not_found", "totp_disabled"],
  [405, "method_not_allowed"],
  [409, "bucket_busy", "busy", "bucket_exists", "run_not_active", "retry_impossible", "plan_stale", "frozen"],
  [409, "proposal_ended"],
  [409, "bucket_not_initialized", "schema_upgrade_required", "schema_too_new", "database_damaged"],
  [413, "payload_too_large"],
  [415, "unsupported_media_type"],
  [416, "range_not_satisfiable"],
  [422, "idempotency_mismatch"],
  [429, "rate_limited"],
  [500, "internal"],
  [503, "shutting_down", "database_busy", "audit_unavailable"],
];

/** The one table from what went wrong to the status of the answer. A code that is not in it is a 500. */
export const HTTP_STATUS: Readonly<Partial<Record<FailureCode, number>>> = Object.fromEntries(
  CODES_BY_STATUS.flatMap(([status, ...codes]) => codes.map((code) => [code, status])),
);

/** A value as JSON. */
export function json(status: number, value: unknown, headers: Answer["headers"] = {}): Answer {
  const type = { "Content-Type": "application/json; charset=utf-8" };
  return { status, headers: { ...type, ...headers }, body: JSON.stringify(value) };
}

/** JSON that is text already. */
export function readyJson(body: Uint8Array): Answer {
  return raw("application/json; charset=utf-8", body);
}

/** Bytes of a given media type. */
export function raw(type: string, body: string | Uint8Array, headers: Answer["headers"] = {}): Answer {
  return { status: 200, headers: { "Content-Type": type, ...headers }, body };
}

/**
 * The answer to anything that was thrown: `{error, message, details?, run_id?}`. The sentence of a Failure is sent; of a
 * defect the client learns the request's id only.
 */
export function failureAnswer(error: unknown, requestId: string): Answer {
  const failure = asFailure(error, requestId);
  const status = HTTP_STATUS[failure.code] ?? 500;
  const details = isObject(failure.details) ? failure.details : {};
  return json(
    status,
    {
      error: HTTP_STATUS[failure.code] === undefined ? "internal" : failure.code,
      message: failure.message,
      ...(failure.details !== undefined && { details: failure.details }),
      ...(typeof details.run_id === "string" && { run_id: details.run_id }),
    },
    failureHeaders(failure),
  );
}

function asFailure(error: unknown, requestId: string): Failure {
  if (isLocked(error)) return new Failure("database_busy", messageOf(error));
  const sentence = systemSentence(error);
  if (sentence !== undefined) return new Failure("internal", `on the server ${sentence}`);
  if (!(error instanceof Failure))
    return new Failure("internal", `internal error; the server's log tells more under request ${requestId}`);
  // Only two events cancel a request: its client leaves, and then nobody reads the answer, or the server stops.
  return error.code === "cancelled" ? new Failure("shutting_down", "the server is shutting down") : error;
}

/** The headers that belong to the answer to a failure. */
export function failureHeaders({ code, details: told }: Failure): Record<string, string> {
  const details = isObject(told) ? told : {};
  if (code === "unauthorized") return { "WWW-Authenticate": "Bearer" };
  if (code === "method_not_allowed") return { Allow: String(details.allow) };
  if (code === "rate_limited") return { "Retry-After": String(details.retry_after_s) };
  if (code === "range_not_satisfiable") return { "Content-Range": `bytes */${details.size_bytes}` };
  return {};
}

/** An answer of the parser as it goes over the wire: a request that the parser refuses never reaches a handler. */
export function wireText(status: number, answer: Answer, common: Record<string, string>): string {
  const body = answer.body as string;
  const headers = { ...common, ...answer.headers, Connection: "close", "Content-Length": Buffer.byteLength(body) };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  const reason = process.getBuiltinModule("node:http").STATUS_CODES[status];
  return `HTTP/1.1 ${status} ${reason}\r\n${lines.join("")}\r\n${body}`;
}

/** The failure for an input that breaks its shape. The sentence has the first problem, `details` has all problems. */
export function invalidRequest(problems: readonly Problem[]): Failure {
  const first = problems[0];
  const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
  const where = first?.path ? `${first.path}: ` : "";
  return new Failure("invalid_request", `${where}${first?.message}${more}`, { details: problems });
}

/**
 * Reads a JSON body: one object in UTF-8 of at most 1 MiB whose fields are all known and typed. An empty body is `{}`.
 * Throws `payload_too_large`, `unsupported_media_type` or `invalid_request`, in this order.
 */
export async function readJson<T>(request: HttpRequest, shape: Shape<T>): Promise<T> {
  const given = await readJsonBody(request);
  const checked = check(shape, given === undefined ? {} : given);
  if (!checked.ok) throw invalidRequest(checked.problems);
  return checked.value;
}

/** Reads a JSON body without a check of its fields; undefined for an empty body. */
export async function readJsonBody(request: HttpRequest): Promise<unknown> {
  const bytes = await readBody(request);
  if (bytes.length === 0) return undefined;
  requireMediaType(request, "application/json");
  return parseJsonBody(bytes);
}

async function readBody(request: HttpRequest): Promise<Buffer> {
  if (Number(request.headers["content-length"] ?? 0) > BODY_BYTES) throw tooLarge();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body) {
    size += chunk.length;
    if (size > BODY_BYTES) throw tooLarge();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function tooLarge(): Failure {
  return new Failure("payload_too_large", `the body has more than ${BODY_BYTES} bytes`);
}

/** The media type of the body, which must be one of these. Throws `unsupported_media_type` for any other. */
export function requireMediaType(request: HttpRequest, ...types: string[]): string {
  const given = String(request.headers["content-type"] ?? "");
  const [type = "", ...parameters] = given.split(";").map((part) => part.trim().toLowerCase());
  const readable = parameters.every((one) => /^charset="?utf-8"?$/.test(one));
  const encoded = request.headers["content-encoding"] ?? "identity";
  if (types.includes(type) && readable && encoded === "identity") return type;
  throw new Failure("unsupported_media_type", `the body must be sent with Content-Type: ${types.join(" or ")}`);
}

function parseJsonBody(bytes: Buffer): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
  } catch (error) {
    throw new Failure("invalid_request", `the body is not JSON in UTF-8: ${messageOf(error)}`, { cause: error });
  }
}
