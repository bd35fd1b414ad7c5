import type { Readable } from "node:stream";
import { within } from "../core/async.ts";
import { cancelledFailure, Failure, type FailureCode } from "../core/errors.ts";
import { endGroups, type GroupIdentity, signalProcess } from "../core/process.ts";
import { selfArguments } from "../core/self.ts";
import type { Channel, Launcher } from "../core/spawn.ts";
import type { Answer, HttpRequest, StreamedBody } from "../http/message.ts";
import { CANCEL_WAIT_MS, type FromWorker, type OutcomeMessage, type ServerMeans, type Task } from "../run/protocol.ts";

/** Each reading is a process, and perhaps a connection to each of some workers. */
const MOST_READINGS = 16;
const AGAIN_SECONDS = 10;
const GROUP_GRACE_MS = 2_000;

/** The media type of lines. */
export const LINES_TYPE = "text/plain; charset=utf-8";

/**
 * Answers that a process of their own makes, line by line: a {@link Task} that prints. A slow client slows the process
 * down, and nothing is kept here. When the client has left, or the server stops, the process ends.
 */
export class LogReadings {
  readonly #launcher: Launcher;
  readonly #most: number;
  readonly #means: ServerMeans;
  readonly #open = new Set<LogReading>();

  /** `most` is the number of readings at a time. */
  constructor(launcher: Launcher, means: ServerMeans = {}, most = MOST_READINGS) {
    this.#launcher = launcher;
    this.#most = most;
    this.#means = means;
  }

  /** The answer to a request: the {@link pieces} of a task. The wait for the first line is a long-poll. */
  async answer(task: Omit<Task, "type">, request: Pick<HttpRequest, "signal" | "longPoll">): Promise<Answer> {
    request.longPoll();
    return { status: 200, headers: { "Content-Type": LINES_TYPE }, body: await this.pieces(task, request.signal) };
  }

  /**
   * The lines that a task prints, from the first of them on; a task that fails before throws its failure here, and a task
   * that fails later throws it while it is read. Throws `rate_limited` where too many are being read.
   */
  async pieces(task: Omit<Task, "type">, signal: AbortSignal): Promise<StreamedBody> {
    if (this.#open.size >= this.#most) {
      const details = { retry_after_s: AGAIN_SECONDS };
      const message = `at most ${this.#most} logs and findings of doctors are read at a time: try again later`;
      throw new Failure("rate_limited", message, { details });
    }
    const reading = new LogReading();
    this.#open.add(reading);
    const close = () => reading.end().finally(() => this.#open.delete(reading));
    try {
      await reading.begin(this.#launcher, { type: "task", ...task, ...this.#means }, signal);
    } catch (error) {
      await close();
      throw signal.aborted ? cancelledFailure() : error;
    }
    return { isLive: true, read: () => reading.text(), close };
  }

  /** Resolves when no reading is open any more. */
  async closed(): Promise<void> {
    await Promise.all([...this.#open].map((reading) => reading.end()));
  }
}

/** A process that prints lines. */
class LogReading {
  readonly #groups = new Map<number, GroupIdentity>();
  #channel: Channel | undefined;
  #hasExited = false;
  #pieces: AsyncIterator<Buffer> | undefined;
  #first: IteratorResult<Buffer> | undefined;
  #outcome: OutcomeMessage | undefined;
  #end: Promise<void> | undefined;

  /** Starts the process and waits for its first line, or for its end. Throws the failure of the process. */
  async begin(launcher: Launcher, task: Task, signal: AbortSignal): Promise<void> {
    const receive = (message: unknown) => this.#receive(message as FromWorker);
    const channel = await launcher.channel(selfArguments("worker", "run"), "pipe", receive);
    this.#channel = channel;
    void channel.ended.then(() => {
      this.#hasExited = true;
    });
    const onAbort = () => void this.end();
    signal.addEventListener("abort", onAbort);
    if (signal.aborted) onAbort();
    channel.send(task);
    this.#pieces = (channel.output as Readable).iterator();
    this.#first = await this.#pieces.next();
    if (this.#first.done) await this.#settle(channel);
  }

  /** What the process prints, to its end. Throws where the process fails. */
  async *text(): AsyncGenerator<Buffer, void> {
    const [pieces, channel] = [this.#pieces as AsyncIterator<Buffer>, this.#channel as Channel];
    for (let next = this.#first as IteratorResult<Buffer>; !next.done; next = await pieces.next()) yield next.value;
    await this.#settle(channel);
  }

  /** Ends the process, where that still goes on, and all that it has started. */
  end(): Promise<void> {
    this.#end ??= this.#stop();
    return this.#end;
  }

  async #settle(channel: Channel): Promise<void> {
    await channel.ended;
    if (this.#outcome?.ok) return;
    const { code = "failed", message = "the process that reads has failed" } = this.#outcome?.error ?? {};
    // The words of a command line are those of a query here.
    throw new Failure(code === "usage" ? "invalid_request" : (code as FailureCode), message);
  }

  async #stop(): Promise<void> {
    const { output, pid, ended } = this.#channel ?? {};
    if (pid === undefined) return;
    // A process that waits for its reader goes on.
    output?.destroy();
    if (!this.#hasExited) signalProcess(pid, "SIGTERM");
    if (!(await within(ended as Channel["ended"], CANCEL_WAIT_MS))) signalProcess(-pid, "SIGKILL");
    await endGroups(this.#groups.values(), GROUP_GRACE_MS, true);
  }

  #receive(message: FromWorker): void {
    if (message.type === "outcome") this.#outcome = message;
    else if (message.type === "group_open") this.#groups.set(message.group.pgid, message.group);
    else if (message.type === "group_close") this.#groups.delete(message.group.pgid);
  }
}
