import { chmodSync, mkdirSync } from "node:fs";
import path from "node:path";
import { parentPort, workerData } from "node:worker_threads";
import { messageOf } from "../../core/errors.ts";
import { isSame, place } from "./place.ts";
import { Present } from "./present.ts";

/** A tree that is made of the entries of an archive. */
export interface TreeOrder {
  folder: string;
  modes: Record<"file" | "program" | "folder", number>;
  /** A tree that may have the same files already: these are shared. */
  like?: string | undefined;
  /** A source that may have the same files already: the tree has only what has to be put into this source. */
  replaces?: string | undefined;
}

/** An entry of an archive. A file has bytes, or is at another path. */
export interface TreeEntry {
  /** Its path in the tree. */
  name: string;
  kind: "file" | "program" | "folder";
  content?: Uint8Array | string;
}

/**
 * Entries on their way to trees, in few pieces: threads get those far sooner than many objects. The bytes of all files
 * are one after the other, and the threads share them.
 */
export interface TreeBatch {
  /** A line for each entry; no name has a control character. */
  names: string;
  kinds: TreeEntry["kind"][];
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
  readonly #wanted = new Set<string>();
  readonly #paths = new Set<string>();

  constructor(order: TreeOrder) {
    this.#order = order;
    const { like, replaces, modes } = order;
    if (like !== undefined) this.#like = new Present(like, modes.folder);
    if (replaces !== undefined) this.#replaced = new Present(replaces, modes.folder);
  }

  /** Puts entries into the tree. */
  take({ names, kinds, contents, bytes }: TreeBatch): void {
    let at = 0;
    for (const [index, name] of names.split("\n").entries()) {
      const content = contents[index] as number | string;
      const from = at;
      if (typeof content === "number") at += content;
      this.#put(name, kinds[index] as TreeEntry["kind"], typeof content === "number" ? bytes.subarray(from, at) : content);
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

  #put(name: string, kind: TreeEntry["kind"], content: Uint8Array | string): void {
    const { folder, modes } = this.#order;
    this.#want(name);
    const replaced = this.#replaced;
    const found = replaced?.kindOf(name);
    if (kind === "folder" && found === "folder") return;
    if (kind !== "folder" && found === "file" && replaced && isSame(replaced.placeOf(name), modes[kind], content)) return;
    if (replaced) this.#paths.add(replaced.highest(name));
    this.#make(kind === "folder" ? name : path.posix.dirname(name));
    if (kind === "folder") return;
    const shared = this.#like?.kindOf(name) === "file" ? this.#like.placeOf(name) : undefined;
    place({ target: `${folder}/${name}`, mode: modes[kind], content, like: shared });
  }

  #make(name: string): void {
    if (this.#made.has(name)) return;
    this.#make(path.posix.dirname(name));
    this.#made.add(name);
    mkdirSync(`${this.#order.folder}/${name}`);
  }

  /** A name and the folders on the way to it are part of the tree. */
  #want(name: string): void {
    if (name === "." || this.#wanted.has(name)) return;
    this.#wanted.add(name);
    this.#want(path.posix.dirname(name));
  }
}

/** What is said to a thread of trees.ts. */
export type TreeQuestion = TreeBatch | "finish";
/** What the thread answers to each question. */
export type TreeAnswer = { paths: string[] } | { message: string; code: unknown };

/** How a thread is told apart from one of another kind. */
export interface TreeThreadData {
  tree: TreeOrder;
}

const tree = (workerData as Partial<TreeThreadData> | null)?.tree;
if (parentPort && tree) {
  const maker = new TreeMaker(tree);
  parentPort.on("message", (question: TreeQuestion) => parentPort?.postMessage(answer(maker, question)));
}

function answer(maker: TreeMaker, question: TreeQuestion): TreeAnswer {
  try {
    if (question === "finish") return { paths: maker.finish() };
    maker.take(question);
    return { paths: [] };
  } catch (error) {
    return { message: messageOf(error), code: (error as { code?: unknown }).code };
  }
}
