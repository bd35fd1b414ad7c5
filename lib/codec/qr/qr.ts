import { Failure } from "../../core/errors.ts";
import { type Frame, frameOf } from "./qr-frame.ts";
import { correctionWords } from "./reed-solomon.ts";

/** A QR code: rows from the top, `true` is a dark module. Without the quiet zone around it. */
export type QrCode = boolean[][];

/** Sizes that are made: version 20 has 97 modules a side, which still fits on a screen. */
const VERSIONS = 20;
/** ISO/IEC 18004, level L, by version: error correction words of a block, and blocks. */
const CORRECTION = [0, 7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28];
const BLOCKS = [0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8];
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
 * Throws `failed` for more than 858 bytes of UTF-8.
 */
export function qrCode(text: string): QrCode {
  const bytes = Buffer.from(text);
  const version = versionFor(bytes.length);
  const words = interleaved(dataWords(bytes, version), version);
  const drawn = MASKS.map((_, mask) => drawing(version, mask, words));
  return drawn.reduce((best, one) => (penalty(one) < penalty(best) ? one : best));
}

function versionFor(length: number): number {
  for (let version = 1; version <= VERSIONS; version++)
    if (4 + countBits(version) + 8 * length <= 8 * dataCapacity(version)) return version;
  throw new Failure("failed", `Cannot make a QR code of ${length} bytes: it holds at most 858`);
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
  const bits = checked((LEVEL_L << 3) | mask, 10, FORMAT_POLYNOMIAL) ^ FORMAT_MASK;
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
  const bits = checked(version, 12, VERSION_POLYNOMIAL);
  for (let bit = 0; bit < 18; bit++) {
    const [far, near] = [code.length - 11 + (bit % 3), Math.floor(bit / 3)];
    const dark = ((bits >> bit) & 1) === 1;
    (code[near] as boolean[])[far] = dark;
    (code[far] as boolean[])[near] = dark;
  }
}

/** A value followed by the remainder of its division by a polynomial. */
function checked(value: number, width: number, polynomial: number): number {
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
