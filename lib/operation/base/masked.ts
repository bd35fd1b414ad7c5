import type { Redactor } from "../../core/redact.ts";

/** The fields of a result whose text may quote a command, a file or a template. */
const TEXT = /(?:^|_)(?:diff|errors?|evidence|lines|message|note|output|reasons?|warnings)$/;

/**
 * A result as JSON, for the record and for HTTP: its texts are masked, its names are not, because a bound plan and a
 * retry use them.
 */
export function masked(result: unknown, redactor: Redactor): unknown {
  const mask = (value: unknown, isText: boolean): unknown => {
    if (typeof value === "string") return isText ? redactor.sentence(value) : value;
    if (Array.isArray(value)) return value.map((one) => mask(one, isText));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mask(one, TEXT.test(name))]));
  };
  return mask(JSON.parse(JSON.stringify(result ?? null)), false);
}
