import { decodeUtf8 } from "../core/plain-text.ts";

/** Lines shown before and after a change. */
const CONTEXT = 3;
/** The most insertions and deletions that are searched for; with more, the whole text counts as replaced. */
const MOST_DIFF_EDITS = 2_000;

/** A stretch of lines that were replaced: `[beforeFrom, beforeTo)` by `[afterFrom, afterTo)`, counted from 0. */
interface LineChange {
  beforeFrom: number;
  beforeTo: number;
  afterFrom: number;
  afterTo: number;
}

/**
 * The unified diff that turns one text into another, as `diff -u` prints it, without the two lines of file names; empty
 * for equal texts. `undefined` stands for a text that is not there. Takes the shortest way up to `mostEdits` changed
 * lines (2,000 by default); time and memory grow with the square of their number.
 */
export function unifiedDiff(before: string | undefined, after: string | undefined, mostEdits: number = MOST_DIFF_EDITS): string {
  const [a, b] = [linesWithEnds(before ?? ""), linesWithEnds(after ?? "")];
  return hunksOf(changesBetween(a, b, mostEdits))
    .map((hunk) => hunkText(hunk, a, b))
    .join("");
}

/** The text of a file, or undefined when its bytes are no text: a NUL in them, or no UTF-8. */
export function textOfFile(bytes: Uint8Array): string | undefined {
  return bytes.includes(0) ? undefined : decodeUtf8(bytes);
}

/** Lines with their newline; the last one may lack it. */
function linesWithEnds(text: string): string[] {
  return text.match(/[^\n]*\n|[^\n]+/g) ?? [];
}

function changesBetween(a: readonly string[], b: readonly string[], mostEdits: number): LineChange[] {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let tail = 0;
  while (tail < a.length - start && tail < b.length - start && a.at(-1 - tail) === b.at(-1 - tail)) tail++;
  const [aEnd, bEnd] = [a.length - tail, b.length - tail];
  const trace = shortestWay(a.slice(start, aEnd), b.slice(start, bEnd), mostEdits);
  if (trace === undefined) return [{ beforeFrom: start, beforeTo: aEnd, afterFrom: start, afterTo: bEnd }];
  return walkBack(trace, { start, aEnd, bEnd });
}

/**
 * Myers' greedy search: after `d` edits, `furthest[k]` is how far in `a` the diagonal `k` (place in `a` minus place in
 * `b`) was reached. Answers the state before each round, or undefined when the bound was met.
 */
function shortestWay(a: readonly string[], b: readonly string[], mostEdits: number): Map<number, number>[] | undefined {
  const trace: Map<number, number>[] = [];
  const furthest = new Map([[1, 0]]);
  for (let d = 0; d <= Math.min(a.length + b.length, mostEdits); d++) {
    trace.push(new Map(furthest));
    for (let k = -d; k <= d; k += 2) {
      let x = stepDown(furthest, k, d) ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      furthest.set(k, x);
      if (x >= a.length && x - k >= b.length) return trace;
    }
  }
  return undefined;
}

/** Whether diagonal `k` is reached by taking a line of `b` rather than by leaving out one of `a`. */
function stepDown(furthest: ReadonlyMap<number, number>, k: number, d: number): boolean {
  return k === -d || (k !== d && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
}

/** The changes on the way that was found, from its end to its `start`. */
function walkBack(
  trace: readonly Map<number, number>[],
  { start, aEnd, bEnd }: { start: number; aEnd: number; bEnd: number },
): LineChange[] {
  const changes: LineChange[] = [];
  let [x, y] = [aEnd - start, bEnd - start];
  for (let d = trace.length - 1; d > 0; d--) {
    const before = trace[d] as Map<number, number>;
    const k = x - y;
    const down = stepDown(before, k, d);
    const from = down ? k + 1 : k - 1;
    x = before.get(from) ?? 0;
    y = x - from;
    const [beforeFrom, afterFrom] = [start + x, start + y];
    prepend(changes, { beforeFrom, beforeTo: beforeFrom + (down ? 0 : 1), afterFrom, afterTo: afterFrom + (down ? 1 : 0) });
  }
  return changes;
}

/** Neighbouring edits are one change. */
function prepend(changes: LineChange[], edit: LineChange): void {
  const [next] = changes;
  if (next && next.beforeFrom === edit.beforeTo && next.afterFrom === edit.afterTo) {
    next.beforeFrom = edit.beforeFrom;
    next.afterFrom = edit.afterFrom;
  } else changes.unshift(edit);
}

/** Changes whose context meets are shown together. */
function hunksOf(changes: readonly LineChange[]): LineChange[][] {
  const hunks: LineChange[][] = [];
  for (const change of changes) {
    const last = hunks.at(-1)?.at(-1);
    if (last && change.beforeFrom - last.beforeTo <= 2 * CONTEXT) hunks.at(-1)?.push(change);
    else hunks.push([change]);
  }
  return hunks;
}

function hunkText(hunk: readonly LineChange[], a: readonly string[], b: readonly string[]): string {
  const [first, last] = [hunk[0] as LineChange, hunk.at(-1) as LineChange];
  const lead = Math.min(CONTEXT, first.beforeFrom);
  const tail = Math.min(CONTEXT, a.length - last.beforeTo);
  const before = hunkRange(first.beforeFrom - lead, last.beforeTo + tail);
  const after = hunkRange(first.afterFrom - lead, last.afterTo + tail);
  const lines: string[] = [];
  let at = first.beforeFrom - lead;
  for (const change of hunk) {
    for (; at < change.beforeFrom; at++) lines.push(markedLine(" ", a[at] as string));
    for (; at < change.beforeTo; at++) lines.push(markedLine("-", a[at] as string));
    for (const line of b.slice(change.afterFrom, change.afterTo)) lines.push(markedLine("+", line));
  }
  for (; at < last.beforeTo + tail; at++) lines.push(markedLine(" ", a[at] as string));
  return `@@ -${before} +${after} @@\n${lines.join("")}`;
}

function hunkRange(from: number, to: number): string {
  const count = to - from;
  // An empty range is named by the line before it.
  return count === 1 ? String(from + 1) : `${count === 0 ? from : from + 1},${count}`;
}

function markedLine(mark: string, line: string): string {
  return line.endsWith("\n") ? mark + line : `${mark}${line}\n\\ No newline at end of file\n`;
}
