import { Failure } from "../../core/errors.ts";

/** A value of a text, and where it (or its key) begins; the members of an object or a list by key or by index. */
export interface PlacedValue {
  at: number;
  members: { key: string; value: PlacedValue }[];
}

/** A value of a JSON text with all that formatting needs. */
interface JsonValue extends PlacedValue {
  /** `{` or `[`, or the whole text of a scalar. */
  text: string;
  members: { key: string; keyText: string; value: JsonValue }[];
}

const TOKEN = /\s*("(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+)/y;
const MOST_LEVELS = 1_000;
const WIDTH = 100;

/** The places of all values of a text that `JSON.parse` has accepted. Throws `failed` for more than 1,000 levels. */
export function placesInJson(text: string): PlacedValue {
  return readJson(text);
}

/**
 * A JSON text in the form that `ops fmt` writes: two blanks for each level, and whatever fits into 100 characters on one
 * line, but for the outermost value. Keys keep their order, numbers and strings the way they are written. Formatting the
 * answer again changes nothing. Throws like {@link placesInJson}.
 */
export function formatJson(text: string): string {
  return `${formatted(readJson(text), { indent: "", room: 0 })}\n`;
}

/** The text must be JSON: no token is checked again. */
function readJson(text: string): JsonValue {
  const token = new RegExp(TOKEN);
  const next = () => {
    const [, found = ""] = token.exec(text) ?? [];
    return { text: found, at: token.lastIndex - found.length };
  };
  const read = (first: ReturnType<typeof next>, depth: number): JsonValue => {
    const value: JsonValue = { at: first.at, text: first.text, members: [] };
    if (first.text !== "{" && first.text !== "[") return value;
    if (depth === MOST_LEVELS) throw new Failure("failed", `is nested more than ${MOST_LEVELS} levels`);
    for (let here = next(); here.text !== "}" && here.text !== "]"; here = next()) {
      if (here.text === ",") here = next();
      if (first.text === "[") {
        value.members.push({ key: String(value.members.length), keyText: "", value: read(here, depth + 1) });
        continue;
      }
      next();
      const member = read(next(), depth + 1);
      member.at = here.at;
      value.members.push({ key: JSON.parse(here.text) as string, keyText: here.text, value: member });
    }
    return value;
  };
  return read(next(), 0);
}

/** `room` is what is left of a line for the value; 0 for the outermost one, which is broken unless it is empty. */
function formatted(value: JsonValue, { indent, room }: { indent: string; room: number }): string {
  const { text, members } = value;
  const flat = onOneLine(value, room);
  if (flat !== undefined) return flat;
  const inner = `${indent}  `;
  const lines = members.map(({ keyText, value: member }) => {
    const start = `${inner}${keyText === "" ? "" : `${keyText}: `}`;
    // A comma may follow.
    return start + formatted(member, { indent: inner, room: WIDTH - start.length - 1 });
  });
  return `${text}\n${lines.join(",\n")}\n${indent}${text === "{" ? "}" : "]"}`;
}

/** The value on one line, or undefined where it does not fit. */
function onOneLine({ text, members }: JsonValue, room: number): string | undefined {
  if (text !== "{" && text !== "[") return text;
  if (members.length === 0) return text === "{" ? "{}" : "[]";
  let line = text === "{" ? "{ " : "[";
  const end = text === "{" ? " }" : "]";
  for (const [index, { keyText, value }] of members.entries()) {
    const flat = onOneLine(value, room);
    if (flat === undefined) return undefined;
    line += `${index === 0 ? "" : ", "}${keyText === "" ? "" : `${keyText}: `}${flat}`;
    if (line.length + end.length > room) return undefined;
  }
  return line + end;
}
