import { createHash } from "node:crypto";
import type { Dirent } from "node:fs";
import { type FileHandle, lstat, readdir } from "node:fs/promises";
import path from "node:path";
import { textOfFile, unifiedDiff } from "../../codec/diff.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { openContained, openRegular, readBounded, requireFolder, unlessMissing } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import type { Layout } from "../base/layout.ts";

const SOURCE_FOLDERS: readonly string[] = ["templates", "workspace"];

/** A file of the source, as people are shown it. */
interface ShownFile {
  /** Below the bucket, or below the folder of a template; with `/`. */
  path: string;
  size_bytes: number;
  /** `0755` where its owner may execute it, else `0644`. */
  mode: string;
}

/** Where a page of a list begins (behind this name) and how long it is at most. */
interface Page {
  after: string;
  limit: number;
}

/**
 * Opens a file of the source for reading. Only ops.conf and what lies below workspace/ and templates/ is part of it;
 * anything else, a symlink anywhere on the way and whatever is no regular file is `file_not_found`.
 */
export async function openSourceFile(layout: Layout, below: string): Promise<FileHandle> {
  const [first = "", ...rest] = below.split("/");
  const isSource = first === "ops.conf" ? rest.length === 0 : SOURCE_FOLDERS.includes(first) && rest.length > 0;
  if (!isSource) throw noSuchFile(below);
  try {
    return await openContained(layout.root, below);
  } catch (error) {
    throw isMissing(error) ? noSuchFile(below) : error;
  }
}

function isMissing(error: unknown): boolean {
  return error instanceof Failure && error.code === "file_not_found";
}

function noSuchFile(below: string): Failure {
  return new Failure("file_not_found", `${quote(below)} is no file of the source`);
}

/**
 * A page of the regular files of the source, by path; only the folders on the way to them are read. A file that
 * {@link openSourceFile} does not open is left out.
 */
export async function listSourceFiles(layout: Layout, { after, limit }: Page) {
  const items: (ShownFile & { sha256: string })[] = [];
  for await (const below of sourcePaths(layout.root, after)) {
    await using handle = await openIfThere(layout, below);
    if (handle && items.length === limit) return { items, more: true };
    if (!handle) continue;
    const hash = createHash("sha256");
    for await (const piece of handle.createReadStream({ autoClose: false })) hash.update(piece);
    items.push({ path: below, ...(await statusOf(handle)), sha256: hash.digest("hex") });
  }
  return { items, more: false };
}

/** A page of the folders of `templates/`, by name, each with its files. */
export async function listTemplates(layout: Layout, { after, limit }: Page) {
  const folders = (await entriesOrNone(layout.templates)).filter((entry) => entry.isDirectory());
  const left = folders.map(({ name }) => name).filter((name) => name > after);
  const items = left.sort().slice(0, limit);
  return { items: await Promise.all(items.map((name) => templateOf(layout, name))), more: left.length > limit };
}

async function templateOf(layout: Layout, name: string) {
  const folder = `templates/${name}`;
  const files: ShownFile[] = [];
  for await (const one of pathsBelow(layout.root, folder)) {
    await using handle = await openIfThere(layout, one);
    if (handle) files.push({ path: one.slice(folder.length + 1), ...(await statusOf(handle)) });
  }
  return { name, files };
}

/** Opens a file of the source like {@link openSourceFile}; undefined where there is none. */
export async function openIfThere(layout: Layout, below: string): Promise<FileHandle | undefined> {
  return await openSourceFile(layout, below).catch((error: unknown) => {
    if (!isMissing(error)) throw error;
    return undefined;
  });
}

async function statusOf(handle: FileHandle): Promise<Omit<ShownFile, "path">> {
  const { size, mode } = await handle.stat();
  return { size_bytes: size, mode: modeText(mode) };
}

/** `0755` or `0644`: all that a source keeps of a mode. */
export function modeText(mode: number): string {
  return (mode & 0o100) === 0 ? "0644" : "0755";
}

/** Like {@link pathsBelow}, for all files of a source; ops.conf is among them whether it is there or not. */
async function* sourcePaths(root: string, after = ""): AsyncGenerator<string> {
  if ("ops.conf" > after) yield "ops.conf";
  for (const folder of SOURCE_FOLDERS) yield* pathsBelow(root, folder, after);
}

/**
 * The paths of the regular files below a folder of `root`, the folder's name included, in order and behind `after`. A
 * folder is read when its turn comes.
 */
async function* pathsBelow(root: string, folder: string, after = ""): AsyncGenerator<string> {
  const entries = await entriesOrNone(path.join(root, folder));
  // All that is below a folder begins with its name and a slash, and so has its place in the order.
  const keys = new Map(entries.map((entry) => [`${folder}/${entry.name}${entry.isDirectory() ? "/" : ""}`, entry]));
  for (const key of [...keys.keys()].sort()) {
    if (key.endsWith("/") && (key > after || after.startsWith(key))) yield* pathsBelow(root, key.slice(0, -1), after);
    else if (keys.get(key)?.isFile() && key > after) yield key;
  }
}

/** The entries of a folder; empty where the folder is missing or lies behind a link. */
async function entriesOrNone(folder: string): Promise<Dirent[]> {
  try {
    await requireFolder(folder);
    return await readdir(folder, { withFileTypes: true });
  } catch (error) {
    if (error instanceof Failure || hasErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}

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

/** A diff is made for files up to this size, and of so many bytes in all; so much may differ in one file. */
const MOST_FILE_BYTES = 256 * 1024;
const MOST_DIFF_BYTES = 1024 * 1024;
const MOST_DIFF_EDITS = 400;

/** Compares the files of two revisions that are kept. All paths are in order. */
export async function diffRevisions(layout: Layout, before: string, after: string) {
  const [from, to] = [path.join(layout.revisions, before), path.join(layout.revisions, after)];
  const [old, now] = await Promise.all([filesOf(from), filesOf(to)]);
  const changed: ChangedFile[] = [];
  let left = MOST_DIFF_BYTES;
  for (const name of [...old.intersection(now)].sort()) {
    const change = await compareFiles(name, { before: path.join(from, name), after: path.join(to, name) }, left);
    if (change) changed.push(change);
    left -= Buffer.byteLength(change?.diff ?? "");
  }
  return { added: [...now.difference(old)].sort(), removed: [...old.difference(now)].sort(), changed };
}

async function filesOf(revision: string): Promise<Set<string>> {
  const hasOpsConf = (await unlessMissing(lstat(path.join(revision, "ops.conf"))))?.isFile();
  const paths = await Array.fromAsync(sourcePaths(revision));
  return new Set(paths.filter((name) => hasOpsConf || name !== "ops.conf"));
}

async function compareFiles(
  name: string,
  { before, after }: { before: string; after: string },
  roomBytes: number,
): Promise<ChangedFile | undefined> {
  const [old, now] = await Promise.all([lstat(before), lstat(after)]);
  // Most files are shared by the revisions.
  if (old.ino === now.ino && old.dev === now.dev) return undefined;
  const modes = { before: modeText(old.mode), after: modeText(now.mode) };
  const file = { path: name, mode: modes.before === modes.after ? null : modes };
  if (old.size === now.size && (await areEqual(before, after)))
    return file.mode ? { ...file, diff: "", omitted: null } : undefined;
  const tooLarge = { ...file, diff: null, omitted: "too_large" } as const;
  if (old.size > MOST_FILE_BYTES || now.size > MOST_FILE_BYTES) return tooLarge;
  const [oldText, newText] = (await Promise.all([read(before), read(after)])).map(textOfFile);
  if (oldText === undefined || newText === undefined) return { ...file, diff: null, omitted: "binary" };
  const diff = unifiedDiff(oldText, newText, MOST_DIFF_EDITS);
  return Buffer.byteLength(diff) > roomBytes ? tooLarge : { ...file, diff, omitted: null };
}

async function read(file: string): Promise<Buffer> {
  return (await readBounded(file, MOST_FILE_BYTES)) ?? Buffer.alloc(0);
}

const COMPARED_BYTES = 256 * 1024;

/** Whether two files of one size hold the same bytes. */
async function areEqual(one: string, other: string): Promise<boolean> {
  await using first = await openRegular(one);
  await using second = await openRegular(other);
  const [a, b] = [Buffer.alloc(COMPARED_BYTES), Buffer.alloc(COMPARED_BYTES)];
  for (;;) {
    const [{ bytesRead }] = await Promise.all([first.read(a), second.read(b)]);
    if (bytesRead === 0) return true;
    if (!a.subarray(0, bytesRead).equals(b.subarray(0, bytesRead))) return false;
  }
}
