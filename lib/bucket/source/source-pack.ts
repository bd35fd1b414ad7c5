import type { Stats } from "node:fs";
import { type FileHandle, lstat, readdir, realpath } from "node:fs/promises";
import path from "node:path";
import { type TarInput, writeTar } from "../../codec/archive/tar-write.ts";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { openRegular, unlessMissing } from "../../core/files.ts";
import { SKIPPED_FOLDERS, SOURCE_PATHS } from "../base/layout.ts";

/** The source of a local bucket, ready to be sent. */
export interface PackedSource {
  files: number;
  /** Of all files together; the archive is a little larger. */
  bytes: number;
  /** The ustar archive; can be read once. */
  archive: AsyncIterable<Uint8Array>;
}

interface Found {
  /** Below the bucket, with `/`. */
  path: string;
  isFile: boolean;
  size: number;
}

/**
 * Packs ops.conf, workspace/ and templates/ of the bucket in `dir`, without the folders that are never part of a
 * source. Throws `invalid_source` for a symbolic link or special file, by its name, and where there is no workspace/;
 * reading the archive throws when a file changes meanwhile.
 */
export async function packSource(dir: string): Promise<PackedSource> {
  const root = await realRoot(dir);
  const found: Found[] = [];
  for (const name of SOURCE_PATHS) await collect(root, name, found);
  const workspace = found.find(({ path }) => path === "workspace");
  if (!workspace || workspace.isFile)
    throw new Failure("invalid_source", `Cannot push ${dir}: it has no workspace/, so it is not a bucket`);
  const files = found.filter(({ isFile }) => isFile);
  const bytes = files.reduce((sum, { size }) => sum + size, 0);
  return { files: files.length, bytes, archive: writeTar(entriesOf(root, found)) };
}

async function realRoot(dir: string): Promise<string> {
  try {
    return await realpath(dir);
  } catch (cause) {
    if (!hasErrno(cause, "ENOENT", "ENOTDIR")) throw cause;
    throw new Failure("invalid_source", `Cannot push ${dir}: there is no such folder`, { cause });
  }
}

async function collect(root: string, below: string, found: Found[]): Promise<void> {
  const full = path.join(root, below);
  const status = await readable(full, () => statusOf(full));
  if (!status) return;
  if (!status.isFile() && !status.isDirectory())
    throw refusal(full, status.isSymbolicLink() ? "a symbolic link is" : "a special file is");
  found.push({ path: below, isFile: status.isFile(), size: status.size });
  if (status.isFile()) return;
  for (const name of (await readable(full, () => readdir(full))).sort())
    if (!SKIPPED_FOLDERS.has(name)) await collect(root, `${below}/${name}`, found);
}

/** A name that is not UTF-8 is not found either: Node has replaced the bytes that it could not read. */
async function statusOf(file: string): Promise<Stats | undefined> {
  if (file.includes("\uFFFD")) throw refusal(file, "a name that is not UTF-8 is");
  return unlessMissing(lstat(file));
}

function refusal(file: string, what: string): Failure {
  return new Failure("invalid_source", `Cannot push ${file}: ${what} not allowed`);
}

async function* entriesOf(root: string, found: readonly Found[]): AsyncGenerator<TarInput> {
  for (const entry of found) {
    if (!entry.isFile) {
      yield { path: entry.path, mode: 0o755, size: 0 };
      continue;
    }
    const full = path.join(root, entry.path);
    await using handle = await readable(full, () => openFound(full));
    const { mode, size } = await handle.stat();
    const content = handle.createReadStream({ autoClose: false });
    yield { path: entry.path, mode: (mode & 0o100) === 0 ? 0o644 : 0o755, size, content };
  }
}

/**
 * Opens a file that was found before. Where it is no regular file any more, or lies behind a link, it was changed
 * since.
 */
async function openFound(file: string): Promise<FileHandle> {
  return await openRegular(file).catch((cause: unknown) => {
    throw cause instanceof Failure ? new Error("it changed while it was packed", { cause }) : cause;
  });
}

async function readable<T>(file: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (cause instanceof Failure) throw cause;
    throw new Failure("invalid_source", `Cannot push ${file}: ${messageOf(cause)}`, { cause });
  }
}
