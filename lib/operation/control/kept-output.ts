import { createHash } from "node:crypto";

/** What is kept of an output: its first and its last lines, and a digest of all of it. */
export class KeptOutput {
  readonly #limit: number;
  readonly #hash = createHash("sha256");
  readonly #tail: string[] = [];
  #head = "";
  #headBytes = 0;
  #tailBytes = 0;
  #leftOut = 0;

  /** Keeps at most `limit` bytes from the beginning and as many from the end. */
  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Adds a line, given without its newline. */
  add(line: string): void {
    const text = `${line}\n`;
    this.#hash.update(text);
    const size = Buffer.byteLength(text);
    if (this.#tail.length === 0 && this.#headBytes + size <= this.#limit) {
      this.#head += text;
      this.#headBytes += size;
      return;
    }
    this.#tail.push(text);
    this.#tailBytes += size;
    while (this.#tailBytes > this.#limit && this.#tail.length > 1) this.#leaveOut(this.#tail.shift() as string);
  }

  /** All that is kept, with a line that tells how much was left out between the two. */
  get text(): string {
    const tail = this.#tail.map((line) => endOf(line, this.#limit));
    const cut = this.#tailBytes - tail.reduce((sum, line) => sum + Buffer.byteLength(line), 0);
    const left = this.#leftOut + cut;
    return `${this.#head}${left > 0 ? `… ${left} bytes left out …\n` : ""}${tail.join("")}`;
  }

  /** Of the whole output. */
  get sha256(): string {
    return this.#hash.copy().digest("hex");
  }

  #leaveOut(line: string): void {
    const size = Buffer.byteLength(line);
    this.#tailBytes -= size;
    this.#leftOut += size;
  }
}

/** The last bytes of a line that alone is too long, from the beginning of a character on. */
function endOf(line: string, limit: number): string {
  const bytes = Buffer.from(line);
  let start = Math.max(0, bytes.length - limit);
  while (((bytes[start] ?? 0) & 0xc0) === 0x80) start++;
  return bytes.subarray(start).toString();
}
