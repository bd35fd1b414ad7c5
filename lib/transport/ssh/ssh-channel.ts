import type { Writable } from "node:stream";
import { within } from "../../core/async.ts";
import { Session, type SessionEnd } from "./ssh-session.ts";

/** A process group on a worker. */
export interface RemoteGroup {
  id: string;
  /** The start of the machine that the number belongs to. */
  bootId: string;
}

type StreamName = "stdout" | "stderr";

/** Who takes what a channel brings between the marks of its start and its end. */
export interface ChannelReader {
  onOutput(chunk: Buffer, stream: StreamName): void;
  /** Any other mark, by the words behind it. */
  onMark?(words: readonly string[], stream: StreamName): void;
}

const DRAIN_MS = 200;
const MESSAGE_CHARACTERS = 4_000;

/**
 * A process group on a worker and the session that leads to it. It has ended when its marks say so; what it left running
 * there may keep its outputs open, which is not waited for.
 */
export class Channel {
  /** The group, once it runs; undefined when the channel ended before. */
  readonly started: Promise<RemoteGroup | undefined>;
  /** The code the group's leader ended with, once all its output was read; undefined when the channel ended before. */
  readonly ended: Promise<number | undefined>;
  readonly stdin: Writable;
  readonly #session: Session;
  #messages = "";

  /** Opens a session over the master with this control socket, for a command that makes these marks. */
  constructor(socket: string, command: string, mark: string, reader: ChannelReader) {
    const started = Promise.withResolvers<RemoteGroup | undefined>();
    const codes = Promise.withResolvers<number | undefined>();
    const stderrEnded = Promise.withResolvers<void>();
    const onMark = (words: readonly string[], stream: StreamName) => {
      const [word, first = "", second = ""] = words;
      if (word === "start" && stream === "stdout") started.resolve({ id: first, bootId: second });
      else if (word === "end" && stream === "stdout") codes.resolve(Number(first));
      else if (word === "end") stderrEnded.resolve();
      else reader.onMark?.(words, stream);
    };
    const marksOf = (stream: StreamName) => {
      let isIts = false;
      return new Marks(mark, {
        onData: (chunk) => (isIts ? reader.onOutput(chunk, stream) : this.#note(chunk)),
        onMark: (words) => {
          if (words[0] === "start" || words[0] === "end") isIts = words[0] === "start";
          onMark(words, stream);
        },
      });
    };
    const marks = { stdout: marksOf("stdout"), stderr: marksOf("stderr") };
    this.#session = new Session(socket, command, (chunk, stream) => marks[stream].take(chunk));
    this.stdin = this.#session.stdin;
    void this.#session.ended.then(() => {
      started.resolve(undefined);
      codes.resolve(undefined);
      stderrEnded.resolve();
    });
    this.started = started.promise;
    this.ended = codes.promise.then(async (code) => {
      await within(stderrEnded.promise, DRAIN_MS);
      return code;
    });
  }

  /** How the session ended. */
  get closed(): Promise<SessionEnd> {
    return this.#session.ended;
  }

  /** True once the worker's sshd has opened the channel. */
  get isOpen(): boolean {
    return this.#session.isOpen;
  }

  /** What came besides the output of the group: of the user's login files and of sudo; the end of it. */
  get messages(): string {
    return this.#messages;
  }

  /** Gives the channel back: at once when the group has ended, else the group's outputs are cut. */
  async close(): Promise<void> {
    this.stdin.end();
    if ((await within(this.#session.ended, DRAIN_MS)) === undefined) this.#session.close();
    await this.#session.ended;
  }

  #note(chunk: Buffer): void {
    this.#messages = `${this.#messages}${chunk}`.slice(-MESSAGE_CHARACTERS);
  }
}

const NEWLINE = 0x0a;

/** Finds `<mark> <words…>` up to the end of the line, wherever it begins, in a stream that can hold anything else. */
class Marks {
  readonly #mark: string;
  readonly #reader: { onData: (chunk: Buffer) => void; onMark: (words: string[]) => void };
  #held: Buffer = Buffer.alloc(0);

  constructor(mark: string, reader: { onData: (chunk: Buffer) => void; onMark: (words: string[]) => void }) {
    this.#mark = mark;
    this.#reader = reader;
  }

  take(chunk: Buffer): void {
    let rest = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    for (let at = rest.indexOf(this.#mark); at >= 0; at = rest.indexOf(this.#mark)) {
      this.#pass(rest.subarray(0, at));
      rest = rest.subarray(at);
      const end = rest.indexOf(NEWLINE);
      if (end < 0) break;
      this.#reader.onMark(rest.toString("latin1", this.#mark.length + 1, end).split(" "));
      rest = rest.subarray(end + 1);
    }
    const held = this.#beginning(rest);
    this.#pass(rest.subarray(0, rest.length - held));
    this.#held = rest.subarray(rest.length - held);
  }

  /** How many bytes at the end are a mark that is not complete yet. */
  #beginning(rest: Buffer): number {
    if (rest.indexOf(this.#mark) === 0) return rest.length;
    for (let length = Math.min(this.#mark.length - 1, rest.length); length > 0; length--)
      if (rest.toString("latin1", rest.length - length) === this.#mark.slice(0, length)) return length;
    return 0;
  }

  #pass(data: Buffer): void {
    if (data.length > 0) this.#reader.onData(data);
  }
}
