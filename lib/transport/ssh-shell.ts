import { questionLine, type ShellScript } from "./remote-shell.ts";
import type { Channel, ChannelReader, RemoteGroup } from "./ssh-channel.ts";
import { Limit } from "./ssh-limits.ts";

/** A channel whose group runs. */
export interface StartedChannel {
  channel: Channel;
  mark: string;
  group: RemoteGroup;
}

interface OpenShell extends StartedChannel {
  reader: ChannelReader | undefined;
}

/**
 * A shell on a worker that is kept open and runs one script after the other, which saves each a channel of its own.
 * It is opened when it is needed. One that is stuck or lost is dropped, and the next script gets a new one.
 */
export class KeptShell {
  /** Whoever asks must be in here. */
  readonly turn = new Limit(1);
  readonly #start: (reader: ChannelReader) => Promise<StartedChannel>;
  #open: OpenShell | undefined;

  constructor(start: (reader: ChannelReader) => Promise<StartedChannel>) {
    this.#start = start;
  }

  /**
   * Runs a script to its end and answers its exit code, or why there is none: what `cut` resolves with, or `lost`. Then
   * the shell is gone, and what its group still does is the caller's to end.
   */
  async ask<Cut>(
    question: { script: ShellScript; input: string },
    onOutput: ChannelReader["onOutput"],
    cut: Promise<Cut>,
  ): Promise<{ code: number | Cut | "lost"; group: RemoteGroup }> {
    const shell = this.#open ?? (await this.#opened());
    const answered = listen(shell, onOutput);
    shell.channel.stdin.write(questionLine(shell.mark, question.script, question.input));
    const code = await Promise.race([answered, shell.channel.ended.then(() => "lost" as const), cut]);
    shell.reader = undefined;
    if (typeof code !== "number") this.#drop(shell);
    return { code, group: shell.group };
  }

  /** Ends the shell; the next script opens a new one. */
  async close(): Promise<void> {
    const shell = this.#open;
    this.#open = undefined;
    await shell?.channel.close();
  }

  async #opened(): Promise<OpenShell> {
    let shell: OpenShell | undefined;
    const started = await this.#start({
      onOutput: (chunk, stream) => shell?.reader?.onOutput(chunk, stream),
      onMark: (words, stream) => shell?.reader?.onMark?.(words, stream),
    });
    const opened = { ...started, reader: undefined };
    shell = opened;
    this.#open = opened;
    void opened.channel.ended.then(() => this.#drop(opened));
    return opened;
  }

  #drop(shell: OpenShell): void {
    if (this.#open === shell) this.#open = undefined;
    void shell.channel.close();
  }
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
