import { Readable, type Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { Failure } from "./errors.ts";

/** What a command gets on its standard input. */
export type Input = string | Uint8Array | AsyncIterable<Uint8Array>;

const MOST_LINE_BYTES = 64 * 1024;
const KEPT_OUTPUT_BYTES = 1024 * 1024;
const LINE_FEED = 0x0a;

/**
 * Writes the whole input to a command and closes its standard input; never throws. A command may end without reading
 * all of the input: its exit code tells whether that was right. Where the source fails, `trouble` is aborted with the
 * source's error.
 */
export async function feed(stdin: Writable, input: Input, trouble: AbortController): Promise<void> {
  const source = typeof input === "string" || input instanceof Uint8Array ? [Buffer.from(input)] : input;
  await pipeline(Readable.from(watchedSource(source, trouble)), stdin).catch(() => {});
}

async function* watchedSource(source: Iterable<Uint8Array> | AsyncIterable<Uint8Array>, trouble: AbortController) {
  let handedOut = false;
  try {
    for await (const chunk of source) {
      handedOut = true;
      yield chunk;
      handedOut = false;
    }
  } catch (error) {
    // While a chunk is handed out, an error comes from the reading side, not from the source.
    if (!handedOut) trouble.abort(error);
    throw error;
  }
}

/** No text may have a longer line. */
const MOST_LINE_CHARACTERS = 64 * 1024 * 1024;

/**
 * The lines of a text in UTF-8 that comes in pieces. Only a line feed ends a line; the last line may lack it. Throws `failed`
 * for a line of more than 64 Mi characters.
 */
export async function* linesOf(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let rest = "";
  for await (const piece of pieces) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > MOST_LINE_CHARACTERS) throw new Failure("failed", "Cannot read a line of more than 64 Mi characters");
    yield* lines;
  }
  if (rest !== "") yield rest;
}

/** How an output of a command is taken. */
interface OutputOptions {
  onLine?: (line: string, stream: "stdout" | "stderr") => void;
  keepBytes?: number;
  secrets?: Uncut;
}

/** Texts that must not be cut in two, because a part of a secret would not be recognised any more. See `Redactor`. */
export interface Uncut {
  /** The length in bytes of the longest of these texts. */
  longest: number;
  /** Where to cut bytes: at `limit` or before it, or after it where such a text begins at 0 and is longer. */
  cut(bytes: Buffer, limit: number): number;
}

const NO_SECRETS: Uncut = { longest: 0, cut: (_, limit) => limit };

/** One output of a command: its first bytes are kept and its lines handed out. `onLine`'s errors go to `trouble`. */
export class Output {
  readonly #name: "stdout" | "stderr";
  readonly #onLine: OutputOptions["onLine"];
  readonly #trouble: AbortController;
  readonly #kept: Buffer[] = [];
  readonly #keepBytes: number;
  readonly #secrets: Uncut;
  #room: number;
  #rest: Buffer = Buffer.alloc(0);

  constructor(name: "stdout" | "stderr", options: OutputOptions, trouble: AbortController) {
    this.#name = name;
    this.#onLine = options.onLine;
    this.#trouble = trouble;
    this.#secrets = options.secrets ?? NO_SECRETS;
    this.#keepBytes = options.keepBytes ?? KEPT_OUTPUT_BYTES;
    // So many bytes more show whether the cut falls within a secret.
    this.#room = this.#keepBytes === 0 ? 0 : this.#keepBytes + this.#secrets.longest;
  }

  /** Takes the next bytes. */
  take(chunk: Buffer): void {
    if (this.#room > 0) this.#kept.push(chunk.subarray(0, this.#room));
    this.#room -= chunk.length;
    if (!this.#onLine) return;
    this.#rest = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    this.#hand(this.#secrets.longest);
  }

  /** Hands out the rest of the last line and answers the kept output. */
  finish(): string {
    this.#hand(0);
    if (this.#rest.length > 0) this.#emit(this.#rest);
    const kept = Buffer.concat(this.#kept);
    const isCut = kept.length > this.#keepBytes;
    return kept.subarray(0, isCut ? this.#secrets.cut(kept, this.#keepBytes) : kept.length).toString();
  }

  /** Hands out all complete lines, and a part of an incomplete line that is too long by `ahead` bytes. */
  #hand(ahead: number): void {
    let rest = this.#rest;
    for (let end = this.#lineEnd(rest, ahead); end >= 0; end = this.#lineEnd(rest, ahead)) {
      this.#emit(rest.subarray(0, end));
      rest = rest.subarray(rest[end] === LINE_FEED ? end + 1 : end);
    }
    this.#rest = rest;
  }

  /**
   * Where the first line ends: at its newline, or between two characters where the line is too long; -1 where it is
   * incomplete.
   */
  #lineEnd(text: Buffer, ahead: number): number {
    const newline = text.indexOf(LINE_FEED);
    const fits = newline < 0 ? text.length <= MOST_LINE_BYTES + ahead : newline <= MOST_LINE_BYTES;
    if (fits) return newline;
    const end = this.#secrets.cut(text, MOST_LINE_BYTES);
    for (let at = end; at > end - 4; at--) if (((text[at] as number) & 0xc0) !== 0x80) return at;
    return end;
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
