import { randomBytes } from "node:crypto";
import { aborted, expired, sleep, unlessAborted, within } from "../core/async.ts";
import { cancelledFailure, Failure, throwIfCancelled } from "../core/errors.ts";
import type { CommandOutcome, Launcher } from "../core/spawn.ts";
import { channelArgv, jumpOf, masterArgv, type SshSettings } from "./argv.ts";
import {
  groupLine,
  loopLine,
  PREPARE_FOLDER,
  REMOTE_COMMAND,
  type ShellScript,
  SUDO_LINE,
  scriptLine,
} from "./remote-shell.ts";
import { Channel, type ChannelReader, type RemoteGroup } from "./ssh-channel.ts";
import { endRemoteGroup } from "./ssh-end.ts";
import { Execution } from "./ssh-execution.ts";
import { enterAll, type Handshakes, Limit, pauseAfter } from "./ssh-limits.ts";
import { Master, type SocketFolder } from "./ssh-master.ts";
import { KeptShell, type StartedChannel } from "./ssh-shell.ts";
import { explain, lastLine } from "./ssh-trouble.ts";
import { describeReceipt, type Receipt, type ScriptOptions, type WorkerAddress } from "./transport.ts";

/** What the connections of a run share. */
export interface SshRun {
  settings: SshSettings;
  launcher: Launcher;
  sockets: SocketFolder;
  /** All commands at work. */
  sessions: Limit;
  handshakes: Handshakes;
}

/** With the kept shell and the one that ends commands, as many as an sshd in its default settings allows (MaxSessions 10). */
const CHANNELS = 8;
const START_LIMIT_MS = 30_000;
/** How long a cancel waits for the start of a command that is on its way. */
const CANCELLED_START_MS = 2_000;
const PREPARE_LIMIT_MS = 30_000;
const SHORT_WAIT_MS = 1_000;
/** The kept shell reads a script byte by byte; a longer one has a channel of its own. */
const SHORT_CHARACTERS = 64 * 1024;

const REFUSED_SESSION = /session request failed|open refused by peer|administratively prohibited/;
const NO_CONNECTION = /UNKNOWN port 65535|Control socket connect/;
const NOT_FOUND = 127;
/** The exit code of ssh for what is not the command's. */
const SSH_TROUBLE = 255;

/** The one connection of a run to a worker, with all that runs over it. It opens when it is needed, and again when it is lost. */
export class SshConnection {
  readonly #run: SshRun;
  readonly #worker: WorkerAddress;
  readonly #socket: string;
  readonly #folder: string;
  readonly #closing = new AbortController();
  readonly #slots = new Limit(CHANNELS);
  #connected: Promise<Master> | undefined;
  #prepared: Promise<void> | undefined;
  readonly #questions = new KeptShell((reader) => this.#startShell(reader));
  /** From here commands are ended while the other shell may be busy; open only as long as that takes. */
  readonly #attendant = new KeptShell((reader) => this.#startAttendant(reader));
  #ending = 0;

  constructor(run: SshRun, worker: WorkerAddress, socket: string, folder: string) {
    this.#run = run;
    this.#worker = worker;
    this.#socket = socket;
    this.#folder = folder;
  }

  /** See {@link Transport.script}. */
  async script(text: string, options: ScriptOptions): Promise<CommandOutcome> {
    const { args = [], env = {}, input = "", signal } = options;
    throwIfCancelled(signal);
    const script = { folder: this.#folder, text, args, env };
    await unlessAborted(this.#ready(), signal);
    const isShort = options.isShort === true && typeof input === "string" && !input.includes("\0");
    if (isShort && text.length + input.length + args.join().length <= SHORT_CHARACTERS)
      return this.#ask(script, input, options);
    for (;;) {
      const leave = await enterAll([this.#slots, this.#run.sessions], signal);
      try {
        const outcome = await this.#command(script, options);
        if (outcome !== "refused") return outcome;
        this.#narrow();
      } finally {
        leave();
      }
    }
  }

  /** Closes the connection; nothing can be run over it any more. */
  async close(): Promise<void> {
    this.#closing.abort();
    const master = await this.#connected?.catch(() => undefined);
    await master?.close();
  }

  /** The worker's sshd allows fewer sessions than usual. */
  #narrow(): void {
    if (!this.#slots.narrow())
      throw this.#failure(
        "Cannot run commands on",
        "its sshd allows only one session in a connection; set MaxSessions there to 2 at least (10 is usual)",
      );
  }

  async #command(script: ShellScript, options: ScriptOptions): Promise<CommandOutcome | "refused"> {
    const execution = new Execution(options);
    const reader = {
      onOutput: (chunk: Buffer, stream: "stdout" | "stderr") => execution.take(chunk, stream),
    };
    const started = await this.#startChannel((mark) => scriptLine(mark, script), reader, options.signal);
    if (started === "refused") return started;
    const { channel, group } = started;
    try {
      if (group) void execution.feed(channel.stdin);
      const ended = channel.ended.then((code) => code ?? ("lost" as const));
      const code = await Promise.race([execution.cut, ended]);
      return await this.#conclude(execution, code, group, options.signal);
    } finally {
      execution.close();
      await channel.close();
    }
  }

  async #ask(script: ShellScript, input: string, options: ScriptOptions): Promise<CommandOutcome> {
    const leave = await enterAll([this.#questions.turn, this.#run.sessions], options.signal);
    const execution = new Execution(options);
    try {
      const take = (chunk: Buffer, stream: "stdout" | "stderr") => execution.take(chunk, stream);
      const { code, group } = await this.#questions.ask({ script, input }, take, execution.cut);
      return await this.#conclude(execution, code, group, options.signal);
    } finally {
      execution.close();
      leave();
    }
  }

  async #conclude(
    execution: Execution,
    code: number | "timeout" | "cancelled" | "lost",
    group: RemoteGroup | undefined,
    signal: AbortSignal | undefined,
  ): Promise<CommandOutcome> {
    if (typeof code === "number") return execution.outcome("exit", code);
    const said = code === "lost" ? await this.#lastWords() : "";
    const receipt = await this.#end(group);
    if (signal?.aborted) return execution.outcome("cancelled", null, receipt);
    if (code !== "lost") return execution.outcome(code, null, receipt);
    throw this.#failure(
      "The connection was lost to",
      `${said}; what ran there is ${describeReceipt(receipt)}`,
    );
  }

  /** What the connection said when it ended, or that it is still there. */
  async #lastWords(): Promise<string> {
    const master = await this.#connected?.catch(() => undefined);
    const said = master && (await within(master.ended, SHORT_WAIT_MS));
    return said === undefined ? "its session was closed" : lastLine(said) || "ssh ended";
  }

  async #end(group: RemoteGroup | undefined): Promise<Receipt> {
    if (!group) return "unreachable";
    this.#ending++;
    try {
      return await endRemoteGroup(this.#attendant, group);
    } finally {
      this.#ending--;
      if (this.#ending === 0) void this.#attendant.close();
    }
  }

  /** Connected, which takes no place from others that are at work, and the folder looked at once. */
  async #ready(): Promise<void> {
    await this.#connect();
    this.#prepared ??= this.#prepareFolder().catch((error) => {
      this.#prepared = undefined;
      throw error;
    });
    await this.#prepared;
  }

  async #prepareFolder(): Promise<void> {
    const script = { folder: "/", text: PREPARE_FOLDER, args: [this.#folder], env: {} };
    const options = { signal: this.#closing.signal, timeoutMs: PREPARE_LIMIT_MS };
    const { exitCode, stderr, reason } = await this.#ask(script, "", options);
    if (exitCode === 0) return;
    throw this.#failure("Cannot use the folder on", lastLine(stderr) || reason);
  }

  async #startShell(reader: ChannelReader): Promise<StartedChannel> {
    const started = await this.#startChannel(loopLine, reader, this.#closing.signal);
    if (started === "refused")
      throw this.#failure("Cannot open a shell on", "its sshd allows too few sessions (MaxSessions)");
    const { group } = started;
    if (group) return { ...started, group };
    await started.channel.close();
    throw cancelledFailure();
  }

  async #startAttendant(reader: ChannelReader): Promise<StartedChannel> {
    try {
      return await this.#startShell(reader);
    } catch {
      // Where sshd allows no other session, the place of the other shell will do.
      await this.#questions.close();
      return await this.#startShell(reader);
    }
  }

  /** Starts a group on the worker over a channel of its own. The group is undefined where a cancel came before its start. */
  async #startChannel(
    line: (mark: string) => string,
    reader: ChannelReader,
    signal: AbortSignal | undefined,
  ): Promise<(Omit<StartedChannel, "group"> & { group: RemoteGroup | undefined }) | "refused"> {
    const { settings, launcher, sockets } = this.#run;
    for (let attempt = 1; ; attempt++) {
      const master = await unlessAborted(this.#connect(), signal);
      const mark = `ops-${randomBytes(16).toString("hex")}`;
      const argv = channelArgv(sockets.folder, this.#worker.host, REMOTE_COMMAND);
      const channel = new Channel(await launcher.start(argv), mark, reader);
      channel.stdin.write(`${settings.useSudo ? SUDO_LINE : ""}${groupLine(mark)}${line(mark)}`);
      const group = await this.#startOf(channel, signal);
      if (group !== undefined) return { channel, mark, group: group === "cancelled" ? undefined : group };
      const code = await channel.ended;
      if (REFUSED_SESSION.test(channel.messages)) return "refused";
      // The control socket does not answer: nothing was started, and another connection may do.
      if (!NO_CONNECTION.test(channel.messages) || attempt > 1)
        throw await this.#notStarted(master, channel, code);
      await master.close();
    }
  }

  /** The group of a channel, `cancelled`, or undefined when the channel has ended before. */
  async #startOf(channel: Channel, signal: AbortSignal | undefined) {
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
    await channel.close();
    throw this.#failure("Cannot run commands on", `it does not answer within ${START_LIMIT_MS / 1000} s`);
  }

  async #notStarted(master: Master, channel: Channel, code: number | undefined): Promise<Failure> {
    const isTrouble = (await channel.exitCode) === SSH_TROUBLE;
    const said = isTrouble ? await within(master.ended, SHORT_WAIT_MS) : undefined;
    if (said !== undefined) return this.#failure("The connection was lost to", lastLine(said) || "ssh ended");
    const why = code === NOT_FOUND ? "setsid is not installed there" : lastLine(channel.messages);
    return this.#failure("Cannot run commands on", why || "its shell ended at once");
  }

  /** The open connection. One that failed for a reason that only a person can change is not tried again in this run. */
  #connect(): Promise<Master> {
    this.#connected ??= this.#openMaster().then((master) => {
      void master.ended.then(() => {
        this.#connected = undefined;
      });
      return master;
    });
    return this.#connected;
  }

  async #openMaster(): Promise<Master> {
    const { settings, launcher, sockets, handshakes } = this.#run;
    const { signal } = this.#closing;
    const { host, sshPort: port = settings.port } = this.#worker;
    let spentMs = 0;
    for (let attempt = 1; ; attempt++) {
      const leave = await handshakes.enter(jumpOf(this.#worker, settings) ?? { host, port }, signal);
      const started = performance.now();
      const argv = masterArgv(sockets.folder, host);
      const opened = await Master.open(launcher, sockets, this.#socket, argv, signal).finally(leave);
      if (opened instanceof Master) return opened;
      const { sentence, retryMs } = explain(opened, this.#worker, settings);
      const pauseMs = pauseAfter(attempt);
      spentMs += performance.now() - started + pauseMs;
      if (spentMs > retryMs) {
        if (retryMs > 0) this.#connected = undefined;
        throw new Failure("failed", attempt > 1 ? `${sentence} (tried ${attempt} times)` : sentence);
      }
      await sleep(pauseMs, signal);
    }
  }

  #failure(what: string, why: string): Failure {
    return new Failure("failed", `${what} worker ${this.#worker.host}: ${why}`);
  }
}
