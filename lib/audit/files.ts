import { constants } from "node:fs";
import { type FileHandle, lstat } from "node:fs/promises";
import path from "node:path";
import { namesIn, openRegular } from "../core/files.ts";
import { serverAuditFolder, serverKeyFile } from "../core/signing-key.ts";

/** Where the audit of a server is, below its root. */
export interface AuditPlace {
  /** The files of the chain, one a month. */
  folder: string;
  /** The key that signs. */
  key: string;
  /** The file by which processes take turns. */
  lock: string;
}

/** The places of the audit below a server's root. */
export function auditPlace(root: string): AuditPlace {
  const folder = serverAuditFolder(root);
  return { folder, key: serverKeyFile(root), lock: path.join(folder, ".turns.db") };
}

/** A month's file: `2026-11.jsonl`. */
const AUDIT_FILE = /^\d{4}-\d{2}\.jsonl$/;

/** True for the name of a month's file. */
export function isAuditFile(name: string): boolean {
  return AUDIT_FILE.test(name);
}

/** The names of the files of a chain, the oldest first. */
export async function auditFiles(folder: string): Promise<string[]> {
  return (await namesIn(folder)).filter(isAuditFile).sort();
}

/** A place in a chain: behind the first `size` bytes of a file. */
export interface AuditSpot {
  file: string;
  size: number;
}

/** Where the whole lines of a file end, the last of them, and what stands behind it. */
export interface AuditTail {
  /** Bytes up to the end of the last whole line. */
  size: number;
  /** The last whole line without its newline; undefined where the file has none. */
  last: Buffer | undefined;
  torn: Buffer;
}

const FIRST_LOOK_BYTES = 64 * 1024;
const NEWLINE = 0x0a;

/** The end of a file of lines. */
export async function auditTail(file: string): Promise<AuditTail> {
  await using handle = await openRegular(file);
  const { size } = await handle.stat();
  for (let look = FIRST_LOOK_BYTES; ; look *= 4) {
    const start = Math.max(0, size - look);
    const bytes = await readSpan(handle, start, size);
    const end = bytes.lastIndexOf(NEWLINE);
    const before = bytes.subarray(0, end).lastIndexOf(NEWLINE);
    // The last line may begin before what was read.
    if (start > 0 && before < 0) continue;
    const last = end < 0 ? undefined : bytes.subarray(before + 1, end);
    return { size: start + end + 1, last, torn: bytes.subarray(end + 1) };
  }
}

/** The bytes of a file from `start` up to `end`, or up to its end where that comes before. */
export async function readSpan(handle: FileHandle, start: number, end: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(end - start);
  let length = 0;
  for (let read = -1; read !== 0 && length < bytes.length; length += read)
    read = (await handle.read(bytes, length, bytes.length - length, start + length)).bytesRead;
  return bytes.subarray(0, length);
}

/** Flags for a file of the chain: it is made where it is missing, and a link is not followed. */
export const CHAIN_FILE = constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** The size of a file; undefined where there is none. */
export async function sizeOf(file: string): Promise<number | undefined> {
  return (await lstat(file).catch(() => undefined))?.size;
}
