import {
  chmodSync,
  closeSync,
  constants,
  copyFileSync,
  fchmodSync,
  fstatSync,
  linkSync,
  lstatSync,
  openSync,
  readSync,
  writeFileSync,
} from "node:fs";
import { hasErrno } from "../../core/errors.ts";
import { openRegularSync, PRIVATE_FILE } from "../../core/files.ts";

/** A file that a tree of a source is to have. */
interface Placed {
  /** Where; nothing is there yet, but its folder is. */
  target: string;
  mode: number;
  /** What it holds: the bytes, or the path of a file. */
  content: Uint8Array | string;
  /** A file that may hold just this already, with this mode: then both are names of that one file. */
  like: string | undefined;
}

/**
 * Puts a file into a tree that nobody reads yet, synchronously: of 19,000 small files the promises would cost more than
 * the files. Where `like` is the wanted file it is shared, and so is the file of `content` where it is read-only, as
 * wanted. Else the file is cloned where the file system can do that, and copied where it cannot.
 */
export function place({ target, mode, content, like }: Placed): void {
  const source = typeof content === "string" ? openRegularSync(content) : content;
  try {
    if (like !== undefined && isLike(like, mode, source) && isLinked(like, target)) return;
    if (typeof source !== "number") {
      write(target, mode, source);
      return;
    }
    const isReadOnly = (mode & 0o222) === 0 && (fstatSync(source).mode & 0o7777) === mode;
    if (isReadOnly && isLinked(content as string, target)) return;
    copyFileSync(content as string, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    chmodSync(target, mode);
  } finally {
    if (typeof source === "number") closeSync(source);
  }
}

/** Gives a file one more name; false where it has too many names already, or its file system knows no second names. */
function isLinked(file: string, target: string): boolean {
  try {
    linkSync(file, target);
    return true;
  } catch (error) {
    if (hasErrno(error, "EMLINK", "EPERM", "ENOTSUP", "EXDEV", "ENOENT")) return false;
    throw error;
  }
}

function write(target: string, mode: number, bytes: Uint8Array): void {
  const descriptor = openSync(target, "wx", PRIVATE_FILE);
  try {
    writeFileSync(descriptor, bytes);
    fchmodSync(descriptor, mode);
  } finally {
    closeSync(descriptor);
  }
}

const COMPARED_BYTES = 64 * 1024;
/** Where pieces of files are read to be compared, in one step each. */
const [ownPiece, otherPiece] = [Buffer.alloc(COMPARED_BYTES), Buffer.alloc(COMPARED_BYTES)];

/** {@link holds}; false for what is no regular file, lies behind a link, or cannot be read. */
function isLike(file: string, mode: number, source: Uint8Array | number): boolean {
  try {
    return holds(file, mode, source);
  } catch {
    return false;
  }
}

/** True where a file is our own, with this mode and content. */
function holds(file: string, mode: number, source: Uint8Array | number): boolean {
  const size = typeof source === "number" ? fstatSync(source).size : source.length;
  // Looked at before it is opened: where there is none, an error would cost more than a file.
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (found?.size !== size || (found.mode & 0o7777) !== mode || found.uid !== process.geteuid?.()) return false;
  const descriptor = openRegularSync(file);
  try {
    for (let at = 0; at < size; ) {
      const count = readSync(descriptor, ownPiece, 0, COMPARED_BYTES, at);
      const wanted = typeof source === "number" ? otherPiece : source.subarray(at, at + count);
      if (typeof source === "number") readSync(source, otherPiece, 0, count, at);
      if (count === 0 || Buffer.compare(ownPiece.subarray(0, count), wanted.subarray(0, count)) !== 0) return false;
      at += count;
    }
    return true;
  } finally {
    closeSync(descriptor);
  }
}
