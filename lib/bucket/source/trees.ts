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

  /** Hands the batch over, and begins one that has room for a file of so many bytes. */
  async #pass(bytes = 0): Promise<void> {
    this.#held.push(this.#batch);
    this.#batch = emptyBatch(bytes);
    this.#bytes = 0;
    // One batch costs less than threads.
    if (this.#threads.length === 0 && this.#held.length === 1) return;
    if (this.#threads.length === 0) this.#threads = this.#orders.map((order) => TreeThread.start(order));
    for (const batch of this.#held.splice(0)) await Promise.all(this.#threads.map((thread) => thread.take(batch)));
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
    void thread.#ask(order);
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

  async take(batch: TreeBatch): Promise<void> {
    void this.#ask(batch);
    if (this.#answers.length > MOST_UNDER_WAY) await this.#answers[0]?.promise;
    if (this.#failure) throw this.#failure;
  }

  finish(): Promise<string[]> {
    return this.#ask("finish");
  }

  /** Ends the thread, or lets it wait for another tree where it has nothing to do any more. */
  async close(): Promise<void> {
    const isBusy = this.#failure !== undefined || this.#answers.length > 0;
    if (isBusy || TreeThread.#resting.size >= MOST_RESTING) return void (await this.#thread.terminate());
    TreeThread.#resting.add(this);
    this.#thread.unref();
    this.#rest = setTimeout(() => void this.#thread.terminate(), REST_MS).unref();
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
    TreeThread.#resting.delete(this);
    this.#failure ??= error;
    for (const answer of this.#answers.splice(0)) answer.reject(this.#failure);
  }
}

function emptyBatch(bytes = 0): TreeBatch {
  const memory = new SharedArrayBuffer(Math.max(BATCH_BYTES, bytes));
  return { names: [], kinds: [], areKept: [], contents: [], bytes: new Uint8Array(memory) };
}
