import { randomBytes } from "node:crypto";
import { aborted, expired, sleep, unlessAborted, within } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import type { Launcher } from "../../core/spawn.ts";
import type { WorkerAddress } from "../base/transport.ts";
import { jumpOf, masterArgv, type SshSettings } from "./argv.ts";
import { groupLine, REMOTE_COMMAND, SUDO_LINE } from "./remote-shell.ts";
import { Channel, type ChannelReader, type RemoteGroup } from "./ssh-channel.ts";
import { type Handshakes, type Limit, pauseAfter } from "./ssh-limits.ts";
import { Master, type SocketFolder } from "./ssh-master.ts";
import { explain, lastLine } from "./ssh-trouble.ts";

/** What the connections of a run share. */
export interface SshRun {
  settings: SshSettings;
  launcher: Launcher;
  sockets: SocketFolder;
  /** All commands at work. */
  sessions: Limit;
  handshakes: Handshakes;
}

/** A channel whose group was started, and the connection it runs over. */
export interface StartedChannel {
  channel: Channel;
  mark: string;
  /** Undefined where the wait for it was given up because of a cancel. */
  group: RemoteGroup | undefined;
  master: Master;
}

const START_LIMIT_MS = 30_000;
/** How long a cancel waits for the start of a command that is on its way. */
const CANCELLED_START_MS = 2_000;
const SHORT_WAIT_MS = 1_000;

/** An sshd may count a session that has just ended for a moment more. */
const REFUSED_PAUSES_MS = [20, 100, 300];
const NOT_FOUND = 127;
const NO_WORD = "ssh ended without a word";

/** The connection to a worker: opened when it is needed, and anew when it is lost. */
export class SshLink {
  readonly #run: SshRun;
  readonly #worker: WorkerAddress;
  readonly #socket: string;
  readonly #closing = new AbortController();
  #connected: Promise<Master> | undefined;

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
   * The open connection. Throws `failed` with one sentence when there is none to be had; where only a person can change
   * that, it is not tried again in this run.
   */
  connect(): Promise<Master> {
    this.#connected ??= this.#open().then((master) => {
      void master.ended.then(() => {
        this.#connected = undefined;
      });
      return master;
    });
    return this.#connected;
  }

  /** Starts a group on the worker over a channel of its own; `refused` where its sshd allows no further session. */
  async start(
    line: (mark: string) => string,
    reader: ChannelReader,
    signal: AbortSignal | undefined,
  ): Promise<StartedChannel | "refused"> {
    const { settings, sockets } = this.#run;
    const pauses = [...REFUSED_PAUSES_MS];
    for (let isAnew = false; ; ) {
      const master = await unlessAborted(this.connect(), signal);
      const mark = `ops-${randomBytes(16).toString("hex")}`;
      const socket = `${sockets.folder}/${this.#socket}`;
      const channel = new Channel(socket, REMOTE_COMMAND, mark, reader);
      channel.stdin.write(`${settings.useSudo ? SUDO_LINE : ""}${groupLine(mark)}${line(mark)}`);
      const group = await this.#groupOf(channel, signal);
      if (group !== undefined) return { channel, mark, group: group === "cancelled" ? undefined : group, master };
      const end = await channel.closed;
      if (end === "refused") {
        const pause = pauses.shift();
        if (pause === undefined) return end;
        await sleep(pause, signal);
        continue;
      }
      // Nothing was started, and another connection may do.
      if (end !== "unconnected" || isAnew) throw await this.#notStarted({ channel, mark, group, master });
      isAnew = true;
      await master.close();
    }
  }

  /** Closes the connection for good. */
  async close(): Promise<void> {
    this.#closing.abort();
    const master = await this.#connected?.catch(() => undefined);
    await master?.close();
  }

  /** The failure `failed`, naming a worker that answers but cannot do its task. */
  failed(what: string, why: string): Failure {
    return new Failure("failed", `${what} worker ${this.#worker.host}: ${why}`);
  }

  /**
   * The failure for a process group that ended without a result: `unreachable` where the connection was lost, `failed`
   * where the worker closed only the session. `rest` ends the sentence.
   */
  async broken({ channel, master }: StartedChannel, rest: string): Promise<Failure> {
    const isClosed = typeof (await channel.closed) === "number";
    const said = await within(master.ended, SHORT_WAIT_MS);
    if (isClosed && said === undefined) return this.failed("Cannot run commands on", `it closed the session${rest}`);
    return this.#unreachable("The connection was lost to", `${lastLine(said ?? "") || NO_WORD}${rest}`);
  }

  #unreachable(what: string, why: string): Failure {
    return new Failure("unreachable", `${what} worker ${this.#worker.host}: ${why}`);
  }

  /** The group of a channel, `cancelled`, or undefined when the channel has ended before. */
  async #groupOf(channel: Channel, signal: AbortSignal | undefined) {
    const stop = new AbortController();
    try {
      const first = await Promise.race([
        channel.started,
        aborted(signal, stop.signal),
        expired(START_LIMIT_MS, stop.signal),
      ]);
      if (first === "cancelled") return (await within(channel.started, CANCELLED_START_MS)) ?? first;
      if (first !== "timeout") return first;
    } finally {
      stop.abort();
    }
    const { isOpen } = channel;
    await channel.close();
    const limit = `within ${START_LIMIT_MS / 1000} s`;
    throw isOpen
      ? this.failed("Cannot run commands on", `its shell does not start ${limit}`)
      : this.#unreachable("Cannot run commands on", `it does not answer ${limit}`);
  }

  async #notStarted(started: StartedChannel): Promise<Failure> {
    const { channel } = started;
    const said = lastLine(channel.messages);
    if ((await channel.ended) === NOT_FOUND)
      return this.failed("Cannot run commands on", "setsid is not installed there");
    if (typeof (await channel.closed) === "number" && said !== "") return this.failed("Cannot run commands on", said);
    return await this.broken(started, "");
  }

  async #open(): Promise<Master> {
    const { settings, launcher, sockets, handshakes } = this.#run;
    const { host, sshPort: port = settings.port } = this.#worker;
    const server = jumpOf(this.#worker, settings) ?? { host, port };
    let spentMs = 0;
    for (let attempt = 1; ; attempt++) {
      const leave = await handshakes.enter(server, this.closing);
      const started = performance.now();
      const argv = masterArgv(sockets.folder, host);
      const opened = await Master.open(launcher, sockets, this.#socket, argv, this.closing).finally(leave);
      if (opened instanceof Master) return opened;
      const { sentence, retryMs } = explain(opened, this.#worker, settings);
      const pauseMs = pauseAfter(attempt);
      spentMs += performance.now() - started + pauseMs;
      if (spentMs > retryMs) {
        if (retryMs > 0) this.#connected = undefined;
        throw new Failure("unreachable", attempt > 1 ? `${sentence} (tried ${attempt} times)` : sentence);
      }
      await sleep(pauseMs, this.closing);
    }
  }
}
