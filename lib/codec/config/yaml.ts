/** Text that every YAML reader takes for the same string without quotes. */
const PLAIN = /^[A-Za-z/$][A-Za-z0-9_$./{}()-]*(?:,? [A-Za-z0-9_$./{}()-]+)*$/;
/** What some reader takes for something else than text. */
const RESERVED = /^(?:true|false|null|yes|no|on|off|y|n)$/i;

/**
 * A JSON value as block YAML 1.2, two blanks per level, keys in their order. Text is plain where that is safe and in
 * double quotes, as JSON writes it, elsewhere. Fields that are `undefined` are left out.
 */
export function toYaml(value: unknown): string {
  return `${lines(value).join("\n")}\n`;
}

function lines(value: unknown): string[] {
  if (Array.isArray(value) && value.length > 0) return value.flatMap((item) => indent(lines(item), "- "));
  const fields = isFilled(value) ? Object.entries(value).filter(([, entry]) => entry !== undefined) : [];
  if (fields.length > 0) return fields.flatMap(([key, entry]) => field(scalar(key), entry));
  return [scalar(value)];
}

function field(key: string, value: unknown): string[] {
  const below = lines(value);
  if (!isFilled(value) || isEmpty(below)) return [`${key}: ${below[0]}`];
  return [`${key}:`, ...indent(below, "  ")];
}

function isEmpty(below: string[]): boolean {
  return below.length === 1 && (below[0] === "{}" || below[0] === "[]");
}

/** An object or a list: what is written on lines of its own. */
function isFilled(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}

function indent(below: string[], first: string): string[] {
  return below.map((line, index) => (index === 0 ? first : "  ") + line);
}

function scalar(value: unknown): string {
  if (Array.isArray(value)) return "[]";
  if (isFilled(value)) return "{}";
  if (typeof value !== "string") return JSON.stringify(value ?? null);
  return PLAIN.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value);
}
