import type { Redactor } from "../core/redact.ts";

/** The fields of a result that quote what a command, a file or a template says, and of what is told by their names. */
const TEXT = /(?:^|_)(?:diff|errors?|evidence|lines|message|note|output|reasons?|warnings)$/;

/**
 * A result, which goes into the record and over HTTP, as JSON has it: its texts are masked, its names never, since a
 * plan and a retry go on with them.
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
