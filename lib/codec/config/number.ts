import { Failure } from "../../core/errors.ts";

const MEMORY: Readonly<Record<string, number>> = { mb: 1, gb: 1024, tb: 1024 * 1024 };
const CPU: Readonly<Record<string, number>> = { mhz: 1, ghz: 1000, thz: 1_000_000 };

/**
 * An amount of memory in MB: `512`, `512 mb`, `1.5 GB`, `2 tb` (any case, blank optional, 1 GB = 1024 MB). A bare number
 * counts MB and may have a sign and an exponent; an empty text is 0. Throws `failed` for anything else.
 */
export function parseMemoryMb(text: string): number {
  return parseAmount("memory size", text, MEMORY);
}

/** A CPU frequency in MHz: `2400`, `2400 mhz`, `2.4 GHz`, `1 thz`; otherwise the rules of {@link parseMemoryMb}. */
export function parseCpuMhz(text: string): number {
  return parseAmount("cpu frequency", text, CPU);
}

function parseAmount(what: string, text: string, units: Readonly<Record<string, number>>): number {
  const trimmed = text.trim();
  if (trimmed === "") return 0;
  const [, number, unit] = /^([0-9._]+)\s*([a-zA-Z]+)$/.exec(trimmed) ?? [];
  const factor = unit === undefined ? 1 : Object.hasOwn(units, unit.toLowerCase()) && units[unit.toLowerCase()];
  const value = parseFloatText(number ?? trimmed);
  if (factor && value !== undefined && !Number.isNaN(value)) return value * factor;
  const known = Object.keys(units).join(", ");
  throw new Failure("failed", `Cannot read the ${what} ${JSON.stringify(text)}: expected a number and one of ${known}`);
}

/** A number as the fewest plain decimals that read back to it, never with an exponent: `2097152`, `0.5`. */
export function plainDecimal(value: number): string {
  return (value || 0).toLocaleString("en", { useGrouping: false, maximumSignificantDigits: 17 });
}

const DURATION_MS: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };

/**
 * A duration as Go writes it (`30m`, `1h30m`, `90s`, `1.5h`, `250ms`), in milliseconds; undefined for anything else,
 * such as a number without unit or a sign.
 */
export function parseDurationMs(text: string): number | undefined {
  if (!/^(?:\d{1,9}(?:\.\d{1,9})?(?:h|ms|m|s)){1,4}$/.test(text)) return undefined;
  const parts = [...text.matchAll(/([\d.]+)([a-z]+)/g)];
  return parts.reduce((sum, [, number, unit = ""]) => sum + Number(number) * (DURATION_MS[unit] as number), 0);
}

const SIZES: Readonly<Record<string, number>> = { KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };

/** A size of 1 or more `KiB`, `MiB` or `GiB`, such as `64MiB`, in bytes; undefined for anything else. */
export function parseByteSize(text: string): number | undefined {
  const [, count, unit = ""] = /^([1-9]\d{0,5}) ?(KiB|MiB|GiB)$/.exec(text) ?? [];
  return count === undefined ? undefined : Number(count) * (SIZES[unit] as number);
}

/** The integer that a literal stands for: decimal, `0x`, `0o`, `0b`, or octal by a leading `0`, with `_` between digits. */
export function parseInteger(text: string): bigint | undefined {
  const match = /^([+-]?)(?:(0[xX](?:_?[0-9a-fA-F])+)|(0[bB](?:_?[01])+)|0[oO]?((?:_?[0-7])+)|([1-9](?:_?[0-9])*|0))$/.exec(text);
  if (!match) return undefined;
  const [, sign, hex, binary, octal, decimal] = match;
  const digits = hex ?? binary ?? (octal === undefined ? decimal : `0o${octal}`);
  const magnitude = BigInt((digits as string).replaceAll("_", ""));
  return sign === "-" ? -magnitude : magnitude;
}

const DECIMAL = /^[+-]?(?:\d(?:_?\d)*(?:\.(?:\d(?:_?\d)*)?)?|\.\d(?:_?\d)*)(?:[eE][+-]?\d(?:_?\d)*)?$/;

/**
 * The double that a text stands for: decimal floating point, with `_` between digits, `inf`, `infinity` and `nan` in any
 * case. Undefined for anything else and for what is too large for a double.
 */
export function parseFloatText(text: string): number | undefined {
  const special = /^([+-]?)inf(?:inity)?$/i.exec(text);
  if (special) return special[1] === "-" ? -Infinity : Infinity;
  if (/^nan$/i.test(text)) return Number.NaN;
  const value = DECIMAL.test(text) ? Number(text.replaceAll("_", "")) : Number.NaN;
  return Number.isFinite(value) ? value : undefined;
}

/** The most digits that Node's own conversions give. */
const MOST_FLOAT_DIGITS = 100;

/**
 * A double as Go's printf shows it: `f` as plain decimals, `e` as d.ddde±dd. `g` shows as many digits as the precision says,
 * or without one the fewest that read back; a number below 0.0001, or with more digits before its point, gets an exponent. `f`
 * rounds a tie half to even, the others round it up. Throws an Error for a precision of more than 100.
 */
export function formatFloat(value: number, form: "e" | "f" | "g", precision?: number): string {
  if (!Number.isFinite(value)) return String(value);
  if ((precision ?? 0) > MOST_FLOAT_DIGITS) throw new Error(`a float has at most ${MOST_FLOAT_DIGITS} digits`);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const size = Math.abs(value);
  if (form === "f") return sign + fixedDecimals(size, precision ?? 6);
  if (form === "e") return sign + withExponent(size, precision ?? 6);
  const digits = precision === undefined ? 6 : Math.max(precision, 1);
  const rounded = precision === undefined ? size : Number(size.toPrecision(digits));
  const power = Number(rounded.toExponential().split("e")[1]);
  return sign + (power < -4 || power >= digits ? withExponent(rounded) : plainDecimal(rounded));
}

function withExponent(size: number, decimals?: number): string {
  return size.toExponential(decimals).replace(/(?<=e[+-])(?=\d$)/, "0");
}

function fixedDecimals(size: number, decimals: number): string {
  if (size >= 1e21) return `${BigInt(size)}${decimals > 0 ? `.${"0".repeat(decimals)}` : ""}`;
  // Node rounds half up: where the value lies in the middle, an odd last digit goes down to the even one.
  const isHalf = Number.isInteger(size * 2 ** (decimals + 1)) && !Number.isInteger(size * 2 ** decimals);
  const text = size.toFixed(decimals);
  const last = Number(text.at(-1));
  return isHalf && last % 2 === 1 ? text.slice(0, -1) + (last - 1) : text;
}
