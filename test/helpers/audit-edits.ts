import { copyFileSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { type AuditLine, auditLine, parseAuditLine } from "../../lib/audit/line.ts";
import { verifyAudit } from "../../lib/audit/verify.ts";
import { signingKey } from "../../lib/core/signing-key.ts";
import { chainFiles, writeMonths } from "./audit-log.ts";
import { randomly, seeded } from "./random.ts";

/** The content of the files of a chain, by name. */
type Chain = Map<string, Buffer>;

interface Draw {
  random: () => number;
  /** A number below a bound. */
  below: (bound: number) => number;
}

/** What an edit may take from: another server's chain, another chain of this key, and the chain signed anew by another key. */
type Others = Record<"server" | "twin" | "forged", readonly Buffer[]>;

type Edit = (lines: Buffer[], draw: Draw, others: Others) => Buffer[] | undefined;

const anyOf = <T>(list: readonly T[], { below }: Draw): T => list[below(list.length)] as T;

function changedBytes(lines: Buffer[], draw: Draw, change: (line: Buffer) => Buffer): Buffer[] {
  const at = draw.below(lines.length);
  return lines.with(at, change(lines[at] as Buffer));
}

/** Edits of the lines of a file, their newlines included; the rest of the chain stays. */
const LINE_EDITS: Record<string, Edit> = {
  bit: (lines, draw) =>
    changedBytes(lines, draw, (line) => {
      const at = draw.below(line.length);
      const copy = Buffer.from(line);
      copy[at] = (copy[at] as number) ^ (1 << draw.below(8));
      return copy;
    }),
  bytes: (lines, draw) =>
    changedBytes(lines, draw, (line) => {
      const at = draw.below(line.length);
      return Buffer.concat([line.subarray(0, at), randomly(draw.random, 1 + draw.below(8)), line.subarray(at + draw.below(9))]);
    }),
  word: (lines, draw) => changedBytes(lines, draw, (line) => Buffer.from(line.toString().replace(/person-\d/, "person-9"))),
  removed: (lines, draw) => lines.toSpliced(draw.below(lines.length), 1 + draw.below(4)),
  inserted: (lines, draw) =>
    lines.toSpliced(draw.below(lines.length + 1), 0, Buffer.from(anyOf(["\n", "{}\n", "x\n", " \n"], draw))),
  duplicate: (lines, draw) => lines.toSpliced(draw.below(lines.length + 1), 0, anyOf(lines, draw)),
  swapped(lines, draw) {
    const [one, other] = [draw.below(lines.length), draw.below(lines.length)];
    return lines.with(one, lines[other] as Buffer).with(other, lines[one] as Buffer);
  },
  moved(lines, draw) {
    const from = draw.below(lines.length);
    return lines.toSpliced(from, 1).toSpliced(draw.below(lines.length), 0, lines[from] as Buffer);
  },
  cut: (lines, draw) => lines.slice(0, draw.below(lines.length)),
  cutInside: (lines, draw) => {
    const at = draw.below(lines.length);
    const line = lines[at] as Buffer;
    return [...lines.slice(0, at), line.subarray(0, draw.below(line.length))];
  },
  spliced: (lines, draw, { server }) => lines.toSpliced(draw.below(lines.length), draw.below(2), anyOf(server, draw)),
  twin: (lines, draw, { twin }) => lines.toSpliced(draw.below(lines.length), draw.below(2), anyOf(twin, draw)),
  signedAnew(lines, draw, { forged }) {
    const at = draw.below(lines.length);
    const n = parseAuditLine((lines[at] as Buffer).subarray(0, -1))?.n ?? 1;
    return [...lines.slice(0, at), ...forged.slice(n - 1, n - 1 + lines.length - at)];
  },
};

/** Edits of whole files. */
const FILE_EDITS: Record<string, (chain: Chain, draw: Draw) => Chain> = {
  fileRemoved(chain, draw) {
    const copy = new Map(chain);
    copy.delete(anyOf([...chain.keys()], draw));
    return copy;
  },
  filesSwapped(chain, draw) {
    const [one, other] = [anyOf([...chain.keys()], draw), anyOf([...chain.keys()], draw)];
    return new Map(chain).set(one, chain.get(other) as Buffer).set(other, chain.get(one) as Buffer);
  },
  fileEmptied: (chain, draw) => new Map(chain).set(anyOf([...chain.keys()], draw), Buffer.alloc(0)),
};

/** The names of all edits. */
export const AUDIT_EDITS = [...Object.keys(LINE_EDITS), ...Object.keys(FILE_EDITS)];

/** Lines with their newlines; what stands behind the last newline is one too. */
function linesIn(bytes: Buffer): Buffer[] {
  const lines: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const end = bytes.indexOf(0x0a, at);
    lines.push(bytes.subarray(at, end < 0 ? bytes.length : end + 1));
    at = end < 0 ? bytes.length : end + 1;
  }
  return lines;
}

const linesOfChain = (chain: Chain) => [...chain].flatMap(([, bytes]) => linesIn(bytes));

async function chainOf(root: string): Promise<Chain> {
  return new Map((await chainFiles(root)).map((file) => [path.basename(file), readFileSync(file)]));
}

/** The same entries under another key. */
async function forgedChain(lines: readonly Buffer[], folder: string): Promise<Buffer[]> {
  const key = await signingKey(path.join(folder, "stranger.key"));
  let before = { n: 0, at: "", hash: "0".repeat(64) };
  return lines.map((line) => {
    const { n: _, at, prev: __, key: ___, hash: ____, ...entry } = parseAuditLine(line.subarray(0, -1)) as AuditLine;
    const made = auditLine(entry, before, at, key);
    before = made.head;
    return Buffer.from(`${made.text}\n`);
  });
}

/**
 * Edits a log in `count` random ways, one at a time. Each must be found, and the verification must vouch for exactly the
 * lines before the first that differs. Answers how often each edit was tried.
 */
export async function editAudits(folder: string, count: number, seed: number): Promise<Record<string, number>> {
  const random = seeded(seed);
  const draw = { random, below: (bound: number) => Math.floor(random() * bound) };
  const [own, server, twin] = ["own", "server", "twin"].map((name) => path.join(folder, name)) as [string, string, string];
  const publicKey = await writeMonths(own, 4, 12);
  await writeMonths(server, 4, 12);
  mkdirSync(twin, { recursive: true });
  copyFileSync(path.join(own, "audit.key"), path.join(twin, "audit.key"));
  // With the same first lines, its next line would be a true continuation of the chain, by the same key.
  await writeMonths(twin, 3, 20, Date.UTC(2026, 0, 16));
  const chain = await chainOf(own);
  const lines = linesOfChain(chain);
  const others = {
    server: linesOfChain(await chainOf(server)),
    twin: linesOfChain(await chainOf(twin)).slice(1),
    forged: await forgedChain(lines, folder),
  };
  const head = parseAuditLine((lines.at(-1) as Buffer).subarray(0, -1))?.hash;
  const tally: Record<string, number> = {};
  for (let round = 0; round < count; ) {
    const name = AUDIT_EDITS[round % AUDIT_EDITS.length] as string;
    const edited = editedChain(name, chain, draw, others);
    const now = linesOfChain(edited);
    const same = lines.findIndex((line, index) => !now[index]?.equals(line));
    const kept = same < 0 ? lines.length : same;
    if (kept === lines.length && now.length === lines.length) continue;
    round++;
    tally[name] = (tally[name] ?? 0) + 1;
    await requireFound(path.join(folder, "edited"), edited, {
      publicKey,
      head,
      kept,
      what: `seed ${seed}, edit ${round}: ${name}`,
    });
  }
  return tally;
}

function editedChain(name: string, chain: Chain, draw: Draw, others: Others): Chain {
  const ofFiles = FILE_EDITS[name];
  if (ofFiles) return ofFiles(chain, draw);
  const file = anyOf([...chain.keys()], draw);
  const lines = linesIn(chain.get(file) as Buffer);
  return new Map(chain).set(file, Buffer.concat(LINE_EDITS[name]?.(lines, draw, others) ?? lines));
}

async function requireFound(
  folder: string,
  edited: Chain,
  { publicKey, head, kept, what }: { publicKey: string; head: string | undefined; kept: number; what: string },
): Promise<void> {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const files = [...edited].map(([name, bytes]) => {
    writeFileSync(path.join(folder, name), bytes);
    return path.join(folder, name);
  });
  const { ok, last, finding } = await verifyAudit(files, { publicKey, head });
  if (!ok && finding !== null && finding.n === kept + 1 && (last?.n ?? 0) === kept) return;
  throw new Error(`${what}: vouched for ${last?.n} lines instead of ${kept}; found ${JSON.stringify(finding)}`);
}
