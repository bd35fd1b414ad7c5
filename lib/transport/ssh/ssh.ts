import { lstat, mkdtemp, readdir, readlink, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { unlessAborted } from "../../core/async.ts";
import { cancelledFailure, Failure, throwIfCancelled } from "../../core/errors.ts";
import { exists, PRIVATE_FILE, remove } from "../../core/files.ts";
import { identify, isAlive, type ProcessIdentity } from "../../core/process.ts";
import type { CommandOutcome, Launcher } from "../../core/spawn.ts";
import { describeReceipt, type Receipt, type ScriptOptions, type Transport, type WorkerAddress } from "../base/transport.ts";
import { type ChannelReader, loopLine, SHORT_CHARACTERS, type ShellScript, scriptLine, type WholeInput } from "./channel.ts";
import { enterAll, handshakeLimit, Limit } from "./limits.ts";
import { SshLink, type SshRun, type StartedChannel } from "./link.ts";
import { SSH_FILES, type SshSettings, socketName, sshConfig } from "./openssh.ts";
import { Execution, endRemoteGroup, KeptShell, type ScriptEnd } from "./shell.ts";

/**
 * With the kept shell and the shell that ends commands, as many as an sshd in its default settings allows (MaxSessions
 * 10).
 */
const CHANNELS = 8;
/** While the kept shell takes more input, nobody else could ask anything. */
const SHORT_INPUT_BYTES = 1024 * 1024;

/** The commands of a run on a worker, over one connection. */
class SshConnection {
  readonly #link: SshLink;
  readonly #sessions: Limit;
  readonly #folder: string;
  readonly #slots = new Limit(CHANNELS);
  readonly #questions = new KeptShell((reader) => this.#startShell(reader));
  /** Ends commands while the other shell may be busy; open only as long as that takes. */
  readonly #attendant = new KeptShell((reader) => this.#startAttendant(reader));
  #isPrepared = false;
  #ending = 0;

  /** `folder` is where scripts run. */
  constructor(run: SshRun, worker: WorkerAddress, socket: string, folder: string) {
    this.#link = new SshLink(run, worker, socket);
    this.#sessions = run.sessions;
    this.#folder = folder;
  }

  /** See {@link Transport.script}. */
  async script(text: string, options: ScriptOptions): Promise<CommandOutcome> {
    const { args = [], env = {}, input = "", signal } = options;
    throwIfCancelled(signal);
    // Takes no place from commands at work.
    await unlessAborted(this.#link.connect(), signal);
    const need = this.#isPrepared ? "none" : options.isFolderOptional ? "optional" : "needed";
    const script: ShellScript = { folder: this.#folder, need, text, args, env };
    if (options.isShort && isForShell(input) && text.length + args.join().length <= SHORT_CHARACTERS)
      return this.#ask(script, { ...options, input });
    for (;;) {
      const leave = await enterAll([this.#slots, this.#sessions], signal);
      try {
        const outcome = await this.#command(script, options);
        if (outcome !== "refused") return outcome;
        if (this.#slots.narrow()) continue;
        throw this.#link.failed(
          "Cannot run commands on",
          "its sshd allows only one session in a connection; set MaxSessions there to 2 at least (10 is usual)",
        );
      } finally {
        leave();
      }
    }
  }

  /** Closes the connection; nothing can be run over it any more. */
  async close(): Promise<void> {
    await Promise.all([this.#questions.close(), this.#attendant.close()]);
    await this.#link.close();
  }

  #ask(script: ShellScript, options: ScriptOptions & { input?: WholeInput }): Promise<CommandOutcome> {
    return this.#questions.ask(script, options, [this.#sessions], (end) => this.#conclude(end, script, options.signal));
  }

  async #command(script: ShellScript, options: ScriptOptions): Promise<CommandOutcome | "refused"> {
    const { input = "", signal } = options;
    const execution = new Execution(options);
    const whole = isForShell(input) ? input : undefined;
    let started: StartedChannel | "refused" | undefined;
    try {
      const order = { line: (mark: string) => scriptLine(mark, script), input: whole };
      const reader = { onOutput: execution.take, onMark: execution.note };
      started = await this.#link.start(order, reader, signal);
      if (started === "refused") return started;
      execution.begin();
      if (started.group && whole === undefined) void execution.feed(started.channel.stdin);
      const ended = started.channel.ended.then((code) => code ?? "lost");
      const code = await Promise.race([execution.cut, ended]);
      return await this.#conclude({ execution, code, started }, script, signal);
    } finally {
      execution.close();
      if (started && started !== "refused") await started.channel.close();
    }
  }

  /** The outcome of a script; where it did not end by itself, what it has on the worker is ended first. */
  async #conclude(
    { execution, code, started }: ScriptEnd,
    { need }: ShellScript,
    signal: AbortSignal | undefined,
  ): Promise<CommandOutcome> {
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

  async #end({ group }: StartedChannel): Promise<Receipt> {
    if (!group) return "unreachable";
    this.#ending++;
    try {
      return await endRemoteGroup(this.#attendant, group);
    } finally {
      this.#ending--;
      if (this.#ending === 0) void this.#attendant.close();
    }
  }

  async #startShell(reader: ChannelReader): Promise<StartedChannel> {
    const started = await this.#link.start({ line: loopLine }, reader, this.#link.closing);
    if (started === "refused")
      throw this.#link.failed("Cannot open a shell on", "its sshd allows too few sessions (MaxSessions)");
    if (started.group) return started;
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

/** Short, because a control socket's path has at most 104 bytes. */
const SOCKETS_PLACE = "/tmp";
/** `ops-ssh-<pid>-<start of the process>-`; the rest makes it a folder of its own. */
const FOLDER_NAME = /^ops-ssh-(?<pid>\d+)-(?<start_time>\d+)-/;

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
   * Writes the configuration for these workers; connects to none yet. Throws `failed` where there is no private key,
   * or where a value cannot be part of a configuration.
   */
  static async open(settings: SshSettings, workers: readonly WorkerAddress[], launcher: Launcher): Promise<SshConnections> {
    const { keyFile } = settings;
    if (!(await exists(keyFile)))
      throw new Failure(
        "failed",
        `Cannot reach workers over ssh: there is no private key secrets/${path.basename(keyFile)}; upload one (see docs/ssh.md)`,
      );
    const knownHosts = path.resolve(settings.knownHostsFile);
    await removeLeftFolders(knownHosts);
    const { pid, start_time } = identify(process.pid) as ProcessIdentity;
    const folder = await mkdtemp(path.join(SOCKETS_PLACE, `ops-ssh-${pid}-${start_time}-`));
    try {
      const text = sshConfig(folder, settings, workers);
      await writeFile(path.join(folder, SSH_FILES.config), text, { mode: PRIVATE_FILE });
      await symlink(path.resolve(keyFile), path.join(folder, SSH_FILES.key));
      await symlink(knownHosts, path.join(folder, SSH_FILES.knownHosts));
      const { concurrency } = settings;
      const limits = { sessions: new Limit(concurrency), enterHandshake: handshakeLimit(concurrency) };
      return new SshConnections({ settings, launcher, folder, ...limits }, workers);
    } catch (error) {
      await remove(folder);
      throw error;
    }
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

  /** Closes every connection and removes the configuration. */
  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map((connection) => connection.close()));
    await remove(this.#run.folder);
  }
}

/** Removes the folders that runs of this bucket left behind when they were killed. */
async function removeLeftFolders(knownHosts: string): Promise<void> {
  for (const name of await readdir(SOCKETS_PLACE)) {
    const { pid, start_time = "" } = FOLDER_NAME.exec(name)?.groups ?? {};
    if (pid === undefined || isAlive({ pid: Number(pid), start_time })) continue;
    const folder = path.join(SOCKETS_PLACE, name);
    const found = await lstat(folder).catch(() => undefined);
    // In a folder that only this user may enter, nobody else can have made the link.
    const isOurs = found?.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
    const link = isOurs ? await readlink(path.join(folder, SSH_FILES.knownHosts)).catch(() => "") : "";
    if (link === knownHosts) await remove(folder);
  }
}
