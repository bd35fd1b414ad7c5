import { Failure } from "../../core/errors.ts";

const MEMORY: Readonly<Record<string, number>> = { mb: 1, gb: 1024, tb: 1024 * 1024 };
const CPU: Readonly<Record<string, number>> = { mhz: 1, ghz: 1000, thz: 1_000_000 };

/**
 * An amount of memory in MB: `512`, `512 mb`, `1.5 GB`, `2 tb` (any case, blank optional, 1 GB = 1024 MB). A bare number
 * counts MB and may have a sign and any form of floating point; an empty text is 0. Throws `failed` for anything else.
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
  return formatFloat(value || 0, "f", -1);
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

/** The integer that a literal stands for: decimal, `0x`, `0o`, `0b`, or octal by a leading `0`, with `_` between digits. */
export function parseInteger(text: string): bigint | undefined {
  const match =
    /^([+-]?)(?:(0[xX](?:_?[0-9a-fA-F])+)|(0[bB](?:_?[01])+)|0[oO]?((?:_?[0-7])+)|([1-9](?:_?[0-9])*|0))$/.exec(text);
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

/** A decimal fraction 0.`digits` × 10^`point`, without zeros at the end; zero has no digits. */
interface Decimal {
  digits: string;
  point: number;
}

/**
 * A double as text. `e`: d.ddde±dd, `f`: plain decimals, `g`: whichever of them suits the exponent. `precision` counts
 * digits after the point (`g`: significant ones) and rounds half to even on the exact value; -1 stands for the fewest
 * digits that read back.
 */
export function formatFloat(value: number, format: "e" | "f" | "g", precision: number): string {
  if (!Number.isFinite(value)) return String(value);
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const shortest = precision < 0;
  const decimal = shortest ? shortestDecimal(Math.abs(value)) : exactDecimal(Math.abs(value));
  if (format === "g") return sign + general(decimal, precision);
  if (format === "e") return sign + exponential(decimal, shortest ? Math.max(decimal.digits.length - 1, 0) : precision);
  return sign + plain(decimal, shortest ? Math.max(decimal.digits.length - decimal.point, 0) : precision);
}

function general(decimal: Decimal, precision: number): string {
  const rounded = precision < 0 ? decimal : round(decimal, Math.max(precision, 1));
  const count = rounded.digits.length;
  const limit = precision < 0 ? 6 : Math.max(precision, 1);
  const threshold = precision >= 0 && limit > count && count >= rounded.point ? count : limit;
  const exponent = rounded.point - 1;
  if (exponent < -4 || exponent >= threshold) return exponential(rounded, Math.max(count - 1, 0));
  return plain(rounded, Math.max(count - rounded.point, 0));
}

function exponential(decimal: Decimal, precision: number): string {
  const { digits, point } = round(decimal, precision + 1);
  const exponent = digits === "" ? 0 : point - 1;
  const fraction = precision > 0 ? `.${digits.slice(1).padEnd(precision, "0")}` : "";
  const power = String(Math.abs(exponent)).padStart(2, "0");
  return `${digits[0] ?? "0"}${fraction}e${exponent < 0 ? "-" : "+"}${power}`;
}

function plain(decimal: Decimal, precision: number): string {
  const { digits, point } = round(decimal, decimal.point + precision);
  const whole = point > 0 ? digits.slice(0, point).padEnd(point, "0") : "0";
  const fraction = ("0".repeat(Math.max(-point, 0)) + digits.slice(Math.max(point, 0))).padEnd(precision, "0");
  return precision > 0 ? `${whole}.${fraction.slice(0, precision)}` : whole;
}

function round(decimal: Decimal, count: number): Decimal {
  const { digits, point } = decimal;
  if (count >= digits.length) return decimal;
  const head = digits.slice(0, Math.max(count, 0));
  const rest = digits.slice(Math.max(count, 0));
  const half = rest === "5" ? Number(head.at(-1) ?? 0) % 2 === 1 : rest >= "5";
  if (count < 0 || !half) return trimmed(head, point);
  const raised = String(BigInt(head || "0") + 1n).padStart(head.length, "0");
  return trimmed(raised, point + raised.length - head.length);
}

function trimmed(digits: string, point: number): Decimal {
  const text = digits.replace(/0+$/, "");
  return { digits: text, point: text === "" ? 0 : point };
}

function shortestDecimal(value: number): Decimal {
  const [digits, exponent] = value.toExponential().split("e") as [string, string];
  return trimmed(digits.replace(".", ""), Number(exponent) + 1);
}

/** All digits of a double. Every double is a whole number, halved n times: the number × 5^n, divided by 10^n. */
function exactDecimal(value: number): Decimal {
  let [whole, halvings] = [value, 0];
  for (; !Number.isInteger(whole); halvings++) whole *= 2;
  const digits = String(BigInt(whole) * 5n ** BigInt(halvings));
  return trimmed(digits, digits.length - halvings);
}
