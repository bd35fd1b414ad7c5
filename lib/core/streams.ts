import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";

/** What a command gets on its standard input. */
export type Input = string | Uint8Array | AsyncIterable<Uint8Array>;

const LINE_LIMIT = 64 * 1024;
const KEEP_BYTES = 1024 * 1024;
const NEWLINE = 0x0a;

/**
 * Writes the whole input to a command and closes it; never throws. A command may end without reading all of it: its
 * exit code tells whether that was right. Where the source itself fails, `trouble` is aborted with its error.
 */
export async function feed(stdin: Writable, input: Input, trouble: AbortController): Promise<void> {
  const source = typeof input === "string" || input instanceof Uint8Array ? [Buffer.from(input)] : input;
  await pipeline(Readable.from(watched(source, trouble)), stdin).catch(() => {});
}

async function* watched(source: Iterable<Uint8Array> | AsyncIterable<Uint8Array>, trouble: AbortController) {
  let handedOut = false;
  try {
    for await (const chunk of source) {
      handedOut = true;
      yield chunk;
      handedOut = false;
    }
  } catch (error) {
    // What the reading side throws in here is not the source's failure.
    if (!handedOut) trouble.abort(error);
    throw error;
  }
}

/** How an output of a command is taken. */
interface OutputOptions {
  onLine?: (line: string, stream: "stdout" | "stderr") => void;
  keepBytes?: number;
}

/** Takes one output of a command: keeps a bounded beginning and hands out lines; `trouble` is where `onLine` throws. */
export class Output {
  readonly #name: "stdout" | "stderr";
  readonly #onLine: OutputOptions["onLine"];
  readonly #trouble: AbortController;
  readonly #kept: Buffer[] = [];
  #room: number;
  #rest: Buffer = Buffer.alloc(0);

  constructor(name: "stdout" | "stderr", options: OutputOptions, trouble: AbortController) {
    this.#name = name;
    this.#onLine = options.onLine;
    this.#trouble = trouble;
    this.#room = options.keepBytes ?? KEEP_BYTES;
  }

  /** Takes what has come. */
  take(chunk: Buffer): void {
    if (this.#room > 0) this.#kept.push(chunk.subarray(0, this.#room));
    this.#room -= chunk.length;
    if (!this.#onLine) return;
    let rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    for (let end = lineEnd(rest); end >= 0; end = lineEnd(rest)) {
      this.#emit(rest.subarray(0, end));
      rest = rest.subarray(rest[end] === NEWLINE ? end + 1 : end);
    }
    this.#rest = rest;
  }

  /** Hands out what is left of the last line and answers what was kept. */
  finish(): string {
    if (this.#rest.length > 0) this.#emit(this.#rest);
    return Buffer.concat(this.#kept).toString();
  }

  #emit(line: Buffer): void {
    if (this.#trouble.signal.aborted) return;
    try {
      this.#onLine?.(line.toString(), this.#name);
    } catch (error) {
      this.#trouble.abort(error);
    }
  }
}

/** Where the first line ends: at its newline, or where it grows too long, between two characters; -1 where it goes on. */
function lineEnd(text: Buffer): number {
  const newline = text.subarray(0, LINE_LIMIT + 1).indexOf(NEWLINE);
  if (newline >= 0 || text.length <= LINE_LIMIT) return newline;
  for (let at = LINE_LIMIT; at > LINE_LIMIT - 4; at--) if (((text[at] ?? 0) & 0xc0) !== 0x80) return at;
  return LINE_LIMIT;
}
