import { cancelledFailure, Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { type ScriptName, shortText } from "../base/sync-scripts.ts";
import type { ScriptOptions, Transport } from "../base/transport.ts";
import { changeStream, type FileContent, foldersAbove, inParts, listHead, type TreeChange } from "./sync-stream.ts";

/** A file as it is to be on the worker. */
export interface SyncFile extends FileContent {
  /** Below the tree's folder, with `/`. */
  path: string;
  /** Written even where the worker has it already. */
  isRewritten?: boolean;
}

/** The name of the tree that holds worker.json, jobs.json and bin/. */
export const WORKER_TREE = ".worker";

/** All files that ops has in one folder of a worker. */
export interface SyncTree {
  /** A job's name, or {@link WORKER_TREE}. */
  name: string;
  /** `jobs/<job>`, or `.` for the bucket's folder itself. */
  folder: string;
  files: readonly SyncFile[];
}

/** Paths below the tree's folder. */
export interface SyncResult {
  changed: string[];
  removed: string[];
  unchanged: number;
  sentBytes: number;
}

const LIMIT_MS = 900_000;
const ERROR_BYTES = 64 * 1024;
/** How often a sync waits for others of the same tree. */
const SETTLES = 5;
/** Up to this much goes to the worker in one piece. */
const SHORT_BYTES = 256 * 1024;
const CONTROL = /[\0-\x1f\x7f]/;
/** What a job keeps in its folder is its own. */
const OF_THE_JOB = new Set(["data", "logs", "bin"]);
const JOB_NAME = /^[a-z][a-z0-9_-]*$/;
const NOT_OF_THE_WORKER = new Set(["jobs", ".sync", ".runner"]);

/**
 * Makes a tree on a worker the wanted one (decisions: Sync). Asks what is there; if nothing differs, that is all and
 * nothing is written. Else one stream brings what differs into `.sync/<name>/`, where it is verified; then a commit
 * file is written and the files are moved. Whenever this is interrupted, the tree is wholly old or, after the next
 * contact, wholly new. Only what an earlier sync put there is ever removed.
 * Throws `cancelled`, `timeout` (each of the two steps has `timeoutMs`, default 15 minutes) or `failed`.
 */
export async function syncTree(
  transport: Transport,
  tree: SyncTree,
  options: { signal?: AbortSignal; timeoutMs?: number } = {},
): Promise<SyncResult> {
  const wanted = wantedFiles(tree);
  const head = listHead(wanted.keys());
  const found = await settled(transport, tree, [...wanted.keys()], head, options);
  const changed = [...wanted].filter(([path, file]) => isDifferent(file, found.files.get(path))).map(([path]) => path);
  const isListed = found.first.startsWith(head);
  const removed = [...found.listed].filter((path) => !wanted.has(path) && isOf(tree, path));
  const sentBytes =
    isListed && changed.length === 0
      ? 0
      : await send(transport, tree, { wanted, isListed, made: found.folders, changed, removed }, found.first, options);
  const below = (path: string) => (tree.folder === "." ? path : path.slice(tree.folder.length + 1));
  return {
    changed: changed.map(below),
    removed: removed.map(below),
    unchanged: wanted.size - changed.length,
    sentBytes,
  };
}

/** The files by their path below the bucket's folder, sorted. */
function wantedFiles(tree: SyncTree): Map<string, SyncFile> {
  if (tree.folder !== (tree.name === WORKER_TREE ? "." : `jobs/${tree.name}`) || !isName(tree.name))
    throw new Failure("failed", `Cannot sync ${quote(tree.name)} into ${quote(tree.folder)}: no job is there`);
  const wanted = new Map<string, SyncFile>();
  for (const file of tree.files) {
    const path = tree.folder === "." ? file.path : `${tree.folder}/${file.path}`;
    if (!isOf(tree, path) || wanted.has(path))
      throw new Failure("failed", `Cannot sync ${tree.name}: it cannot have a file ${quote(file.path)}`);
    wanted.set(path, file);
  }
  for (const folder of foldersAbove(wanted.keys()))
    if (wanted.has(folder))
      throw new Failure("failed", `Cannot sync ${tree.name}: ${quote(folder)} is both a file and a folder`);
  return new Map([...wanted].sort(([a], [b]) => (a < b ? -1 : 1)));
}

function isName(name: string): boolean {
  return name === WORKER_TREE || JOB_NAME.test(name);
}

/** True when a path of the bucket's folder is one that this tree may own. */
function isOf(tree: SyncTree, path: string): boolean {
  const prefix = tree.folder === "." ? "" : `${tree.folder}/`;
  const parts = path.slice(prefix.length).split("/");
  const reserved = tree.folder === "." ? NOT_OF_THE_WORKER : OF_THE_JOB;
  return (
    path.startsWith(prefix) &&
    !CONTROL.test(path) &&
    !parts.some((part) => part === "" || part === "." || part === "..") &&
    !reserved.has(parts[0] as string)
  );
}

interface FoundFile {
  isExecutable: boolean;
  sha256: string;
}

/** What a worker has of a tree. */
interface Found {
  files: Map<string, FoundFile>;
  /** The files that sync owns; not told where they are the wanted ones. */
  listed: Set<string>;
  /** The folders that sync has made; not told either. */
  folders: Set<string>;
  /** The first line of the list, another one after every sync; empty where there is no list. */
  first: string;
}

function isDifferent(wanted: SyncFile, found: FoundFile | undefined): boolean {
  const { sha256, mode, isRewritten = false } = wanted;
  return isRewritten || found?.sha256 !== sha256 || found.isExecutable !== isExecutable(mode);
}

function isExecutable(mode: number): boolean {
  return (mode & 0o100) !== 0;
}

const FACT =
  /^(?:list (?<listed>file|folder) {2}(?<path>.+)|mode (?<mode>[0-9a-f]+) \.\/(?<name>.+)|(?<escaped>\\?)(?<sha256>[0-9a-f]{64}) [ *]\.\/(?<of>.+))$/;

/** Asks until no other sync of the tree is at work, after one that was cut off was brought to its end. */
async function settled(
  transport: Transport,
  tree: SyncTree,
  paths: string[],
  head: string,
  options: ScriptOptions,
): Promise<Found> {
  for (let attempt = 0; attempt < SETTLES; attempt++) {
    const found = await ask(transport, tree, paths, head, options);
    if (found) return found;
    await run(transport, tree, "settle", { ...options, args: [tree.name] });
  }
  throw failed(transport, tree, "others are at it all the time: run it again");
}

async function ask(
  transport: Transport,
  tree: SyncTree,
  paths: string[],
  head: string,
  options: ScriptOptions,
): Promise<Found | undefined> {
  const found: Found = { files: new Map(), listed: new Set(), folders: new Set(), first: "" };
  let last = "";
  const onLine = (line: string, stream: "stdout" | "stderr") => {
    if (stream === "stderr") return;
    last = line;
    note(found, line);
  };
  const input = paths.map((path) => `${path}\n`).join("");
  await run(transport, tree, "ask", { ...options, args: [tree.name, head], input, onLine, isShort: true });
  if (last === "unsettled") return undefined;
  if (last !== "end") throw failed(transport, tree, "its answer was cut off");
  return found;
}

function note(found: Found, line: string): void {
  if (found.first === "" && line.startsWith("list ")) found.first = line.slice(5);
  const fact = FACT.exec(line)?.groups;
  if (fact?.path !== undefined) {
    (fact.listed === "folder" ? found.folders : found.listed).add(fact.path);
  } else if (fact?.name !== undefined) {
    found.files.set(fact.name, { isExecutable: isExecutable(Number.parseInt(fact.mode as string, 16)), sha256: "" });
  } else if (fact?.of !== undefined) {
    // sha256sum of GNU doubles backslashes in names and says so by a backslash in front.
    const file = found.files.get(fact.escaped ? fact.of.replaceAll("\\\\", "\\") : fact.of);
    if (file) file.sha256 = fact.sha256 as string;
  }
}

/** Sends what differs and answers how many bytes that took. */
async function send(
  transport: Transport,
  tree: SyncTree,
  change: TreeChange,
  first: string,
  options: ScriptOptions,
): Promise<number> {
  const { digest, stream } = changeStream(tree.name, change, (why, cause) => failed(transport, tree, why, cause));
  let sentBytes = 0;
  let broken: unknown;
  async function* counted() {
    try {
      for await (const chunk of stream) {
        sentBytes += chunk.length;
        yield chunk;
      }
    } catch (error) {
      broken = error;
      throw error;
    }
  }
  const args = [tree.name, digest, first];
  try {
    const isShort = sizeOf(change) <= SHORT_BYTES;
    const input = isShort ? Buffer.concat(await Array.fromAsync(counted())) : inParts(counted());
    await run(transport, tree, "receive", { ...options, args, input, isShort });
  } catch (error) {
    throw broken ?? error;
  }
  return sentBytes;
}

function sizeOf({ changed, wanted }: TreeChange): number {
  return changed.reduce((sum, path) => sum + (wanted.get(path)?.size ?? 0), 0);
}

async function run(transport: Transport, tree: SyncTree, script: ScriptName, options: ScriptOptions): Promise<void> {
  const timeoutMs = options.timeoutMs ?? LIMIT_MS;
  const outcome = await transport.script(shortText(script), { ...options, timeoutMs, keepBytes: ERROR_BYTES });
  if (outcome.reason === "cancelled") throw cancelledFailure();
  if (outcome.reason === "timeout")
    throw new Failure("timeout", `${what(transport, tree)}: it had not ended after ${timeoutMs / 1000} s`);
  if (outcome.exitCode !== 0) throw failed(transport, tree, reasonOf(outcome));
}

function reasonOf({ stderr, exitCode, signal }: CommandOutcome): string {
  const said = stderr.trim().replaceAll("\n", "; ").slice(0, 1000);
  return said || (signal === null ? `exit code ${exitCode}` : `ended by ${signal}`);
}

function failed(transport: Transport, tree: SyncTree, why: string, cause?: unknown): Failure {
  return new Failure("failed", `${what(transport, tree)}: ${why}`, { cause });
}

function what(transport: Transport, tree: SyncTree): string {
  return `Cannot sync ${tree.name === WORKER_TREE ? "the worker's files" : tree.name} to ${transport.worker.host}`;
}
