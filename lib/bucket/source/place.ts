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
  writeSync,
} from "node:fs";
import { hasErrno } from "../../core/errors.ts";
import { CREATE, openRegularSync } from "../../core/files.ts";

const OWNER = process.geteuid?.();

/** A file that a tree of a source is to have. */
interface Placed {
  /** Where; nothing is there yet, but its folder is. */
  target: string;
  mode: number;
  /** What it holds: the bytes, or the path of a file. */
  content: Uint8Array | string;
  /** A file that may hold just this already, with this mode: then both are names of that one file. */
  like?: string | undefined;
  /** Remembers for a tree which modes its new files get as they are asked for, with umask and all. */
  given?: Set<number>;
}

/**
 * Puts a file into a tree that nobody reads yet, synchronously: of 19,000 small files the promises would cost more than
 * the files. Where `like` is the wanted file it is shared, and so is the file of `content` where it is read-only, as
 * wanted. Else the file is cloned where the file system can do that, and copied where it cannot.
 */
export function place({ target, mode, content, like, given }: Placed): void {
  if (like !== undefined && isSame(like, mode, content) && isLinked(like, target)) return;
  if (typeof content === "string") copy(content, target, mode);
  else write(target, mode, content, given);
}

/**
 * Gives a file of a revision one more name. False where that is not possible, and for a file that was changed after the
 * moment `until` (in milliseconds) at which the revision was there, or is not our own with this mode.
 */
export function share(file: string, target: string, mode: number, until: number): boolean {
  const found = lstatSync(file, { throwIfNoEntry: false });
  if (!found?.isFile() || (found.mode & 0o7777) !== mode || found.uid !== OWNER) return false;
  return Math.floor(found.mtimeMs) <= until && isLinked(file, target);
}

/**
 * True where a file is our own, with this mode and content; false for what is no regular file, or cannot be read. Its
 * folder is a real one: see {@link Present}. `content` is the bytes, or the path of a file.
 */
export function isSame(file: string, mode: number, content: Uint8Array | string): boolean {
  try {
    return holds(file, mode, content);
  } catch {
    return false;
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

function copy(file: string, target: string, mode: number): void {
  const source = openRegularSync(file);
  try {
    const isReadOnly = (mode & 0o222) === 0 && (fstatSync(source).mode & 0o7777) === mode;
    if (isReadOnly && isLinked(file, target)) return;
    copyFileSync(file, target, constants.COPYFILE_EXCL | constants.COPYFILE_FICLONE);
    chmodSync(target, mode);
  } finally {
    closeSync(source);
  }
}

function write(target: string, mode: number, bytes: Uint8Array, given?: Set<number>): void {
  const descriptor = openSync(target, CREATE, mode);
  try {
    for (let at = 0; at < bytes.length; ) at += writeSync(descriptor, bytes, at);
    if (given?.has(mode)) return;
    if ((fstatSync(descriptor).mode & 0o7777) === mode) given?.add(mode);
    else fchmodSync(descriptor, mode);
  } finally {
    closeSync(descriptor);
  }
}

const COMPARED_BYTES = 64 * 1024;
/** Where pieces of files are read to be compared, in one step each. */
const [ownPiece, otherPiece] = [Buffer.alloc(COMPARED_BYTES), Buffer.alloc(COMPARED_BYTES)];

function holds(file: string, mode: number, content: Uint8Array | string): boolean {
  const source = typeof content === "string" ? openRegularSync(content) : content;
  try {
    const descriptor = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    try {
      const found = fstatSync(descriptor);
      const size = typeof source === "number" ? fstatSync(source).size : source.length;
      if (!found.isFile() || found.size !== size) return false;
      return (found.mode & 0o7777) === mode && found.uid === OWNER && hasBytes(descriptor, source, size);
    } finally {
      closeSync(descriptor);
    }
  } finally {
    if (typeof source === "number") closeSync(source);
  }
}

function hasBytes(descriptor: number, source: Uint8Array | number, size: number): boolean {
  for (let at = 0; at < size; ) {
    const count = readSync(descriptor, ownPiece, 0, COMPARED_BYTES, at);
    const wanted = typeof source === "number" ? otherPiece : source.subarray(at, at + count);
    if (typeof source === "number") readSync(source, otherPiece, 0, count, at);
    if (count === 0 || Buffer.compare(ownPiece.subarray(0, count), wanted.subarray(0, count)) !== 0) return false;
    at += count;
  }
  return true;
}
