import { isIPv4 } from "node:net";
import { availableParallelism } from "node:os";
import { unlessCut } from "../../core/async.ts";
import { cancelledFailure, throwIfCancelled } from "../../core/errors.ts";
import { LOG_SHARE } from "../../core/process.ts";

/** A number of places; others wait, first come, first served. */
export class Limit {
  #width: number;
  #most = Number.POSITIVE_INFINITY;
  #taken = 0;
  readonly #waiting: (() => void)[] = [];

  constructor(width: number) {
    this.#width = width;
  }

  /** True where no place is taken. */
  get isFree(): boolean {
    return this.#taken === 0;
  }

  /** Waits for a place; the answer gives the place back. Throws `cancelled` when the signal is aborted first. */
  async enter(signal?: AbortSignal): Promise<() => void> {
    throwIfCancelled(signal);
    if (this.#taken < this.#width) this.#taken++;
    else await this.#turn(signal);
    let isIn = true;
    return () => {
      if (!isIn) return;
      isIn = false;
      this.#taken--;
      this.#admit();
    };
  }

  /**
   * Leaves only as many places as are taken beside the caller's, and never makes room for more again; false when the
   * caller has the only one.
   */
  narrow(): boolean {
    this.#width = Math.min(this.#width, Math.max(1, this.#taken - 1));
    this.#most = this.#width;
    return this.#taken > 1;
  }

  /** Makes room for one more, up to `most` places. */
  widen(most: number): void {
    if (this.#width >= Math.min(most, this.#most)) return;
    this.#width++;
    this.#admit();
  }

  #turn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const onAbort = () => {
        this.#waiting.splice(this.#waiting.indexOf(enter), 1);
        reject(cancelledFailure());
      };
      const enter = () => {
        signal?.removeEventListener("abort", onAbort);
        resolve();
      };
      this.#waiting.push(enter);
      signal?.addEventListener("abort", onAbort, { once: true });
    });
  }

  #admit(): void {
    if (this.#taken >= this.#width) return;
    const next = this.#waiting.shift();
    if (!next) return;
    this.#taken++;
    next();
  }
}

/** Waits for a place in each limit, one after the other; the answer gives all back. */
export async function enterAll(limits: readonly Entrance[], signal?: AbortSignal): Promise<() => void> {
  const entered: (() => void)[] = [];
  const leave = () => {
    for (const one of entered) one();
  };
  try {
    for (const limit of limits) entered.push(await limit.enter(signal));
  } catch (error) {
    leave();
    throw error;
  }
  return leave;
}

/** Descriptors of a process that are left to everything else: the database, pipes of hook scripts, the program itself. */
const OTHER_DESCRIPTORS = 70;
/** A command at work: its session, the file that it sends, the session that ends it, a shell that is being closed. */
const DESCRIPTORS_PER_COMMAND = 4;

/**
 * How many commands can be at work, at most `concurrency`, and how many shells can be kept open beside them, with a limit
 * of open files. Node has raised the limit as far as it goes.
 */
export function descriptorRoom(openFiles: number, concurrency: number): { commands: number; shells: number } {
  const room = (1 - LOG_SHARE) * openFiles - OTHER_DESCRIPTORS;
  const commands = Math.max(1, Math.min(concurrency, Math.floor(room / (DESCRIPTORS_PER_COMMAND + 1))));
  return { commands, shells: Math.max(commands, Math.floor(room - DESCRIPTORS_PER_COMMAND * commands)) };
}

/** What gives tasks their places. */
export type Entrance = Pick<Limit, "enter">;

/** What stays open for its next use. */
interface Kept {
  close(): Promise<void>;
}

/**
 * Bounds how many things are open that are kept for their next use: where one more is needed, the one that has been idle
 * longest is closed. So nobody waits, as long as there are fewer tasks than places.
 */
export class Pool {
  readonly #most: number;
  readonly #open = new Set<Kept>();
  readonly #idle = new Set<Kept>();

  constructor(most: number) {
    this.#most = most;
  }

  /** Where a task that uses this thing has its place. */
  placeOf(one: Kept): Entrance {
    const enter = async () => {
      this.#open.add(one);
      this.#idle.delete(one);
      const [longest] = this.#idle;
      if (this.#open.size > this.#most && longest) {
        this.#open.delete(longest);
        this.#idle.delete(longest);
        void longest.close();
      }
      return () => void this.#idle.add(one);
    };
    return { enter };
  }
}

const HANDSHAKES_PER_CORE = 10;
/** A handshake computes for less; who takes longer waits for a host that gives no answer, and another may compute. */
const HANDSHAKE_MS = 1_000;
/** How many connections are being opened for each handshake that computes. */
const OPENED_PER_HANDSHAKE = 4;
/** An sshd in its default settings (MaxStartups 10:30:100) drops none of so many handshakes at a time. */
const HANDSHAKES_PER_SERVER = 8;
/** One that has opened as many connections as it was asked for gets more, until it drops one. */
const MOST_PER_SERVER = 20;

/** What a server made of a handshake: only a connection that was opened or dropped tells how many it can take. */
type Handshake = "opened" | "dropped" | "failed";

/**
 * Bounds the connections that are being opened: to all workers together, and to one sshd. The answer waits for a place
 * at the server of a TCP connection, and answers how to give the place back.
 */
export function handshakeLimit(concurrency: number) {
  const places = Math.min(concurrency, HANDSHAKES_PER_CORE * availableParallelism());
  const [opening, computing] = [new Limit(OPENED_PER_HANDSHAKE * places), new Limit(places)];
  const servers = new Map<string, Limit>();
  return async ({ host, port }: { host: string; port: number }, signal?: AbortSignal): Promise<(end: Handshake) => void> => {
    // All loopback addresses are one machine: a port there means one sshd.
    const machine = isIPv4(host) && host.startsWith("127.") ? "loopback" : host.toLowerCase();
    const name = `${machine} ${port}`;
    const server = servers.get(name) ?? new Limit(HANDSHAKES_PER_SERVER);
    servers.set(name, server);
    const leave = await enterAll([server, opening], signal);
    const compute = await computing.enter(signal).catch((error) => {
      leave();
      throw error;
    });
    const timer = setTimeout(compute, HANDSHAKE_MS);
    return (end) => {
      clearTimeout(timer);
      if (end === "opened") server.widen(MOST_PER_SERVER);
      else if (end === "dropped") server.narrow();
      compute();
      leave();
    };
  };
}

const PATIENCE_MS = 30_000;
/** Nobody is given up before so many times the time that the slowest one has taken. */
const SLOWER = 4;
const MOST_PATIENCE_MS = 120_000;

/**
 * How long a worker's shell may take to start. Where shells of other workers took long too, this machine or the network is
 * slow, and a good worker must not be told to hang.
 */
export class Patience {
  readonly #leastMs: number;
  #slowestMs = 0;

  constructor(leastMs = PATIENCE_MS) {
    this.#leastMs = leastMs;
  }

  /** The limit as it is now. */
  get limitMs(): number {
    return Math.min(MOST_PATIENCE_MS, Math.max(this.#leastMs, SLOWER * this.#slowestMs));
  }

  /** Notes how long somebody took. */
  note(tookMs: number): void {
    this.#slowestMs = Math.max(this.#slowestMs, tookMs);
  }

  /** Like `unlessCut`, up to the limit, which others may raise meanwhile. */
  async wait<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T | "cancelled" | "timeout"> {
    const started = performance.now();
    for (let waited = 0; waited < this.limitMs; waited = performance.now() - started) {
      const first = await unlessCut(promise, { signal, timeoutMs: this.limitMs - waited });
      if (first === "timeout") continue;
      if (first !== "cancelled") this.note(performance.now() - started);
      return first;
    }
    return "timeout";
  }
}

const FIRST_PAUSE_MS = 300;
const LONGEST_PAUSE_MS = 5_000;

/**
 * How long to wait after a failed attempt, counted from 1: twice as long each time, up to half of that less by chance.
 */
export function pauseAfter(attempt: number): number {
  const longest = Math.min(FIRST_PAUSE_MS * 2 ** (attempt - 1), LONGEST_PAUSE_MS);
  return longest * (0.5 + Math.random() / 2);
}
