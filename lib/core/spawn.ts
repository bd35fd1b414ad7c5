import { type ChildProcess, type SpawnOptions, spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as nextRound } from "node:timers/promises";
import { sleep, within } from "./async.ts";
import { Failure, hasErrno, messageOf, throwIfCancelled } from "./errors.ts";
import { endGroup, type GroupIdentity, identify } from "./process.ts";

/** A command and its arguments; never a string that a shell would split. */
export type Argv = readonly [string, ...string[]];

/** How a command ended. `reason` tells why, the first one that happened. */
export interface CommandOutcome {
  reason: "exit" | "timeout" | "cancelled";
  exitCode: number | null;
  signal: string | null;
  /** At most `keepBytes` of each stream, the beginning. */
  stdout: string;
  stderr: string;
  durationMs: number;
}

/** What a command gets and how it is watched. */
export interface CommandOptions {
  cwd?: string;
  /** Added to the launcher's environment. */
  env?: Record<string, string>;
  /**
   * Written to the command's standard input, which is then closed; without it, standard input is empty. A command may
   * end without reading all of it. Where the source throws, the group is ended and `run` throws the same.
   */
  input?: string | Uint8Array | AsyncIterable<Uint8Array>;
  /**
   * Called for every line without its newline; a line of more than 64 KiB comes in parts of at most that.
   * Where it throws, the group is ended and `run` throws the same.
   */
  onLine?: (line: string, stream: "stdout" | "stderr") => void;
  /** How much of each stream to keep in the outcome; default 1 MiB. */
  keepBytes?: number;
  signal?: AbortSignal;
  timeoutMs?: number;
  /** Between TERM and KILL when it is cancelled or out of time; default 5 s. */
  graceMs?: number;
}

/** A child that speaks over an IPC channel: a run's process, or the process that initialises a bucket. */
export interface Channel {
  pid: number;
  send(message: unknown): void;
  /** Resolves once, after the process is gone and its last message has been delivered. */
  ended: Promise<{ exitCode: number | null; signal: string | null }>;
}

const LINE_LIMIT = 64 * 1024;
const KEEP_BYTES = 1024 * 1024;
const DRAIN_MS = 200;
const GRACE_MS = 5_000;
const COLLECT_MS = 5_000;
const NEWLINE = 0x0a;

/**
 * The one way to start a process. Every child leads a process group of its own, and the launcher keeps the list of
 * the groups that are open, so that a cancel can end them all (decisions: Runs).
 */
export class Launcher {
  readonly #environment: NodeJS.ProcessEnv;
  readonly #onGroup: (change: "open" | "close", group: GroupIdentity) => void;
  readonly #open = new Map<number, GroupIdentity>();

  constructor(
    environment: NodeJS.ProcessEnv,
    onGroup: (change: "open" | "close", group: GroupIdentity) => void = () => {},
  ) {
    this.#environment = environment;
    this.#onGroup = onGroup;
  }

  /** The groups whose leader has not been seen to end. */
  get groups(): GroupIdentity[] {
    return [...this.#open.values()];
  }

  /**
   * Runs a command to its end. It has ended when its leader exited; output is drained 200 ms more, and what it left
   * running in the background is not waited for. A signal or a timeout ends its whole group before this resolves.
   * Exit codes are not errors here. Throws `failed` when the command cannot be started.
   */
  async run(argv: Argv, options: CommandOptions = {}): Promise<CommandOutcome> {
    throwIfCancelled(options.signal);
    const started = performance.now();
    const child = await launch(argv, {
      cwd: options.cwd,
      env: { ...this.#environment, ...options.env },
      stdio: [options.input === undefined ? "ignore" : "pipe", "pipe", "pipe"],
    });
    const pid = child.pid as number;
    const exited = once(child, "exit") as Promise<[number | null, string | null]>;
    const group = this.#opened(pid);
    const stop = new AbortController();
    const trouble = new AbortController();
    const stdout = new Output(child.stdout, "stdout", options, trouble);
    const stderr = new Output(child.stderr, "stderr", options, trouble);
    const fed = feed(child.stdin, options.input, trouble);
    try {
      const reason = await Promise.race([
        exited.then(() => "exit" as const),
        aborted(options.signal, stop.signal),
        aborted(trouble.signal, stop.signal),
        expired(options.timeoutMs, stop.signal),
      ]);
      if (reason !== "exit") await endGroup(pid, options.graceMs ?? GRACE_MS);
      // Only a process that the kernel does not let go of has no exit by now.
      const [exitCode, signal] = (await within(exited, COLLECT_MS)) ?? [null, "SIGKILL"];
      await drained(Promise.all([stdout.ended, stderr.ended, fed]));
      const texts = { stdout: stdout.finish(), stderr: stderr.finish() };
      trouble.signal.throwIfAborted();
      return { reason, exitCode, signal, ...texts, durationMs: performance.now() - started };
    } finally {
      stop.abort();
      this.#closed(group);
      for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.destroy();
    }
  }

  /**
   * Starts a child with an IPC channel, its output (both streams, one descriptor) going to `output`.
   * It is not listed in `groups`: who starts it decides when it must end.
   */
  async channel(
    argv: Argv,
    output: number | "ignore",
    onMessage: (message: unknown) => void,
  ): Promise<Channel> {
    const child = await launch(argv, {
      env: this.#environment,
      stdio: ["ignore", output, output, "ipc"],
      serialization: "json",
    });
    const ended = new Promise<{ exitCode: number | null; signal: string | null }>((resolve) => {
      // "close" follows "exit" once the channel has been read to its end.
      child.once("close", (exitCode, signal) => resolve({ exitCode, signal }));
    });
    child.on("message", onMessage);
    const send = (message: unknown) => {
      if (child.connected) child.send(message as object, () => {});
    };
    return { pid: child.pid as number, send, ended };
  }

  /** Ends every open group; used when the process itself must go. */
  async endAll(graceMs: number): Promise<void> {
    await Promise.all(this.groups.map((group) => endGroup(group.pgid, graceMs)));
  }

  #opened(pid: number): GroupIdentity {
    const group = { pgid: pid, start_time: identify(pid)?.start_time ?? "" };
    this.#open.set(pid, group);
    this.#onGroup("open", group);
    return group;
  }

  #closed(group: GroupIdentity): void {
    this.#open.delete(group.pgid);
    this.#onGroup("close", group);
  }
}

async function launch(argv: Argv, options: SpawnOptions): Promise<ChildProcess> {
  try {
    const child = spawn(argv[0], argv.slice(1), { ...options, detached: true });
    if (child.pid === undefined) throw (await once(child, "error"))[0];
    child.on("error", () => {});
    return child;
  } catch (error) {
    const why = hasErrno(error, "ENOENT")
      ? "it is not installed or the folder to run in is missing"
      : messageOf(error);
    throw new Failure("failed", `Cannot start ${argv[0]}: ${why}`, { cause: error });
  }
}

async function feed(
  stdin: Writable | null,
  input: CommandOptions["input"],
  trouble: AbortController,
): Promise<void> {
  if (input === undefined || !stdin) return;
  const source = typeof input === "string" || input instanceof Uint8Array ? [Buffer.from(input)] : input;
  // A command may end without reading all of its input; its exit code tells whether that was right.
  await pipeline(Readable.from(watched(source, trouble)), stdin).catch(() => {});
}

async function* watched(source: Iterable<Uint8Array> | AsyncIterable<Uint8Array>, trouble: AbortController) {
  let handedOut = false;
  try {
    for await (const chunk of source) {
      handedOut = true;
      yield chunk;
      handedOut = false;
    }
  } catch (error) {
    // What the reading side throws in here is not the source's failure.
    if (!handedOut) trouble.abort(error);
    throw error;
  }
}

/** What is in the pipes is read even where this process was too busy to do so within the time. */
async function drained(ended: Promise<unknown>): Promise<void> {
  await within(ended, DRAIN_MS);
  await nextRound();
}

function aborted(signal: AbortSignal | undefined, stop: AbortSignal): Promise<"cancelled"> {
  return new Promise((resolve) => {
    if (signal?.aborted) resolve("cancelled");
    signal?.addEventListener("abort", () => resolve("cancelled"), { once: true, signal: stop });
  });
}

function expired(timeoutMs: number | undefined, stop: AbortSignal): Promise<"timeout"> {
  if (timeoutMs === undefined) return new Promise(() => {});
  return sleep(timeoutMs, stop).then(
    () => "timeout" as const,
    () => new Promise(() => {}),
  );
}

/** Reads one output of a child: keeps a bounded beginning and hands out lines. */
class Output {
  readonly ended: Promise<unknown>;
  readonly #name: "stdout" | "stderr";
  readonly #onLine: CommandOptions["onLine"];
  readonly #trouble: AbortController;
  readonly #kept: Buffer[] = [];
  #room: number;
  #rest: Buffer = Buffer.alloc(0);

  constructor(
    source: Readable | null,
    name: "stdout" | "stderr",
    options: CommandOptions,
    trouble: AbortController,
  ) {
    this.#name = name;
    this.#onLine = options.onLine;
    this.#trouble = trouble;
    this.#room = options.keepBytes ?? KEEP_BYTES;
    source?.on("data", (chunk: Buffer) => this.#take(chunk));
    this.ended = source ? once(source, "close").catch(() => {}) : Promise.resolve();
  }

  /** Hands out what is left of the last line and answers what was kept. */
  finish(): string {
    if (this.#rest.length > 0) this.#emit(this.#rest);
    return Buffer.concat(this.#kept).toString();
  }

  #take(chunk: Buffer): void {
    if (this.#room > 0) this.#kept.push(chunk.subarray(0, this.#room));
    this.#room -= chunk.length;
    if (!this.#onLine) return;
    let rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    for (let end = lineEnd(rest); end >= 0; end = lineEnd(rest)) {
      this.#emit(rest.subarray(0, end));
      rest = rest.subarray(rest[end] === NEWLINE ? end + 1 : end);
    }
    this.#rest = rest;
  }

  #emit(line: Buffer): void {
    if (this.#trouble.signal.aborted) return;
    try {
      this.#onLine?.(line.toString(), this.#name);
    } catch (error) {
      this.#trouble.abort(error);
    }
  }
}

/** Where the first line ends: at its newline, or where it grows too long, between two characters; -1 where it goes on. */
function lineEnd(text: Buffer): number {
  const newline = text.subarray(0, LINE_LIMIT + 1).indexOf(NEWLINE);
  if (newline >= 0 || text.length <= LINE_LIMIT) return newline;
  for (let at = LINE_LIMIT; at > LINE_LIMIT - 4; at--) if (((text[at] ?? 0) & 0xc0) !== 0x80) return at;
  return LINE_LIMIT;
}
