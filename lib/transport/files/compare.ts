import { relative } from "node:path";
import { runScriptOn } from "../base/scripts.ts";
import type { Transport } from "../base/transport.ts";
import { type FoundFiles, foldersAbove, isExecutable, isForSync, lookAtFiles } from "./look.ts";

/** The files that a job is to have on a worker: path below the job's folder to `<octal mode>:<SHA-256>`. */
export type WantedFiles = Readonly<Record<string, string>>;

/** A file that is not as it was promoted. */
export interface FileDrift {
  /** Below the job's folder. */
  path: string;
  /**
   * `changed`: other content, or not executable for its owner although the promoted file is, or no regular file, or no
   * folder in the place of one; `link`: a symbolic link in the place of a folder, `.` for the job's own folder and `..`
   * for `jobs`; `extra`: a file that nobody promoted, in the job's folder or in one with promoted files.
   */
  state: "changed" | "missing" | "extra" | "link";
  /** The SHA-256 on the worker, for a promoted path with a regular file; else null. */
  sha256: string | null;
  /** The mode on the worker, where `sha256` is known. */
  mode: number | null;
  /** A regular file with other content is in the place of the promoted one. */
  hasOtherContent: boolean;
}

/** How a job's files were found on a worker. */
export type TreeDrift = ReturnType<typeof treeDrift>;

const COMPARE_LIMIT_MS = 300_000;
const READ_LIMIT_MS = 60_000;

/**
 * Compares the files of jobs on a worker with the files that they are to have, in one question. No file is written;
 * where no file is wanted, or it is `optional`, the bucket's folder may be missing. Throws `unreachable`, `cancelled`, `timeout` after five
 * minutes, or `failed` with what the worker said.
 */
export async function compareTrees(
  transport: Transport,
  wanted: ReadonlyMap<string, WantedFiles>,
  signal: AbortSignal,
  folder: "needed" | "optional" = "needed",
): Promise<Map<string, TreeDrift>> {
  const question = {
    trees: [...wanted.keys()],
    lines: [...wanted].flatMap(([job, files]) => linesAbout(job, Object.keys(files))),
  };
  const isFolderOptional = folder === "optional" || [...wanted.values()].every((files) => Object.keys(files).length === 0);
  const doing = `Cannot compare the files on ${transport.worker.host}`;
  const options = { isFolderOptional, timeoutMs: COMPARE_LIMIT_MS, signal };
  const found = await lookAtFiles(transport, question, doing, options);
  const entries = Map.groupBy(found.entry, (path) => path.split("/")[1] as string);
  return new Map([...wanted].map(([job, files]) => [job, treeDrift(job, files, found, entries.get(job) ?? [])]));
}

/** The files of a job, and the folders that the job does not keep to itself. */
function linesAbout(job: string, paths: readonly string[]): string[] {
  const folders = [...foldersAbove(paths)].filter(isForSync).map((folder) => `/${folder}`);
  return [...paths.map((path) => `file jobs/${job}/${path}`), ...["", ...folders].map((folder) => `folder jobs/${job}${folder}`)];
}

function treeDrift(job: string, wanted: WantedFiles, found: FoundFiles, entries: readonly string[]) {
  const folder = `jobs/${job}`;
  const nothing = { sha256: null, mode: null, hasOtherContent: false };
  const blocked = new Map<string, FileDrift>();
  for (const above of foldersAbove(Object.keys(wanted).map((path) => `${folder}/${path}`))) {
    const state = found.link.has(above) ? "link" : entries.includes(above) ? "changed" : undefined;
    if (state) blocked.set(above, { path: relative(folder, above) || ".", state, ...nothing });
  }
  const isBlocked = (path: string) => foldersAbove([`${folder}/${path}`]).intersection(blocked).size > 0;
  const files = [...blocked.values()];
  for (const [path, digest] of Object.entries(wanted))
    if (blocked.size === 0 || !isBlocked(path)) files.push(...fileDrift(folder, path, digest, found));
  for (const entry of entries) {
    const path = entry.slice(folder.length + 1);
    if (wanted[path] === undefined && isForSync(path) && !blocked.has(entry)) files.push({ path, state: "extra", ...nothing });
  }
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  // Unsettled: a sync of the job is at work or was cut off, and the files may be in the middle of a change.
  return { files, isUnsettled: found.unsettled.has(job) };
}

/**
 * How a file on the worker differs from the promoted one: one difference or none. An execute bit that a job added is no
 * difference.
 */
function fileDrift(folder: string, path: string, digest: string, found: FoundFiles): FileDrift[] {
  const place = `${folder}/${path}`;
  const [mode = "", sha256] = digest.split(":");
  const file = found.files.get(place);
  if (!file) {
    const state = found.other.has(place) ? "changed" : "missing";
    return [{ path, state, sha256: null, mode: null, hasOtherContent: false }];
  }
  const hasOtherContent = file.sha256 !== sha256;
  const isSame = !hasOtherContent && (isExecutable(file.mode) || !isExecutable(Number.parseInt(mode, 8)));
  return isSame ? [] : [{ path, state: "changed", ...file, hasOtherContent }];
}

/**
 * The text of a file of a job on a worker; undefined for a file that is not text, or longer than `bytes`; empty where
 * there is no file. Throws as {@link compareTrees} does.
 */
export async function readText(
  transport: Transport,
  { job, path, bytes }: { job: string; path: string; bytes: number },
  signal: AbortSignal,
): Promise<string | undefined> {
  const { stdout } = await runScriptOn(transport, "read", `Cannot read ${job}/${path} on ${transport.worker.host}`, {
    args: [`jobs/${job}/${path}`, String(bytes + 1)],
    // Bytes that are not text grow when they are decoded.
    keepBytes: 3 * (bytes + 1),
    timeoutMs: READ_LIMIT_MS,
    signal,
  });
  return Buffer.byteLength(stdout) > bytes || /[\0\ufffd]/.test(stdout) ? undefined : stdout;
}
