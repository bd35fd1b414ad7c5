import path from "node:path";
import { Failure } from "../core/errors.ts";
import { openRegular } from "../core/files.ts";
import { signerFingerprint } from "../core/signing-key.ts";
import { type AuditHead, type AuditLine, isSignedLine, NO_LINE, parseAuditLine } from "./line.ts";

/** What is wrong with a line: it was changed, lines before it are gone, it was put in, or it stands elsewhere. */
type AuditFault = "changed" | "removed" | "added" | "reordered" | "cut off";

/** The first thing that is wrong, and where. */
export interface AuditFinding {
  fault: AuditFault;
  /** The file, and the line in it, counted from 1; null where the fault is behind the last line. */
  file: string | null;
  line: number | null;
  /** The number that the line should have. */
  n: number;
  why: string;
}

/** What a verification answers. */
export interface AuditVerdict {
  ok: boolean;
  /** The number of the first line, and up to which line and time the key vouches; null where it vouches for nothing. */
  first: number | null;
  last: AuditHead | null;
  /** Null where nothing was found. */
  finding: AuditFinding | null;
}

/** What the lines are compared with. */
export interface AuditProof {
  publicKey: string;
  /** The hash of the line that the first line continues; without it the first line must be the first of all. */
  from?: string | undefined;
  /** The hash of a line that must be there. */
  head?: string | undefined;
}

/** The longest line; what is longer is no line. */
const LONGEST = 1024 * 1024;
const VERIFY_BYTES = 256 * 1024;
const LINE_END = 0x0a;

/** A line where it stands. */
interface StandingLine {
  file: string;
  line: number;
  bytes: Buffer;
  isWhole: boolean;
}

/** Compares files of a chain, given in their order, with the public key alone. Stops at the first fault. */
export async function verifyAudit(files: readonly string[], proof: AuditProof): Promise<AuditVerdict> {
  const { publicKey, from, head } = proof;
  const verdict: AuditVerdict = { ok: false, first: null, last: null, finding: null };
  let before: AuditHead | undefined = from === undefined ? NO_LINE : undefined;
  let isHeadThere = head === undefined || head === before?.hash || head === from;
  for await (const standing of standingLines(files)) {
    const { line, fault } = lineOf(standing, publicKey);
    if (line === undefined || !continues(line, before, from)) {
      const expected = { n: (before?.n ?? 0) + 1, before, from };
      const told = line
        ? await brokenOrder(line, expected, files, publicKey)
        : await badLine(fault as Told, expected, files, publicKey);
      verdict.finding = { file: path.basename(standing.file), line: standing.line, n: expected.n, ...told };
      return verdict;
    }
    before = { n: line.n, at: line.at, hash: line.hash };
    verdict.first ??= line.n;
    verdict.last = before;
    isHeadThere ||= line.hash === head;
  }
  if (isHeadThere) return { ...verdict, ok: true };
  const why = `the line with the hash ${head} is not in these files: the end of the audit was cut off, or the hash is of another one`;
  return { ...verdict, finding: { fault: "cut off", file: null, line: null, n: (before?.n ?? 0) + 1, why } };
}

type Told = Pick<AuditFinding, "fault" | "why">;

/** The line that the key has signed, or what is wrong with the bytes themselves. */
function lineOf({ bytes, isWhole }: StandingLine, publicKey: string): { line?: AuditLine; fault?: Told } {
  const line = parseAuditLine(bytes);
  if (!isWhole)
    return { fault: { fault: "changed", why: "the line has no end: it was cut off, or copied while it was written" } };
  if (line && isSignedLine(bytes, publicKey)) return { line };
  if (line && line.key !== signerFingerprint(publicKey))
    return { fault: { fault: "added", why: `the line was signed with another key, ${String(line.key).slice(0, 60)}` } };
  return { fault: { fault: "changed", why: line ? "the signature is not that of this line" : "this is no line of an audit" } };
}

function continues(line: AuditLine, before: AuditHead | undefined, from: string | undefined): boolean {
  return before ? line.n === before.n + 1 && line.prev === before.hash : line.prev === from;
}

interface Expected {
  n: number;
  before: AuditHead | undefined;
  from: string | undefined;
}

/** Bytes that the key has not signed were put in where the line that should be there follows. */
async function badLine(fault: Told, expected: Expected, files: readonly string[], publicKey: string): Promise<Told> {
  const place = fault.fault === "changed" ? await whereContinued(expected, files, publicKey) : undefined;
  return place === undefined ? fault : { fault: "added", why: `${fault.why}; line ${expected.n} follows in ${place}` };
}

/** What became of the order where a line that is genuine does not continue the one before it. */
async function brokenOrder(found: AuditLine, expected: Expected, files: readonly string[], publicKey: string): Promise<Told> {
  const { n, before, from } = expected;
  if (!before)
    return { fault: "removed", why: `the first line is ${found.n}, and does not continue the line with the hash ${from}` };
  if (found.n < n) return { fault: "added", why: `line ${found.n} stands here again, or was put here from another place` };
  if (found.n === n) return { fault: "changed", why: "the line continues another line than the one before it" };
  const place = await whereContinued(expected, files, publicKey);
  if (place !== undefined) return { fault: "reordered", why: `line ${found.n} stands here, and line ${n} in ${place}` };
  const gone = found.n - 1 === n ? `line ${n} is` : `the lines ${n} to ${found.n - 1} are`;
  const advice = n === 1 ? "; where they are kept elsewhere, give --from with the hash of the last of them" : "";
  return { fault: "removed", why: `${gone} not there${advice}` };
}

/** Where the line stands that continues the last good one; undefined where it is not there. */
async function whereContinued({ n, before }: Expected, files: readonly string[], publicKey: string): Promise<string | undefined> {
  for await (const standing of standingLines(files)) {
    const { line } = lineOf(standing, publicKey);
    if (line?.n === n && line.prev === before?.hash) return `${path.basename(standing.file)}:${standing.line}`;
  }
  return undefined;
}

/** All lines of all files with their places; bytes behind the last newline of a file are a line without an end. */
async function* standingLines(files: readonly string[]): AsyncGenerator<StandingLine> {
  for (const file of files) {
    await using handle = await openRegular(path.resolve(file));
    let [line, rest, at] = [0, Buffer.alloc(0), 0];
    for (;;) {
      const { bytesRead, buffer } = await handle.read(Buffer.allocUnsafe(VERIFY_BYTES), 0, VERIFY_BYTES, at);
      if (bytesRead === 0) break;
      at += bytesRead;
      rest = Buffer.concat([rest, buffer.subarray(0, bytesRead)]);
      for (let end = rest.indexOf(LINE_END); end >= 0; end = rest.indexOf(LINE_END)) {
        yield { file, line: ++line, bytes: rest.subarray(0, end), isWhole: true };
        rest = rest.subarray(end + 1);
      }
      if (rest.length > LONGEST)
        throw new Failure("failed", `${file}:${line + 1} has more than ${LONGEST} bytes: this is no audit`);
    }
    if (rest.length > 0) yield { file, line: line + 1, bytes: rest, isWhole: false };
  }
}
