/** Needles are grouped by so many of their first characters. */
const MOST_WIDTH = 8;
/** Shorter values, in bytes, are too common to mask. */
const SHORTEST = 8;
/** What stands where a secret was. */
export const MASK = "***";

/**
 * Replaces known secrets in text by `***`: as they are, in hex, in base64 at any position of the encoded data, and in
 * URL, JSON and shell-quoted form. Values are masked, never names: see {@link Redactor.sentence}.
 */
export class Redactor {
  /** The forms in which a secret, or a line of a secret, may appear; by value. */
  readonly #forms = new Map<string, readonly string[]>();
  readonly #names = new Set<string>();
  #longest = 0;
  #finders: Partial<Record<"all" | "sentence" | "bytes", Finder>> = {};

  /** Adds a secret; values under 8 bytes are too common to mask. */
  add(secret: string): void {
    if (Buffer.byteLength(secret) < SHORTEST || this.#forms.has(secret)) return;
    const lines = secret.split(/\r?\n/).filter((line) => Buffer.byteLength(line) >= SHORTEST);
    for (const value of [secret, ...lines]) this.#forms.set(value, formsOf(value));
    // The forms of its lines are shorter.
    const lengths = this.#forms.get(secret)?.map((form) => Buffer.byteLength(form)) ?? [];
    this.#longest = Math.max(this.#longest, ...lengths);
    this.#finders = {};
  }

  /** Adds names of the bucket, which stay readable in sentences even where a secret has the same value. */
  keep(names: Iterable<string>): void {
    const before = this.#names.size;
    for (const name of names) this.#names.add(name);
    if (this.#names.size > before) delete this.#finders.sentence;
  }

  /** Masks every known secret in text that people or programs wrote. */
  apply(text: string): string {
    if (this.#forms.size === 0) return text;
    this.#finders.all ??= new Finder([...this.#forms.values()].flat());
    return masked(text, this.#finders.all);
  }

  /**
   * Masks secrets in a sentence of ops, which may quote such text. Values that are, or stand in, a name of the bucket
   * are not masked: the sentence is taken to mean the name.
   */
  sentence(text: string): string {
    if (this.#forms.size === 0) return text;
    this.#finders.sentence ??= new Finder(this.#formsOutsideNames());
    return masked(text, this.#finders.sentence);
  }

  /** The length in bytes of the longest form of a secret. */
  get longest(): number {
    return this.#longest;
  }

  /**
   * Where to cut bytes so that no secret is cut in two: at `limit` or before it, or after it where a secret begins at 0
   * and is longer.
   */
  cut(bytes: Buffer, limit: number): number {
    if (this.#forms.size === 0) return limit;
    const latin1 = (form: string) => Buffer.from(form).toString("latin1");
    this.#finders.bytes ??= new Finder([...this.#forms.values()].flat().map(latin1));
    const spans = this.#finders.bytes.spans(bytes.subarray(0, limit + this.#longest).toString("latin1"));
    for (const { start, end } of spans) if (start < limit && limit < end) return start > 0 ? start : end;
    return limit;
  }

  #formsOutsideNames(): string[] {
    const names = [...this.#names].join("\n");
    const found = new Set(new Finder([...this.#forms.keys()]).found(names).map(({ text }) => text));
    return [...this.#forms].flatMap(([value, forms]) => (found.has(value) ? [] : forms));
  }
}

function masked(text: string, finder: Finder): string {
  let kept = "";
  let done = 0;
  for (const { start, end } of finder.spans(text)) {
    kept += text.slice(done, start) + MASK;
    done = end;
  }
  return kept + text.slice(done);
}

/** As the usual tools of shells, browsers and scripts write a text. */
function formsOf(value: string): string[] {
  const bytes = Buffer.from(value);
  const padded = bytes.toString("base64");
  const base64 = [padded, padded.replaceAll("=", ""), ...cores(bytes)];
  const url = encodeURIComponent(value.toWellFormed());
  const strictUrl = url.replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
  const json = JSON.stringify(value).slice(1, -1);
  const hex = bytes.toString("hex");
  return [
    value,
    ...[hex, hex.toUpperCase()],
    ...[...base64, ...base64.map((form) => form.replaceAll("+", "-").replaceAll("/", "_"))],
    ...[url, strictUrl, strictUrl.replaceAll("%20", "+"), lowerHex(url), lowerHex(strictUrl)],
    ...[json, json.replace(/[\u0080-\uffff]/g, escapedUnit)],
    // In single quotes, in two ways, and with backslashes.
    ...[value.replaceAll("'", "'\\''"), value.replaceAll("'", `'"'"'`)],
    value.replace(/[^\w@%+=:,./\-\u0080-\uffff]/g, "\\$&"),
  ];
}

/**
 * The base64 characters that the value alone decides, for 0, 1 and 2 bytes before it in its group of three and any
 * bytes after it. For 8 bytes these are at least 10 characters, too many to appear by chance.
 */
function cores(value: Buffer): string[] {
  return [0, 2, 3].map((first, before) => {
    const all = Buffer.concat([Buffer.alloc(before), value]);
    return all.toString("base64").slice(first, Math.floor((all.length * 8) / 6));
  });
}

function lowerHex(url: string): string {
  return url.replace(/%[0-9A-F]{2}/g, (one) => one.toLowerCase());
}

function escapedUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** A range of a text; `end` is not part of it. */
interface Span {
  start: number;
  end: number;
}

/**
 * Finds many needles, of at least two characters, in a text. The time hardly grows with the number of needles: only
 * those that begin with the next characters of the text are compared.
 */
class Finder {
  readonly #width: number;
  /** The first two characters of each needle. */
  readonly #pairs: ReadonlySet<number>;
  readonly #byBeginning: ReadonlyMap<string, string[]>;

  constructor(texts: readonly string[]) {
    const sorted = [...new Set(texts)].sort((a, b) => b.length - a.length);
    this.#width = Math.min(MOST_WIDTH, sorted.at(-1)?.length ?? MOST_WIDTH);
    this.#pairs = new Set(sorted.map((text) => pairAt(text, 0)));
    this.#byBeginning = Map.groupBy(sorted, (text) => text.slice(0, this.#width));
  }

  /** Every occurrence of every needle, sorted by its start, the longest first where several begin at one place. */
  found(text: string): (Span & { text: string })[] {
    const found: (Span & { text: string })[] = [];
    for (let start = 0; start + this.#width <= text.length; start++) {
      if (!this.#pairs.has(pairAt(text, start))) continue;
      for (const one of this.#byBeginning.get(text.slice(start, start + this.#width)) ?? [])
        if (text.startsWith(one, start)) found.push({ start, end: start + one.length, text: one });
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

function pairAt(text: string, at: number): number {
  return text.charCodeAt(at) * 0x10000 + text.charCodeAt(at + 1);
}
