import { hash, randomBytes } from "node:crypto";
import { type TarInput, writeTar } from "../../codec/archive/tar-write.ts";
import { Failure, messageOf } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { foldersAbove } from "./look.ts";

/** What is sent of a file. */
export interface FileContent {
  /** Set when the file is written; of a file on the worker only the owner's execute bit is compared. */
  mode: number;
  /** Of the content, in lower-case hexadecimal. */
  sha256: string;
  size: number;
  /** Called at most once, and only if the file has to be sent. */
  open(): AsyncIterable<Uint8Array>;
}

/** A change of a tree; all paths are below the bucket's folder. */
export interface TreeChange {
  /** The tree's name: its part of `.sync`. */
  tree: string;
  /** All files of the tree as they are to be, sorted by path. */
  wanted: ReadonlyMap<string, FileContent>;
  /** True when the tree's list names the wanted files already: only the first line of the list changes. */
  isListed: boolean;
  /** The folders of the tree that sync has made; none where `isListed`. */
  made: ReadonlySet<string>;
  changed: readonly string[];
  removed: readonly string[];
  /** The beginning of the sentence where a file cannot be sent. */
  doing: string;
}

/** How many files go into one folder of the stream: their names are the arguments of one command. */
const PARCEL = 100;
/** Names that mean themselves to every tar and shell, and fit into a tar header; other files are sent by number. */
const PLAIN_NAME = /^\w[\w.+=@%,-]{0,90}$/;

/**
 * The archive that scripts/receive.sh takes for a tree, and the digest of the first file in it. The stream throws
 * `failed` for a file that cannot be read or has changed.
 */
export function changeStream(change: TreeChange): { digest: string; stream: AsyncIterable<Uint8Array> } {
  const { tree, wanted, changed, doing } = change;
  const parcels = parcelsOf(changed);
  const orders = ordersOf(change, parcels);
  async function* entries(): AsyncGenerator<TarInput> {
    for (const [name, text] of orders) {
      const content = Buffer.from(text);
      yield { path: `${tree}/${name}`, mode: 0o600, size: content.length, content: [content] };
    }
    for (const path of changed) {
      const file = wanted.get(path) as FileContent;
      const { mode, size } = file;
      yield { path: `${tree}/${parcels.names.get(path)}`, mode, size, content: checkedContent(path, file, doing) };
    }
  }
  return { digest: hash("sha256", orders.get("digests") as string), stream: writeTar(entries()) };
}

/** The beginning of the list of a tree of these files, sorted as they are. */
export function listHead(paths: Iterable<string>): string {
  return `sync ${hash("sha256", lines(paths))} `;
}

/**
 * How files are put into the stream: where `new/1`, `new/2`, … belong, and the name in the stream by the file's path,
 * `new/<n>`, or `new/<n>/<name>` where several go into one folder.
 */
function parcelsOf(paths: readonly string[]) {
  const parcels = { places: [] as string[], names: new Map<string, string>() };
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
function ordersOf(change: TreeChange, { places, names }: ReturnType<typeof parcelsOf>): Map<string, string> {
  const { tree, wanted, made, changed, removed } = change;
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
    change.isListed ? ["first", lines([first])] : ["list", lines([first, ...owned])],
  ]);
  if (removed.length > 0) orders.set("removals", lines(removed));
  if (emptied.length > 0) orders.set("emptied", lines(emptied.reverse()));
  const digests = [
    ...[...orders].map(([name, text]) => `${hash("sha256", text)}  .sync/${tree}/${name}`),
    ...changed.map((path) => `${wanted.get(path)?.sha256}  .sync/${tree}/${names.get(path)}`),
  ];
  return new Map([["digests", lines(digests)], ...orders]);
}

async function* checkedContent(path: string, { size, open }: FileContent, doing: string): AsyncGenerator<Uint8Array> {
  let read = 0;
  try {
    for await (const chunk of open()) {
      read += chunk.length;
      yield chunk;
    }
  } catch (cause) {
    throw new Failure("failed", `${doing}: cannot read ${quote(path)}: ${messageOf(cause)}`, { cause });
  }
  if (read !== size) throw new Failure("failed", `${doing}: ${quote(path)} has changed while it was read`);
}

function lines(items: Iterable<string>): string {
  return [...items].map((item) => `${item}\n`).join("");
}
