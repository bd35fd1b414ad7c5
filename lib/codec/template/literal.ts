import { decodeUtf8 } from "../../core/plain-text.ts";
import { parseFloatText, parseInteger } from "../config/number.ts";
import { quote } from "./quote.ts";

/** `integer` when the value is whole and has 64 bits; `isFloat` when it is written as a float. */
export interface NumberValue {
  source: string;
  float: number;
  isFloat: boolean;
  integer?: bigint;
}

/** The value of a number or of a character constant (its code point). Throws an Error that says what is wrong with it. */
export function readNumber(source: string): NumberValue {
  if (source.startsWith("'")) {
    const byte = /^'\\(?:x([0-9a-fA-F]{2})|([0-3][0-7]{2}))'$/.exec(source);
    const value = byte ? byteOf(byte[1], byte[2]) : unquote(source).codePointAt(0);
    if (value === undefined) throw new Error(`malformed character constant: ${source}`);
    return { source, float: value, isFloat: false, integer: BigInt(value) };
  }
  const whole = parseInteger(source);
  const float = whole === undefined ? parseFloatText(source) : Number(whole);
  if (float === undefined) throw new Error(`illegal number syntax: ${quote(source)}`);
  const isFloat = whole === undefined && /[.eEpP]/.test(source);
  if (!isFloat && (whole === undefined || !has64Bits(whole))) throw new Error(`integer overflow: ${quote(source)}`);
  const value = whole ?? (Number.isInteger(float) ? BigInt(float) : undefined);
  const isInteger = value !== undefined && BigInt.asIntN(64, value) === value;
  return { source, float, isFloat, ...(isInteger && { integer: value }) };
}

function has64Bits(value: bigint): boolean {
  return BigInt.asIntN(64, value) === value || BigInt.asUintN(64, value) === value;
}

/**
 * The text that a quoted or raw string or a character constant stands for. Its bytes must be UTF-8: a template works on
 * Unicode text. Throws an Error that says what is wrong with it.
 */
export function unquote(source: string): string {
  const quote = source[0] as string;
  const inner = source.slice(1, -1);
  if (quote === "`") return inner.replaceAll("\r", "");
  const bytes: Buffer[] = [];
  const piece = /[^\\]+|\\(?:([abfnrtv\\])|(['"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))/y;
  while (piece.lastIndex < inner.length) {
    const match = piece.exec(inner);
    const value = match && bytesOf(match, quote);
    if (!value) throw new Error(`invalid syntax in ${source}`);
    bytes.push(value);
  }
  const text = decodeUtf8(Buffer.concat(bytes));
  if (text === undefined) throw new Error(`the escapes of ${source} are not UTF-8`);
  if (quote === "'" && [...text].length !== 1) throw new Error(`malformed character constant: ${source}`);
  return text;
}

const CONTROLS: Readonly<Record<string, string>> = {
  a: "\x07",
  b: "\b",
  f: "\f",
  n: "\n",
  r: "\r",
  t: "\t",
  v: "\v",
  "\\": "\\",
};

function bytesOf(match: RegExpExecArray, quote: string): Buffer | undefined {
  const [text, control, quoted, hexadecimal, octal, short, long] = match;
  if (control !== undefined) return Buffer.from(CONTROLS[control] as string);
  if (quoted !== undefined) return quoted === quote ? Buffer.from(quoted) : undefined;
  const byte = byteOf(hexadecimal, octal);
  if (byte !== undefined) return byte > 255 ? undefined : Buffer.from([byte]);
  const code = short ?? long;
  if (code === undefined) return Buffer.from(text);
  const value = Number.parseInt(code, 16);
  if (value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return undefined;
  return Buffer.from(String.fromCodePoint(value));
}

function byteOf(hexadecimal: string | undefined, octal: string | undefined): number | undefined {
  if (hexadecimal !== undefined) return Number.parseInt(hexadecimal, 16);
  return octal === undefined ? undefined : Number.parseInt(octal, 8);
}
