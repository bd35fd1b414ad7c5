import path from "node:path";
import { Failure } from "../core/errors.ts";
import { openRegular } from "../core/files.ts";
import { type AuditSpot, auditFiles, readSpan } from "./files.ts";
import { type AuditLine, parseAuditLine } from "./line.ts";

/** Which lines are wanted; all of what is given must be true of them. */
export interface AuditWanted {
  /** Kinds of lines. */
  what?: readonly string[] | undefined;
  who?: string | undefined;
  from?: string | undefined;
  bucket?: string | undefined;
  run?: string | undefined;
  request?: string | undefined;
  /** Times, RFC 3339: from this one on, and before that one. */
  since?: string | undefined;
  until?: string | undefined;
  /** Only lines of these buckets. */
  buckets?: readonly string[] | undefined;
}

/** A page of lines, the newest first. */
export interface AuditPage {
  items: AuditLine[];
  /** Where to go on; null at the beginning of the audit. */
  next_cursor: string | null;
}

const READ_BYTES = 128 * 1024;
/** How much one page looks at. */
const PAGE_BYTES = 64 * 1024 * 1024;
const CURSOR_FORM = /^(\d{4}-\d{2}\.jsonl):(\d{1,15})$/;

/**
 * The newest lines that are wanted, at most `limit`, before the place of a cursor. Looks at 64 MiB: a page may have fewer
 * lines, and go on. Lines that are damaged are left out: only a verification tells of them. Throws `invalid_request` for a
 * cursor that is none.
 */
export async function readAudit(folder: string, wanted: AuditWanted, limit: number, cursor?: string): Promise<AuditPage> {
  const files = await auditFiles(folder);
  const spot = cursor === undefined ? { file: files.at(-1) ?? "", size: Number.POSITIVE_INFINITY } : spotOf(cursor);
  const items: AuditLine[] = [];
  let looked = 0;
  for (const file of files.filter((name) => name <= spot.file).reverse()) {
    const until = file === spot.file ? spot.size : Number.POSITIVE_INFINITY;
    for await (const { bytes, start } of linesBackwards(path.join(folder, file), until)) {
      const line = parseAuditLine(bytes);
      // The lines that are left to read are older still.
      if (line && wanted.since !== undefined && line.at < wanted.since) return { items, next_cursor: null };
      if (line && isWanted(line, wanted)) items.push(line);
      looked += bytes.length + 1;
      const isFirst = file === files[0] && start === 0;
      if (items.length >= limit || looked >= PAGE_BYTES) return { items, next_cursor: isFirst ? null : `${file}:${start}` };
    }
  }
  return { items, next_cursor: null };
}

function spotOf(cursor: string): AuditSpot {
  const [, file, size] = CURSOR_FORM.exec(cursor) ?? [];
  if (file === undefined) throw new Failure("invalid_request", "cursor: expected the next_cursor of an earlier answer");
  return { file, size: Number(size) };
}

function isWanted(line: AuditLine, wanted: AuditWanted): boolean {
  const { what, since: _, until, buckets, ...equal } = wanted;
  if (what && !what.includes(line.what)) return false;
  if (until !== undefined && line.at >= until) return false;
  if (buckets && !buckets.includes(line.bucket ?? "")) return false;
  return Object.entries(equal).every(([field, value]) => value === undefined || line[field as keyof AuditLine] === value);
}

/** The whole lines of a file before a byte, the last one first, with the byte at which each begins. */
async function* linesBackwards(file: string, until: number): AsyncGenerator<{ bytes: Buffer; start: number }> {
  await using handle = await openRegular(file);
  const { size } = await handle.stat();
  let [end, rest] = [Math.min(size, until), Buffer.alloc(0)];
  while (end > 0) {
    const start = Math.max(0, end - READ_BYTES);
    rest = Buffer.concat([await readSpan(handle, start, end), rest]);
    end = start;
    // What stands behind the last newline is no whole line.
    rest = rest.subarray(0, rest.lastIndexOf(0x0a) + 1);
    for (let at = lastBreak(rest); at >= 0; at = lastBreak(rest)) {
      yield { bytes: rest.subarray(at + 1, -1), start: start + at + 1 };
      rest = rest.subarray(0, at + 1);
    }
  }
  yield { bytes: rest.subarray(0, -1), start: 0 };
}

/** The newline before the last line. */
function lastBreak(bytes: Buffer): number {
  return bytes.subarray(0, -1).lastIndexOf(0x0a);
}
