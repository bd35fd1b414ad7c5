import { randomBytes } from "node:crypto";
import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  openSync,
  readFileSync,
  readlinkSync,
  readSync,
  realpathSync,
  type Stats,
} from "node:fs";
import { chmod, type FileHandle, link, lstat, mkdir, open, readdir, realpath, rename, rm } from "node:fs/promises";
import path from "node:path";
import { Failure, hasErrno, placed } from "./errors.ts";

/** Rights of what only the owner may read. */
export const PRIVATE_FILE = 0o600;
/** Rights of folders that only the owner may enter. */
export const PRIVATE_FOLDER = 0o700;
/** The mode bits of everybody but the owner. */
export const OF_OTHERS = 0o077;

// Files of a bucket are opened without following links: a hook or a restored snapshot may have left a symbolic link in
// the place of any file or folder. So each path here is absolute, and the part of it above the bucket is without links:
// a caller that gets the path from a person calls `realPlace` once.

/** The absolute path of a file or folder, without symbolic links as far as the path exists. */
export function realPlace(place: string): string {
  const full = path.resolve(place);
  const above = path.dirname(full);
  try {
    return realpathSync(full);
  } catch {
    return above === full ? full : path.join(realPlace(above), path.basename(full));
  }
}

/**
 * True where the real path of an open descriptor is `place`, so that no part of `place` is a link. Also true where this
 * name of the file was removed since; the file may have another name, such as that of a temporary file which became a
 * lock. Only Linux tells the path of a descriptor. Elsewhere (`ops build` and `ops push` on macOS) the path is resolved.
 */
function isInPlace(descriptor: number, place: string): boolean {
  if (process.platform !== "linux") return realPlace(place) === place;
  const found = readlinkSync(`/proc/self/fd/${descriptor}`);
  return found === place || (found === `${place} (deleted)` && !existsSync(found));
}

/**
 * Throws `failed` where a folder, or a folder above it, is a symbolic link. Errors such as ENOENT and ENOTDIR are not
 * translated.
 */
export async function requireFolder(folder: string): Promise<void> {
  await using handle = await open(folder, constants.O_RDONLY | constants.O_DIRECTORY);
  if (isInPlace(handle.fd, folder)) return;
  throw new Failure("failed", `Cannot use ${folder}: a symbolic link is on the way to it; put a folder there`);
}

/**
 * Throws `failed` where a database is a symbolic link, or lies behind one: SQLite would follow the link. This looks at
 * the path, because a process that opens and closes the file itself loses the locks that SQLite has on the file.
 */
export function refuseLink(file: string): void {
  const isLink = lstatSync(file, { throwIfNoEntry: false })?.isSymbolicLink();
  if (!isLink && realPlace(path.dirname(file)) === path.dirname(file)) return;
  throw new Failure("failed", `Cannot use ${file}: a symbolic link is on the way to it; put the database there`);
}

/** A name beside `file` that nothing else uses. */
export function temporaryName(file: string): string {
  return path.join(path.dirname(file), `.${path.basename(file)}.${randomBytes(6).toString("hex")}.tmp`);
}

/**
 * Replaces a file so that every reader sees the old or the new content and a crash leaves one of them:
 * written beside it, flushed to the disk, renamed, and the folder flushed. The mode holds under any umask.
 */
export async function writeAtomic(file: string, content: string | Uint8Array, mode: number = PRIVATE_FILE): Promise<void> {
  const temporary = temporaryName(file);
  try {
    await writeFlushed(temporary, content, mode);
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw placed(error, file);
  }
  await flushFolder(path.dirname(file));
}

/**
 * Creates a file, never half-written; answers false where the name is taken. The content is flushed to the disk, the
 * folder is not: a power loss may take the new name back.
 */
export async function createExclusive(file: string, content: string | Uint8Array, mode = PRIVATE_FILE): Promise<boolean> {
  const temporary = temporaryName(file);
  try {
    await writeFlushed(temporary, content, mode);
    await link(temporary, file);
    return true;
  } catch (error) {
    if (hasErrno(error, "EEXIST")) return false;
    throw placed(error, file);
  } finally {
    await rm(temporary, { force: true });
  }
}

async function writeFlushed(file: string, content: string | Uint8Array, mode: number): Promise<void> {
  await requireFolder(path.dirname(file));
  await using handle = await open(file, "wx", mode);
  await handle.chmod(mode);
  await handle.writeFile(content);
  await handle.sync();
}

/** Flushes the entries of a folder, so that a rename in it survives a power loss. */
export async function flushFolder(folder: string): Promise<void> {
  await using handle = await open(folder, constants.O_RDONLY);
  await handle.sync().catch(ignoreNoFlush);
}

/** Like {@link flushFolder}, but synchronous. */
export function flushFolderSync(folder: string): void {
  const descriptor = openSync(folder, constants.O_RDONLY);
  try {
    fsyncSync(descriptor);
  } catch (error) {
    ignoreNoFlush(error);
  } finally {
    closeSync(descriptor);
  }
}

/** Some file systems cannot flush a folder. */
function ignoreNoFlush(error: unknown): void {
  if (!hasErrno(error, "EINVAL", "EPERM", "ENOTSUP")) throw error;
}

/** Makes a folder that only the owner may enter, with its parents. */
export async function makePrivateFolder(folder: string): Promise<void> {
  if (!(await exists(folder))) {
    await makePrivateFolder(path.dirname(folder));
    await mkdir(folder, { recursive: true, mode: PRIVATE_FOLDER });
  }
  await requireFolder(folder);
}

/**
 * The text of a file that an operator named, for example with a flag. Throws `usage` where the file's mode has one of
 * the bits `refused`, by default those of everybody but the owner. Mode and text come from one descriptor, so both are
 * those of the same file.
 */
export async function readGuarded(file: string, refused: number = OF_OTHERS): Promise<string> {
  await using handle = await open(file, constants.O_RDONLY);
  const { mode } = await handle.stat();
  requireMode(file, mode, refused);
  return await handle.readFile("utf8");
}

/** Throws `usage`, with the command that mends it, for a mode that has one of the bits `refused`. */
function requireMode(file: string, mode: number, refused: number): void {
  if ((mode & refused) === 0) return;
  const [rights, right] = [mode & 0o777, mode & 0o777 & ~refused].map((bits) => bits.toString(8));
  throw new Failure("usage", `its mode ${rights} lets others use it: chmod ${right} ${file}`);
}

/**
 * The whole of a regular file of at most `limit` bytes, or undefined where there is none. Follows no symlink. Throws `usage`
 * where its mode has one of the bits `refused`.
 */
export async function readBounded(file: string, limit: number, refused = 0): Promise<Buffer | undefined> {
  await using handle = await unlessMissing(openRegular(file));
  if (!handle) return undefined;
  const { size, mode } = await handle.stat();
  requireMode(file, mode, refused);
  if (size > limit) throw new Failure("failed", `Cannot read ${file}: it has more than ${limit} bytes`);
  return await handle.readFile();
}

/**
 * Opens a regular file for reading. A symlink anywhere on the way, a folder, FIFO, socket or device is refused
 * (`file_not_found`), and nothing waits for a writer. The check looks at the open descriptor, so that no change of the
 * path can come between.
 */
export async function openRegular(file: string): Promise<FileHandle> {
  const handle = await open(file, constants.O_RDONLY | NOT_FOLLOWING).catch((error: unknown) => {
    throw openFailure(file, error);
  });
  try {
    if ((await handle.stat()).isFile() && isInPlace(handle.fd, file)) return handle;
    throw notRegular(file);
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/**
 * Like {@link openRegular}, but synchronous, and for writing too; the caller closes the descriptor. A file that the
 * flags create is private (0600).
 */
export function openRegularSync(file: string, flags: number = constants.O_RDONLY): number {
  if (flags & constants.O_CREAT && realPlace(path.dirname(file)) !== path.dirname(file)) throw notRegular(file);
  const descriptor = openWithoutFollowingSync(file, flags);
  try {
    if (fstatSync(descriptor).isFile() && isInPlace(descriptor, file)) return descriptor;
    throw notRegular(file);
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
}

/** Flags to refuse a link, and not to wait for a FIFO's other end. */
const NOT_FOLLOWING = constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Flags for {@link openRegularSync}: writes go to the end of the file, which is created where it is missing. */
export const APPEND = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT;

/** Flags for {@link openRegularSync}: the file must not exist yet. */
export const CREATE = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL;

/** The text of a regular file, or of its first bytes, read synchronously; refused like {@link openRegular}. */
export function readRegularSync(file: string, mostBytes?: number): string {
  const descriptor = openRegularSync(file);
  try {
    if (mostBytes !== undefined) return Buffer.concat([...readPieces(descriptor, mostBytes)]).toString();
    return readFileSync(descriptor, "utf8");
  } finally {
    closeSync(descriptor);
  }
}

/**
 * How much {@link readPieces} reads at once. Twice as much goes through a pipe no faster, but leaves twice as much memory
 * that waits for the collector.
 */
export const PIECE_BYTES = 16 * 1024;

/**
 * The next `bytes` bytes of an open file, read synchronously in pieces of 16 KiB, of which only the last one may be
 * shorter; fewer where the file ends before. With a buffer each piece fills the buffer, until the next piece is asked for.
 */
export function* readPieces(descriptor: number, bytes: number, buffer?: Buffer): Generator<Buffer> {
  for (let left = bytes; left > 0; ) {
    const piece = (buffer ?? Buffer.allocUnsafeSlow(Math.min(PIECE_BYTES, left))).subarray(0, left);
    let length = 0;
    for (let read = -1; read !== 0 && length < piece.length; length += read)
      read = readSync(descriptor, piece, length, piece.length - length, null);
    if (length > 0) yield piece.subarray(0, length);
    left = length < piece.length ? 0 : left - length;
  }
}

function openWithoutFollowingSync(file: string, flags: number): number {
  try {
    return openSync(file, flags | NOT_FOLLOWING, PRIVATE_FILE);
  } catch (error) {
    throw openFailure(file, error);
  }
}

function openFailure(file: string, error: unknown): unknown {
  return hasErrno(error, "ELOOP", "ENXIO") ? notRegular(file) : error;
}

function notRegular(file: string): Failure {
  return new Failure("file_not_found", `Cannot read ${file}: it is not a regular file`);
}

/**
 * Opens the regular file `below` a folder for reading, as {@link openRegular} does. Throws `file_not_found` where there
 * is none.
 */
export async function openContained(root: string, below: string): Promise<FileHandle> {
  // The path is not normalised: one with dots or doubled slashes is no real path, and so refused.
  const wanted = `${await realpath(root)}/${below}`;
  return await openRegular(wanted).catch((error: unknown) => {
    throw error instanceof Failure || hasErrno(error, ...NO_SUCH_FILE) ? notRegular(below) : error;
  });
}

const NO_SUCH_FILE = ["ENOENT", "ENOTDIR", "ENAMETOOLONG"];

/** Removes a file or a folder with all below it, read-only folders too; no error where there is none. */
export async function remove(target: string): Promise<void> {
  const above = requireFolder(path.dirname(target)).then(() => true);
  if (!(await unlessMissing(above, "ENOENT", "ENOTDIR"))) return;
  const work = () => rm(target, { recursive: true, force: true, maxRetries: 3 });
  await work().catch(async (error: unknown) => {
    if (!hasErrno(error, "EACCES", "EPERM")) throw error;
    // Other parts of the removal that has failed may still go on.
    await setFolders(target, PRIVATE_FOLDER);
    await work();
  });
}

/** Sets the mode of a folder and of all folders below it. A folder that goes away meanwhile is passed over. */
export async function setFolders(folder: string, mode: number): Promise<void> {
  const found = await unlessMissing(lstat(folder));
  if (!found?.isDirectory()) return;
  // The owner needs access until the folders below are done.
  await unlessMissing(chmod(folder, PRIVATE_FOLDER));
  const below = (await unlessMissing(readdir(folder, { withFileTypes: true }))) ?? [];
  for (const entry of below) if (entry.isDirectory()) await setFolders(path.join(folder, entry.name), mode);
  await unlessMissing(chmod(folder, mode));
}

/** Empties a folder, keeping the folder itself; makes it where there is none. */
export async function emptyFolder(folder: string): Promise<void> {
  await makePrivateFolder(folder);
  for (const name of await readdir(folder)) await remove(path.join(folder, name));
}

/** The names in a folder, in no order; none where there is no folder. A symbolic link on the way is refused. */
export async function namesIn(folder: string): Promise<string[]> {
  return (await unlessMissing(requireFolder(folder).then(() => readdir(folder)))) ?? [];
}

/** True when something has this name, of whatever kind. */
export async function exists(file: string): Promise<boolean> {
  return (await unlessMissing(lstat(file), "ENOENT", "ENOTDIR")) !== undefined;
}

/** True when two looks at a name found the same file or folder, unchanged as far as its size, mode and times tell. */
export function isUnchanged(before: Stats, now: Stats): boolean {
  const told = ["ino", "dev", "size", "mode", "mtimeMs", "ctimeMs"] as const;
  return told.every((field) => before[field] === now[field]);
}

/**
 * The result of reading a file or folder; undefined where the read fails with one of these codes (default ENOENT),
 * which mean that it is missing.
 */
export async function unlessMissing<T>(reading: Promise<T>, ...codes: string[]): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (hasErrno(error, ...(codes.length > 0 ? codes : ["ENOENT"]))) return undefined;
    throw error;
  }
}
