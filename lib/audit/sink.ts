import path from "node:path";
import { sleep, within } from "../core/async.ts";
import { Failure, messageOf } from "../core/errors.ts";
import { openRegular } from "../core/files.ts";
import type { Argv, Launcher } from "../core/spawn.ts";
import { type AuditSpot, auditFiles, readSpan, sizeOf } from "./files.ts";
import type { AuditLog } from "./log.ts";

/** What an {@link AuditSink} needs. */
interface SinkOptions {
  /** For `sh`: each line of the audit comes on its standard input. */
  command: string;
  audit: AuditLog;
  launcher: Launcher;
  /** Gets a sentence when the command fails, and when lines reach it again. */
  tell: (sentence: string) => void;
  /** The first pause before the command is started again; default 1 s. */
  pauseMs?: number;
}

const LONGEST_PAUSE_MS = 60_000;
const HANDED_BYTES = 64 * 1024;
/** More than the socket holds from which the command reads: what it has not read yet is handed over once more. */
const REWOUND_BYTES = 256 * 1024;
const END_GRACE_MS = 2_000;
/** A pipe takes lines for any command: one that has failed works again only once it lives for so long with its lines. */
const PROOF_MS = 1_000;

/**
 * Gives each line of the audit, once it is on the disk, to a command that keeps a copy elsewhere. The lines are read from
 * the files, so that nothing piles up in memory while the command is slow or gone. A command that ends is started again
 * after a pause, which grows to a minute; it gets the last 256 KiB that were handed over once more. One that closes its
 * standard input, or whose next lines cannot be read, is ended first. Never throws, and nothing waits for it but its end.
 */
export class AuditSink {
  readonly #options: SinkOptions;
  readonly #stop = new AbortController();
  /** Where it began, and behind which lines it is. */
  #start: AuditSpot = { file: "", size: 0 };
  #spot: AuditSpot = this.#start;
  #wake: () => void = () => {};
  /** How often something happened that a wait must not miss. */
  #events = 0;
  #endCommand: () => Promise<void> = async () => {};
  #running: Promise<void> = Promise.resolve();
  #hasFailed = false;

  constructor(options: SinkOptions) {
    this.#options = options;
  }

  /** Begins with the first line that is written behind this spot. */
  start(spot: AuditSpot): void {
    [this.#start, this.#spot] = [spot, spot];
    this.#options.audit.onWritten = () => this.#happened();
    this.#running = this.#run();
  }

  /** Hands over what is there, for at most 2 s, and ends the command. */
  async close(): Promise<void> {
    this.#stop.abort();
    this.#happened();
    const over = this.#running.then(() => true);
    // More than once: a command that is being started can only be ended later.
    while (!(await within(over, END_GRACE_MS))) await this.#endCommand();
  }

  #happened(): void {
    this.#events++;
    this.#wake();
  }

  async #run(): Promise<void> {
    const { pauseMs = 1_000 } = this.#options;
    const { signal } = this.#stop;
    for (let pause = pauseMs; ; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      const handed = await this.#session();
      if (handed) pause = pauseMs;
      await sleep(pause, signal).catch(() => {});
      if (signal.aborted) return;
      await this.#rewind().catch(() => {});
    }
  }

  /** One life of the command; answers whether it took lines. */
  async #session(): Promise<boolean> {
    const { command, launcher } = this.#options;
    let handed = false;
    try {
      const argv: Argv = ["/bin/sh", "-c", command];
      const companion = await launcher.start(argv, { stdin: "pipe" });
      this.#endCommand = () => companion.end(0);
      let hasEnded = false;
      const ended = companion.ended.then((exit) => {
        hasEnded = true;
        this.#happened();
        return exit;
      });
      for (let isDone = false; !(isDone || hasEnded); ) {
        const seen = this.#events;
        const piece = await this.#next();
        if (piece === undefined) isDone = this.#stop.signal.aborted || (await this.#woken(seen));
        else if (await isTaken(companion.stdin, piece, ended)) handed = await this.#works(piece.length, ended);
        else if (!(await within(ended, END_GRACE_MS))) throw new Failure("failed", "it has closed its standard input");
      }
      companion.stdin?.end();
      const { exitCode, signal } = await ended;
      if (!this.#stop.signal.aborted) this.#failed(`it ended with ${signal ?? `exit code ${exitCode}`}`);
    } catch (error) {
      this.#failed(messageOf(error));
    } finally {
      await this.#endCommand();
    }
    return handed;
  }

  /** The next lines, at most about 64 KiB; undefined where there are none yet. */
  async #next(): Promise<Buffer | undefined> {
    const { folder, written: end } = this.#options.audit;
    const spot = this.#spot;
    if (!end) return undefined;
    if (spot.file === "" || !(await this.#isLeft(spot, end))) {
      const later = (await auditFiles(folder)).find((name) => name > spot.file && name <= end.file);
      if (later === undefined) return undefined;
      this.#spot = { file: later, size: 0 };
      return await this.#next();
    }
    await using handle = await openRegular(path.join(folder, spot.file));
    const { size } = await handle.stat();
    const limit = spot.file === end.file ? end.size : size;
    for (let bytes = HANDED_BYTES; ; bytes *= 4) {
      const piece = await readSpan(handle, spot.size, Math.min(limit, spot.size + bytes));
      const length = piece.lastIndexOf(0x0a) + 1;
      if (length > 0) return piece.subarray(0, length);
      if (spot.size + bytes >= limit) {
        // What was put behind the last line of an earlier month is no line.
        this.#spot = { file: spot.file, size: limit };
        return await this.#next();
      }
    }
  }

  async #isLeft(spot: AuditSpot, end: AuditSpot): Promise<boolean> {
    if (spot.file === end.file) return spot.size < end.size;
    await using handle = await openRegular(path.join(this.#options.audit.folder, spot.file));
    return spot.size < (await handle.stat()).size;
  }

  /** Goes on behind the lines that the command has taken. Answers, within a second, whether the command works. */
  async #works(bytes: number, ended: Promise<unknown>): Promise<boolean> {
    this.#spot = { ...this.#spot, size: this.#spot.size + bytes };
    if (!this.#hasFailed) return true;
    if (await within(ended, PROOF_MS)) return false;
    this.#say("done", "the command of --audit-sink takes lines again");
    this.#hasFailed = false;
    return true;
  }

  #failed(why: string): void {
    if (!this.#hasFailed)
      this.#say("failed", `warning: the command of --audit-sink fails, and no copy of the audit is kept: ${why}`);
    this.#hasFailed = true;
  }

  #say(outcome: "done" | "failed", sentence: string): void {
    this.#options.tell(sentence);
    this.#options.audit.later({ what: "sink", via: "server", outcome, facts: { told: sentence } });
  }

  /** Goes back by what a command may not have read when it ended, to the beginning of a line. */
  async #rewind(bytes = REWOUND_BYTES): Promise<void> {
    const { folder } = this.#options.audit;
    const { file, size } = this.#spot;
    const least = file === this.#start.file ? this.#start.size : 0;
    if (size - least > bytes) {
      await using handle = await openRegular(path.join(folder, file));
      const end = (await readSpan(handle, size - bytes - 1, size)).indexOf(0x0a);
      this.#spot = { file, size: size - bytes + end };
      return;
    }
    const earlier = (await auditFiles(folder)).findLast((name) => name >= this.#start.file && name < file);
    if (earlier === undefined) this.#spot = { file, size: least };
    else {
      this.#spot = { file: earlier, size: (await sizeOf(path.join(folder, earlier))) as number };
      await this.#rewind(bytes - (size - least));
    }
  }

  /** Waits until something has happened since there were `seen` events; answers false. */
  #woken(seen: number): Promise<false> {
    return new Promise((resolve) => {
      this.#wake = () => resolve(false);
      if (this.#events !== seen) resolve(false);
    });
  }
}

/** Writes to the command, and waits until it takes more or has ended; false where it has. */
async function isTaken(stdin: NodeJS.WritableStream | null, piece: Buffer, ended: Promise<unknown>): Promise<boolean> {
  const taken = new Promise<boolean>((resolve) => stdin?.write(piece, (error) => resolve(!error)));
  return await Promise.race([taken, ended.then(() => false)]);
}
