import { hash } from "node:crypto";
import { parsedJson } from "../core/shape.ts";
import { isSigned, type SigningKey, signatureOf } from "../core/signing-key.ts";
import { AUDIT_PURPOSE } from "./key.ts";

/** What a line can be about. */
export const AUDIT_KINDS = [
  // Asked for, by a request or a command: written before anything is done.
  "sign_in",
  "sign_out",
  "change",
  "start",
  "cancel",
  "approval",
  "token",
  "key",
  "restore",
  "delete",
  // How it went.
  "outcome",
  "run_ended",
  "refused",
  // The server itself.
  "server_start",
  "server_stop",
  "alive",
  "sink",
] as const;
/** One of {@link AUDIT_KINDS}. */
export type AuditKind = (typeof AUDIT_KINDS)[number];

/** What a line tells; fields that mean nothing in it are left out. */
export interface AuditEntry {
  what: AuditKind;
  /** The number of the line that this is the outcome of. */
  of?: number | undefined;
  /** The name of who did it. */
  who?: string | undefined;
  via?: string | undefined;
  role?: string | undefined;
  /** The address that it came from; of a command the user, machine and process. */
  from?: string | undefined;
  /** The id of the request. */
  request?: string | undefined;
  /** The route, or the command. */
  action?: string | undefined;
  bucket?: string | undefined;
  run?: string | undefined;
  kind?: string | undefined;
  /** What was asked for: secrets are fingerprints. */
  params?: object | undefined;
  /** Why an approval was passed over. */
  reason?: string | undefined;
  /** How it went: `done`, `refused`, `failed`, or how a run ended. */
  outcome?: string | undefined;
  /** The status of the answer, or the exit code of the command. */
  code?: number | undefined;
  error?: string | undefined;
  /** How many events the line stands for. */
  count?: number | undefined;
  /** When it happened, where it could be written only later. */
  happened?: string | undefined;
  facts?: object | undefined;
  /** What stood behind the last whole line, of a write that was cut off: it was never confirmed, and is gone. */
  torn?: { bytes: number; sha256: string } | undefined;
}

/** A line as it is read. */
export interface AuditLine extends AuditEntry {
  /** Its number: 1 and up, over all files. */
  n: number;
  /** When it was written, RFC 3339. */
  at: string;
  /** The hash of the line before; of the first line zeros. */
  prev: string;
  /** Which key has signed it. */
  key: string;
  /** The SHA-256 of the line without its newline. */
  hash: string;
}

/** Where a chain ends: what the next line continues. */
export type AuditHead = Pick<AuditLine, "n" | "at" | "hash">;

/** What the first line of all continues. */
export const NO_LINE: AuditHead = { n: 0, at: "", hash: "0".repeat(64) };

const ENTRY_FIELDS: readonly (keyof AuditEntry)[] = [
  ...(["what", "of", "who", "via", "role", "from", "request", "action", "bucket", "run", "kind"] as const),
  ...(["params", "reason", "outcome", "code", "error", "count", "happened", "facts", "torn"] as const),
];

/**
 * The line, without its newline, that continues a chain. It is JSON on one line: `{"audit":1,"n":…,"at":…,"prev":…,"key":…`, the fields of
 * the entry in their order, and last `"sig"`: the Ed25519 signature, in base64, of all bytes before `,"sig"`.
 */
export function auditLine(entry: AuditEntry, before: AuditHead, at: string, key: SigningKey): { text: string; head: AuditHead } {
  const n = before.n + 1;
  const told = Object.fromEntries(ENTRY_FIELDS.map((field) => [field, entry[field]]));
  // Undefined fields are left out by JSON.
  const signed = JSON.stringify(Object.assign({ audit: 1, n, at, prev: before.hash, key: key.fingerprint }, told)).slice(0, -1);
  const text = `${signed},"sig":"${signatureOf(key, AUDIT_PURPOSE, Buffer.from(signed))}"}`;
  return { text, head: { n, at, hash: hash("sha256", text, "hex") } };
}

const SIGNATURE = /^,"sig":"([A-Za-z0-9+/]{86}==)"\}$/;
const SIGNATURE_LENGTH = ',"sig":""}'.length + 88;

/** The line in these bytes; undefined where they are no line, whoever has signed it. */
export function parseAuditLine(bytes: Uint8Array): AuditLine | undefined {
  const value = parsedJson(Buffer.from(bytes).toString()) as (AuditLine & { audit?: unknown; sig?: unknown }) | null | undefined;
  if (value?.audit !== 1 || typeof value.n !== "number" || typeof value.at !== "string" || typeof value.prev !== "string")
    return undefined;
  const { audit: _, sig: __, ...line } = value;
  return Object.assign(line, { hash: hash("sha256", bytes, "hex") });
}

/** True where the bytes are a line that the owner of this public key has signed, letter by letter. */
export function isSignedLine(bytes: Uint8Array, publicKey: string): boolean {
  const at = bytes.length - SIGNATURE_LENGTH;
  if (at <= 0) return false;
  const [, signature] = SIGNATURE.exec(Buffer.from(bytes.subarray(at)).toString("latin1")) ?? [];
  return signature !== undefined && isSigned(publicKey, AUDIT_PURPOSE, bytes.subarray(0, at), signature);
}
