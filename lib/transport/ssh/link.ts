import { randomBytes } from "node:crypto";
import { watch } from "node:fs";
import { aborted, expired, sleep, unlessAborted, within } from "../../core/async.ts";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { remove } from "../../core/files.ts";
import type { Launcher } from "../../core/spawn.ts";
import type { WorkerAddress } from "../base/transport.ts";
import { type Channel, type ChannelReader, openChannel, type RemoteGroup, type WholeInput, withMessage } from "./channel.ts";
import { type handshakeLimit, type Limit, pauseAfter } from "./limits.ts";
import { connectTrouble, jumpOf, lastLine, masterArgv, type SshSettings } from "./openssh.ts";

/** What the connections of a run share. */
export interface SshRun {
  settings: SshSettings;
  launcher: Launcher;
  /** The folder of the configuration and of the control sockets. */
  folder: string;
  /** All commands at work. */
  sessions: Limit;
  enterHandshake: ReturnType<typeof handshakeLimit>;
}

/** A channel whose group was started, and the connection that the channel uses. */
export interface StartedChannel {
  channel: Channel;
  mark: string;
  /** Undefined where a cancel ended the wait for the group. */
  group: RemoteGroup | undefined;
  master: Master;
}

/** The open connection to a worker: a foreground ssh whose control socket the channels use. */
interface Master {
  /** Resolves with the messages of the ssh when it has ended. */
  ended: Promise<string>;
  /** Closes the connection with all channels; what runs on the worker is not ended by that. */
  close(): Promise<void>;
}

const OPEN_LIMIT_MS = 40_000;
const MASTER_GRACE_MS = 2_000;
const START_LIMIT_MS = 30_000;
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
      void master.ended.then(() => {
        this.#connected = undefined;
      });
      return master;
    });
    return this.#connected;
  }

  /**
   * Starts a group on the worker over a channel of its own, with its whole input where that is there already; `refused`
   * where sshd allows no further session.
   */
  async start(
    { line, input }: { line: (mark: string) => string; input?: WholeInput | undefined },
    reader: ChannelReader,
    signal: AbortSignal | undefined,
  ): Promise<StartedChannel | "refused"> {
    const { settings, folder } = this.#run;
    const pauses = [...REFUSED_PAUSES_MS];
    for (let isAnew = false; ; ) {
      const master = await unlessAborted(this.connect(), signal);
      const mark = `ops-${randomBytes(16).toString("hex")}`;
      const shell = { mark, line: line(mark), useSudo: settings.useSudo, input };
      const channel = openChannel(`${folder}/${this.#socket}`, shell, reader);
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

  /** A failure that names the worker: `failed` where the worker answers but cannot do its task, else `unreachable`. */
  failed(what: string, why: string, code: "failed" | "unreachable" = "failed"): Failure {
    return new Failure(code, `${what} worker ${this.#worker.host}: ${why}`);
  }

  /**
   * The failure for a process group that ended without a result: `unreachable` where the connection was lost, `failed`
   * where the worker closed only the session. `rest` ends the sentence.
   */
  async broken({ channel, master }: StartedChannel, rest: string): Promise<Failure> {
    const isClosed = typeof (await channel.closed) === "number";
    const said = await within(master.ended, SHORT_WAIT_MS);
    if (isClosed && said === undefined) return this.failed("Cannot run commands on", `it closed the session${rest}`);
    const why = lastLine(said ?? "") || "ssh ended without a word";
    return this.failed("The connection was lost to", `${why}${rest}`, "unreachable");
  }

  /** The group of a channel, `cancelled`, or undefined when the channel has ended before. */
  async #groupOf(channel: Channel, signal: AbortSignal | undefined) {
    const stop = new AbortController();
    const limits = [aborted(signal, stop.signal), expired(START_LIMIT_MS, stop.signal)];
    const first = await Promise.race([channel.started, ...limits]);
    stop.abort();
    if (first === "cancelled") return (await within(channel.started, CANCELLED_START_MS)) ?? first;
    if (first !== "timeout") return first;
    const isOpen = channel.isOpen();
    await channel.close();
    const limit = `within ${START_LIMIT_MS / 1000} s`;
    if (isOpen) throw this.failed("Cannot run commands on", `its shell does not start ${limit}`);
    throw this.failed("Cannot run commands on", `it does not answer ${limit}`, "unreachable");
  }

  async #notStarted(started: StartedChannel): Promise<Failure> {
    const { channel } = started;
    const said = lastLine(channel.messages());
    if ((await channel.ended) === NOT_FOUND) return this.failed("Cannot run commands on", "setsid is not installed there");
    if (typeof (await channel.closed) === "number" && said !== "") return this.failed("Cannot run commands on", said);
    return await this.broken(started, "");
  }

  async #open(): Promise<Master> {
    const { settings, enterHandshake } = this.#run;
    const { host, sshPort: port = settings.port } = this.#worker;
    const server = jumpOf(this.#worker, settings) ?? { host, port };
    let spentMs = 0;
    for (let attempt = 1; ; attempt++) {
      const leave = await enterHandshake(server, this.closing);
      const started = performance.now();
      const opened = await openMaster(this.#run, this.#socket, host, this.closing).catch((error) => {
        leave("failed");
        throw error;
      });
      if (typeof opened !== "string") {
        leave("opened");
        return opened;
      }
      const { sentence, retryMs, isDropped } = connectTrouble(opened, this.#worker, settings);
      leave(isDropped ? "dropped" : "failed");
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

/**
 * Connects and signs in; answers the messages of ssh where that failed. Throws `cancelled` when the signal is aborted.
 */
async function openMaster(run: SshRun, socket: string, host: string, signal: AbortSignal): Promise<Master | string> {
  const { launcher, folder } = run;
  // A socket that a dead master left behind would keep the new master from listening.
  await remove(`${folder}/${socket}`);
  const stop = new AbortController();
  try {
    const made = madeIn(folder, socket, stop.signal);
    const child = await launcher.start(masterArgv(folder, host));
    let messages = "";
    // Without a session there is no output but messages.
    child.stdout.resume();
    child.stderr.on("data", (chunk: Buffer) => {
      messages = withMessage(messages, chunk);
    });
    const ended = child.ended.then(() => messages);
    const close = () => child.end(MASTER_GRACE_MS);
    const limits = [aborted(signal, stop.signal), expired(OPEN_LIMIT_MS, stop.signal)];
    const first = await Promise.race([made, child.ended, ...limits]);
    if (first === "made") return { ended, close };
    if (first === "cancelled" || first === "timeout") await close();
    if (first === "cancelled") throw cancelledFailure();
    return first === "timeout" ? "the login timed out" : messages;
  } finally {
    stop.abort();
  }
}

/** Resolves when something of that name is made in a folder. */
function madeIn(folder: string, name: string, stop: AbortSignal): Promise<"made"> {
  const { promise, resolve } = Promise.withResolvers<"made">();
  try {
    watch(folder, { signal: stop }, (_event, found) => found === name && resolve("made"));
  } catch (cause) {
    throw new Failure("failed", `Cannot watch ${folder} for connections: ${messageOf(cause)}`, { cause });
  }
  return promise;
}
