import { chmodSync, mkdirSync } from "node:fs";
import { parentPort, workerData } from "node:worker_threads";
import { messageOf } from "../../core/errors.ts";
import { isSame, place, share } from "./place.ts";
import { folderOf, Present } from "./present.ts";

/** A tree that is made of the entries of an archive. */
export interface TreeOrder {
  folder: string;
  modes: Record<"file" | "program" | "folder", number>;
  /** A read-only tree that has the kept entries, and the moment (in milliseconds) from which on none of its files changes. */
  like?: { folder: string; until: number } | undefined;
  /** A source that may have the same files already: the tree has only what has to be put into this source. */
  replaces?: string | undefined;
}

/** An entry of an archive. A file has bytes, or is at another path. */
export interface TreeEntry {
  /** Its path in the tree. */
  name: string;
  kind: "file" | "program" | "folder";
  content?: Uint8Array | string;
  /** A file that is to be shared with the tree `like`. */
  isKept?: boolean;
}

/**
 * Entries on their way to trees, in few pieces: threads get those far sooner than many objects. The bytes of all files
 * are one after the other, and the threads share them.
 */
export interface TreeBatch {
  names: string[];
  kinds: TreeEntry["kind"][];
  areKept: boolean[];
  /** How many bytes a file has, or the path of a file that is elsewhere. */
  contents: (number | string)[];
  bytes: Uint8Array;
}

/** Makes one tree, synchronously. Nobody reads the tree yet, and each name comes once. */
export class TreeMaker {
  readonly #order: TreeOrder;
  readonly #like: Present | undefined;
  readonly #replaced: Present | undefined;
  readonly #made = new Set(["."]);
  readonly #given = new Set<number>();
  readonly #wanted = new Set<string>();
  readonly #paths = new Set<string>();

  constructor(order: TreeOrder) {
    this.#order = order;
    const { like, replaces, modes } = order;
    if (like) this.#like = new Present(like.folder, modes.folder);
    if (replaces !== undefined) this.#replaced = new Present(replaces, modes.folder);
  }

  /** Puts entries into the tree. */
  take({ names, kinds, areKept, contents, bytes }: TreeBatch): void {
    let at = 0;
    for (const [index, name] of names.entries()) {
      const size = contents[index] as number | string;
      const content = typeof size === "number" ? bytes.subarray(at, at + size) : size;
      if (typeof size === "number") at += size;
      this.#put({ name, kind: kinds[index] as TreeEntry["kind"], content, isKept: areKept[index] as boolean });
    }
  }

  /**
   * The end of the work: folders get their mode. Answers the paths, none of them below another one, at which the source
   * that is to be replaced differs.
   */
  finish(): string[] {
    const { folder, modes } = this.#order;
    for (const name of this.#made) if (name !== ".") chmodSync(`${folder}/${name}`, modes.folder);
    const found = this.#replaced;
    for (const name of found ? [".", ...this.#wanted] : [])
      for (const there of found?.pathsIn(name) ?? []) if (!this.#wanted.has(there)) this.#paths.add(there);
    return [...this.#paths];
  }

  #put({ name, kind, content, isKept }: Required<TreeEntry>): void {
    const { folder, modes, like } = this.#order;
    if (this.#replaced && this.#isThere(name, kind, content)) return;
    const above = folderOf(name);
    this.#make(kind === "folder" ? name : above);
    if (kind === "folder") return;
    const [mode, target] = [modes[kind], `${folder}/${name}`];
    const isShared = isKept && like && this.#like?.isFolder(above) && share(`${like.folder}/${name}`, target, mode, like.until);
    if (!isShared) place({ target, mode, content, given: this.#given });
  }

  /** Whether the source that is to be replaced has just this; else notes what has to be replaced. */
  #isThere(name: string, kind: TreeEntry["kind"], content: Uint8Array | string): boolean {
    const replaced = this.#replaced as Present;
    this.#want(name);
    const found = replaced.kindOf(name);
    const isThere =
      kind === "folder"
        ? found === "folder"
        : found === "file" && isSame(replaced.placeOf(name), this.#order.modes[kind], content);
    if (!isThere) this.#paths.add(replaced.highest(name));
    return isThere;
  }

  #make(name: string): void {
    if (this.#made.has(name)) return;
    this.#make(folderOf(name));
    this.#made.add(name);
    mkdirSync(`${this.#order.folder}/${name}`);
  }

  /** A name and the folders on the way to it are part of the tree. */
  #want(name: string): void {
    if (name === "." || this.#wanted.has(name)) return;
    this.#wanted.add(name);
    this.#want(folderOf(name));
  }
}

/** What is said to a thread of trees.ts: a new order, entries for it, or that these were all. */
export type TreeQuestion = TreeOrder | TreeBatch | "finish";
/** What the thread answers to each question. */
export type TreeAnswer = { paths: string[] } | { message: string; code: unknown };
/** How a thread of trees.ts is told apart from one of another kind. */
export const TREE_THREAD = "trees";

let maker: TreeMaker | undefined;
if (workerData === TREE_THREAD) parentPort?.on("message", (question: TreeQuestion) => parentPort?.postMessage(answer(question)));

function answer(question: TreeQuestion): TreeAnswer {
  try {
    const paths = question === "finish" ? maker?.finish() : undefined;
    if (question === "finish") maker = undefined;
    else if ("modes" in question) maker = new TreeMaker(question);
    else maker?.take(question);
    return { paths: paths ?? [] };
  } catch (error) {
    return { message: messageOf(error), code: (error as { code?: unknown }).code };
  }
}
