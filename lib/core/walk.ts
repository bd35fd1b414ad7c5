import { closeSync, constants, fstatSync, lstatSync, openSync, readdirSync, type Stats } from "node:fs";
import path from "node:path";
import { Failure, hasErrno, messageOf } from "./errors.ts";
import { isUnchanged, readPieces } from "./files.ts";

// Synchronous: for thousands of small files, a promise for each call would cost thirty times the reading.

/** A regular file found by {@link walk}. */
export interface FoundFile {
  /** Below the root, with `/`. */
  path: string;
  sizeBytes: number;
  /** Its owner may execute it. */
  executable: boolean;
  /** For {@link isUnchanged}. */
  state: Stats;
}

/** Hears of an entry that cannot be taken: its path below the root (empty for the root itself), and why not. */
type Refuse = (path: string, why: string) => void;

/**
 * The regular files below a folder, sorted by path; none where there is no folder. Names in `skip` are passed over at
 * every level. Refused are symlinks, special files, names that are not UTF-8, what cannot be read, and a root that is
 * no folder: nothing that points elsewhere is ever taken along. By default a refusal throws `invalid_source`.
 */
export function walk(root: string, skip: ReadonlySet<string> = new Set(), refuse: Refuse = throwRefusal(root)): FoundFile[] {
  const found: FoundFile[] = [];
  const visit = (below: string) => {
    for (const entry of entryNames(root, below, refuse)) {
      const name = below === "" ? entry : `${below}/${entry}`;
      const status = skip.has(entry) ? undefined : statusOfEntry(root, name, refuse);
      if (status?.isDirectory()) visit(name);
      else if (status) found.push(foundFile(name, status));
    }
  };
  const status = lstatSync(root, { throwIfNoEntry: false });
  if (status?.isDirectory()) visit("");
  else if (status) refuse("", "it is not a folder");
  return found.sort((a, b) => (a.path < b.path ? -1 : 1));
}

function throwRefusal(root: string): Refuse {
  return (below, why) => {
    throw new Failure("invalid_source", `Cannot take ${path.join(root, below)}: ${why}`);
  };
}

/** A file or folder below the root; undefined where the entry is refused. */
function statusOfEntry(root: string, name: string, refuse: Refuse): Stats | undefined {
  // Node puts this character where the bytes of a name are no text: no path with it would find the file.
  if (path.basename(name).includes("\ufffd")) {
    refuse(name, "its name is not UTF-8");
    return undefined;
  }
  const status = lstatSync(`${root}/${name}`, { throwIfNoEntry: false });
  if (status?.isFile() || status?.isDirectory()) return status;
  if (!status) refuse(name, CHANGED);
  else refuse(name, `a ${status.isSymbolicLink() ? "symbolic link" : "special file"} is not allowed`);
  return undefined;
}

function entryNames(root: string, below: string, refuse: Refuse): string[] {
  try {
    return readdirSync(`${root}/${below}`);
  } catch (error) {
    refuse(below, hasErrno(error, "ENOENT", "ENOTDIR") ? CHANGED : messageOf(error));
    return [];
  }
}

const CHANGED = "it was changed while it was read";

function foundFile(path: string, state: Stats): FoundFile {
  return { path, sizeBytes: state.size, executable: (state.mode & 0o100) !== 0, state };
}

/** The whole content of a file that {@link walk} found below `root`. Throws like {@link foundPieces}. */
export function readFound(root: string, file: FoundFile): Buffer {
  const content = Buffer.allocUnsafeSlow(file.sizeBytes);
  // One piece, and the check behind it.
  for (const _ of foundPieces(root, file, content));
  return content;
}

/**
 * The content of a file that {@link walk} found below `root`, in pieces as {@link readPieces} reads them. Throws
 * `failed`, at the end at the latest, when it is not that file any more, or not as it was found: replaced, removed, grown
 * or cut.
 */
export function* foundPieces(root: string, file: FoundFile, buffer?: Buffer): Generator<Buffer> {
  const changed = () => new Failure("failed", CHANGED);
  let descriptor: number;
  try {
    // The flags follow no link and wait for no FIFO's writer, in case one has replaced the file.
    descriptor = openSync(`${root}/${file.path}`, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  } catch (error) {
    throw hasErrno(error, "ENOENT", "ENOTDIR", "ELOOP", "ENXIO") ? changed() : error;
  }
  try {
    yield* readPieces(descriptor, file.sizeBytes, buffer);
    if (!isUnchanged(fstatSync(descriptor), file.state)) throw changed();
  } catch (error) {
    throw hasErrno(error, "EISDIR", "EAGAIN") ? changed() : error;
  } finally {
    closeSync(descriptor);
  }
}
