import { Worker } from "node:worker_threads";
import { programFile } from "../../core/self.ts";
import {
  type TreeAnswer,
  type TreeBatch,
  type TreeEntry,
  TreeMaker,
  type TreeOrder,
  type TreeQuestion,
  type TreeThreadData,
} from "./tree-maker.ts";

/** Fewer entries, or bytes, cost less than threads. */
const FEW_ENTRIES = 500;
const FEW_BYTES = 4 * 1024 * 1024;
const BATCH_ENTRIES = 100;
const BATCH_BYTES = 512 * 1024;
/** How many batches may be on their way to a tree. */
const MOST_UNDER_WAY = 8;

/**
 * Makes trees of the entries of an archive, side by side: a thread for each tree where there are many entries. Errors are
 * those of the file system, with their code.
 */
export class Trees {
  readonly #orders: readonly TreeOrder[];
  #threads: readonly TreeThread[] = [];
  #held: TreeBatch[] = [];
  #entries: TreeEntry[] = [];
  #bytes = 0;

  constructor(orders: readonly TreeOrder[]) {
    this.#orders = orders;
  }

  /** Puts an entry into each tree; waits where the trees do not keep up. */
  async put(entry: TreeEntry): Promise<void> {
    this.#entries.push(entry);
    if (typeof entry.content === "object") this.#bytes += entry.content.length;
    if (this.#entries.length >= BATCH_ENTRIES || this.#bytes >= BATCH_BYTES) await this.#pass();
  }

  /** Waits until all trees are there; for each the paths at which the source that it replaces differs. */
  async finish(): Promise<string[][]> {
    await this.#pass();
    if (this.#threads.length > 0) return await Promise.all(this.#threads.map((thread) => thread.finish()));
    return this.#orders.map((order) => {
      const maker = new TreeMaker(order);
      for (const batch of this.#held) maker.take(batch);
      return maker.finish();
    });
  }

  /** Ends the work. Nothing is written any more when this resolves. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }

  async #pass(): Promise<void> {
    if (this.#entries.length > 0) this.#held.push(batchOf(this.#entries.splice(0)));
    this.#bytes = 0;
    const { length } = this.#held;
    const bytes = this.#held.reduce((sum, batch) => sum + batch.bytes.length, 0);
    if (this.#threads.length === 0 && length * BATCH_ENTRIES <= FEW_ENTRIES && bytes <= FEW_BYTES) return;
    if (this.#threads.length === 0) this.#threads = this.#orders.map((order) => new TreeThread(order));
    for (const batch of this.#held.splice(0)) await Promise.all(this.#threads.map((thread) => thread.take(batch)));
  }
}

/** A thread that makes a tree. */
class TreeThread {
  readonly #thread: Worker;
  /** Of the questions without an answer yet, in their order. */
  readonly #answers: PromiseWithResolvers<string[]>[] = [];
  #failure: Error | undefined;

  constructor(tree: TreeOrder) {
    const workerData: TreeThreadData = { tree };
    // The thread gets nothing of the environment, in which a token may be.
    this.#thread = new Worker(programFile("lib/bucket/source/tree-maker"), { env: {}, workerData });
    this.#thread.on("message", (answer: TreeAnswer) => {
      if ("paths" in answer) this.#answers.shift()?.resolve(answer.paths);
      else this.#fail(Object.assign(new Error(answer.message), { code: answer.code }));
    });
    this.#thread.on("error", (error) => this.#fail(error as Error));
    this.#thread.on("exit", (code) => this.#fail(new Error(`a thread that writes files ended with code ${code}`)));
  }

  async take(batch: TreeBatch): Promise<void> {
    void this.#ask(batch);
    if (this.#answers.length > MOST_UNDER_WAY) await this.#answers[0]?.promise;
    if (this.#failure) throw this.#failure;
  }

  finish(): Promise<string[]> {
    return this.#ask("finish");
  }

  async close(): Promise<void> {
    await this.#thread.terminate();
  }

  #ask(question: TreeQuestion): Promise<string[]> {
    const answer = Promise.withResolvers<string[]>();
    // A failure is thrown when the next batch is taken, or at the end.
    answer.promise.catch(() => {});
    if (this.#failure) answer.reject(this.#failure);
    else this.#answers.push(answer);
    this.#thread.postMessage(question);
    return answer.promise;
  }

  #fail(error: Error): void {
    this.#failure ??= error;
    for (const answer of this.#answers.splice(0)) answer.reject(this.#failure);
  }
}

function batchOf(entries: readonly TreeEntry[]): TreeBatch {
  const contents = entries.map(({ content = "" }) => (typeof content === "string" ? content : content.length));
  const all = entries.flatMap(({ content }) => (typeof content === "object" ? [content] : []));
  const bytes = new Uint8Array(new SharedArrayBuffer(all.reduce((sum, { length }) => sum + length, 0)));
  let at = 0;
  for (const one of all) {
    bytes.set(one, at);
    at += one.length;
  }
  return { names: entries.map(({ name }) => name).join("\n"), kinds: entries.map(({ kind }) => kind), contents, bytes };
}
