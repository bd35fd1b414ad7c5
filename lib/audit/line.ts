import { hash } from "node:crypto";
import { anything, described, type Infer, integer, oneOf, optional, parsedJson, type Shape, string } from "../core/shape.ts";
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

const TOLD_OBJECT = optional(anything({ type: "object" }) as Shape<object>);

/** What a line tells, in the order of its fields; those that mean nothing in it are left out. */
export const LINE_FIELDS = {
  what: oneOf(...AUDIT_KINDS),
  of: described(optional(integer({ min: 1 })), "The line that this is the outcome of"),
  who: described(optional(string()), "The name of the token"),
  via: described(optional(string()), "`bearer`, `session`, with `+totp`; `cli`; `server`"),
  role: optional(string()),
  from: described(optional(string()), "The address; of a command the user, machine and process"),
  request: optional(string()),
  action: described(optional(string()), "The route, or the command"),
  bucket: optional(string()),
  run: optional(string()),
  kind: described(optional(string()), "The kind of the run"),
  params: described(TOLD_OBJECT, "What was asked for; secrets are fingerprints"),
  reason: described(optional(string()), "Why an approval was passed over"),
  outcome: described(optional(string()), "`done`, `refused` or `failed`; of a run its status"),
  code: described(optional(integer()), "The status of the answer, or the exit code of the command"),
  error: optional(string()),
  count: described(optional(integer({ min: 1 })), "How many events the line stands for"),
  happened: described(optional(string()), "When it happened, where it could be written only later"),
  facts: described(TOLD_OBJECT, "Depends on `what`"),
  // What was cut off was never confirmed, and is gone.
  torn: described(
    TOLD_OBJECT as Shape<{ bytes: number; sha256: string } | undefined>,
    "What stood behind the line before, of a write that was cut off",
  ),
};
type LineFields = { [K in keyof typeof LINE_FIELDS]: Infer<(typeof LINE_FIELDS)[K]> };
/** What a line tells: values for {@link LINE_FIELDS}, of which all but `what` may be missing. */
export type AuditEntry = Pick<LineFields, "what"> & Partial<LineFields>;

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

/**
 * The line, without its newline, that continues a chain. It is JSON on one line: `{"audit":1,"n":…,"at":…,"prev":…,"key":…`, the fields of
 * the entry in their order, and last `"sig"`: the Ed25519 signature, in base64, of all bytes before `,"sig"`.
 */
export function auditLine(entry: AuditEntry, before: AuditHead, at: string, key: SigningKey): { text: string; head: AuditHead } {
  const n = before.n + 1;
  const told = Object.fromEntries(Object.keys(LINE_FIELDS).map((field) => [field, entry[field as keyof AuditEntry]]));
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
