import { Worker } from "node:worker_threads";
import type { Layout } from "../bucket/base/layout.ts";
import { within } from "../core/async.ts";
import { Failure } from "../core/errors.ts";
import { programFile, threadEnvironment } from "../core/self.ts";
import { type Answer, readyJson } from "../http/message.ts";
import type { ReadEnd, ReadOrder, Reads } from "./reads.ts";

/** A read that takes longer is given up, and with it all that wait behind it. */
const LONGEST_READ_MS = 60_000;
/** How long the end of the thread is waited for: SQLite finishes what it has begun. */
const CLOSE_MS = 2_000;
/** What a read may need at most, so that the thread dies of it and not the server. */
const HEAP_LIMITS = { maxOldGenerationSizeMb: 512 };

type Waiting = PromiseWithResolvers<Uint8Array<ArrayBuffer>>;

/**
 * The thread that carries out the reads of `reads.ts`, one after the other. The first read starts the thread; when the
 * thread ends, all reads that wait fail, and the next one starts another.
 */
export class ReadThread {
  #thread: Worker | undefined;
  readonly #waiting = new Map<number, Waiting>();
  #last = 0;
  #closed = false;

  /** The JSON that a read answers. Throws the read's failures; `database_busy` after 60 seconds. */
  async ask<K extends keyof Reads>(name: K, { root }: Layout, input: Parameters<Reads[K]>[1]): Promise<Uint8Array<ArrayBuffer>> {
    if (this.#closed) throw new Failure("shutting_down", "the server is shutting down");
    const thread = this.#start();
    const order: ReadOrder = { id: ++this.#last, name, root, input };
    const waiting: Waiting = Promise.withResolvers();
    this.#waiting.set(order.id, waiting);
    const tooLong = new Failure("database_busy", "the database could not be read within 60 seconds; try again");
    const timer = setTimeout(() => this.#end(thread, tooLong), LONGEST_READ_MS);
    try {
      thread.postMessage(order);
      return await waiting.promise;
    } finally {
      clearTimeout(timer);
      this.#waiting.delete(order.id);
    }
  }

  /** {@link ask}, as the answer to a request. */
  async answer<K extends keyof Reads>(...order: Parameters<typeof this.ask<K>>): Promise<Answer> {
    return readyJson(await this.ask(...order));
  }

  /**
   * Ends the thread, which lets go of its databases; waits at most 2 seconds for a read that is under way. What waits fails
   * with `shutting_down`.
   */
  async close(): Promise<void> {
    this.#closed = true;
    if (this.#thread)
      await within(this.#end(this.#thread, new Failure("shutting_down", "the server is shutting down")), CLOSE_MS);
  }

  #start(): Worker {
    if (this.#thread) return this.#thread;
    const thread = new Worker(programFile("lib/server/reads"), { env: threadEnvironment(), resourceLimits: HEAP_LIMITS });
    thread.unref();
    thread.on("message", (end: ReadEnd) => this.#settle(end));
    thread.on("error", (error) => this.#end(thread, error));
    thread.on("exit", (code) => this.#end(thread, new Error(`the thread for reads ended with code ${code}`)));
    this.#thread = thread;
    return thread;
  }

  #settle(end: ReadEnd): void {
    const waiting = this.#waiting.get(end.id);
    if ("json" in end) waiting?.resolve(end.json);
    else if ("defect" in end) waiting?.reject(Object.assign(new Error("a read failed"), { stack: end.defect }));
    else waiting?.reject(new Failure(end.failure.code, end.failure.message, { details: end.failure.details }));
  }

  async #end(thread: Worker, why: unknown): Promise<void> {
    if (this.#thread !== thread) return;
    this.#thread = undefined;
    for (const waiting of this.#waiting.values()) waiting.reject(why);
    await thread.terminate();
  }
}
