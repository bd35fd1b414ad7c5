import { systemSentence } from "./system-errors.ts";

/** What a program may test for. HTTP codes come from the table of docs/api.md, `Err…` names from docs/workspace.md. */
export type FailureCode =
  | "usage"
  | "invalid_request"
  | "invalid_bucket_id"
  | "invalid_source"
  | "unknown_name"
  | "unauthorized"
  | "invalid_totp_code"
  | "totp_required"
  | "csrf_failed"
  | "not_found"
  | "bucket_not_found"
  | "run_not_found"
  | "file_not_found"
  | "revision_not_found"
  | "snapshot_not_found"
  | "totp_disabled"
  | "method_not_allowed"
  | "bucket_busy"
  | "bucket_exists"
  | "run_not_active"
  | "retry_impossible"
  | "plan_stale"
  | "bucket_not_initialized"
  | "schema_upgrade_required"
  | "schema_too_new"
  | "database_damaged"
  | "payload_too_large"
  | "unsupported_media_type"
  | "range_not_satisfiable"
  | "rate_limited"
  | "internal"
  | "shutting_down"
  | "database_busy"
  | "cancelled"
  | "timeout"
  | "unreachable"
  | "failed"
  | `Err${string}`;

/** One finding about an input: where it is (a path such as `hooks/check/executed_on/0`) and what is wrong there. */
export interface Problem {
  path: string;
  message: string;
}

/**
 * The one error this program throws on purpose: a code for programs and one sentence for people.
 * Anything else that is thrown is a defect and is reported as `internal`.
 */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly code: FailureCode;
  /** Facts for programs (problems, the holder of a lock); sent to HTTP clients, so never a secret. */
  readonly details: unknown;

  constructor(code: FailureCode, message: string, options: { details?: unknown; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details;
  }
}

/** The sentence of any thrown value, without a stack trace. */
export function messageOf(error: unknown): string {
  return systemSentence(error) ?? (error instanceof Error ? error.message : String(error));
}

/** What people are told about any thrown value; what nobody threw on purpose, nor the system, is called a defect. */
export function explain(error: unknown): string {
  const isExpected =
    error instanceof Failure ||
    systemSentence(error) !== undefined ||
    (error as NodeJS.ErrnoException | null)?.syscall !== undefined;
  return isExpected ? messageOf(error) : `internal error: ${messageOf(error)}`;
}

/** True for the errors of Node's own APIs (`ENOENT`, `EEXIST`, …) with this code. */
export function hasErrno(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && codes.includes((error as NodeJS.ErrnoException).code ?? "");
}

/** The failure that every aborted wait ends with. */
export function cancelledFailure(): Failure {
  return new Failure("cancelled", "cancelled");
}

/** Throws the failure `cancelled` when the signal has been aborted; called before each batch, phase and retry. */
export function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelledFailure();
}
