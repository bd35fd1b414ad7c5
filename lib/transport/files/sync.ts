import path from "node:path";
import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { runScriptOn } from "../base/scripts.ts";
import type { Transport } from "../base/transport.ts";
import { foldersAbove, isExecutable, isForSync, lookAtFiles, type WorkerFile } from "./look.ts";
import { changeStream, type FileContent, listHead, type TreeChange } from "./sync-stream.ts";

/** A file as it is to be on the worker. */
export interface SyncFile extends FileContent {
  /** Below the tree's folder, with `/`. */
  path: string;
  /** Written even where the worker has the same content already. */
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
  sentBytes: number;
}

/** A limit for each script. */
interface SyncOptions {
  signal?: AbortSignal;
  timeoutMs: number;
}

const TREE_LIMIT_MS = 900_000;
const ERROR_BYTES = 64 * 1024;
/** How often a sync waits for other syncs of the same tree. */
const SETTLES = 5;
/** Up to this much goes to the worker in one piece. */
const ONE_PIECE_BYTES = 256 * 1024;
const CONTROL_CHARACTER = /[\0-\x1f\x7f]/;
const JOB_NAME = /^[a-z][a-z0-9_-]*$/;
const NOT_OF_THE_WORKER = new Set(["jobs", ".sync", ".runner"]);

/**
 * Makes a tree on a worker the wanted one (decisions: Sync). First the worker tells what it has; if nothing differs,
 * nothing is written. Else one stream brings the differing files into `.sync/<name>/`, where they are verified; then a
 * commit file is written and the files are moved. Whenever a sync is interrupted, the tree is wholly old or, after the
 * next contact, wholly new. Only files of an earlier sync are ever removed.
 * Throws `unreachable`, `cancelled`, `timeout` (each script has `timeoutMs`, default 15 minutes) or `failed`.
 */
export async function syncTree(
  transport: Transport,
  tree: SyncTree,
  { timeoutMs = TREE_LIMIT_MS, signal }: Partial<SyncOptions> = {},
): Promise<SyncResult> {
  const what = tree.name === WORKER_TREE ? "the worker's files" : tree.name;
  const doing = `Cannot sync ${what} to ${transport.worker.host}`;
  const options = { timeoutMs, signal };
  const { wanted, found, isListed } = await lookAtTree(transport, doing, tree, options);
  const { file: listed, folder: made } = found.listed;
  const changed = [...wanted].filter(([path, file]) => isDifferent(file, found.files.get(path))).map(([path]) => path);
  const removed = [...listed].filter((path) => !wanted.has(path) && isOfTree(tree, path));
  const change = { tree: tree.name, wanted, isListed, made, changed, removed, doing };
  const sentBytes = isListed && changed.length === 0 ? 0 : await sendChange(transport, change, found.listHead, options);
  const below = (file: string) => belowFolder(tree, file);
  return { changed: changed.map(below), removed: removed.map(below), sentBytes };
}

/** Which files of a tree need not lie on the worker as they are wanted, by their path below the tree's folder. */
interface AdoptedFiles {
  /** Changed by the job itself: left as they are. */
  isOwn(path: string): boolean;
  /** Read by nobody but ops: brought where they differ. */
  isBrought(path: string): boolean;
}

/**
 * Makes sync own the files of a tree that lie on a worker already, from wherever they came: but for the files that are
 * brought, only the list in `.sync` is written. Throws `failed`, having written nothing, where another file has other
 * content than is wanted, else as {@link syncTree} does.
 */
export async function adoptTree(
  transport: Transport,
  tree: SyncTree,
  { isOwn, isBrought }: AdoptedFiles,
  { timeoutMs = TREE_LIMIT_MS, signal }: Partial<SyncOptions> = {},
): Promise<void> {
  const doing = `Cannot adopt ${tree.name} on ${transport.worker.host}`;
  const options = { timeoutMs, signal };
  const { wanted, found, isListed } = await lookAtTree(transport, doing, tree, options);
  const isThere = (path: string, file: SyncFile) => found.files.get(path)?.sha256 === file.sha256;
  const others = [...wanted].filter(([path, file]) => !isThere(path, file)).map(([path]) => path);
  const [changed = [], rest = []] = [true, false].map((is) => others.filter((path) => isBrought(belowFolder(tree, path)) === is));
  const wrong = rest.map((path) => belowFolder(tree, path)).filter((path) => !isOwn(path));
  if (wrong.length > 0) throw new Failure("failed", `${doing}: files have changed meanwhile: ${wrong.join(", ")}`);
  if (isListed && changed.length === 0) return;
  const change = { tree: tree.name, wanted, isListed, made: found.listed.folder, changed, removed: [], doing };
  await sendChange(transport, change, found.listHead, options);
}

/** A path of the bucket's folder, as one of the tree's folder. */
function belowFolder({ folder }: Pick<SyncTree, "folder">, file: string): string {
  return file.slice(folder === "." ? 0 : folder.length + 1);
}

/** The files by their path below the bucket's folder, sorted. */
function wantedFiles({ name, folder, files }: SyncTree): Map<string, SyncFile> {
  const isKnown = name === WORKER_TREE ? folder === "." : JOB_NAME.test(name) && folder === `jobs/${name}`;
  if (!isKnown) throw new Failure("failed", `Cannot sync ${quote(name)} into ${quote(folder)}: no job is there`);
  const wanted = new Map<string, SyncFile>();
  for (const file of files) {
    const place = folder === "." ? file.path : `${folder}/${file.path}`;
    if (!isOfTree({ folder }, place) || wanted.has(place))
      throw new Failure("failed", `Cannot sync ${name}: it cannot have a file ${quote(file.path)}`);
    wanted.set(place, file);
  }
  for (const above of foldersAbove(wanted.keys()))
    if (wanted.has(above)) throw new Failure("failed", `Cannot sync ${name}: ${quote(above)} is both a file and a folder`);
  return new Map([...wanted].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** True when a path of the bucket's folder is one that the tree of this folder may own. */
function isOfTree({ folder }: Pick<SyncTree, "folder">, place: string): boolean {
  const prefix = folder === "." ? "" : `${folder}/`;
  const file = place.slice(prefix.length);
  const parts = file.split("/");
  return (
    place.startsWith(prefix) &&
    !CONTROL_CHARACTER.test(place) &&
    !parts.some((part) => part === "" || part === "." || part === "..") &&
    (folder === "." ? !NOT_OF_THE_WORKER.has(parts[0] as string) : isForSync(file))
  );
}

function isDifferent({ sha256, mode, isRewritten = false }: SyncFile, found: WorkerFile | undefined): boolean {
  return isRewritten || found?.sha256 !== sha256 || isExecutable(found.mode) !== isExecutable(mode);
}

/**
 * Looks at a tree until no other sync of the tree is at work, after one that was cut off was brought to its end. Answers
 * the wanted files and what was found, and whether the tree's list names the wanted files already.
 */
async function lookAtTree(transport: Transport, doing: string, tree: SyncTree, options: SyncOptions) {
  const wanted = wantedFiles(tree);
  const head = listHead(wanted.keys());
  const question = { trees: [tree.name], head, lines: [...wanted.keys()].map((path) => `file ${path}`) };
  for (let attempt = 0; attempt < SETTLES; attempt++) {
    const found = await lookAtFiles(transport, question, doing, options);
    if (found.unsettled.size === 0) return { wanted, found, isListed: found.listHead.startsWith(head) };
    await runScriptOn(transport, "settle", doing, { ...options, args: [tree.name], keepBytes: ERROR_BYTES });
  }
  throw new Failure("failed", `${doing}: other syncs of these files keep the worker busy: run the command again`);
}

/** Sends what differs and answers how many bytes that took. */
async function sendChange(transport: Transport, change: TreeChange, first: string, options: SyncOptions): Promise<number> {
  const { digest, stream } = changeStream(change);
  let sentBytes = 0;
  async function* counted() {
    for await (const chunk of stream) {
      sentBytes += chunk.length;
      yield chunk;
    }
  }
  const size = change.changed.reduce((sum, file) => sum + (change.wanted.get(file)?.size ?? 0), 0);
  const isShort = size <= ONE_PIECE_BYTES;
  const input = isShort ? Buffer.concat(await Array.fromAsync(counted())) : counted();
  const args = [change.tree, digest, first];
  await runScriptOn(transport, "receive", change.doing, { ...options, args, input, isShort, keepBytes: ERROR_BYTES });
  return sentBytes;
}

/**
 * Removes all that a job has on a worker: its folder with data and logs, and what sync and the runner keep about the
 * job. May be interrupted and repeated. Throws as {@link syncTree} does; `failed` where a target of the job still runs
 * there.
 */
export async function discardJob(transport: Transport, job: string, signal: AbortSignal): Promise<void> {
  await runScriptOn(transport, "discard", cleanUpOn(transport), { args: [job], timeoutMs: TREE_LIMIT_MS, signal });
}

/**
 * Removes the bucket's whole folder from a worker that has left the bucket; nothing may be run there afterwards.
 * Answers false, having removed nothing, where the folder belongs to another worker by now: the same machine under
 * another name.
 */
export async function vacate(transport: Transport, signal: AbortSignal): Promise<boolean> {
  const args = [path.posix.basename(transport.folder), transport.worker.host];
  const options = { args, timeoutMs: TREE_LIMIT_MS, signal };
  const { stdout } = await runScriptOn(transport, "vacate", cleanUpOn(transport), options);
  return stdout.trim() !== "used";
}

function cleanUpOn({ worker }: Transport): string {
  return `Cannot clean up on ${worker.host}`;
}
