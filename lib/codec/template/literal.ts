import { decodeUtf8 } from "../../core/plain-text.ts";
import { parseFloatText, parseInteger } from "../config/number.ts";

// Go's literals, read and written: numbers, character constants, quoted text.

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
    const value = unquote(source).codePointAt(0) as number;
    return { source, float: value, isFloat: false, integer: BigInt(value) };
  }
  const whole = parseInteger(source);
  const float = whole === undefined ? parseFloatText(source) : Number(whole);
  if (float === undefined) throw new Error(`illegal number syntax: ${goQuote(source)}`);
  const isFloat = whole === undefined && /[.eE]/.test(source);
  if (!isFloat && (whole === undefined || !has64Bits(whole))) throw new Error(`integer overflow: ${goQuote(source)}`);
  const value = whole ?? (Number.isInteger(float) ? BigInt(float) : undefined);
  const isInteger = value !== undefined && BigInt.asIntN(64, value) === value;
  return { source, float, isFloat, ...(isInteger && { integer: value }) };
}

function has64Bits(value: bigint): boolean {
  return BigInt.asIntN(64, value) === value || BigInt.asUintN(64, value) === value;
}

const CONTROLS: Readonly<Record<string, string>> = { a: "\x07", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" };
const CONTROL_NAMES = new Map(Object.entries(CONTROLS).map(([letter, control]) => [control, `\\${letter}`]));
const PIECE = /[^\\]+|\\(?:([abfnrtv])|([\\'"])|x([0-9a-fA-F]{2})|([0-7]{3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))/y;

/**
 * The text that a quoted or raw string or a character constant stands for. Its bytes must be UTF-8: a template works on
 * Unicode text. Throws an Error that says what is wrong with it.
 */
export function unquote(source: string): string {
  const mark = source[0] as string;
  const inner = source.slice(1, -1);
  if (mark === "`") return inner.replaceAll("\r", "");
  const bytes: Buffer[] = [];
  for (PIECE.lastIndex = 0; PIECE.lastIndex < inner.length; ) {
    const match = PIECE.exec(inner);
    const value = match && bytesOfPiece(match, mark);
    if (!value) throw new Error(`invalid syntax in ${source}`);
    bytes.push(value);
  }
  const text = decodeUtf8(Buffer.concat(bytes));
  if (text === undefined) throw new Error(`the escapes of ${source} are not UTF-8`);
  if (mark === "'" && [...text].length !== 1) throw new Error(`malformed character constant: ${source}`);
  return text;
}

function bytesOfPiece(match: RegExpExecArray, mark: string): Buffer | undefined {
  const [text, control, itself, hexadecimal, octal, short, long] = match;
  if (control !== undefined) return Buffer.from(CONTROLS[control] as string);
  if (itself !== undefined) return itself === "\\" || itself === mark ? Buffer.from(itself) : undefined;
  const byte = Number.parseInt(hexadecimal ?? octal ?? "", hexadecimal === undefined ? 8 : 16);
  if (!Number.isNaN(byte)) return byte > 255 ? undefined : Buffer.from([byte]);
  const code = Number.parseInt(short ?? long ?? "", 16);
  if (Number.isNaN(code)) return Buffer.from(text);
  if (code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return undefined;
  return Buffer.from(String.fromCodePoint(code));
}

/** A text as a Go string literal. With `ascii` all other characters are escaped. */
export function goQuote(text: string, ascii = false, mark = '"'): string {
  const characters = Array.from(text.toWellFormed(), (character) => {
    if (character === mark || character === "\\") return `\\${character}`;
    const isPlain = ascii ? /[ -~]/.test(character) : isPrintable(character);
    return isPlain ? character : (CONTROL_NAMES.get(character) ?? escapeOf(character.codePointAt(0) as number));
  });
  return mark + characters.join("") + mark;
}

/** Go's printable characters: letters, marks, numbers, punctuation, symbols and the ASCII blank. */
export function isPrintable(character: string): boolean {
  return /^[\p{L}\p{M}\p{N}\p{P}\p{S} ]$/u.test(character);
}

function escapeOf(code: number): string {
  const hex = code.toString(16);
  if (code < 0x80) return `\\x${hex.padStart(2, "0")}`;
  return code < 0x10000 ? `\\u${hex.padStart(4, "0")}` : `\\U${hex.padStart(8, "0")}`;
}
