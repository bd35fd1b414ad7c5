import { Failure } from "../core/errors.ts";

/** A QR code: rows from the top, `true` is a dark module. Without the quiet zone around it. */
export type QrCode = boolean[][];

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

/** Words for data: all that the functional patterns leave free, without the error correction. */
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
  // The end of the data. The mode took four bits, so these fill its word; `versionFor` has left room for them.
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
    const dark = (((words[index >> 3] ?? 0) >> (7 - (index & 7))) & 1) === 1;
    (frame[row] as boolean[])[column] = dark !== isMasked(row, column);
  }
  drawFormat(frame as QrCode, mask);
  if (version >= 7) drawVersion(frame as QrCode, version);
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

/** Level and mask with their check bits, twice. */
function drawFormat(code: QrCode, mask: number): void {
  const size = code.length;
  const bits = withCheckBits((LEVEL_L << 3) | mask, 10, FORMAT_POLYNOMIAL) ^ FORMAT_MASK;
  const around = [0, 1, 2, 3, 4, 5, 7, 8];
  for (let bit = 0; bit < 15; bit++) {
    const dark = ((bits >> bit) & 1) === 1;
    const [row, column] = bit < 8 ? [around[bit], 8] : [8, around[14 - bit]];
    (code[row as number] as boolean[])[column as number] = dark;
    const [farRow, farColumn] = bit < 8 ? [8, size - 1 - bit] : [size - 15 + bit, 8];
    (code[farRow] as boolean[])[farColumn] = dark;
  }
}

/** The version with its check bits, twice. */
function drawVersion(code: QrCode, version: number): void {
  const bits = withCheckBits(version, 12, VERSION_POLYNOMIAL);
  for (let bit = 0; bit < 18; bit++) {
    const [far, near] = [code.length - 11 + (bit % 3), Math.floor(bit / 3)];
    const dark = ((bits >> bit) & 1) === 1;
    (code[near] as boolean[])[far] = dark;
    (code[far] as boolean[])[near] = dark;
  }
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

/** How hard a code is to read: long runs, blocks, what looks like a finder, too much of one colour. */
function penalty(code: QrCode): number {
  const lines = [...code, ...code.map((_, column) => code.map((row) => row[column] as boolean))];
  const texts = lines.map((line) => line.map((dark) => (dark ? "1" : "0")).join(""));
  let score = 0;
  for (const text of texts) {
    for (const [run] of text.matchAll(/0{5,}|1{5,}/g)) score += run.length - 2;
    score += 40 * [...text.matchAll(/(?=10111010000|00001011101)/g)].length;
  }
  for (let row = 1; row < code.length; row++)
    for (let column = 1; column < code.length; column++) if (isBlock(code, row, column)) score += 3;
  const dark = code.flat().filter(Boolean).length;
  return score + 10 * Math.floor(Math.abs((20 * dark) / code.length ** 2 - 10));
}

function isBlock(code: QrCode, row: number, column: number): boolean {
  const dark = code[row]?.[column];
  return dark === code[row - 1]?.[column] && dark === code[row]?.[column - 1] && dark === code[row - 1]?.[column - 1];
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
    for (const [at, coefficient] of divisor.entries())
      remainder[at] = (remainder[at] as number) ^ product(coefficient, factor);
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

/** All that does not depend on the data (ISO/IEC 18004). Where format and version go is taken, but still light. */
function frameOf(version: number): Frame {
  const size = 17 + 4 * version;
  const frame: Frame = Array.from({ length: size }, () => Array(size).fill(undefined));
  takeFormat(frame);
  for (const [row, column] of corners(size - 7)) drawFinder(frame, row, column);
  drawTiming(frame);
  for (const [row, column] of alignments(version)) drawAlignment(frame, row, column);
  if (version >= 7) takeVersion(frame);
  return frame;
}

function fill(frame: Frame, row: number, column: number, height: number, width: number, dark: boolean): void {
  for (const line of frame.slice(row, row + height)) line.fill(dark, column, column + width);
}

/** Upper left, upper right, lower left: there are the finders. */
function corners(last: number): [number, number][] {
  return [
    [0, 0],
    [0, last],
    [last, 0],
  ];
}

/** The finders with what is around them: one light line, then one for the format, in which one module is dark. */
function takeFormat(frame: Frame): void {
  const size = frame.length;
  fill(frame, 0, 0, 9, 9, false);
  fill(frame, 0, size - 8, 9, 8, false);
  fill(frame, size - 8, 0, 8, 9, false);
  fill(frame, size - 8, 8, 1, 1, true);
}

function drawFinder(frame: Frame, row: number, column: number): void {
  fill(frame, row, column, 7, 7, true);
  fill(frame, row + 1, column + 1, 5, 5, false);
  fill(frame, row + 2, column + 2, 3, 3, true);
}

/** Dark and light in turn between the finders. */
function drawTiming(frame: Frame): void {
  for (let at = 8; at < frame.length - 8; at++) {
    fill(frame, 6, at, 1, 1, at % 2 === 0);
    fill(frame, at, 6, 1, 1, at % 2 === 0);
  }
}

function drawAlignment(frame: Frame, row: number, column: number): void {
  fill(frame, row - 2, column - 2, 5, 5, true);
  fill(frame, row - 1, column - 1, 3, 3, false);
  fill(frame, row, column, 1, 1, true);
}

/** The centres of the alignment patterns: a grid without the three corners where the finders are. */
function alignments(version: number): [number, number][] {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const last = 10 + 4 * version;
  const step = 2 * Math.ceil((last - 6) / (2 * (count - 1)));
  const lines = [6, ...Array.from({ length: count - 1 }, (_, at) => last - step * (count - 2 - at))];
  return lines
    .flatMap((row) => lines.map((column): [number, number] => [row, column]))
    .filter(([row, column]) => !["6,6", `6,${last}`, `${last},6`].includes(`${row},${column}`));
}

function takeVersion(frame: Frame): void {
  fill(frame, 0, frame.length - 11, 6, 3, false);
  fill(frame, frame.length - 11, 0, 3, 6, false);
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

function framed(code: QrCode): QrCode {
  const side: boolean[] = Array(QUIET).fill(false);
  const blank = () => Array(code.length + 2 * QUIET).fill(false) as boolean[];
  const edge = () => Array.from({ length: QUIET }, blank);
  return [...edge(), ...code.map((row) => [...side, ...row, ...side]), ...edge()];
}
