import { createHash } from "node:crypto";
import { createReadStream, createWriteStream, statSync } from "node:fs";
import path from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { type TarInput, writeTar } from "../../lib/codec/archive/tar-write.ts";

/** A file of a release. */
export interface ReleaseFile {
  /** Below the folder of the program. */
  path: string;
  mode: number;
  /** The bytes, or the file that has them. */
  content: Buffer | { file: string };
}

/**
 * Writes a gzipped tar archive of files below `top`, with their folders. The same files give the same bytes: all belong to
 * root, in the order of their paths, changed at `timeS`, and gzip gets neither a name nor a time.
 */
export async function writeArchive(target: string, top: string, files: readonly ReleaseFile[], timeS: number): Promise<void> {
  const entries = entriesOf(top, files).map((entry) => ({ ...entry, mtimeS: timeS }));
  await pipeline(Readable.from(writeTar(entries)), createGzip(), createWriteStream(target));
}

function entriesOf(top: string, files: readonly ReleaseFile[]): TarInput[] {
  const placed = files.map((file) => ({ ...file, path: `${top}/${file.path}` }));
  const folders = new Set(placed.flatMap((file) => foldersAbove(file.path)));
  const entries = [...placed.map(entryOf), ...[...folders].map((folder) => ({ path: folder, mode: 0o755, size: 0 }))];
  return entries.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function foldersAbove(file: string): string[] {
  const parent = path.posix.dirname(file);
  return parent === "." ? [] : [...foldersAbove(parent), parent];
}

function entryOf({ path, mode, content }: ReleaseFile): TarInput {
  if (Buffer.isBuffer(content)) return { path, mode, size: content.length, content: [content] };
  return { path, mode, size: statSync(content.file).size, content: createReadStream(content.file) };
}

/** The hash of a file in hexadecimal digits. */
export async function hashOf(file: string, algorithm: "sha256" | "sha512" = "sha256"): Promise<string> {
  const hash = createHash(algorithm);
  await pipeline(createReadStream(file), hash);
  return hash.digest("hex");
}
