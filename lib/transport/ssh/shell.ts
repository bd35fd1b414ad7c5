import type { Writable } from "node:stream";
import { aborted, expired, sleep } from "../../core/async.ts";
import type { CommandOutcome } from "../../core/spawn.ts";
import { feed, Output } from "../../core/streams.ts";
import { scriptText } from "../base/scripts.ts";
import type { Receipt, ScriptOptions } from "../base/transport.ts";
import { type ChannelReader, keepLine, questionLines, type RemoteGroup, type ShellScript, type WholeInput } from "./channel.ts";
import { type Entrance, enterAll, Limit } from "./limits.ts";
import type { StartedChannel } from "./link.ts";

/**
 * How many bytes of output are read after a script was cut off, for what it prints while it ends. Endless output would
 * keep this process from noticing the script's end.
 */
const CUT_BYTES = 64 * 1024;

/** One script under way: takes its output, and tells when the script is to be cut short. */
export class Execution {
  /** Resolves when the caller's signal is aborted, the time is over, or the caller cannot go on with the output. */
  readonly cut: Promise<"timeout" | "cancelled">;
  /** Why the folder of the script cannot be used: then nothing was run. */
  unusable: string | undefined;
  /** Commands that other runs have left: then nothing was run. */
  readonly left: string[] = [];
  readonly #options: ScriptOptions;
  readonly #begun = Promise.withResolvers<void>();
  readonly #trouble = new AbortController();
  readonly #over = new AbortController();
  readonly #outputs: Record<"stdout" | "stderr", Output>;
  #started = performance.now();
  #room = Number.POSITIVE_INFINITY;

  constructor(options: ScriptOptions) {
    this.#options = options;
    this.#outputs = {
      stdout: new Output("stdout", options, this.#trouble),
      stderr: new Output("stderr", options, this.#trouble),
    };
    this.cut = Promise.race([
      aborted(options.signal, this.#over.signal),
      aborted(this.#trouble.signal, this.#over.signal),
      this.#begun.promise.then(() => expired(options.timeoutMs, this.#over.signal)),
    ]);
    void this.cut.then(() => {
      this.#room = CUT_BYTES;
    });
  }

  /** Called when the script begins to run on the worker: its time limit begins. */
  begin(): void {
    this.#started = performance.now();
    this.#begun.resolve();
    this.#options.onBegin?.();
  }

  /** Takes a part of the script's output. */
  readonly take: ChannelReader["onOutput"] = (chunk, stream) => {
    if (this.#room <= 0) return;
    this.#room -= chunk.length;
    this.#outputs[stream].take(chunk);
  };

  /** Takes a mark: why the folder of the script cannot be used, or what other runs have left. */
  readonly note = ([word, ...words]: readonly string[]) => {
    if (word === "unusable") this.unusable = words.join(" ");
    else if (word === "left") this.left.push(words.join(" "));
  };

  /** Writes the script's whole input and closes it; never throws. */
  feed(stdin: Writable): Promise<void> {
    return feed(stdin, this.#options.input ?? "", this.#trouble);
  }

  /** How the script ended. Throws what the source of the input, or the taker of the lines, has thrown. */
  outcome(reason: CommandOutcome["reason"], exitCode: number | null, receipt?: Receipt): CommandOutcome {
    const texts = { stdout: this.#outputs.stdout.finish(), stderr: this.#outputs.stderr.finish() };
    this.#trouble.signal.throwIfAborted();
    const durationMs = performance.now() - this.#started;
    return { reason, ...(receipt && { receipt }), exitCode, signal: null, ...texts, durationMs };
  }

  /** Ends all waits. */
  close(): void {
    this.#over.abort("over");
  }
}

/** How a script came to its end: with an exit code, or why there is none. */
export interface ScriptEnd {
  execution: Execution;
  code: number | "timeout" | "cancelled" | "lost";
  /** Where the script ran; undefined where nothing was run. */
  started: StartedChannel | undefined;
}

interface OpenShell extends StartedChannel {
  reader: ChannelReader | undefined;
  /** The texts of scripts that the shell keeps, by number. */
  kept: string[];
}

const MOST_KEPT = 16;

/**
 * A shell on a worker that is kept open and runs one script after the other, which saves each script a channel of its
 * own. The shell opens when it is needed. A shell that is stuck or lost is dropped, and the next script gets a new one.
 */
export class KeptShell {
  readonly #turn = new Limit(1);
  readonly #start: (reader: ChannelReader) => Promise<StartedChannel>;
  #open: Promise<OpenShell> | undefined;

  constructor(start: (reader: ChannelReader) => Promise<StartedChannel>) {
    this.#start = start;
  }

  /** True for a shell that is open and has nothing to do. */
  get isFree(): boolean {
    return this.#open !== undefined && this.#turn.isFree;
  }

  /**
   * Runs a script when its turn has come and each of the `limits` has a place, and answers what `conclude` makes of the
   * end. Where there is no exit code the shell is no longer used, and `conclude` ends the group of the shell.
   */
  async ask<T>(
    script: ShellScript,
    options: ScriptOptions & { input?: WholeInput },
    limits: readonly Entrance[],
    conclude: (end: ScriptEnd) => T | Promise<T>,
  ): Promise<T> {
    const leave = await enterAll([this.#turn, ...limits], options.signal);
    const execution = new Execution(options);
    try {
      const shell = await Promise.race([this.#current(), execution.cut]);
      if (typeof shell === "string") return await conclude({ execution, code: shell, started: undefined });
      execution.begin();
      const answered = answerOf(shell, execution);
      const { number, line } = keptText(shell, script.text);
      const question = questionLines(shell.mark, script, number, options.input ?? "");
      shell.channel.stdin.write(Buffer.concat([Buffer.from(line), question]));
      const lost = shell.channel.ended.then(() => "lost" as const);
      const code = await Promise.race([answered, lost, execution.cut]);
      shell.reader = undefined;
      if (typeof code !== "number") void this.close();
      return await conclude({ execution, code, started: shell });
    } finally {
      execution.close();
      leave();
    }
  }

  /** Ends the shell; the next script opens a new one. */
  async close(): Promise<void> {
    const open = this.#open;
    this.#open = undefined;
    const shell = await open?.catch(() => undefined);
    await shell?.channel.close();
  }

  #current(): Promise<OpenShell> {
    if (this.#open) return this.#open;
    const opening = this.#opened();
    const forget = () => {
      if (this.#open === opening) this.#open = undefined;
    };
    this.#open = opening;
    opening.then((shell) => shell.channel.ended.then(forget), forget);
    return opening;
  }

  async #opened(): Promise<OpenShell> {
    let shell: OpenShell | undefined;
    const started = await this.#start({
      onOutput: (chunk, stream) => shell?.reader?.onOutput(chunk, stream),
      onMark: (words, stream) => shell?.reader?.onMark?.(words, stream),
    });
    shell = { ...started, reader: undefined, kept: [] };
    return shell;
  }
}

/**
 * The number under which the shell keeps a text, and the line that gives the text to the shell, where the shell has not
 * got it; of more than 16 texts the first gives way.
 */
function keptText({ kept, mark }: OpenShell, text: string): { number: number; line: string } {
  const known = kept.indexOf(text);
  if (known >= 0) return { number: known, line: "" };
  const number = kept.length < MOST_KEPT ? kept.length : 0;
  kept[number] = text;
  return { number, line: keepLine(mark, number, text) };
}

/** Takes output until both streams have told that the script has ended; answers the exit code. */
function answerOf(shell: OpenShell, { take, note }: Execution): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>();
  const open = new Set(["stdout", "stderr"]);
  let code = 0;
  shell.reader = {
    onOutput: take,
    onMark: (words, stream) => {
      if (words[0] !== "answer") return note(words);
      if (stream === "stdout") code = Number(words[1]);
      open.delete(stream);
      if (open.size === 0) resolve(code);
    },
  };
  return promise;
}

/** Together less than the time after which the processes of a cancelled run are killed. */
const END_LIMIT_MS = 7_500;
const AFTER_TERM_MS = 4_000;
const AFTER_KILL_MS = 2_000;
const FIRST_LOOK_MS = 20;
const LONGEST_LOOK_MS = 250;

/**
 * Ends a process group on a worker, over a shell of its own: TERM, 4 s to unwind, then KILL. Answers what became of the
 * group within 7.5 s; `unreachable` where the worker does not tell in that time.
 */
export async function endRemoteGroup(shell: KeptShell, { id, bootId }: RemoteGroup): Promise<Receipt> {
  const signal = AbortSignal.timeout(END_LIMIT_MS);
  const send = (name: "TERM" | "KILL" | "0") => {
    const script: ShellScript = { folder: "/", need: "none", text: scriptText("signal"), args: [id, bootId, name], env: {} };
    return shell.ask(script, { signal }, [], ({ execution, code }) => {
      const said = execution.outcome("exit", null).stdout.trim();
      if (code !== 0 || (said !== "gone" && said !== "running")) throw new Error("no answer");
      return said;
    });
  };
  const emptied = async (limitMs: number) => {
    const until = performance.now() + limitMs;
    for (let pause = FIRST_LOOK_MS; performance.now() < until; pause = Math.min(pause * 2, LONGEST_LOOK_MS)) {
      await sleep(pause, signal);
      if ((await send("0")) === "gone") return true;
    }
    return false;
  };
  try {
    if ((await send("TERM")) === "gone") return "gone";
    if (await emptied(AFTER_TERM_MS)) return "stopped";
    await send("KILL");
    return (await emptied(AFTER_KILL_MS)) ? "killed" : "remaining";
  } catch {
    return "unreachable";
  }
}
