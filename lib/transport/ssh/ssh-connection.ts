import { unlessAborted } from "../../core/async.ts";
import { cancelledFailure, throwIfCancelled } from "../../core/errors.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { describeReceipt, type Receipt, type ScriptOptions, type WorkerAddress } from "../base/transport.ts";
import { loopLine, NO_FOLDER, PREPARE_FOLDER, type ShellScript, scriptLine } from "./remote-shell.ts";
import type { ChannelReader } from "./ssh-channel.ts";
import { endRemoteGroup } from "./ssh-end.ts";
import { Execution } from "./ssh-execution.ts";
import { enterAll, Limit } from "./ssh-limits.ts";
import { SshLink, type SshRun, type StartedChannel } from "./ssh-link.ts";
import { KeptShell } from "./ssh-shell.ts";
import { lastLine } from "./ssh-trouble.ts";

/** With the kept shell and the one that ends commands, as many as an sshd in its default settings allows (MaxSessions 10). */
const CHANNELS = 8;
const PREPARE_LIMIT_MS = 30_000;
/** Where sshd starts a shell. */
const HOME = ".";
/** The kept shell reads a script byte by byte; a longer one has a channel of its own. */
const SHORT_CHARACTERS = 64 * 1024;
/** While it takes more than that, nobody else could ask anything. */
const SHORT_BYTES = 1024 * 1024;

/** The commands of a run on a worker, over one connection. */
export class SshConnection {
  readonly #link: SshLink;
  readonly #sessions: Limit;
  readonly #folder: string;
  readonly #slots = new Limit(CHANNELS);
  readonly #questions = new KeptShell((reader) => this.#startShell(reader));
  /** From here commands are ended while the other shell may be busy; open only as long as that takes. */
  readonly #attendant = new KeptShell((reader) => this.#startAttendant(reader));
  #prepared: Promise<string> | undefined;
  #ending = 0;

  /** `folder` is where scripts run; it is made where it is missing. */
  constructor(run: SshRun, worker: WorkerAddress, socket: string, folder: string) {
    this.#link = new SshLink(run, worker, socket);
    this.#sessions = run.sessions;
    this.#folder = folder;
  }

  /** See {@link Transport.script}. */
  async script(text: string, options: ScriptOptions): Promise<CommandOutcome> {
    const { args = [], env = {}, input = "", signal } = options;
    throwIfCancelled(signal);
    const folder = await unlessAborted(this.#ready(options.isFolderOptional === true), signal);
    const script = { folder, text, args, env };
    if (options.isShort && isForShell(input) && text.length + args.join().length <= SHORT_CHARACTERS)
      return this.#ask(script, input, options);
    for (;;) {
      const leave = await enterAll([this.#slots, this.#sessions], signal);
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
    await Promise.all([this.#questions.close(), this.#attendant.close()]);
    await this.#link.close();
  }

  /** Connected, which takes no place from others that are at work, and the folder looked at once. Answers where to run. */
  async #ready(isFolderOptional: boolean): Promise<string> {
    await this.#link.connect();
    if (isFolderOptional && !this.#prepared) return this.#prepareFolder("optional");
    this.#prepared ??= this.#prepareFolder("needed").catch((error) => {
      this.#prepared = undefined;
      throw error;
    });
    return await this.#prepared;
  }

  async #prepareFolder(need: "needed" | "optional"): Promise<string> {
    const script = { folder: "/", text: PREPARE_FOLDER, args: [this.#folder, need], env: {} };
    const options = { signal: this.#link.closing, timeoutMs: PREPARE_LIMIT_MS };
    const { exitCode, stderr, reason } = await this.#ask(script, "", options);
    if (exitCode === NO_FOLDER) return HOME;
    if (exitCode !== 0) throw this.#link.failed("Cannot use the folder on", lastLine(stderr) || reason);
    return this.#folder;
  }

  async #command(script: ShellScript, options: ScriptOptions): Promise<CommandOutcome | "refused"> {
    const execution = new Execution(options);
    let started: StartedChannel | "refused" | undefined;
    try {
      const reader: ChannelReader = { onOutput: (chunk, stream) => execution.take(chunk, stream) };
      started = await this.#link.start((mark) => scriptLine(mark, script), reader, options.signal);
      if (started === "refused") return started;
      execution.begin();
      if (started.group) void execution.feed(started.channel.stdin);
      const ended = started.channel.ended.then((code) => code ?? "lost");
      const code = await Promise.race([execution.cut, ended]);
      return await this.#conclude(execution, code, started, options.signal);
    } finally {
      execution.close();
      if (started && started !== "refused") await started.channel.close();
    }
  }

  async #ask(script: ShellScript, input: string | Uint8Array, options: ScriptOptions): Promise<CommandOutcome> {
    const leave = await enterAll([this.#questions.turn, this.#sessions], options.signal);
    const execution = new Execution(options);
    try {
      const question = { script, input };
      const onOutput: ChannelReader["onOutput"] = (chunk, stream) => execution.take(chunk, stream);
      execution.begin();
      const { code, shell } = await this.#questions.ask(question, onOutput, execution.cut);
      return await this.#conclude(execution, code, shell, options.signal);
    } finally {
      execution.close();
      leave();
    }
  }

  /** How a script ended; where it did not by itself, what it has on the worker is ended first. */
  async #conclude(
    execution: Execution,
    code: number | "timeout" | "cancelled" | "lost",
    started: StartedChannel | undefined,
    signal: AbortSignal | undefined,
  ): Promise<CommandOutcome> {
    if (typeof code === "number") return execution.outcome("exit", code);
    const receipt = started ? await this.#end(started) : "gone";
    if (signal?.aborted) return execution.outcome("cancelled", null, receipt);
    if (code !== "lost") return execution.outcome(code, null, receipt);
    throw await this.#link.broken(started as StartedChannel, `; what ran there is ${describeReceipt(receipt)}`);
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
    const started = await this.#link.start(loopLine, reader, this.#link.closing);
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

  /** The worker's sshd allows fewer sessions than usual. */
  #narrow(): void {
    if (!this.#slots.narrow())
      throw this.#link.failed(
        "Cannot run commands on",
        "its sshd allows only one session in a connection; set MaxSessions there to 2 at least (10 is usual)",
      );
  }
}

/** Text becomes part of a line; bytes follow it. */
function isForShell(input: NonNullable<ScriptOptions["input"]>): input is string | Uint8Array {
  if (typeof input === "string") return input.length <= SHORT_CHARACTERS && !input.includes("\0");
  return input instanceof Uint8Array && input.length <= SHORT_BYTES;
}
