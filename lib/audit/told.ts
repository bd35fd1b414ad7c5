import { createHmac } from "node:crypto";
import { isObject, type Schema } from "../core/shape.ts";

/** The most characters of a text, items of a list, and bytes of all parameters that a line keeps. */
const [MOST_TEXT, MOST_LIST, MOST_BYTES_OF_ALL] = [2_000, 100, 16 * 1024];
const FINGERPRINT_DIGITS = 32;

/** How the parameters of a request become those of a line. */
interface Telling {
  /** The key of the fingerprints. */
  key: Buffer;
  /** Where the fields are described: those that are `writeOnly` are secrets. */
  schema?: Schema | undefined;
  /** A text that people wrote, as it may be kept: by the name of its field. Undefined for what is kept as it is. */
  masked(name: string, text: string): Promise<string> | undefined;
}

/**
 * Parameters as the audit keeps them: of secrets a fingerprint, of texts that people wrote what {@link Telling.masked} makes
 * of them, of what is long the beginning and a fingerprint of all.
 */
export async function toldParams(params: Record<string, unknown>, telling: Telling): Promise<Record<string, unknown>> {
  const told = (await toldValue("", params, telling.schema, telling)) as Record<string, unknown>;
  const text = JSON.stringify(told);
  if (text.length <= MOST_BYTES_OF_ALL) return told;
  return { too_long: text.length, fingerprint: fingerprintOf(JSON.stringify(params), telling.key) };
}

/** A text without which nobody can tell what was behind it; equal values have equal fingerprints on one server. */
export function fingerprintOf(value: string, key: Buffer): string {
  return `hmac:${createHmac("sha256", key).update(value).digest("hex").slice(0, FINGERPRINT_DIGITS)}`;
}

async function toldValue(name: string, value: unknown, schema: Schema | undefined, telling: Telling): Promise<unknown> {
  if (value === undefined || value === null) return value;
  if (schema?.writeOnly === true) return fingerprintOf(typeof value === "string" ? value : JSON.stringify(value), telling.key);
  if (typeof value === "string") return shortText((await telling.masked(name, value)) ?? value, telling.key);
  if (Array.isArray(value)) {
    const items = schema?.items as Schema | undefined;
    const kept = await Promise.all(value.slice(0, MOST_LIST).map((one) => toldValue(name, one, items, telling)));
    const more = value.length - kept.length;
    return more === 0 ? kept : [...kept, `and ${more} more: ${fingerprintOf(JSON.stringify(value), telling.key)}`];
  }
  if (!isObject(value)) return value;
  const properties = schema?.properties as Record<string, Schema> | undefined;
  const fields = Object.entries(value).map(async ([key, one]) => [key, await toldValue(key, one, properties?.[key], telling)]);
  return Object.fromEntries(await Promise.all(fields));
}

function shortText(text: string, key: Buffer): string {
  if (text.length <= MOST_TEXT) return text;
  return `${text.slice(0, MOST_TEXT)}… (${text.length} characters: ${fingerprintOf(text, key)})`;
}
