const MOST_WIDTH = 8;
const FACTOR = 31;
const MOST_BITS = 20;

/** A range of a text; `end` is not part of it. */
interface Span {
  start: number;
  end: number;
}

/**
 * Finds many needles in a text. The time does not grow with the number of needles: a rolling hash of the next
 * characters tells where a needle may begin, and only needles that begin with these characters are compared.
 */
export class Finder {
  readonly #width: number;
  /** The factor with which the character that leaves the window is in the hash. */
  readonly #leaving: number;
  readonly #filter: Uint8Array;
  readonly #shift: number;
  readonly #byBeginning: Map<string, string[]>;

  /** The needles must not be empty. */
  constructor(texts: readonly string[]) {
    const sorted = [...new Set(texts)].sort((a, b) => b.length - a.length);
    this.#width = Math.min(MOST_WIDTH, sorted.at(-1)?.length ?? MOST_WIDTH);
    this.#byBeginning = Map.groupBy(sorted, (text) => text.slice(0, this.#width));
    this.#leaving = power(this.#width);
    // About 16 slots for each distinct beginning of a needle.
    const bits = Math.min(MOST_BITS, 36 - Math.clz32(this.#byBeginning.size));
    this.#filter = new Uint8Array(1 << bits);
    this.#shift = 32 - bits;
    for (const beginning of this.#byBeginning.keys()) this.#filter[slotOf(hashOf(beginning), this.#shift)] = 1;
  }

  /** Every occurrence of every needle, sorted by its start, the longest first where several begin at one place. */
  found(text: string): (Span & { text: string })[] {
    const found: (Span & { text: string })[] = [];
    const filter = this.#filter;
    const width = this.#width;
    const leaving = this.#leaving;
    const shift = this.#shift;
    let hash = hashOf(text.slice(0, width - 1));
    for (let end = width; end <= text.length; end++) {
      const start = end - width;
      hash = (Math.imul(hash, FACTOR) + text.charCodeAt(end - 1)) | 0;
      if (filter[slotOf(hash, shift)] === 1)
        for (const one of this.#byBeginning.get(text.slice(start, end)) ?? [])
          if (text.startsWith(one, start)) found.push({ start, end: start + one.length, text: one });
      hash = (hash - Math.imul(text.charCodeAt(start), leaving)) | 0;
    }
    return found;
  }

  /** The ranges that occurrences cover, in order; overlapping ranges are merged. */
  spans(text: string): Span[] {
    const spans: Span[] = [];
    for (const { start, end } of this.found(text)) {
      const last = spans.at(-1);
      if (last && start < last.end) last.end = Math.max(last.end, end);
      else spans.push({ start, end });
    }
    return spans;
  }
}

function hashOf(letters: string): number {
  let hash = 0;
  for (let at = 0; at < letters.length; at++) hash = (Math.imul(hash, FACTOR) + letters.charCodeAt(at)) | 0;
  return hash;
}

function power(width: number): number {
  let power = 1;
  for (let at = 1; at < width; at++) power = Math.imul(power, FACTOR);
  return power;
}

/**
 * Takes the upper bits of a product, because hashes of texts that differ only in their last characters lie close
 * together.
 */
function slotOf(hash: number, shift: number): number {
  return Math.imul(hash, 0x9e3779b1) >>> shift;
}
