import { lstat } from "node:fs/promises";
import path from "node:path";
import { textOf, unifiedDiff } from "../../codec/diff.ts";
import { openRegular, readBounded, unlessMissing } from "../../core/files.ts";
import type { Layout } from "../base/layout.ts";
import { modeText, pathsBelow } from "./source-view.ts";

/** How a file of one revision differs from that of another. */
interface ChangedFile {
  path: string;
  /** Set where the modes differ. */
  mode: { before: string; after: string } | null;
  /** Empty where only the mode differs; null where it is left out. */
  diff: string | null;
  /** Why there is no diff. */
  omitted: "binary" | "too_large" | null;
}

/** What would change by going from one revision to another; all paths in order. */
interface RevisionDiff {
  added: string[];
  removed: string[];
  changed: ChangedFile[];
}

/** A diff is made for files up to this size, and of so many bytes in all; so much may differ in one file. */
const MOST_FILE_BYTES = 256 * 1024;
const MOST_DIFF_BYTES = 1024 * 1024;
const MOST_EDITS = 400;

/** Compares the files of two revisions that are kept. */
export async function diffRevisions(layout: Layout, before: string, after: string): Promise<RevisionDiff> {
  const [from, to] = [path.join(layout.revisions, before), path.join(layout.revisions, after)];
  const [old, now] = await Promise.all([filesOf(from), filesOf(to)]);
  const changed: ChangedFile[] = [];
  let left = MOST_DIFF_BYTES;
  for (const name of [...old].filter((one) => now.has(one)).sort()) {
    const change = await compare(name, path.join(from, name), path.join(to, name), left);
    if (!change) continue;
    changed.push(change);
    left -= Buffer.byteLength(change.diff ?? "");
  }
  return {
    added: [...now].filter((name) => !old.has(name)).sort(),
    removed: [...old].filter((name) => !now.has(name)).sort(),
    changed,
  };
}

async function filesOf(revision: string): Promise<ReadonlySet<string>> {
  const folders = await Promise.all(["workspace", "templates"].map((name) => pathsBelow(revision, name)));
  const hasOpsConf = (await unlessMissing(lstat(path.join(revision, "ops.conf"))))?.isFile();
  return new Set([...(hasOpsConf ? ["ops.conf"] : []), ...folders.flat()]);
}

async function compare(
  name: string,
  before: string,
  after: string,
  roomBytes: number,
): Promise<ChangedFile | undefined> {
  const [old, now] = await Promise.all([lstat(before), lstat(after)]);
  const modes = { before: modeText(old.mode), after: modeText(now.mode) };
  const mode = modes.before === modes.after ? null : modes;
  if (old.size === now.size && (await areEqual(before, after)))
    return mode ? { path: name, mode, diff: "", omitted: null } : undefined;
  const tooLarge = { path: name, mode, diff: null, omitted: "too_large" } as const;
  if (old.size > MOST_FILE_BYTES || now.size > MOST_FILE_BYTES) return tooLarge;
  const [oldText, newText] = (await Promise.all([read(before), read(after)])).map(textOf);
  if (oldText === undefined || newText === undefined) return { path: name, mode, diff: null, omitted: "binary" };
  const diff = unifiedDiff(oldText, newText, MOST_EDITS);
  return Buffer.byteLength(diff) > roomBytes ? tooLarge : { path: name, mode, diff, omitted: null };
}

async function read(file: string): Promise<Buffer> {
  return (await readBounded(file, MOST_FILE_BYTES)) ?? Buffer.alloc(0);
}

const PIECE_BYTES = 256 * 1024;

/** Whether two files of one size hold the same bytes. */
async function areEqual(one: string, other: string): Promise<boolean> {
  await using first = await openRegular(one);
  await using second = await openRegular(other);
  const [a, b] = [Buffer.alloc(PIECE_BYTES), Buffer.alloc(PIECE_BYTES)];
  for (;;) {
    const [{ bytesRead }] = await Promise.all([first.read(a), second.read(b)]);
    if (bytesRead === 0) return true;
    if (!a.subarray(0, bytesRead).equals(b.subarray(0, bytesRead))) return false;
  }
}
