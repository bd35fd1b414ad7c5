import { randomBytes } from "node:crypto";
import { sleep, unlessAborted, unlessCut, within } from "../../core/async.ts";
import { type LeftListener, type WorkerAddress, WorkerFailure } from "../base/transport.ts";
import { type Channel, type ChannelReader, openChannel, type WholeInput } from "./channel.ts";
import { type handshakeLimit, type Limit, type Patience, type Pool, pauseAfter } from "./limits.ts";
import type { Master, Masters } from "./masters.ts";
import { connectTrouble, jumpOf, lastLine, type SshSettings } from "./openssh.ts";

/** What the connections of a run share. */
export interface SshRun {
  settings: SshSettings;
  masters: Masters;
  /** The folder of the configuration and of the control sockets. */
  folder: string;
  /** Part of the names of the run's spools. */
  token: string;
  /** Who is told of what other runs have left; without it nothing of theirs is touched. */
  listener: LeftListener | undefined;
  /** All commands at work. */
  sessions: Limit;
  /** The shells that are kept open. */
  shells: Pool;
  enterHandshake: ReturnType<typeof handshakeLimit>;
  /** With shells that are started. */
  patience: Patience;
}

/** A channel whose group was started, unless a cancel ended the wait for it, and the connection that the channel uses. */
export interface StartedChannel {
  channel: Channel;
  mark: string;
  master: Master;
}

/** What starts a group. */
interface StartOrder {
  lines: (mark: string) => string;
  input?: WholeInput | undefined;
  isSpooled?: boolean;
}

/** How long a connection of an earlier run may take to answer. */
const OLD_ANSWER_MS = 5_000;
/** How long a cancel waits for the start of a command that is on its way. */
const CANCELLED_START_MS = 2_000;
const SHORT_WAIT_MS = 1_000;
/** An sshd may count a session that has just ended for a moment more. */
const REFUSED_PAUSES_MS = [20, 100, 300];
const NOT_FOUND = 127;

/** The connection to a worker: opened when it is needed, and anew when it is lost. */
export class SshLink {
  readonly #run: SshRun;
  readonly #worker: WorkerAddress;
  readonly #socket: string;
  readonly #closing = new AbortController();
  #connected: Promise<Master> | undefined;
  #master: Master | undefined;
  #isSound = true;

  /** `socket` is the name of the control socket in the run's folder. */
  constructor(run: SshRun, worker: WorkerAddress, socket: string) {
    this.#run = run;
    this.#worker = worker;
    this.#socket = socket;
  }

  /** Aborted when the connection is closed for good. */
  get closing(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * The open connection. Throws `unreachable` with one sentence when none can be opened; where only a person can change
   * that, no further attempt is made in this run.
   */
  connect(): Promise<Master> {
    this.#connected ??= this.#open().then((master) => {
      this.#master = master;
      void master.ended.then(() => this.#forget(master));
      return master;
    });
    return this.#connected;
  }

  /**
   * Starts a group on the worker by these lines over a channel of its own, with its whole input where that is there
   * already; `refused` where sshd allows no further session. With `isSpooled` the answer may be a channel that was lost
   * before it told of the group.
   */
  async start(
    { lines, input, isSpooled = false }: StartOrder,
    reader: ChannelReader,
    signal: AbortSignal | undefined,
  ): Promise<StartedChannel | "refused"> {
    const { settings, folder } = this.#run;
    const pauses = [...REFUSED_PAUSES_MS];
    for (let isAnew = false; ; ) {
      const master = await unlessAborted(this.connect(), signal);
      const mark = `ops-${randomBytes(16).toString("hex")}`;
      const shell = { mark, lines: lines(mark), useSudo: settings.useSudo, input };
      const channel = openChannel(`${folder}/${this.#socket}`, shell, reader);
      if (master.isOld && !(await answers(channel, signal))) {
        await this.#drop(master);
        continue;
      }
      master.isOld = false;
      const started = { channel, mark, master };
      if ((await this.#groupOf(channel, signal)) !== undefined) return started;
      // The exit code of a group that was not started: a shell may wait for somebody who has read it.
      if (channel.output.exitCode !== undefined) await channel.close();
      const end = await channel.closed;
      if (end === "lost" && isSpooled && channel.output.exitCode === undefined) return started;
      if (end === "refused") {
        const pause = pauses.shift();
        if (pause === undefined) return end;
        await sleep(pause, signal);
        continue;
      }
      // Nothing was started, and another connection may do.
      if (end !== "unconnected" || isAnew) throw await this.#notStarted(started);
      isAnew = true;
      await this.#drop(master);
    }
  }

  /** Closes the connection for good: all waits for it end, `first` closes what uses it, then the connection is closed. */
  async close(first?: () => Promise<unknown>): Promise<void> {
    this.#closing.abort();
    await first?.();
    const master = await this.#connected?.catch(() => undefined);
    await master?.release(this.#isSound);
  }

  /** Keeps the connection from a later run: something may still be at work in one of its sessions. */
  distrust(): void {
    this.#isSound = false;
  }

  /** A failure that names the worker: `failed` where the worker answers but cannot do its task, else `unreachable`. */
  failed(what: string, why: string, code: "failed" | "unreachable" = "failed"): WorkerFailure {
    return new WorkerFailure(code, this.#worker.host, `${what} {workers}: ${why}`);
  }

  /**
   * The failure for a process group that ended without a result: `unreachable` where the connection was lost, `failed`
   * where the worker closed only the session. `rest` ends the sentence.
   */
  async broken(started: StartedChannel, rest: string): Promise<WorkerFailure> {
    const isClosed = typeof (await started.channel.closed) === "number";
    if (!isClosed || (await within(started.master.ended, SHORT_WAIT_MS)) !== undefined) return this.lost(started, rest);
    return this.failed("Cannot run commands on", `it closed the session${rest}`);
  }

  /** The failure `unreachable` for a lost connection. `rest` ends the sentence. */
  async lost({ master }: StartedChannel, rest: string): Promise<WorkerFailure> {
    const said = await within(master.ended, SHORT_WAIT_MS);
    const why = lastLine(said ?? "") || "ssh ended without a word";
    return this.failed("The connection was lost to", `${why}${rest}`, "unreachable");
  }

  /** Closes a connection that is of no use; the next command opens another one. */
  async #drop(master: Master): Promise<void> {
    await master.close();
    this.#forget(master);
  }

  #forget(master: Master): void {
    if (this.#master !== master) return;
    // Where two drop a connection, the second one must not forget the connection that is being opened.
    this.#master = undefined;
    this.#connected = undefined;
  }

  /** The group of a channel, `cancelled`, or undefined when the channel has ended before. */
  async #groupOf(channel: Channel, signal: AbortSignal | undefined) {
    const asked = performance.now();
    const first = await this.#run.patience.wait(channel.started, signal);
    if (first !== "cancelled" && first !== "timeout") return first;
    const late = first === "cancelled" && (await within(channel.started, CANCELLED_START_MS));
    if (late) return late;
    this.distrust();
    if (first === "cancelled") return first;
    const limit = `within ${Math.round((performance.now() - asked) / 1000)} s`;
    const isOpen = channel.isOpen();
    await channel.close();
    if (isOpen) throw this.failed("Cannot run commands on", `its shell does not start ${limit}`);
    throw this.failed("Cannot run commands on", `it does not answer ${limit}`, "unreachable");
  }

  async #notStarted(started: StartedChannel): Promise<WorkerFailure> {
    const { channel } = started;
    const said = lastLine(channel.output.messages);
    if ((await channel.ended) === NOT_FOUND) return this.failed("Cannot run commands on", "setsid is not installed there");
    if (typeof (await channel.closed) === "number" && said !== "") return this.failed("Cannot run commands on", said);
    return await this.broken(started, "");
  }

  async #open(): Promise<Master> {
    const { settings, masters, enterHandshake } = this.#run;
    const { host, sshPort: port = settings.port } = this.#worker;
    const server = jumpOf(this.#worker, settings) ?? { host, port };
    let spentMs = 0;
    for (let attempt = 1; ; attempt++) {
      const leave = await enterHandshake(server, this.closing);
      const started = performance.now();
      const opened = await masters.open(this.#socket, host, this.closing).catch((error) => {
        leave("failed");
        throw error;
      });
      if (typeof opened !== "string") {
        leave(opened.isOld ? "failed" : "opened");
        return opened;
      }
      const { sentence, retryMs, lasts, isDropped } = connectTrouble(opened, this.#worker, settings);
      leave(isDropped ? "dropped" : "failed");
      const pauseMs = pauseAfter(attempt);
      spentMs += performance.now() - started + pauseMs;
      if (spentMs > retryMs) {
        if (retryMs > 0) this.#connected = undefined;
        const note = attempt > 1 ? ` (tried ${attempt} times)` : "";
        throw new WorkerFailure("unreachable", host, sentence, { lasts, note });
      }
      await sleep(pauseMs, this.closing);
    }
  }
}

/** False where an old connection gives no answer in time; then nothing will be started over the channel any more. */
async function answers(channel: Channel, signal: AbortSignal | undefined): Promise<boolean> {
  const answered = Promise.race([channel.opened, channel.closed]);
  const first = await unlessCut(answered, { signal, timeoutMs: OLD_ANSWER_MS });
  if (first === "timeout") channel.giveUp();
  return first !== "timeout";
}
