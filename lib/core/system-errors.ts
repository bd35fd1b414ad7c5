/** What common errors of the operating system mean and what to do; by errno, or by system call and errno. */
const SENTENCES: Readonly<Record<string, [why: string, advice: string]>> = {
  EROFS: ["the file system is read-only", "mount it writable"],
  ENOSPC: ["the disk is full", "make room there"],
  EDQUOT: ["the disk quota is used up", "make room there"],
  EMFILE: ["the process has reached its limit of open files", "raise the limit (ulimit -n)"],
  ENFILE: ["the machine has reached its limit of open files", "raise fs.file-max"],
  "link EPERM": ["no hard link can be made there", "use a file system that has them"],
};
/** Result codes of SQLite with the same meaning. */
const [BUSY, LOCKED, FULL] = [5, 6, 13];

/**
 * The sentence for an error of the operating system or of SQLite: the cause, the file as far as the system tells it,
 * and what to do. Undefined for an error that is not in this table.
 */
export function systemSentence(error: unknown): string | undefined {
  if (!(error instanceof Error)) return undefined;
  if (isLocked(error)) return "the bucket's database is busy; try again";
  const { code = "", syscall = "", path } = error as NodeJS.ErrnoException;
  const isFull = sqliteCode(error) === FULL;
  const [why, advice] = SENTENCES[isFull ? "ENOSPC" : code] ?? SENTENCES[`${syscall} ${code}`] ?? [];
  if (why === undefined) return undefined;
  const where = path ?? syscall;
  return `${why}${where === "" ? "" : ` (${where})`}: ${advice}`;
}

/** True for SQLite's `database is locked`. */
export function isLocked(error: unknown): boolean {
  return [BUSY, LOCKED].includes(sqliteCode(error));
}

/** SQLite's primary result code, 0 for any other error; `errcode` may be an extended code. */
export function sqliteCode(error: unknown): number {
  return ((error as { errcode?: number } | null)?.errcode ?? 0) & 0xff;
}
