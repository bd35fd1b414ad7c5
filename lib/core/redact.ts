import { Finder } from "./finder.ts";

const SHORTEST = 8;
/** What stands where a secret was. */
export const MASK = "***";

/**
 * Replaces known secrets in text by `***`: as they are, in hex, in base64 wherever they stand in what was encoded, and
 * in URL, JSON and shell-quoted form. Values are masked, never names: see {@link Redactor.sentence}.
 */
export class Redactor {
  /** By value, or line of one: how it may be written. */
  readonly #forms = new Map<string, readonly string[]>();
  readonly #names = new Set<string>();
  #longest = 0;
  #finders: Partial<Record<"all" | "sentence" | "bytes", Finder>> = {};

  /** Adds a secret; values under 8 bytes are too common to mask. */
  add(secret: string): void {
    if (Buffer.byteLength(secret) < SHORTEST || this.#forms.has(secret)) return;
    const lines = secret.split(/\r?\n/).filter((line) => Buffer.byteLength(line) >= SHORTEST);
    for (const value of [secret, ...lines]) this.#forms.set(value, formsOf(value));
    // Those of a line are shorter.
    const lengths = this.#forms.get(secret)?.map((form) => Buffer.byteLength(form)) ?? [];
    this.#longest = Math.max(this.#longest, ...lengths);
    this.#finders = {};
  }

  /** Adds names of the bucket, which stay readable in sentences even where the value of a secret is one. */
  keep(names: Iterable<string>): void {
    const before = this.#names.size;
    for (const name of names) this.#names.add(name);
    if (this.#names.size > before) delete this.#finders.sentence;
  }

  /** Text that people, or programs on workers, wrote, with every known secret masked. */
  apply(text: string): string {
    if (this.#forms.size === 0) return text;
    this.#finders.all ??= new Finder([...this.#forms.values()].flat());
    return masked(text, this.#finders.all);
  }

  /**
   * A sentence of this program, which may quote such text: masked, but for values that stand in a name of the bucket,
   * since what is found there is the name.
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

  /** Where bytes may be cut, at most at `limit`, so that no secret is cut in two; behind one that begins at 0. */
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
  return done === 0 ? text : kept + text.slice(done);
}

/** As the usual tools of shells, browsers and scripts write a text. */
function formsOf(value: string): string[] {
  const bytes = Buffer.from(value);
  const base64 = [bytes.toString("base64"), bytes.toString("base64").replace(/=+$/, ""), ...cores(bytes)];
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
 * The letters of base64 that the value alone decides where 0, 1 or 2 bytes of a group of three stand before it and
 * anything behind it: at least 10 for 8 bytes, too many to be met by chance.
 */
function cores(value: Buffer): string[] {
  return [0, 1, 2].map((before) => {
    const all = Buffer.concat([Buffer.alloc(before), value]);
    return all.toString("base64").slice(Math.ceil((before * 8) / 6), Math.floor((all.length * 8) / 6));
  });
}

function lowerHex(url: string): string {
  return url.replace(/%[0-9A-F]{2}/g, (one) => one.toLowerCase());
}

function escapedUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
