import { keepLine, questionLine, restLine, type ShellScript } from "./remote-shell.ts";
import type { ChannelReader } from "./ssh-channel.ts";
import { Limit } from "./ssh-limits.ts";
import type { StartedChannel } from "./ssh-link.ts";

interface Question {
  script: ShellScript;
  input: string | Uint8Array;
}

interface OpenShell extends StartedChannel {
  reader: ChannelReader | undefined;
  /** The texts it has been given to keep. */
  kept: string[];
}

/** A shell reads a line byte by byte: scripts that are run again and again are sent once. */
const KEPT_TEXTS = 16;

/**
 * A shell on a worker that is kept open and runs one script after the other, which saves each a channel of its own.
 * It is opened when it is needed. One that is stuck or lost is dropped, and the next script gets a new one.
 */
export class KeptShell {
  /** Whoever asks must be in here. */
  readonly turn = new Limit(1);
  readonly #start: (reader: ChannelReader) => Promise<StartedChannel>;
  #open: Promise<OpenShell> | undefined;

  constructor(start: (reader: ChannelReader) => Promise<StartedChannel>) {
    this.#start = start;
  }

  /**
   * Runs a script to its end and answers its exit code, or why there is none: what `cut` resolves with, or `lost`. Then
   * the shell is no longer used, and what its group still does is the caller's to end; without a shell nothing was run.
   */
  async ask(
    question: Question,
    onOutput: ChannelReader["onOutput"],
    cut: Promise<"timeout" | "cancelled">,
  ): Promise<{ code: number | "timeout" | "cancelled" | "lost"; shell: StartedChannel | undefined }> {
    const opened = await Promise.race([this.#current(), cut]);
    if (typeof opened === "string") return { code: opened, shell: undefined };
    const answered = listen(opened, onOutput);
    opened.channel.stdin.write(linesOf(opened, question));
    const lost = opened.channel.ended.then(() => "lost" as const);
    const code = await Promise.race([answered, lost, cut]);
    opened.reader = undefined;
    if (typeof code !== "number") void this.close();
    return { code, shell: opened };
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

/** All that the shell is told for a question. */
function linesOf({ mark, kept }: OpenShell, { script, input }: Question): string | Buffer {
  const isNew = !kept.includes(script.text) && kept.length < KEPT_TEXTS;
  if (isNew) kept.push(script.text);
  const at = kept.indexOf(script.text);
  const number = at < 0 ? undefined : at;
  const keep = isNew ? keepLine(at, script.text) : "";
  if (typeof input === "string") return keep + questionLine(mark, script, input, number);
  const line = questionLine(mark, script, input.length, number);
  return Buffer.concat([Buffer.from(keep + line), input, Buffer.from(restLine(mark))]);
}

/** Takes what comes until both outputs have told that the script has ended; answers its exit code. */
function listen(shell: OpenShell, onOutput: ChannelReader["onOutput"]): Promise<number> {
  return new Promise((resolve) => {
    const open = new Set(["stdout", "stderr"]);
    let code = 0;
    shell.reader = {
      onOutput,
      onMark: (words, stream) => {
        if (stream === "stdout") code = Number(words[1]);
        open.delete(stream);
        if (open.size === 0) resolve(code);
      },
    };
  });
}
