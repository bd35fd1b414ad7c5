import { Failure } from "../core/errors.ts";

/** A QR code without its quiet zone: rows from the top, `true` is a dark module. */
type QrCode = boolean[][];

/** The versions that the longest URI of `ops server totp-enroll` (769 bytes) needs; 19 has 93 modules a side. */
const MOST_VERSION = 19;
/** The bytes that version 19 holds. */
const MOST_BYTES_OF_CODE = 792;
/** ISO/IEC 18004, level L, by version: error correction words of a block, and blocks. */
const CORRECTION = [0, 7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28];
const BLOCKS = [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7];
/** The two bits that say level L. */
const LEVEL_L = 1;
const BYTE_MODE = 4;
const FORMAT_POLYNOMIAL = 0x537;
const FORMAT_MASK = 0x5412;
const VERSION_POLYNOMIAL = 0x1f25;

/** The eight patterns one of which is laid over the data, by row and column. */
const MASKS: readonly ((row: number, column: number) => boolean)[] = [
  (row, column) => (row + column) % 2 === 0,
  (row) => row % 2 === 0,
  (_, column) => column % 3 === 0,
  (row, column) => (row + column) % 3 === 0,
  (row, column) => (Math.floor(row / 2) + Math.floor(column / 3)) % 2 === 0,
  (row, column) => ((row * column) % 2) + ((row * column) % 3) === 0,
  (row, column) => (((row * column) % 2) + ((row * column) % 3)) % 2 === 0,
  (row, column) => (((row + column) % 2) + ((row * column) % 3)) % 2 === 0,
];

/**
 * A text as QR code (ISO/IEC 18004: bytes, error correction level L) of the smallest size that holds it.
 * Throws `failed` for more than 792 bytes of UTF-8.
 */
export function qrCode(text: string): QrCode {
  const bytes = Buffer.from(text);
  const version = versionFor(bytes.length);
  const words = interleaved(dataWords(bytes, version), version);
  const drawn = MASKS.map((_, mask) => drawing(version, mask, words));
  return drawn.reduce((best, one) => (penalty(one) < penalty(best) ? one : best));
}

function versionFor(length: number): number {
  for (let version = 1; version <= MOST_VERSION; version++)
    if (4 + countBits(version) + 8 * length <= 8 * dataCapacity(version)) return version;
  throw new Failure("failed", `Cannot make a QR code of ${length} bytes: it holds at most ${MOST_BYTES_OF_CODE}`);
}

function countBits(version: number): number {
  return version < 10 ? 8 : 16;
}

/** How many words of data a version holds: the free modules without those of the error correction. */
function dataCapacity(version: number): number {
  const free = frameOf(version)
    .flat()
    .filter((module) => module === undefined).length;
  return Math.floor(free / 8) - (CORRECTION[version] as number) * (BLOCKS[version] as number);
}

/** Mode, length, bytes and padding as words of eight bits. */
function dataWords(bytes: Buffer, version: number): number[] {
  const bits: number[] = [];
  const put = (value: number, width: number) => {
    for (let bit = width - 1; bit >= 0; bit--) bits.push((value >> bit) & 1);
  };
  put(BYTE_MODE, 4);
  put(bytes.length, countBits(version));
  for (const byte of bytes) put(byte, 8);
  const capacity = dataCapacity(version);
  // Four bits end the data and fill its last word; `versionFor` has left room for them.
  put(0, 4);
  for (let word = 0xec; bits.length < capacity * 8; word ^= 0xec ^ 0x11) put(word, 8);
  return Array.from({ length: capacity }, (_, at) => Number.parseInt(bits.slice(at * 8, at * 8 + 8).join(""), 2));
}

/** The words in the order in which they are drawn: the blocks' first words, their second ones, …, their corrections. */
function interleaved(words: number[], version: number): number[] {
  const [count, correction] = [BLOCKS[version] as number, CORRECTION[version] as number];
  const short = Math.floor(words.length / count);
  const longFrom = count - (words.length % count);
  const blocks = Array.from({ length: count }, (_, index) => {
    const begin = index * short + Math.max(0, index - longFrom);
    return words.slice(begin, begin + short + (index >= longFrom ? 1 : 0));
  });
  const corrections = blocks.map((block) => correctionWords(block, correction));
  const inTurn = (lists: number[][], length: number) =>
    Array.from({ length }, (_, at) => lists.flatMap((list) => list.slice(at, at + 1))).flat();
  return [...inTurn(blocks, short + 1), ...inTurn(corrections, correction)];
}

function drawing(version: number, mask: number, words: number[]): QrCode {
  const frame = frameOf(version);
  const isMasked = MASKS[mask] as (typeof MASKS)[number];
  for (const [index, [row, column]] of dataPath(frame).entries()) {
    const dark = isSet(words[index >> 3] ?? 0, 7 - (index & 7));
    put(frame, [row, column], dark !== isMasked(row, column));
  }
  const format = withCheckBits((LEVEL_L << 3) | mask, 10, FORMAT_POLYNOMIAL) ^ FORMAT_MASK;
  for (let bit = 0; bit < 15; bit++) for (const place of formatPlaces(frame.length, bit)) put(frame, place, isSet(format, bit));
  const own = withCheckBits(version, 12, VERSION_POLYNOMIAL);
  for (let bit = 0; version >= 7 && bit < 18; bit++)
    for (const place of versionPlaces(frame.length, bit)) put(frame, place, isSet(own, bit));
  return frame as QrCode;
}

/** The free modules in their order: columns in pairs from the right, up and down in turn, past the timing column. */
function dataPath(frame: Frame): [number, number][] {
  const size = frame.length;
  const path: [number, number][] = [];
  let upwards = true;
  for (let right = size - 1; right > 0; right -= right === 8 ? 3 : 2, upwards = !upwards)
    for (let at = 0; at < size; at++)
      for (const column of [right, right - 1]) {
        const row = upwards ? size - 1 - at : at;
        if (frame[row]?.[column] === undefined) path.push([row, column]);
      }
  return path;
}

/** A value followed by the remainder of its division by a polynomial. */
function withCheckBits(value: number, width: number, polynomial: number): number {
  let remainder = value;
  for (let bit = 0; bit < width; bit++) {
    remainder <<= 1;
    if (remainder >> width) remainder ^= polynomial;
  }
  return (value << width) | remainder;
}

/** Grows with what makes a code hard to read: long runs, blocks, look-alikes of a finder, too much of one colour. */
function penalty(code: QrCode): number {
  const lines = [...code, ...code.map((_, column) => code.map((row) => row[column] as boolean))];
  const texts = lines.map((line) => line.map((dark) => (dark ? "1" : "0")).join(""));
  let score = 0;
  for (const text of texts) {
    for (const [run] of text.matchAll(/0{5,}|1{5,}/g)) score += run.length - 2;
    score += 40 * [...text.matchAll(/(?=10111010000|00001011101)/g)].length;
  }
  const at = (row: number, column: number) => code[row]?.[column];
  for (let row = 1; row < code.length; row++)
    for (let column = 1; column < code.length; column++) {
      const around = [at(row - 1, column), at(row, column - 1), at(row - 1, column - 1)];
      if (around.every((dark) => dark === at(row, column))) score += 3;
    }
  const dark = code.flat().filter(Boolean).length;
  return score + 10 * Math.floor(Math.abs((20 * dark) / code.length ** 2 - 10));
}

/** x^8 + x^4 + x^3 + x^2 + 1: the field of 256 elements that QR codes are computed in. */
const FIELD_POLYNOMIAL = 0x11d;

/** The `count` words that let a reader of a QR code correct errors in these words (ISO/IEC 18004, Reed-Solomon). */
function correctionWords(words: readonly number[], count: number): number[] {
  const divisor = generator(count);
  const remainder: number[] = Array(count).fill(0);
  for (const word of words) {
    const factor = word ^ (remainder.shift() as number);
    remainder.push(0);
    for (const [at, coefficient] of divisor.entries()) remainder[at] = (remainder[at] as number) ^ product(coefficient, factor);
  }
  return remainder;
}

/** (x - 1)(x - 2)(x - 4)…: its coefficients from the second highest power down; the highest one is 1. */
function generator(count: number): number[] {
  const coefficients: number[] = [...Array(count - 1).fill(0), 1];
  for (let root = 1, at = 0; at < count; at++, root = product(root, 2))
    for (let power = 0; power < count; power++)
      coefficients[power] = product(coefficients[power] as number, root) ^ (coefficients[power + 1] ?? 0);
  return coefficients;
}

function product(a: number, b: number): number {
  let result = 0;
  for (let bit = 7; bit >= 0; bit--) {
    result = (result << 1) ^ ((result >> 7) * FIELD_POLYNOMIAL);
    if ((b >> bit) & 1) result ^= a;
  }
  return result;
}

/** The modules of a QR code while it is drawn: rows from the top, undefined where data goes. */
type Frame = (boolean | undefined)[][];

type Place = readonly [row: number, column: number];

/** All that does not depend on the data (ISO/IEC 18004). The places of format and version are taken, but still light. */
function frameOf(version: number): Frame {
  const size = 17 + 4 * version;
  const frame: Frame = Array.from({ length: size }, () => Array(size).fill(undefined));
  drawFinder(frame, 3, 3);
  drawFinder(frame, 3, size - 4);
  drawFinder(frame, size - 4, 3);
  for (let at = 8; at < size - 8; at++) for (const place of mirrored(6, at)) put(frame, place, at % 2 === 0);
  for (const [row, column] of alignments(version)) drawRings(frame, row, column, "#.#");
  for (let bit = 0; bit < 15; bit++) for (const place of formatPlaces(size, bit)) put(frame, place, false);
  // One module beside the lower finder is always dark.
  put(frame, [size - 8, 8], true);
  if (version < 7) return frame;
  for (let bit = 0; bit < 18; bit++) for (const place of versionPlaces(size, bit)) put(frame, place, false);
  return frame;
}

function put(frame: Frame, [row, column]: Place, dark: boolean): void {
  const line = frame[row];
  if (line && column >= 0 && column < line.length) line[column] = dark;
}

/** A finder, with the light ring around it as far as there is room. */
function drawFinder(frame: Frame, row: number, column: number): void {
  drawRings(frame, row, column, "##.#.");
}

/** Squares around a place: the character for each distance says whether its modules are dark. */
function drawRings(frame: Frame, row: number, column: number, rings: string): void {
  for (let down = 1 - rings.length; down < rings.length; down++)
    for (let right = 1 - rings.length; right < rings.length; right++)
      put(frame, [row + down, column + right], rings[Math.max(Math.abs(down), Math.abs(right))] === "#");
}

/** A place, and the one that has row and column exchanged. */
function mirrored(row: number, column: number): Place[] {
  const place: Place = [row, column];
  const other: Place = [column, row];
  return [place, other];
}

/** Where a bit of level and mask goes: beside the upper left finder, and beside one of the others. */
function formatPlaces(size: number, bit: number): Place[] {
  const around = [0, 1, 2, 3, 4, 5, 7, 8];
  const near: Place = bit < 8 ? [around[bit] as number, 8] : [8, around[14 - bit] as number];
  const far: Place = bit < 8 ? [8, size - 1 - bit] : [size - 15 + bit, 8];
  return [near, far];
}

/** Where a bit of the version goes: beside the upper right finder, and beside the lower left one. */
function versionPlaces(size: number, bit: number): Place[] {
  return mirrored(Math.floor(bit / 3), size - 11 + (bit % 3));
}

function isSet(bits: number, bit: number): boolean {
  return ((bits >> bit) & 1) === 1;
}

/** The centres of the alignment patterns: a grid without the three corners where the finders are. */
function alignments(version: number): Place[] {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const last = 10 + 4 * version;
  const step = 2 * Math.ceil((last - 6) / (2 * (count - 1)));
  const lines = [6, ...Array.from({ length: count - 1 }, (_, at) => last - step * (count - 2 - at))];
  return lines
    .flatMap((row) => lines.map((column): Place => [row, column]))
    .filter(([row, column]) => !["6,6", `6,${last}`, `${last},6`].includes(`${row},${column}`));
}

/** Light modules that a reader needs around a code. */
const QUIET = 4;

/** A QR code in ASCII: two characters a module, `#` for dark. One line a row, the quiet zone around it. */
export function asciiQr(code: QrCode): string {
  return framed(code)
    .map((row) => `${row.map((dark) => (dark ? "##" : "  ")).join("")}\n`)
    .join("");
}

/**
 * A QR code for a terminal, two rows a line in half blocks. In `colour` black on white, whatever the terminal's own
 * colours are; without, the light modules are drawn, which is right where text is light on dark.
 */
export function terminalQr(code: QrCode, colour: boolean): string {
  const rows = framed(code);
  if (rows.length % 2 === 1) rows.push(Array(rows.length).fill(false));
  const lines: string[] = [];
  for (let at = 0; at < rows.length; at += 2) {
    const [upper = [], lower = []] = rows.slice(at, at + 2);
    lines.push(upper.map((dark, column) => block(dark === colour, lower[column] === colour)).join(""));
  }
  const [begin, end] = colour ? ["\u001b[38;5;16;48;5;231m", "\u001b[0m"] : ["", ""];
  return lines.map((line) => `${begin}${line}${end}\n`).join("");
}

function block(upper: boolean, lower: boolean): string {
  if (upper) return lower ? "█" : "▀";
  return lower ? "▄" : " ";
}

/** The code with the quiet zone around it. */
function framed(code: QrCode): QrCode {
  const sides = Array.from({ length: code.length + 2 * QUIET }, (_, at) => at - QUIET);
  return sides.map((row) => sides.map((column) => code[row]?.[column] ?? false));
}
