import { createHash, randomBytes } from "node:crypto";
import { type TarInput, writeTar } from "../../codec/archive/tar-write.ts";
import { type Failure, messageOf } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";

/** What is sent of a file. */
export interface FileContent {
  /** Set when the file is written; of a file that is there already only the owner's execute bit is compared. */
  mode: number;
  /** Of the content, in lower-case hexadecimal. */
  sha256: string;
  size: number;
  /** Called at most once, and only if the file has to be sent. */
  open(): AsyncIterable<Uint8Array>;
}

/** What is to be done to a tree; all paths are below the bucket's folder. */
export interface TreeChange {
  /** All files of the tree as they are to be, sorted by path. */
  wanted: ReadonlyMap<string, FileContent>;
  /** True when these files are the ones that its list names: the list gets another first line only. */
  isListed: boolean;
  /** The folders of it that sync has made; nothing where `isListed`. */
  made: ReadonlySet<string>;
  changed: readonly string[];
  removed: readonly string[];
}

/** How many files go into one folder of the stream: their names are the arguments of one command. */
const PARCEL = 100;
/** Names that mean themselves to every tar and shell, and fit into a tar header; any other file goes by its number. */
const PLAIN_NAME = /^\w[\w.+=@%,-]{0,90}$/;
/** Files are small, and each part that is sent costs both sides a little. */
const PART_BYTES = 64 * 1024;

/**
 * The archive that scripts/receive.sh takes for a tree, and the digest of its first file. The stream throws what `fail` makes of a
 * file that cannot be read or has changed.
 */
export function changeStream(
  tree: string,
  change: TreeChange,
  fail: (why: string, cause?: unknown) => Failure,
): { digest: string; stream: AsyncIterable<Uint8Array> } {
  const parcels = parcelsOf(change.changed);
  const orders = ordersOf(tree, change, parcels);
  const stream = writeTar(entriesOf(tree, change, orders, parcels.names, fail));
  return { digest: sha256(orders.get("digests") as string), stream };
}

/** How the list of a tree of these files begins, sorted as they are. */
export function listHead(paths: Iterable<string>): string {
  return `sync ${sha256(lines(paths))} `;
}

/** All folders above these paths, each before those in it. */
export function foldersAbove(paths: Iterable<string>): Set<string> {
  const folders = new Set<string>();
  for (const path of paths)
    for (let at = path.indexOf("/"); at > 0; at = path.indexOf("/", at + 1)) folders.add(path.slice(0, at));
  return folders;
}

/** How files are put into the stream. */
interface Parcels {
  /** Where `new/1`, `new/2`, … belong. */
  places: string[];
  /** The name in the stream by the file's path: `new/<n>`, or `new/<n>/<name>` where several go into one folder. */
  names: Map<string, string>;
}

function parcelsOf(paths: readonly string[]): Parcels {
  const parcels: Parcels = { places: [], names: new Map() };
  const open = new Map<string, { number: number; size: number }>();
  for (const path of paths) {
    const folder = path.slice(0, path.lastIndexOf("/") + 1);
    const name = path.slice(folder.length);
    const isPlain = PLAIN_NAME.test(name);
    let parcel = isPlain ? open.get(folder) : undefined;
    if (!parcel || parcel.size === PARCEL) {
      parcel = { number: parcels.places.push(isPlain ? folder : path), size: 0 };
      if (isPlain) open.set(folder, parcel);
    }
    parcel.size++;
    parcels.names.set(path, `new/${parcel.number}${isPlain ? `/${name}` : ""}`);
  }
  return parcels;
}

/** The small files in front of the content, as scripts/receive.sh describes them. */
function ordersOf(
  tree: string,
  { wanted, isListed, made, changed, removed }: TreeChange,
  { places, names }: Parcels,
): Map<string, string> {
  const needed = foldersAbove(wanted.keys());
  const emptied = [...foldersAbove(removed)].filter((folder) => !needed.has(folder) && made.has(folder));
  const first = `${listHead(wanted.keys())}${randomBytes(8).toString("hex")}`;
  const owned = [
    ...[...wanted.keys()].map((path) => `file  ${path}`),
    ...[...needed].filter((folder) => made.has(folder)).map((folder) => `folder  ${folder}`),
  ];
  const orders = new Map([
    ["moves", lines(places)],
    ["parents", lines(foldersAbove([...changed, ...removed]))],
    isListed ? ["first", lines([first])] : ["list", lines([first, ...owned])],
    ...(removed.length > 0 ? [["removals", lines(removed)] as const] : []),
    ...(emptied.length > 0 ? [["emptied", lines(emptied.reverse())] as const] : []),
  ]);
  const digests = [
    ...[...orders].map(([name, text]) => `${sha256(text)}  .sync/${tree}/${name}`),
    ...changed.map((path) => `${wanted.get(path)?.sha256}  .sync/${tree}/${names.get(path)}`),
  ];
  return new Map([["digests", lines(digests)], ...orders]);
}

async function* entriesOf(
  tree: string,
  change: TreeChange,
  orders: ReadonlyMap<string, string>,
  names: ReadonlyMap<string, string>,
  fail: (why: string, cause?: unknown) => Failure,
): AsyncGenerator<TarInput> {
  for (const [path, text] of orders) {
    const content = Buffer.from(text);
    yield { path: `${tree}/${path}`, mode: 0o600, size: content.length, content: [content] };
  }
  for (const path of change.changed) {
    const { mode, size, open } = change.wanted.get(path) as FileContent;
    yield { path: `${tree}/${names.get(path)}`, mode, size, content: contentOf(path, size, open, fail) };
  }
}

async function* contentOf(
  path: string,
  size: number,
  open: () => AsyncIterable<Uint8Array>,
  fail: (why: string, cause?: unknown) => Failure,
): AsyncGenerator<Uint8Array> {
  let read = 0;
  try {
    for await (const chunk of open()) {
      read += chunk.length;
      yield chunk;
    }
  } catch (cause) {
    throw fail(`cannot read ${quote(path)}: ${messageOf(cause)}`, cause);
  }
  if (read !== size) throw fail(`${quote(path)} has changed while it was read`);
}

/** Passes on small chunks together. */
export async function* inParts(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let held: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    if (size + chunk.length > PART_BYTES) {
      yield* joined(held);
      [held, size] = [[], 0];
    }
    held.push(chunk);
    size += chunk.length;
  }
  yield* joined(held);
}

function joined(chunks: Uint8Array[]): Uint8Array[] {
  return chunks.length > 1 ? [Buffer.concat(chunks)] : chunks;
}

function lines(items: Iterable<string>): string {
  return [...items].map((item) => `${item}\n`).join("");
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
