import { Worker } from "node:worker_threads";
import { programFile, threadEnvironment } from "../../core/self.ts";
import {
  TREE_THREAD,
  type TreeAnswer,
  type TreeBatch,
  type TreeEntry,
  TreeMaker,
  type TreeOrder,
  type TreeQuestion,
} from "./tree-maker.ts";

const BATCH_ENTRIES = 500;
const BATCH_BYTES = 1024 * 1024;
/** How many batches may be on their way to a tree. */
const MOST_UNDER_WAY = 4;
/** The start of a thread costs as much as thousands of files, so some wait for the next push. */
const MOST_RESTING = 2;
const REST_MS = 60_000;

/**
 * Makes trees of the entries of an archive, side by side: a thread for each tree where there are many entries. Errors are
 * those of the file system, with their code.
 */
export class Trees {
  readonly #orders: readonly TreeOrder[];
  #threads: readonly TreeThread[] = [];
  #held: TreeBatch[] = [];
  /** The memory of each batch on its way, once the threads are done with it. */
  readonly #underWay: Promise<Uint8Array>[] = [];
  #batch = emptyBatch();
  /** How many bytes of the batch are taken. */
  #bytes = 0;

  constructor(orders: readonly TreeOrder[]) {
    this.#orders = orders;
  }

  /** Puts an entry into each tree; waits where the trees do not keep up. */
  async put({ name, kind, content = "", isKept = false }: TreeEntry): Promise<void> {
    const size = typeof content === "string" ? 0 : content.length;
    if (this.#batch.names.length === BATCH_ENTRIES || this.#bytes + size > this.#batch.bytes.length) await this.#pass(size);
    const { names, kinds, contents, areKept, bytes } = this.#batch;
    names.push(name);
    kinds.push(kind);
    areKept.push(isKept);
    contents.push(typeof content === "string" ? content : size);
    if (typeof content !== "string") bytes.set(content, this.#bytes);
    this.#bytes += size;
  }

  /** Waits until all trees are there; for each the paths at which the source that it replaces differs. */
  async finish(): Promise<string[][]> {
    await this.#pass();
    if (this.#threads.length > 0) return await Promise.all(this.#threads.map((thread) => thread.ask("finish")));
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

  /** Hands the batch over, and begins one that has room for a file of so many bytes. */
  async #pass(bytes = 0): Promise<void> {
    this.#held.push(this.#batch);
    // One batch costs less than threads.
    const spare = this.#threads.length > 0 || this.#held.length > 1 ? await this.#handOver() : undefined;
    this.#batch = emptyBatch(bytes, spare);
    this.#bytes = 0;
  }

  /** Gives the threads what is held. Answers the memory of a batch that they are done with, if there is one. */
  async #handOver(): Promise<Uint8Array | undefined> {
    if (this.#threads.length === 0) this.#threads = this.#orders.map((order) => TreeThread.start(order));
    for (const batch of this.#held.splice(0)) {
      const taken = Promise.all(this.#threads.map((thread) => thread.ask(batch))).then(() => batch.bytes);
      taken.catch(() => {});
      this.#underWay.push(taken);
    }
    return this.#underWay.length > MOST_UNDER_WAY ? await this.#underWay.shift() : undefined;
  }
}

/** A thread that makes trees, one after the other. */
class TreeThread {
  static readonly #resting = new Set<TreeThread>();
  readonly #thread: Worker;
  #rest: NodeJS.Timeout | undefined;
  /** Of the questions without an answer yet, in their order. */
  readonly #answers: PromiseWithResolvers<string[]>[] = [];
  #failure: Error | undefined;

  /** A thread that makes this tree. */
  static start(order: TreeOrder): TreeThread {
    const [thread = new TreeThread()] = TreeThread.#resting;
    TreeThread.#resting.delete(thread);
    clearTimeout(thread.#rest);
    thread.#thread.ref();
    void thread.ask(order);
    return thread;
  }

  private constructor() {
    const options = { env: threadEnvironment(), workerData: TREE_THREAD };
    this.#thread = new Worker(programFile("lib/bucket/source/tree-maker"), options);
    this.#thread.on("message", (answer: TreeAnswer) => {
      if ("paths" in answer) this.#answers.shift()?.resolve(answer.paths);
      else this.#fail(Object.assign(new Error(answer.message), { code: answer.code }));
    });
    this.#thread.on("error", (error) => this.#fail(error as Error));
    this.#thread.on("exit", (code) => this.#fail(new Error(`a thread that writes files ended with code ${code}`)));
  }

  /** Ends the thread, or lets it wait for another tree where it has nothing to do any more. */
  async close(): Promise<void> {
    const isBusy = this.#failure !== undefined || this.#answers.length > 0;
    if (isBusy || TreeThread.#resting.size >= MOST_RESTING) return void (await this.#thread.terminate());
    TreeThread.#resting.add(this);
    this.#thread.unref();
    this.#rest = setTimeout(() => void this.#thread.terminate(), REST_MS).unref();
  }

  /** The answer to an order, a batch or the end; a failure is that of every later question, too. */
  ask(question: TreeQuestion): Promise<string[]> {
    const answer = Promise.withResolvers<string[]>();
    answer.promise.catch(() => {});
    if (this.#failure) answer.reject(this.#failure);
    else this.#answers.push(answer);
    this.#thread.postMessage(question);
    return answer.promise;
  }

  #fail(error: Error): void {
    TreeThread.#resting.delete(this);
    this.#failure ??= error;
    for (const answer of this.#answers.splice(0)) answer.reject(this.#failure);
  }
}

/**
 * A batch with room for so many bytes, in the memory of an earlier batch where that is enough: the collector frees shared
 * memory only after every thread has let go of it.
 */
function emptyBatch(bytes = 0, spare?: Uint8Array): TreeBatch {
  const isEnough = spare !== undefined && spare.length >= bytes;
  const memory = isEnough ? spare : new Uint8Array(new SharedArrayBuffer(Math.max(BATCH_BYTES, bytes)));
  return { names: [], kinds: [], areKept: [], contents: [], bytes: memory };
}
