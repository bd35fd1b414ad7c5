import { sleep, within } from "../../core/async.ts";
import { scriptText } from "../base/scripts.ts";
import { describeReceipt, type LeftListener } from "../base/transport.ts";
import { GroupOutput, scriptLines } from "./channel.ts";
import { pauseAfter } from "./limits.ts";
import type { SshLink, StartedChannel } from "./link.ts";
import { Execution, endRemoteGroup, type KeptShell } from "./shell.ts";

/** Exit code of scripts/attach.sh: the command was never started. */
const NEVER_STARTED = 3;
const RELEASE_MS = 1_000;
/** How long a spool of an earlier run is asked for. */
const LEFT_SECONDS = 60;

/** Where a spool is; without the folder it is where sshd starts a shell. */
interface SpoolPlace {
  folder: string;
  /** The beginning of the names of its files. */
  name: string;
}

/** A command whose output its worker spools, so that another connection can go on with it. */
export class Survivor {
  readonly #link: SshLink;
  readonly #first: StartedChannel;
  readonly #spool: SpoolPlace;
  readonly #stop = new AbortController();
  #current: StartedChannel;

  /** `started` is the channel that started the command. */
  constructor(link: SshLink, started: StartedChannel, spool: SpoolPlace) {
    this.#link = link;
    this.#first = started;
    this.#current = started;
    this.#spool = spool;
  }

  /**
   * The exit code, once all output was read; `lost` where the worker answers and has neither spool nor exit code. Where
   * a connection is lost, connects again for so many seconds. Throws `unreachable` after that, and where the command was
   * not started.
   */
  async ended(reattachSeconds: number): Promise<number | "lost"> {
    const { output, closed } = this.#first.channel;
    let code = await Promise.race([output.ended, closed.then(() => undefined)]);
    while (code === undefined) {
      const attached = await attach(this.#link, { output, ...this.#spool, seconds: reattachSeconds, stop: this.#stop.signal });
      if (!attached) {
        const tried = `and no new one was opened within ${reattachSeconds} s; its command may still be running`;
        throw await this.#link.lost(this.#first, `, ${tried}`);
      }
      this.#current = attached;
      const left = attached.channel.ended.then((exitCode) => ({ exitCode }));
      const end = await Promise.race([output.whole, left]);
      if (typeof end === "number") code = end;
      else if (end.exitCode === NEVER_STARTED && !output.group)
        throw await this.#link.lost(this.#first, "; its command was not started");
      else if (end.exitCode !== undefined) return "lost";
    }
    return Number.isNaN(code) ? "lost" : code;
  }

  /** Ends all waits, and lets the worker remove the spool. */
  async close(): Promise<void> {
    this.#stop.abort();
    await release(this.#current);
  }
}

/** Tells the worker that all was read: it removes the spool. */
async function release({ channel }: StartedChannel): Promise<void> {
  channel.stdin.write("done\n");
  // The end of the input would be a message of its own, and the network layer waits before it sends a second small one.
  await within(channel.closed, RELEASE_MS);
  await channel.close();
}

/**
 * A new channel that goes on with the output of a command; undefined where none was opened within so many seconds, or
 * before the stop.
 */
async function attach(
  link: SshLink,
  { output, folder, name, seconds, stop }: SpoolPlace & { output: GroupOutput; seconds: number; stop: AbortSignal },
): Promise<StartedChannel | undefined> {
  const signal = AbortSignal.any([stop, link.closing, AbortSignal.timeout(seconds * 1000)]);
  const lines = (mark: string) => {
    const args = [name, String(output.bytes("stdout")), String(output.bytes("stderr"))];
    return scriptLines(mark, { folder, need: "optional", text: scriptText("attach"), args, env: {} });
  };
  for (let attempt = 1; !signal.aborted; attempt++) {
    const onOutput: GroupOutput["take"] = (chunk, stream) => output.take(chunk, stream);
    const started = await link.start({ lines }, { onOutput }, signal).catch(() => undefined);
    if (started && started !== "refused") {
      if (!signal.aborted) return started;
      await started.channel.close();
    }
    await sleep(pauseAfter(attempt), signal).catch(() => {});
  }
  return undefined;
}

/** A line of scripts/prepare.sh: name, mark, group and start of the machine, shell, and what the command is. */
const LEFT = /^(\S+) (ops-[0-9a-f]{32}) start (\d+) (\S+) \d+ (.+)/;

/** Where a command was left, and who is told. */
interface Left {
  link: SshLink;
  /** Ends commands. */
  attendant: KeptShell;
  worker: string;
  folder: string;
  listener: LeftListener;
}

/**
 * Ends a command that a run left on a worker, and tells what the command has printed and how it ended. `line` is what
 * scripts/prepare.sh says about the command. Then the spool goes, unless the command cannot be ended.
 */
export async function settleLeft({ link, attendant, worker, folder, listener }: Left, line: string): Promise<void> {
  const [, name, mark, id = "", bootId = "", label] = LEFT.exec(line) ?? [];
  if (name === undefined || mark === undefined) return;
  const receipt = await endRemoteGroup(attendant, { id, bootId });
  listener.onSentence(`${worker}: a run that is over has left ${label}; what it printed there:`);
  const execution = new Execution({
    onLine: (text, stream) => listener.onLine(worker, text, stream),
    keepBytes: 0,
    secrets: listener.secrets,
  });
  const output = new GroupOutput(mark, { onOutput: execution.take });
  const attached =
    receipt === "remaining" || receipt === "unreachable"
      ? undefined
      : await attach(link, { output, folder, name, seconds: LEFT_SECONDS, stop: link.closing });
  const lost = attached?.channel.ended.then(() => Number.NaN) ?? Number.NaN;
  const code = await Promise.race([output.whole, lost]);
  execution.outcome("exit", null);
  const ended = Number.isNaN(code) ? "has ended, nobody knows how" : `has ended with exit code ${code}`;
  const state = receipt === "gone" ? ended : `was still running: it is ${describeReceipt(receipt)}`;
  listener.onSentence(`${worker}: ${label} ${state}`);
  if (attached) await release(attached);
}
