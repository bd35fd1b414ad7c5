import { Failure } from "../../core/errors.ts";
import { formatFloat, parseFloatText } from "./number.ts";

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

/** A number in plain decimals, as few as read back to the same number and never with an exponent: `2097152`, `0.5`. */
export function plainDecimal(value: number): string {
  return Number.isFinite(value) ? formatFloat(value || 0, "f", -1) : String(value);
}
