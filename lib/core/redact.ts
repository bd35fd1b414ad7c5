const SHORTEST = 8;
/** What stands where a secret was. */
export const MASK = "***";

/** Replaces known secrets in text by `***`: as they are and in base64, URL, JSON and shell-quoted form. */
export class Redactor {
  readonly #forms = new Set<string>();
  #pattern: RegExp | undefined;

  /** Adds a secret; values under 8 bytes are too common to mask. */
  add(secret: string): void {
    if (Buffer.byteLength(secret) < SHORTEST) return;
    const lines = secret.split(/\r?\n/).filter((line) => Buffer.byteLength(line) >= SHORTEST);
    for (const value of [secret, ...lines]) for (const form of formsOf(value)) this.#forms.add(form);
    this.#pattern = undefined;
  }

  /** The text with every known secret masked, the longest first. */
  apply(text: string): string {
    if (this.#forms.size === 0) return text;
    this.#pattern ??= new RegExp(
      [...this.#forms]
        .sort((a, b) => b.length - a.length)
        .map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"))
        .join("|"),
      "g",
    );
    return text.replace(this.#pattern, MASK);
  }
}

/** As the usual tools of shells, browsers and scripts write a text. */
function formsOf(value: string): string[] {
  const base64 = Buffer.from(value).toString("base64");
  const url = encodeURIComponent(value.toWellFormed());
  const strictUrl = url.replace(/[!'()*]/g, (one) => `%${one.charCodeAt(0).toString(16).toUpperCase()}`);
  const json = JSON.stringify(value).slice(1, -1);
  return [
    value,
    ...[base64, base64.replace(/=+$/, ""), Buffer.from(value).toString("base64url")],
    ...[url, strictUrl, strictUrl.replaceAll("%20", "+"), lowerHex(url), lowerHex(strictUrl)],
    ...[json, json.replace(/[\u0080-\uffff]/g, escapedUnit)],
    // In single quotes, in two ways, and with backslashes.
    ...[value.replaceAll("'", "'\\''"), value.replaceAll("'", `'"'"'`)],
    value.replace(/[^\w@%+=:,./\-\u0080-\uffff]/g, "\\$&"),
  ];
}

function lowerHex(url: string): string {
  return url.replace(/%[0-9A-F]{2}/g, (one) => one.toLowerCase());
}

function escapedUnit(unit: string): string {
  return `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
