import { basename, relative } from "node:path";
import { cancelledFailure, Failure } from "../../core/errors.ts";
import { shortText } from "../base/sync-scripts.ts";
import type { Transport } from "../base/transport.ts";
import { foldersAbove } from "./sync-stream.ts";

/** The files that a job is to have on a worker: path below the job's folder to `<octal mode>:<SHA-256>`. */
export type WantedFiles = Readonly<Record<string, string>>;

/** A file that is not as it was promoted. */
export interface FileDrift {
  /** Below the job's folder. */
  path: string;
  /**
   * `changed`: other content, not executable for its owner although it was, no regular file, or no folder where promoted
   * files lie in one; `link`: a symbolic link in the place of such a folder, `.` for the job's own and `..` for `jobs`;
   * `extra`: nobody promoted it, but it lies in the job's folder or in one that promoted files are in.
   */
  state: "changed" | "missing" | "extra" | "link";
  /** The SHA-256 of what is there, where it is a regular file that was promoted once; else null. */
  sha256: string | null;
  /** It is a regular file there, with other content. */
  hasOtherContent: boolean;
}

/** How a job's files were found on a worker. */
export interface TreeDrift {
  files: FileDrift[];
  /** A sync of it is at work or was cut off: what was found may be in the middle of a change. */
  isUnsettled: boolean;
}

/** What a job keeps in its folder is its own. */
const OF_THE_JOB = new Set(["data", "logs", "bin"]);
const LIMIT_MS = 300_000;
const ANSWER_BYTES = 64 * 1024;
const FACT =
  /^(?:unsettled (?<job>.+)|mode (?<mode>[0-9a-f]+) \.\/(?<name>.+)|other \.\/(?<other>.+)|link \.\/(?<link>.+)|entry \.\/(?<entry>.+)|(?<escaped>\\?)(?<sha256>[0-9a-f]{64}) [ *]\.\/(?<of>.+))$/;

/** What a worker has, by path below the bucket's folder. */
interface Found {
  unsettled: Set<string>;
  /** Whether each regular file is executable for its owner. */
  files: Map<string, boolean>;
  sha256: Map<string, string>;
  others: Set<string>;
  links: Set<string>;
  entries: string[];
  isWhole: boolean;
}

/**
 * Compares the files of jobs on a worker with those that they are to have, in one question; no file is written, and where
 * none is expected the bucket's folder need not be there.
 * Throws `unreachable`, `cancelled`, or `failed` with what the worker said (it has five minutes).
 */
export async function compareTrees(
  transport: Transport,
  wanted: ReadonlyMap<string, WantedFiles>,
  signal: AbortSignal,
): Promise<Map<string, TreeDrift>> {
  const found: Found = {
    unsettled: new Set(),
    files: new Map(),
    sha256: new Map(),
    others: new Set(),
    links: new Set(),
    entries: [],
    isWhole: false,
  };
  const isFolderOptional = [...wanted.values()].every((files) => Object.keys(files).length === 0);
  // Without the folder a script runs in the user's home.
  const guard = `[ "\${PWD##*/}" = ${basename(transport.folder)} ] || { cat >/dev/null; echo end; exit; }\n`;
  const outcome = await transport.script((isFolderOptional ? guard : "") + shortText("compare"), {
    isFolderOptional,
    args: [...wanted.keys()],
    input: [...wanted].flatMap(([job, files]) => questions(job, Object.keys(files))).join(""),
    onLine: (line, stream) => stream === "stdout" && note(found, line),
    keepBytes: ANSWER_BYTES,
    isShort: true,
    timeoutMs: LIMIT_MS,
    signal,
  });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.exitCode !== 0 || !found.isWhole) {
    const said = outcome.stderr.trim().replaceAll("\n", "; ").slice(0, 1000);
    const why = said || (outcome.reason === "exit" ? "its answer was cut off" : outcome.reason);
    throw new Failure("failed", `Cannot compare the files on ${transport.worker.host}: ${why}`);
  }
  const entries = Map.groupBy(found.entries, (path) => path.split("/")[1] as string);
  return new Map([...wanted].map(([job, files]) => [job, driftOf(job, files, found, entries.get(job) ?? [])]));
}

/** The files of a job and the folders that are its own, as the worker is asked about them. */
function questions(job: string, paths: readonly string[]): string[] {
  const owned = [...foldersAbove(paths)].filter((folder) => isOwned(folder));
  return [
    ...paths.map((path) => `file jobs/${job}/${path}\n`),
    ...["", ...owned.map((folder) => `/${folder}`)].map((folder) => `folder jobs/${job}${folder}\n`),
  ];
}

function isOwned(path: string): boolean {
  return !OF_THE_JOB.has(path.split("/")[0] as string);
}

function note(found: Found, line: string): void {
  if (line === "end") found.isWhole = true;
  const fact = FACT.exec(line)?.groups;
  if (fact?.job !== undefined) found.unsettled.add(fact.job);
  else if (fact?.name !== undefined)
    found.files.set(fact.name, (Number.parseInt(fact.mode as string, 16) & 0o100) !== 0);
  else if (fact?.other !== undefined) found.others.add(fact.other);
  else if (fact?.link !== undefined) found.links.add(fact.link);
  else if (fact?.entry !== undefined) found.entries.push(fact.entry);
  // sha256sum of GNU doubles backslashes in names and says so by a backslash in front.
  else if (fact?.of !== undefined)
    found.sha256.set(fact.escaped ? fact.of.replaceAll("\\\\", "\\") : fact.of, fact.sha256 as string);
}

function driftOf(job: string, wanted: WantedFiles, found: Found, entries: readonly string[]): TreeDrift {
  const folder = `jobs/${job}`;
  const nothing = { sha256: null, hasOtherContent: false };
  const blocked = new Map<string, FileDrift>();
  for (const above of foldersAbove(Object.keys(wanted).map((path) => `${folder}/${path}`))) {
    const state = found.links.has(above) ? "link" : entries.includes(above) ? "changed" : undefined;
    if (state) blocked.set(above, { path: relative(folder, above) || ".", state, ...nothing });
  }
  const isBlocked = (path: string) => foldersAbove([`${folder}/${path}`]).intersection(blocked).size > 0;
  const files = [...blocked.values()];
  for (const [path, digest] of Object.entries(wanted))
    if (blocked.size === 0 || !isBlocked(path)) files.push(...fileDrift(folder, path, digest, found));
  for (const entry of entries) {
    const path = entry.slice(folder.length + 1);
    if (wanted[path] === undefined && isOwned(path)) files.push({ path, state: "extra", ...nothing });
  }
  files.sort((a, b) => (a.path < b.path ? -1 : 1));
  return { files, isUnsettled: found.unsettled.has(job) };
}

/**
 * How a file on the worker differs from the promoted one; undefined where it does not. An execute bit that a job added
 * is no difference.
 */
function fileDrift(folder: string, path: string, digest: string, found: Found): FileDrift[] {
  const there = `${folder}/${path}`;
  const [mode = "", sha256] = digest.split(":");
  const nothing = { path, sha256: null, hasOtherContent: false };
  if (found.others.has(there)) return [{ ...nothing, state: "changed" }];
  const isExecutable = found.files.get(there);
  if (isExecutable === undefined) return [{ ...nothing, state: "missing" }];
  const foundSha256 = found.sha256.get(there) ?? null;
  const hasOtherContent = foundSha256 !== sha256;
  const isSame = !hasOtherContent && (isExecutable || (Number.parseInt(mode, 8) & 0o100) === 0);
  return isSame ? [] : [{ path, state: "changed", sha256: foundSha256, hasOtherContent }];
}

const READ = `${shortText("way")}
way "$1"; if [ -z "$link" ] && [ -f "./$1" ]; then head -c "$2" "./$1"; fi`;
const READ_LIMIT_MS = 60_000;

/**
 * The text of a file of a job on a worker; undefined where it is none, or longer than `bytes`. Throws as
 * {@link compareTrees} does.
 */
export async function readText(
  transport: Transport,
  job: string,
  path: string,
  bytes: number,
  signal: AbortSignal,
): Promise<string | undefined> {
  const outcome = await transport.script(READ, {
    args: [`jobs/${job}/${path}`, String(bytes + 1)],
    // What is no text grows where it is decoded.
    keepBytes: 3 * (bytes + 1),
    timeoutMs: READ_LIMIT_MS,
    signal,
  });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.exitCode !== 0) throw new Failure("failed", `Cannot read ${job}/${path} on ${transport.worker.host}`);
  const text = outcome.stdout;
  return Buffer.byteLength(text) > bytes || /[\0\ufffd]/.test(text) ? undefined : text;
}
