import path from "node:path";
import { Failure } from "../../core/errors.ts";
import { runScriptOn } from "../base/scripts.ts";
import type { ScriptOptions, Transport } from "../base/transport.ts";

/** A regular file on a worker; `sha256` is null where the worker could not tell. */
export interface WorkerFile {
  /** Without the file's type. */
  mode: number;
  sha256: string | null;
}

/** What a worker has, by path below the bucket's folder; see scripts/look.sh. */
export type FoundFiles = ReturnType<typeof nothingFound>;

function nothingFound() {
  return {
    /** Trees that a sync is at work on, or was cut off at. */
    unsettled: new Set<string>(),
    /** The regular files. */
    files: new Map<string, WorkerFile>(),
    /** Wanted paths with something else than a regular file. */
    other: new Set<string>(),
    /** Symbolic links in the place of folders. */
    link: new Set<string>(),
    /** What folders hold beside folders. */
    entry: new Set<string>(),
    /** The first line of the list that sync keeps of a tree: a different line after each sync; empty without a list. */
    listHead: "",
    /** The files and the folders of that list; not told where the list names the wanted files. */
    listed: { file: new Set<string>(), folder: new Set<string>() },
  };
}

/** What a worker is asked; see scripts/look.sh. */
interface FileQuestion {
  trees: readonly string[];
  /** The beginning of a list that names the wanted files; without it no list is told. */
  head?: string;
  /** `file <path>` and `folder <path>`, paths below the bucket's folder. */
  lines: readonly string[];
}

/** What a job keeps in its folder belongs to the job alone. */
const JOB_FOLDERS = new Set(["data", "logs", "bin"]);
const LOOK_BYTES = 64 * 1024;

/** True for a path below a job's folder that sync may own. */
export function isForSync(file: string): boolean {
  return !JOB_FOLDERS.has(file.split("/")[0] as string);
}

/** True for a mode with the owner's execute bit. */
export function isExecutable(mode: number): boolean {
  return (mode & 0o100) !== 0;
}

/** All folders above these paths, each before those in it. */
export function foldersAbove(paths: Iterable<string>): Set<string> {
  const folders = new Set<string>();
  for (const file of paths)
    for (let at = file.indexOf("/"); at > 0; at = file.indexOf("/", at + 1)) folders.add(file.slice(0, at));
  return folders;
}

/**
 * Asks what a worker has of some trees; nothing is written there. An unsettled tree ends an answer with a `head`.
 * Throws as {@link runScriptOn} does, `doing` being the beginning of the sentence.
 */
export async function lookAtFiles(
  transport: Transport,
  { trees, head = "", lines }: FileQuestion,
  doing: string,
  options: ScriptOptions & { timeoutMs: number },
): Promise<FoundFiles> {
  const found = nothingFound();
  let last = "";
  await runScriptOn(transport, "look", doing, {
    ...options,
    args: [path.posix.basename(transport.folder), head, ...trees],
    input: lines.map((line) => `${line}\n`).join(""),
    onLine(line, stream) {
      if (stream === "stderr") return;
      last = line;
      noteAnswer(found, line);
    },
    keepBytes: LOOK_BYTES,
    isShort: true,
  });
  if (last === "end" || (head !== "" && found.unsettled.size > 0)) return found;
  throw new Failure("failed", `${doing}: the worker's answer was cut off`);
}

function noteAnswer(found: FoundFiles, line: string): void {
  const [, word, rest = ""] = /^([a-z]+) (.+)$/.exec(line) ?? [];
  if (word === "unsettled") found.unsettled.add(rest);
  else if (word === "list") noteListed(found, rest);
  else if (word === "mode") noteMode(found, rest);
  else if (word === "other" || word === "link" || word === "entry") found[word].add(rest.slice("./".length));
  else noteDigest(found, line);
}

function noteListed(found: FoundFiles, line: string): void {
  const [, kind, file = ""] = /^(file|folder) {2}(.+)$/.exec(line) ?? [];
  if (found.listHead === "") found.listHead = line;
  if (kind === "file" || kind === "folder") found.listed[kind].add(file);
}

function noteMode(found: FoundFiles, line: string): void {
  const [, mode = "", file = ""] = /^([0-9a-f]+) \.\/(.+)$/.exec(line) ?? [];
  found.files.set(file, { mode: Number.parseInt(mode, 16) & 0o7777, sha256: null });
}

/** sha256sum of GNU doubles backslashes in names, and says so by a backslash in front. */
function noteDigest(found: FoundFiles, line: string): void {
  const [, escaped, sha256 = "", file = ""] = /^(\\?)([0-9a-f]{64}) [ *]\.\/(.+)$/.exec(line) ?? [];
  const known = found.files.get(escaped ? file.replaceAll("\\\\", "\\") : file);
  if (known) known.sha256 = sha256;
}
