import { isIPv4, isIPv6 } from "node:net";
import { isTimezone } from "../../codec/calendar/zone.ts";
import { parseCpuMhz, parseMemoryMb } from "../../codec/config/number.ts";
import { messageOf } from "../../core/errors.ts";
import { described, type Infer, object, optional, quote, refined, type Shape, string, typeName } from "../../core/shape.ts";

/** Names of jobs, labels, selectors and hooks, which compare without case and are stored in small letters. */
export const NAME = /^[a-z][a-z0-9_-]{0,99}$/;
/** The rule of {@link NAME} in words. */
export const NAME_RULE = "small letters, digits, _ and -, the first a letter, at most 100";

const HOST = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;
const USER = /^[a-z_][a-z0-9_-]*$/;
const PATH = /^(\/[A-Za-z0-9._-]+)+$/;

/** A name that may be written in capitals; the value is in small letters. */
export const name = refined(
  text(`a name of ${NAME_RULE}`, (value) => NAME.test(value.toLowerCase()), "^[A-Za-z][A-Za-z0-9_-]{0,99}$"),
  (value) => value.toLowerCase(),
);

/** An IPv4 or IPv6 address or a host name: it becomes an argument of ssh and part of paths. */
export const host = text("an IP address or a host name", isHost, `${HOST.source}|^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$`);

/** What a certificate may be for: an address or a name, whose first part may be `*`. */
export const altName = text(
  "an IP address or a DNS name",
  isAltName,
  `^([*][.])?${HOST.source.slice(1)}|^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*$`,
);

/** A user name on a worker. */
export const user = text("a user name of small letters, digits, _ and -", (value) => USER.test(value), USER.source);

/** An absolute folder on a worker, never `/` itself. */
export const folder = text(
  "an absolute path of letters, digits, dots, _ and -, without . or .. as a part",
  (value) => PATH.test(value) && !value.split("/").some((part) => part === "." || part === ".."),
  `^(?!.*/[.]{1,2}(/|$))${PATH.source.slice(1)}`,
);

/** A host to go through: `[user@]host[:port]`, an IPv6 address with a port in brackets. */
export const jump = text("a host as [user@]host[:port]", isJump, "^([a-z_][a-z0-9_-]*@)?[A-Za-z0-9.:[\\]-]+$");

/** One part of a path. */
export const fileName = text(
  "the name of a file, without folders",
  (value) => /^[A-Za-z0-9_.-]+$/.test(value) && !/^\.+$/.test(value),
  "^(?![.]+$)[A-Za-z0-9_.-]+$",
);

/** The key by which editors find the JSON Schema of a file; ops does not read its value. */
export const SCHEMA_KEY = described(optional(string({ max: 2_000 })), "Where editors find the JSON Schema of this file");

/** The name of a timezone. */
export const timezone = refined(string({ max: 100 }), (zone, path, report) => {
  if (typeof zone === "string" && !isTimezone(zone))
    report(path, `expected the name of a timezone, such as Europe/Berlin or UTC, found ${quote(zone)}`);
  return zone;
});

/** Reports each text of a list that is there a second time, but for empty ones. */
export function reportTwice(values: readonly string[], report: (index: number, value: string) => void): void {
  const first = new Map(values.map((value, index) => [value, index] as const).reverse());
  for (const [index, value] of values.entries()) if (value !== "" && first.get(value) !== index) report(index, value);
}

/** Text without control characters, of at most `max` characters; white space around it is dropped. */
export function line(max = 1_000): Shape<string> {
  const isLine = (value: string) => value.length <= max && !/[\x00-\x1f\x7f]/.test(value);
  return text(`one line of at most ${max} characters`, isLine, `^[^\\u0000-\\u001f\\u007f]{0,${max}}$`);
}

/** An amount of memory, in MB; blank means 0. */
export const memory = quantity(parseMemoryMb, ["mMgGtT", "bB"]);
/** An amount of cpu, in MHz; blank means 0. */
export const cpu = quantity(parseCpuMhz, ["mMgGtT", "hH", "zZ"]);

/** An amount of at least 0 with a unit, which is spelt with one letter of each group. */
function quantity(parse: (text: string) => number, letters: readonly string[]): Shape<number> {
  const given = string();
  const unit = letters.map((group) => `[${group}]`).join("");
  const pattern = `^\\s*([0-9._]+\\s*(${unit})?|[+]?[0-9.]+[eE][+-]?[0-9]+)?\\s*$`;
  return {
    schema: { ...given.schema, pattern },
    check(value, path, report) {
      given.check(value, path, report);
      if (typeof value !== "string" || value.trim() === "") return 0;
      try {
        const amount = parse(value);
        if (!(amount >= 0 && amount < 1e12)) report(path, "must be at least 0 and below 1e12");
        return amount;
      } catch (error) {
        report(path, messageOf(error));
        return 0;
      }
    },
  };
}

/** The same shape, but blank text is allowed and means nothing. */
export function blank(shape: Shape<string>): Shape<string> {
  const schema = { ...shape.schema, pattern: `^\\s*$|${shape.schema.pattern}` };
  const isBlank = (value: unknown) => typeof value === "string" && value.trim() === "";
  return { ...shape, schema, check: (value, path, report) => (isBlank(value) ? "" : shape.check(value, path, report)) };
}

/**
 * An object in a JSON file of the workspace: lenient about the case of keys and about `null`. An unknown key is a
 * warning, or an error where it is a misspelt known key.
 */
export function fields<F extends Record<string, Shape<unknown>>>(
  shapes: F,
  aliases?: Record<string, string>,
): Shape<{ [K in keyof F]: Infer<F[K]> }> {
  return object(shapes, { lenient: true, unknown: "judge", ...(aliases && { aliases }) });
}

/** True for an IP address or a DNS name, also with a `*.` before it: the rule of {@link altName}. */
export function isAltName(value: string): boolean {
  return value.startsWith("*.") ? HOST.test(value.slice(2)) && !isIPv4(value.slice(2)) : isHost(value);
}

function isHost(value: string): boolean {
  return isIPv4(value) || (isIPv6(value) && !value.includes("%")) || HOST.test(value);
}

function isJump(value: string): boolean {
  const at = value.indexOf("@");
  if (at >= 0 && !USER.test(value.slice(0, at))) return false;
  const target = value.slice(at + 1);
  if (isHost(target)) return true;
  const [, address = "", port = ""] = /^(\[[^\]]+\]|[^:]+):(\d{1,5})$/.exec(target) ?? [];
  return isHost(address.replace(/^\[(.*)\]$/, "$1")) && Number(port) >= 1 && Number(port) <= 65_535;
}

/** A string that is trimmed and must pass the test; the pattern, for JSON Schema, refuses most of what the test refuses. */
function text(means: string, test: (value: string) => boolean, pattern: string): Shape<string> {
  return {
    schema: { type: "string", description: means, pattern },
    check(value, path, report) {
      const trimmed = typeof value === "string" ? value.trim() : "";
      if (typeof value !== "string") report(path, `expected a string, found ${typeName(value)}`);
      else if (!test(trimmed)) report(path, `expected ${means}, found ${quote(trimmed)}`);
      return trimmed;
    },
  };
}
