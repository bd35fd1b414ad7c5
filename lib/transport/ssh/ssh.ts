import { randomBytes } from "node:crypto";
import path from "node:path";
import { unlessAborted, within } from "../../core/async.ts";
import { cancelledFailure, Failure, throwIfCancelled } from "../../core/errors.ts";
import { limitOf } from "../../core/process.ts";
import type { CommandOutcome, Launcher } from "../../core/spawn.ts";
import {
  describeReceipt,
  type LeftListener,
  type Receipt,
  type ScriptOptions,
  type Transport,
  type WorkerAddress,
} from "../base/transport.ts";
import {
  type ChannelReader,
  loopLines,
  SHORT_CHARACTERS,
  type ShellScript,
  scriptLines,
  spooledLines,
  type WholeInput,
} from "./channel.ts";
import { keptFolders, requireKey } from "./folder.ts";
import { type Keeping, keptMasters } from "./kept-masters.ts";
import { descriptorRoom, enterAll, handshakeLimit, Limit, Patience, Pool } from "./limits.ts";
import { SshLink, type SshRun, type StartedChannel } from "./link.ts";
import { ownMasters } from "./masters.ts";
import { SSH_FILES, type SshSettings, socketName } from "./openssh.ts";
import { Execution, endRemoteGroup, KeptShell, type ScriptEnd } from "./shell.ts";
import { Survivor, settleLeft } from "./survivor.ts";

/**
 * With the kept shell and the shell that ends commands, as many as an sshd in its default settings allows (MaxSessions
 * 10).
 */
const CHANNELS = 8;
/** While the kept shell takes more input, nobody else could ask anything. */
const SHORT_INPUT_BYTES = 1024 * 1024;

/** How long a command that is cut short waits to be told of its group. */
const GROUP_MS = 2_000;

/** The commands of a run on a worker, over one connection. */
class SshConnection {
  readonly #link: SshLink;
  readonly #run: SshRun;
  readonly #worker: string;
  readonly #folder: string;
  readonly #slots = new Limit(CHANNELS);
  readonly #questions = new KeptShell((reader) => this.#startShell(reader));
  /** Ends commands while the other shell may be busy; open only as long as that takes. */
  readonly #attendant = new KeptShell((reader) => this.#startAttendant(reader));
  #isPrepared = false;
  #settled: Promise<void> | undefined;
  #ending = 0;

  /** `folder` is where scripts run. */
  constructor(run: SshRun, worker: WorkerAddress, socket: string, folder: string) {
    this.#link = new SshLink(run, worker, socket);
    this.#run = run;
    this.#worker = worker.host;
    this.#folder = folder;
  }

  /** See {@link Transport.script}. */
  async script(text: string, options: ScriptOptions): Promise<CommandOutcome> {
    const { args = [], env = {}, input = "", signal } = options;
    throwIfCancelled(signal);
    // Takes no place from commands at work.
    await unlessAborted(this.#link.connect(), signal);
    const isFitting = text.length + args.join().length <= SHORT_CHARACTERS;
    for (;;) {
      const need = this.#isPrepared ? "none" : options.isFolderOptional ? "optional" : "needed";
      const run = this.#run.listener && !this.#settled ? this.#run.token : undefined;
      const script: ShellScript = { folder: this.#folder, need, run, text, args, env };
      const isShort = options.isShort === "where_free" ? this.#questions.isFree : options.isShort;
      const short = isShort && isFitting && isForShell(input) && this.#ask(script, { ...options, input });
      const outcome = await (short || this.#inSession(script, options));
      if (outcome !== "again") return outcome;
    }
  }

  /** Runs a script in a session of its own. */
  async #inSession(script: ShellScript, options: ScriptOptions): Promise<CommandOutcome | "again"> {
    const { signal } = options;
    for (;;) {
      const leave = await enterAll([this.#slots, this.#run.sessions], signal);
      try {
        const outcome = await (this.#survives(options) ? this.#spooled(script, options) : this.#command(script, options));
        if (outcome !== "refused") return outcome;
        if (this.#slots.narrow()) continue;
        const advice = "set MaxSessions there to 2 at least (10 is usual)";
        throw this.#link.failed("Cannot run commands on", `its sshd allows only one session in a connection; ${advice}`);
      } finally {
        leave();
      }
    }
  }

  /** Closes the connection; nothing can be run over it any more. */
  async close(): Promise<void> {
    await this.#link.close(() => Promise.all([this.#questions.close(), this.#attendant.close()]));
  }

  /** Ends and tells what other runs have left, by lines of scripts/prepare.sh; once, however many commands come first. */
  #settle(lines: readonly string[], listener: LeftListener): Promise<void> {
    this.#settled ??= this.#attended(async () => {
      const left = { link: this.#link, attendant: this.#attendant, worker: this.#worker, listener };
      for (const line of lines) await settleLeft({ ...left, folder: this.#folder }, line);
    });
    return this.#settled;
  }

  #ask(script: ShellScript, options: ScriptOptions & { input?: WholeInput }): Promise<CommandOutcome | "again"> {
    const places = [this.#run.sessions, this.#run.shells.placeOf(this.#questions)];
    return this.#questions.ask(script, options, places, (end) => this.#conclude(end, script, options.signal));
  }

  async #command(script: ShellScript, options: ScriptOptions): Promise<CommandOutcome | "again" | "refused"> {
    const { input = "", signal } = options;
    const execution = new Execution(options);
    const whole = isForShell(input) ? input : undefined;
    let started: StartedChannel | "refused" | undefined;
    try {
      const order = { lines: (mark: string) => scriptLines(mark, script), input: whole };
      const reader = { onOutput: execution.take, onMark: execution.note };
      started = await this.#link.start(order, reader, signal);
      if (started === "refused") return started;
      execution.begin();
      if (started.channel.output.group && whole === undefined) void execution.feed(started.channel.stdin);
      const ended = started.channel.ended.then((code) => code ?? "lost");
      const code = await Promise.race([execution.cut, ended]);
      return await this.#conclude({ execution, code, started }, script, signal);
    } finally {
      execution.close();
      if (started && started !== "refused") await started.channel.close();
    }
  }

  /** A NUL cannot be part of the lines that start a spooled script. */
  #survives({ survivesAs, input = "" }: ScriptOptions): boolean {
    const { reattachSeconds } = this.#run.settings;
    return survivesAs !== undefined && reattachSeconds > 0 && typeof input === "string" && !input.includes("\0");
  }

  /** Like `#command`, for a script that a lost connection does not end. */
  async #spooled(script: ShellScript, options: ScriptOptions): Promise<CommandOutcome | "again" | "refused"> {
    const { input = "", survivesAs: label = "", signal } = options;
    const { settings, token } = this.#run;
    const name = `.ops-${path.basename(this.#folder)}-${token}-${randomBytes(4).toString("hex")}`;
    const spool = { name, label, bytes: settings.spoolBytes };
    const execution = new Execution(options);
    let survivor: Survivor | undefined;
    try {
      const lines = (mark: string) => spooledLines(mark, script, input as string, spool);
      const reader = { onOutput: execution.take, onMark: execution.note };
      const started = await this.#link.start({ lines, isSpooled: true }, reader, signal);
      if (started === "refused") return started;
      survivor = new Survivor(this.#link, started, { folder: this.#folder, name });
      execution.begin();
      const ended = survivor.ended(settings.reattachSeconds);
      const code = await Promise.race([execution.cut, ended]);
      // A connection may have been lost before it told of the group: a new one tells, and then the group can be ended.
      await within(Promise.race([started.channel.output.started, ended.catch(() => {})]), GROUP_MS);
      return await this.#conclude({ execution, code, started }, script, signal);
    } finally {
      execution.close();
      await survivor?.close();
    }
  }

  /** The outcome of a script; where it did not end by itself, what it has on the worker is ended first. */
  async #conclude(
    { execution, code, started }: ScriptEnd,
    { need }: ShellScript,
    signal: AbortSignal | undefined,
  ): Promise<CommandOutcome | "again"> {
    const { listener } = this.#run;
    if (execution.left.length > 0 && listener) {
      await unlessAborted(this.#settle(execution.left, listener), signal);
      return "again";
    }
    if (execution.unusable !== undefined) throw this.#link.failed("Cannot use the folder on", execution.unusable);
    if (typeof code === "number") {
      this.#isPrepared ||= need === "needed";
      return execution.outcome("exit", code);
    }
    const receipt = started ? await this.#end(started) : "gone";
    if (signal?.aborted) return execution.outcome("cancelled", null, receipt);
    if (code !== "lost") return execution.outcome(code, null, receipt);
    throw await this.#link.broken(started as StartedChannel, `; the command that ran there is ${describeReceipt(receipt)}`);
  }

  async #end({ channel }: StartedChannel): Promise<Receipt> {
    const { group } = channel.output;
    if (!group) return "unreachable";
    const receipt = await this.#attended(() => endRemoteGroup(this.#attendant, group));
    if (receipt === "remaining" || receipt === "unreachable") this.#link.distrust();
    return receipt;
  }

  /** The shell that ends commands goes when nobody needs it any more. */
  async #attended<T>(work: () => Promise<T>): Promise<T> {
    this.#ending++;
    try {
      return await work();
    } finally {
      this.#ending--;
      if (this.#ending === 0) void this.#attendant.close();
    }
  }

  async #startShell(reader: ChannelReader): Promise<StartedChannel> {
    const started = await this.#link.start({ lines: loopLines }, reader, this.#link.closing);
    if (started === "refused")
      throw this.#link.failed("Cannot open a shell on", "its sshd allows too few sessions (MaxSessions)");
    if (started.channel.output.group) return started;
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
}

/** True for input that the kept shell takes: not for streams. */
function isForShell(input: NonNullable<ScriptOptions["input"]>): input is WholeInput {
  return (typeof input === "string" || input instanceof Uint8Array) && input.length <= SHORT_INPUT_BYTES;
}

/**
 * All ssh connections of a run: one per worker at most, each opened when it is first needed (decisions: Workers and
 * transports).
 */
export class SshConnections {
  readonly #run: SshRun;
  readonly #workers: readonly WorkerAddress[];
  readonly #open = new Map<string, SshConnection>();

  private constructor(run: SshRun, workers: readonly WorkerAddress[]) {
    this.#run = run;
    this.#workers = workers;
  }

  /**
   * Writes the configuration for these workers; connects to none yet. With `keeping` the connections outlive the run.
   * With a `listener`, which only who has the bucket's lock may give, what other runs have left on a worker is ended at
   * the first contact. Throws `failed` where there is no private key, or where a value cannot be part of a configuration.
   */
  static async open(
    settings: SshSettings,
    workers: readonly WorkerAddress[],
    launcher: Launcher,
    { keeping, listener }: { keeping?: Keeping | undefined; listener?: LeftListener | undefined } = {},
  ): Promise<SshConnections> {
    const { concurrency, knownHostsFile } = settings;
    await requireKey(settings);
    const setup = { settings, workers, launcher };
    const living = await keptFolders(knownHostsFile);
    const place = (keeping && (await keptMasters({ ...setup, keeping }, living))) ?? (await ownMasters(setup));
    const { commands, shells } = descriptorRoom(limitOf("open files"), concurrency);
    const token = randomBytes(8).toString("hex");
    const enterHandshake = handshakeLimit(commands);
    const limits = { sessions: new Limit(commands), shells: new Pool(shells), enterHandshake, patience: new Patience() };
    return new SshConnections({ settings, token, listener, ...place, ...limits }, workers);
  }

  /** The file for `ssh -F`; it has an entry per worker, under the worker's own name. */
  get configFile(): string {
    return path.join(this.#run.folder, SSH_FILES.config);
  }

  /** The way to one of the workers. */
  transport(worker: WorkerAddress, bucketId: string): Transport {
    const index = this.#workers.findIndex(({ host }) => host === worker.host);
    if (index < 0) throw new Failure("internal", `no ssh connection was prepared for worker ${worker.host}`);
    const folder = path.posix.join(worker.root, bucketId);
    const connection = this.#open.get(worker.host) ?? new SshConnection(this.#run, worker, socketName(index), folder);
    this.#open.set(worker.host, connection);
    return { worker, folder, script: (text, options = {}) => connection.script(text, options), close: () => connection.close() };
  }

  /** The end of the run: closes every connection, unless a keeper goes on with it. */
  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map((connection) => connection.close()));
    await this.#run.masters.close();
  }
}
