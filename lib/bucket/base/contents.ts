import { createHash } from "node:crypto";
import { closeSync, fsyncSync, lstatSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import path from "node:path";
import { SEALED_PIECE_BYTES } from "../../codec/crypto/seal.ts";
import { Failure, placed } from "../../core/errors.ts";
import {
  CREATE,
  flushFolderSync,
  openRegularSync,
  PIECE_BYTES,
  PRIVATE_FOLDER,
  readPieces,
  temporaryName,
} from "../../core/files.ts";
import { faultPoint } from "../../core/self.ts";

// Contents of files that are larger than 1 MiB lie beside the database, each in a file that is named by its SHA-256, or
// `<SHA-256>.sealed`. A file is complete and on the disk before a row names it, and goes after the last of these rows.

/** The most bytes of a content that a row of the database holds. */
export const LARGEST_ROW_BYTES = 1024 * 1024;

/** A content that is not kept in memory. */
export interface LargeContent {
  readonly length: number;
  readonly pieces: Pieces;
}

/**
 * Reads a content anew, piece by piece. With a buffer a piece may be overwritten by the next one: for readers that are
 * through with a piece before they ask for another one. Throws `failed` where the content is not as it was any more.
 */
export type Pieces = (buffer?: Buffer) => Iterable<Uint8Array>;

/** The bytes of a file. */
export type Content = Buffer | LargeContent;

/** All bytes in one piece. */
export function bytesOf(content: Content): Buffer {
  return Buffer.isBuffer(content) ? content : Buffer.concat([...content.pieces()]);
}

/** All bytes piece by piece. */
export function piecesOf(content: Content): Iterable<Uint8Array> {
  return Buffer.isBuffer(content) ? [content] : content.pieces();
}

/** The SHA-256 of a content, in hexadecimal. */
export function digestOf(pieces: Pieces): string {
  const digest = createHash("sha256");
  for (const piece of pieces(Buffer.allocUnsafeSlow(PIECE_BYTES))) digest.update(piece);
  return digest.digest("hex");
}

/** Creates a file with this content; it must not exist yet. */
export async function createFile(file: string, content: Content, mode: number): Promise<void> {
  const bytes = Buffer.isBuffer(content) ? content : content.pieces(Buffer.allocUnsafeSlow(PIECE_BYTES));
  await writeFile(file, bytes, { mode, flag: "wx" }).catch((error: unknown) => {
    throw placed(error, file);
  });
}

/** The name of a sealed content. */
export function sealedName(sha256: string): string {
  return `${sha256}.sealed`;
}

/** True where the folder has a content of this name and length. */
export function isSetAside(folder: string, name: string, length: number): boolean {
  return lstatSync(path.join(folder, name), { throwIfNoEntry: false })?.size === length;
}

/**
 * Puts a content into the folder: it appears there whole, and flushed to the disk. Answers how many bytes it has. Takes
 * the place of one of the same name.
 */
export function setAside(folder: string, name: string, pieces: Pieces): number {
  if (mkdirSync(folder, { recursive: true, mode: PRIVATE_FOLDER }) !== undefined) flushFolderSync(path.dirname(folder));
  const file = path.join(folder, name);
  const temporary = temporaryName(file);
  let length = 0;
  try {
    const descriptor = openRegularSync(temporary, CREATE);
    try {
      for (const piece of pieces(Buffer.allocUnsafeSlow(PIECE_BYTES))) {
        writeFileSync(descriptor, piece);
        length += piece.length;
      }
      fsyncSync(descriptor);
    } finally {
      closeSync(descriptor);
    }
    faultPoint("content: written");
    renameSync(temporary, file);
  } catch (error) {
    rmSync(temporary, { force: true });
    throw placed(error, file);
  }
  flushFolderSync(folder);
  faultPoint("content: named");
  return length;
}

/** The pieces of a file in the folder, as it was set aside. Throws `failed` where it is not there so. */
export function* setAsidePieces(folder: string, name: string, length: number, buffer?: Buffer): Generator<Buffer> {
  const file = path.join(folder, name);
  const why = `it is not there with ${length} bytes; build again, or restore a snapshot`;
  if (!isSetAside(folder, name, length)) throw new Failure("failed", `Cannot read ${file}: ${why}`);
  const descriptor = openRegularSync(file);
  try {
    yield* readPieces(descriptor, length, buffer);
  } finally {
    closeSync(descriptor);
  }
}

/** The pieces of a sealed content in the folder, as they were sealed. Throws like {@link setAsidePieces}. */
export function sealedPieces(folder: string, sha256: string, length: number): Generator<Buffer> {
  return setAsidePieces(folder, sealedName(sha256), length, Buffer.allocUnsafeSlow(SEALED_PIECE_BYTES));
}
