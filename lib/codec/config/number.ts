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
const HEXADECIMAL =
  /^([+-]?)0[xX](?=[._]?[0-9a-fA-F])((?:_?[0-9a-fA-F])*)\.?([0-9a-fA-F](?:_?[0-9a-fA-F])*)?[pP]([+-]?\d+)$/;

/**
 * The double that a text stands for: decimal or hexadecimal (with `p` exponent) floating point, with `_` between
 * digits, `inf`, `infinity` and `nan` in any case. Undefined for anything else and for what is too large for a double.
 */
export function parseFloatText(text: string): number | undefined {
  const special = /^([+-]?)inf(?:inity)?$/i.exec(text);
  if (special) return special[1] === "-" ? -Infinity : Infinity;
  if (/^nan$/i.test(text)) return Number.NaN;
  const value = DECIMAL.test(text) ? Number(text.replaceAll("_", "")) : parseHexadecimal(text);
  return value !== undefined && Number.isFinite(value) ? value : undefined;
}

function parseHexadecimal(text: string): number | undefined {
  const match = HEXADECIMAL.exec(text);
  if (!match) return undefined;
  const [, sign, whole = "", fraction = "", exponent] = match;
  const digits = fraction.replaceAll("_", "");
  const mantissa = Number(BigInt(`0x0${whole.replaceAll("_", "")}${digits}`));
  return (sign === "-" ? -1 : 1) * mantissa * 2 ** (Number(exponent) - 4 * digits.length);
}

/** A decimal fraction 0.`digits` × 10^`point`, without zeros at the end; zero has no digits. */
interface Decimal {
  digits: string;
  point: number;
}

/**
 * A finite double as text. `e`: d.ddde±dd, `f`: plain decimals, `g`: whichever of them suits the exponent, `x`: hexadecimal
 * mantissa and binary exponent, `b`: decimal mantissa and binary exponent. `precision` counts digits after the point
 * (`g`: significant ones) and rounds half to even on the exact value; -1 stands for the fewest digits that read back.
 */
export function formatFloat(value: number, format: "e" | "f" | "g" | "x" | "b", precision: number): string {
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const magnitude = Math.abs(value);
  if (format === "x") return sign + toHexadecimal(magnitude, precision);
  if (format === "b") {
    const { mantissa, exponent } = parts(magnitude);
    return `${sign}${mantissa}p${exponent < 0 ? "" : "+"}${exponent}`;
  }
  const shortest = precision < 0;
  const decimal = shortest ? shortestDecimal(magnitude) : exactDecimal(magnitude);
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

/** Every double is m × 2^e; with a negative e that is (m × 5^-e) / 10^-e, so its decimals end. */
function exactDecimal(value: number): Decimal {
  const { mantissa, exponent } = parts(value);
  if (mantissa === 0n) return { digits: "", point: 0 };
  const digits = String(exponent < 0 ? mantissa * 5n ** BigInt(-exponent) : mantissa << BigInt(exponent));
  return trimmed(digits, digits.length + Math.min(exponent, 0));
}

function parts(value: number): { mantissa: bigint; exponent: number } {
  const bits = new BigUint64Array(new Float64Array([value]).buffer)[0] as bigint;
  const exponent = Number(bits >> 52n) & 0x7ff;
  const fraction = bits & 0xfffffffffffffn;
  return exponent === 0
    ? { mantissa: fraction, exponent: -1074 }
    : { mantissa: fraction | (1n << 52n), exponent: exponent - 1075 };
}

function toHexadecimal(value: number, precision: number): string {
  let { mantissa, exponent } = parts(value);
  exponent = mantissa === 0n ? 0 : exponent + 52;
  for (; mantissa !== 0n && mantissa < 1n << 52n; mantissa <<= 1n) exponent--;
  if (precision >= 0 && precision < 13) {
    const dropped = BigInt(52 - 4 * precision);
    const rest = mantissa & ((1n << dropped) - 1n);
    mantissa >>= dropped;
    const half = 1n << (dropped - 1n);
    if (rest > half || (rest === half && (mantissa & 1n) === 1n)) mantissa++;
    mantissa <<= dropped;
    if (mantissa >> 53n) exponent++;
    if (mantissa >> 53n) mantissa >>= 1n;
  }
  const hex = mantissa.toString(16).padStart(14, "0");
  const digits =
    precision < 0 ? hex.slice(1).replace(/0+$/, "") : hex.slice(1).padEnd(precision, "0").slice(0, precision);
  const power = String(Math.abs(exponent)).padStart(2, "0");
  return `0x${hex[0]}${digits && `.${digits}`}p${exponent < 0 ? "-" : "+"}${power}`;
}
