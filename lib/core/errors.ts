type InputCode = "usage" | "invalid_request" | "invalid_bucket_id" | "invalid_source" | "unknown_name";
type BodyCode = "payload_too_large" | "unsupported_media_type" | "range_not_satisfiable" | "method_not_allowed";
type AccessCode =
  | "unauthorized"
  | `totp_${"required" | "disabled"}`
  | "invalid_totp_code"
  | "csrf_failed"
  | "forbidden"
  | "approval_required"
  | "rate_limited";
type Missing = "not_found" | `${"bucket" | "run" | "file" | "revision" | "snapshot" | "proposal"}_not_found`;
type StateCode =
  | "frozen"
  | "bucket_busy"
  | "busy"
  | "bucket_exists"
  | "run_not_active"
  | "retry_impossible"
  | "plan_stale"
  | "proposal_ended"
  | "idempotency_mismatch";
type DatabaseCode = "bucket_not_initialized" | "schema_upgrade_required" | "schema_too_new" | `database_${"damaged" | "busy"}`;
type WorkCode = "internal" | "audit_unavailable" | "shutting_down" | "cancelled" | "timeout" | "unreachable" | "failed";

/** What a program may test for. HTTP codes come from the table of docs/api.md, `Err…` names from docs/workspace.md. */
export type FailureCode = (InputCode | BodyCode | AccessCode | Missing) | (StateCode | DatabaseCode | WorkCode) | `Err${string}`;

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
  /** Facts for programs (problems, the holder of a lock). They are sent to HTTP clients, so never a secret. */
  readonly details: unknown;

  constructor(code: FailureCode, message: string, options: { details?: unknown; cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details;
  }
}

/** What went wrong first, where a clean-up behind the error has failed too (`await using`). */
export function firstError(error: unknown): unknown {
  return error instanceof SuppressedError ? firstError(error.suppressed) : error;
}

/** The sentence of any thrown value, without a stack trace. */
export function messageOf(error: unknown): string {
  return systemSentence(error) ?? (error instanceof Error ? error.message : String(error));
}

/** The sentence for people about any thrown value. A value that neither ops nor the system threw on purpose is a defect. */
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

/** True where an error of the system or of SQLite says that there is no room left. */
export function isFull(error: unknown): boolean {
  return hasErrno(error, "ENOSPC", "EDQUOT") || ERRNO_OF[sqliteCode(error)] === "ENOSPC";
}

/** The same error, which names `file` where it named none: the system names no file for a write to an open one. */
export function placed(error: unknown, file: string): unknown {
  if (systemSentence(error) !== undefined) (error as NodeJS.ErrnoException).path ??= file;
  return error;
}

/** The failure that every aborted wait ends with. */
export function cancelledFailure(): Failure {
  return new Failure("cancelled", "cancelled");
}

/** Throws the failure `cancelled` when the signal has been aborted; called before each batch, phase and retry. */
export function throwIfCancelled(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw cancelledFailure();
}

/** What common errors of the operating system mean and what to do; by errno, or by system call and errno. */
const SYSTEM_SENTENCES: Readonly<Record<string, [why: string, advice: string]>> = {
  EACCES: ["permission denied", "run ops as the owner, or change the rights"],
  EROFS: ["the file system is read-only", "mount it writable"],
  ENOSPC: ["the disk is full", "make room there"],
  EDQUOT: ["the disk quota is used up", "make room there"],
  EMFILE: ["the process has reached its limit of open files", "raise the limit (ulimit -n)"],
  ENFILE: ["the machine has reached its limit of open files", "raise fs.file-max"],
  "link EPERM": ["no hard link can be made there", "use a file system that has them"],
};
/** Result codes of SQLite with the same meaning. */
const [BUSY, LOCKED] = [5, 6];
const ERRNO_OF: Readonly<Record<number, string>> = { 8: "EACCES", 13: "ENOSPC" };

/**
 * The sentence for an error of the operating system or of SQLite: the cause, the file as far as the system tells it,
 * and what to do. Undefined for an error that is not in this table.
 */
export function systemSentence(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (isLocked(error)) return "the bucket's database is busy; try again";
  const { code = "", syscall = "", path, dest } = error as NodeJS.ErrnoException & { dest?: string };
  const [why, advice] = SYSTEM_SENTENCES[ERRNO_OF[sqliteCode(error)] ?? code] ?? SYSTEM_SENTENCES[`${syscall} ${code}`] ?? [];
  if (why === undefined) return undefined;
  // Of a copy, the source may not be readable; every other failure is one of the target.
  const where = (code === "EACCES" ? path : (dest ?? path)) ?? syscall;
  return `${why}${where === "" ? "" : ` (${where})`}: ${advice}`;
}

/** True for SQLite's `database is locked`. */
export function isLocked(error: unknown): boolean {
  return [BUSY, LOCKED].includes(sqliteCode(error));
}

/** SQLite's primary result code, 0 for any other error; `errcode` may be an extended code. */
export function sqliteCode(error: unknown): number {
  return ((error as { errcode?: number } | null)?.errcode ?? 0) & 0xff;
}
