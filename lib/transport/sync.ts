import { createHash } from "node:crypto";
import { type TarInput, writeTar } from "../codec/tar-write.ts";
import { cancelledFailure, Failure, messageOf } from "../core/errors.ts";
import { quote } from "../core/shape.ts";
import type { CommandOutcome } from "../core/spawn.ts";
import { type ScriptName, scriptText } from "./sync-scripts.ts";
import type { ScriptOptions, Transport } from "./transport.ts";

/** A file as it is to be on the worker. `open` is called at most once, and only if the file has to be sent. */
export interface SyncFile {
  /** Below the tree's folder, with `/`. */
  path: string;
  /** Set when the file is written; of a file that is there already only the owner's execute bit is compared. */
  mode: number;
  /** Of the content, in lower-case hexadecimal. */
  sha256: string;
  size: number;
  open(): AsyncIterable<Uint8Array>;
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
  const found = await ask(transport, tree, [...wanted.keys()], options);
  const changed = [...wanted.keys()].filter((path) => isDifferent(wanted.get(path), found.files.get(path)));
  const removed = [...found.listed.keys()].filter((path) => !wanted.has(path) && isOf(tree, path));
  const isListed = wanted.size === found.listed.size && [...wanted].every(isListedIn(found.listed));
  const sentBytes =
    isListed && changed.length === 0
      ? 0
      : await send({ transport, tree, wanted, found, changed, removed }, options);
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
    throw new Failure(
      "failed",
      `Cannot sync ${quote(tree.name)} into ${quote(tree.folder)}: no job is there`,
    );
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

/** All folders above these paths, each before those in it. */
function foldersAbove(paths: Iterable<string>): Set<string> {
  const folders = new Set<string>();
  for (const path of paths)
    for (let at = path.indexOf("/"); at > 0; at = path.indexOf("/", at + 1)) folders.add(path.slice(0, at));
  return folders;
}

interface FoundFile {
  isExecutable: boolean;
  sha256: string;
}

/** What a worker has of a tree. */
interface Found {
  files: Map<string, FoundFile>;
  /** What sync owns: files with the digest they were sent with, and the folders it made. */
  listed: Map<string, string>;
  folders: string[];
  /** Of the whole list, so that a change by another sync is noticed. */
  listDigest: string;
}

function isDifferent(wanted: SyncFile | undefined, found: FoundFile | undefined): boolean {
  return found?.sha256 !== wanted?.sha256 || found?.isExecutable !== isExecutable(wanted?.mode ?? 0);
}

function isListedIn(listed: Map<string, string>): (entry: [string, SyncFile]) => boolean {
  return ([path, file]) => listed.get(path) === file.sha256;
}

function isExecutable(mode: number): boolean {
  return (mode & 0o100) !== 0;
}

const FACT =
  /^(?:list (?<listed>[0-9a-f]{64}|folder) {2}(?<path>.+)|mode (?<mode>[0-9a-f]+) \.\/(?<name>.+)|(?<escaped>\\?)(?<sha256>[0-9a-f]{64}) [ *]\.\/(?<of>.+))$/;

async function ask(
  transport: Transport,
  tree: SyncTree,
  paths: string[],
  options: ScriptOptions,
): Promise<Found> {
  const found: Found = { files: new Map(), listed: new Map(), folders: [], listDigest: "" };
  const digest = createHash("sha256");
  let isWhole = false;
  const onLine = (line: string, stream: "stdout" | "stderr") => {
    if (stream === "stderr") return;
    if (line.startsWith("list ")) digest.update(`${line.slice(5)}\n`);
    isWhole = line === "end";
    note(found, line);
  };
  const input = paths.map((path) => `${path}\n`).join("");
  await run(transport, tree, "ask", { ...options, args: [tree.name], input, onLine, isShort: true });
  if (!isWhole) throw failed(transport, tree, "its answer was cut off");
  found.listDigest = digest.digest("hex");
  return found;
}

function note(found: Found, line: string): void {
  const fact = FACT.exec(line)?.groups;
  if (fact?.path !== undefined) {
    if (fact.listed === "folder") found.folders.push(fact.path);
    else found.listed.set(fact.path, fact.listed as string);
  } else if (fact?.name !== undefined) {
    found.files.set(fact.name, {
      isExecutable: isExecutable(Number.parseInt(fact.mode as string, 16)),
      sha256: "",
    });
  } else if (fact?.of !== undefined) {
    // sha256sum of GNU doubles backslashes in names and says so by a backslash in front.
    const file = found.files.get(fact.escaped ? fact.of.replaceAll("\\\\", "\\") : fact.of);
    if (file) file.sha256 = fact.sha256 as string;
  }
}

/** What is to be done to a tree. */
interface Change {
  transport: Transport;
  tree: SyncTree;
  wanted: Map<string, SyncFile>;
  found: Found;
  changed: string[];
  removed: string[];
}

/** Sends what differs and answers how many bytes that took. */
async function send(change: Change, options: ScriptOptions): Promise<number> {
  const { transport, tree, found } = change;
  const orders = ordersOf(change);
  const args = [tree.name, sha256(orders.get("digests") as string), found.listDigest];
  let sentBytes = 0;
  let broken: unknown;
  async function* stream() {
    try {
      for await (const chunk of writeTar(entriesOf(change, orders))) {
        sentBytes += chunk.length;
        yield chunk;
      }
    } catch (error) {
      broken = error;
      throw error;
    }
  }
  try {
    await run(transport, tree, "receive", { ...options, args, input: stream() });
  } catch (error) {
    throw broken ?? error;
  }
  return sentBytes;
}

/** The small files in front of the content, as scripts/receive.sh describes them. Names occur in them alone. */
function ordersOf({ wanted, found, changed, removed }: Change): Map<string, string> {
  const needed = foldersAbove(wanted.keys());
  const kept = found.folders.filter((folder) => needed.has(folder));
  const emptied = [...foldersAbove(removed)].filter(
    (folder) => !needed.has(folder) && found.folders.includes(folder),
  );
  const orders = new Map([
    ["moves", lines(changed)],
    ["removals", lines(removed)],
    ["emptied", lines(emptied.reverse())],
    ["parents", lines(foldersAbove([...changed, ...removed]))],
    [
      "list",
      lines([
        ...[...wanted].map(([path, file]) => `${file.sha256}  ${path}`),
        ...kept.map((folder) => `folder  ${folder}`),
      ]),
    ],
  ]);
  const digests = [
    ...[...orders].map(([name, text]) => `${sha256(text)}  ${name}`),
    ...changed.map((path, index) => `${wanted.get(path)?.sha256}  new/${index + 1}`),
  ];
  return new Map([["digests", lines(digests)], ...orders]);
}

function lines(items: Iterable<string>): string {
  return [...items].map((item) => `${item}\n`).join("");
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

async function* entriesOf(change: Change, orders: Map<string, string>): AsyncGenerator<TarInput> {
  for (const [path, text] of orders) {
    const content = Buffer.from(text);
    yield { path, mode: 0o600, size: content.length, content: [content] };
  }
  for (const [index, path] of change.changed.entries()) {
    const file = change.wanted.get(path) as SyncFile;
    yield {
      path: `new/${index + 1}`,
      mode: file.mode,
      size: file.size,
      content: contentOf(change, path, file),
    };
  }
}

async function* contentOf(change: Change, path: string, file: SyncFile): AsyncGenerator<Uint8Array> {
  let size = 0;
  try {
    for await (const chunk of file.open()) {
      size += chunk.length;
      yield chunk;
    }
  } catch (cause) {
    throw failed(change.transport, change.tree, `cannot read ${quote(path)}: ${messageOf(cause)}`, cause);
  }
  if (size !== file.size)
    throw failed(change.transport, change.tree, `${quote(path)} has changed while it was read`);
}

async function run(
  transport: Transport,
  tree: SyncTree,
  script: ScriptName,
  options: ScriptOptions,
): Promise<void> {
  const timeoutMs = options.timeoutMs ?? LIMIT_MS;
  const outcome = await transport.script(scriptText(script), {
    ...options,
    timeoutMs,
    keepBytes: ERROR_BYTES,
  });
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
