import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { asciiQr, qrCode, terminalQr } from "../../lib/codec/qr.ts";
import { readQr, readQrs, rowsOfAscii } from "../helpers/qr.ts";

/** The most bytes of each size (ISO/IEC 18004, level L, bytes). */
const CAPACITIES = [...[17, 32, 53, 78, 106, 134, 154, 192, 230, 271], ...[321, 367, 425, 458, 520, 586, 644, 718, 792]];

function textOfLength(length: number): string {
  return Array.from({ length }, (_, at) => String.fromCharCode(33 + ((at * 7 + length) % 90))).join("");
}

/** Makes a code of each text, of versions that count up from `first`, and compares what zbarimg reads from each. */
function assertRead(t: TestContext, first: number, texts: readonly string[]): void {
  const codes = texts.map(qrCode);
  const sizes = codes.map(({ length }) => length);
  const expected = texts.map((_, index) => 17 + 4 * (first + index));
  assert.deepEqual(sizes, expected);
  const printed = codes.map((code) => rowsOfAscii(asciiQr(code)));
  assert.deepEqual(readQrs(t, printed), texts);
}

test("zbarimg reads the most bytes that fit into each of the versions 1 to 19", (t) => {
  assertRead(t, 1, CAPACITIES.map(textOfLength));
});

test("one byte more takes the next version, and zbarimg reads that too", (t) => {
  const texts = CAPACITIES.slice(0, -1).map((capacity) => textOfLength(capacity + 1));
  assertRead(t, 2, texts);
});

test("dark and light take turns in the lines between the three corners", () => {
  for (const capacity of CAPACITIES) {
    const code = qrCode(textOfLength(capacity));
    for (let at = 8; at < code.length - 8; at++)
      assert.deepEqual([code[6]?.[at], code[at]?.[6]], [at % 2 === 0, at % 2 === 0], `${capacity} bytes, place ${at}`);
  }
});

/** What a code of level L says of its mask, by mask (ISO/IEC 18004, annex C); the first bit stands at the left. */
const FORMATS = [
  ...["111011111000100", "111001011110011", "111110110101010", "111100010011101"],
  ...["110011000101111", "110001100011000", "110110001000001", "110100101110110"],
];
const MASKED: ((row: number, column: number) => number)[] = [
  (row, column) => (row + column) % 2,
  (row) => row % 2,
  (_, column) => column % 3,
  (row, column) => (row + column) % 3,
  (row, column) => (Math.floor(row / 2) + Math.floor(column / 3)) % 2,
  (row, column) => ((row * column) % 2) + ((row * column) % 3),
  (row, column) => (((row * column) % 2) + ((row * column) % 3)) % 2,
  (row, column) => (((row + column) % 2) + ((row * column) % 3)) % 2,
];

/** The mask that a code of version 1 names, and the same code with another mask. */
function maskOf(code: boolean[][]): number {
  const bits = [0, 1, 2, 3, 4, 5, 7, 8].map((column) => (code[8]?.[column] ? "1" : "0")).join("");
  return FORMATS.findIndex((format) => format.startsWith(bits));
}

function withMask(code: boolean[][], mask: number): boolean[][] {
  const [own, other] = [MASKED[maskOf(code)] as (typeof MASKED)[0], MASKED[mask] as (typeof MASKED)[0]];
  const isFixed = (row: number, column: number) =>
    row === 6 || column === 6 || (row < 9 && (column < 9 || column > 12)) || (row > 12 && column < 9);
  const changed = code.map((line, row) =>
    line.map((dark, column) =>
      isFixed(row, column) ? dark : dark !== ((own(row, column) === 0) !== (other(row, column) === 0)),
    ),
  );
  const lines = [0, 1, 2, 3, 4, 5, 7, 8];
  for (const [at, bit] of [...(FORMATS[mask] as string)].entries()) {
    const near = at < 8 ? [8, lines[at]] : [lines[14 - at], 8];
    const far = at < 7 ? [20 - at, 8] : [8, 6 + at];
    for (const [row = 0, column = 0] of [near, far]) (changed[row] as boolean[])[column] = bit === "1";
  }
  return changed;
}

/** The points of ISO/IEC 18004, 7.8.3, for what makes a code hard to read. */
function pointsOf(code: boolean[][]): number {
  const rows = code.map((line) => line.map((dark) => (dark ? "1" : "0")).join(""));
  const columns = rows.map((_, at) => rows.map((row) => row[at]).join(""));
  const runs = [...rows, ...columns].flatMap((line) => line.match(/0{5,}|1{5,}/g) ?? []);
  const finders = [...rows, ...columns].flatMap((line) =>
    Array.from({ length: 11 }, (_, at) => /^(?:10111010000|00001011101)/.test(line.slice(at))).filter(Boolean),
  );
  const squares = rows
    .slice(1)
    .flatMap((row, at) =>
      Array.from({ length: 20 }, (_, from) => row.slice(from, from + 2) + rows[at]?.slice(from, from + 2)).filter((four) =>
        /^(?:0000|1111)$/.test(four),
      ),
    );
  const percent = (100 * rows.join("").replaceAll("0", "").length) / 441;
  const long = runs.reduce((sum, run) => sum + 3 + run.length - 5, 0);
  return long + 40 * finders.length + 3 * squares.length + 10 * Math.floor(Math.abs(percent - 50) / 5);
}

test("of the eight masks that with the fewest points is taken, the first of several", () => {
  const taken = new Set<number>();
  for (let length = 0; length < 300; length++) {
    const text = textOfLength(length)
      .slice(-(length % 18))
      .slice(0, 17);
    const code = qrCode(text);
    const points = FORMATS.map((_, mask) => pointsOf(withMask(code, mask)));
    assert.equal(maskOf(code), points.indexOf(Math.min(...points)), JSON.stringify([text, points]));
    taken.add(maskOf(code));
  }
  assert.equal(taken.size, 8);
});

test("what does not fit is refused with the number of bytes", () => {
  const message = "Cannot make a QR code of 793 bytes: it holds at most 792";
  assert.throws(() => qrCode(textOfLength(793)), { code: "failed", message });
});

test("the ASCII form is square, two characters a module, with four light modules around", () => {
  const lines = asciiQr(qrCode("x")).split("\n");
  assert.equal(lines.pop(), "");
  assert.equal(lines.length, 29);
  for (const line of lines) assert.match(line, /^ {8}(?:##| {2}){21} {8}$/);
  for (const line of [...lines.slice(0, 4), ...lines.slice(-4)]) assert.equal(line.trim(), "");
});

const HALVES: Record<string, [boolean, boolean]> = {
  "█": [true, true],
  "▀": [true, false],
  "▄": [false, true],
  " ": [false, false],
};

/** What a terminal draws: two rows of pixels a line, `true` where there is ink. */
function inkOf(lines: string[]): boolean[][] {
  return lines.flatMap((line) => {
    const halves = [...line].map((character) => HALVES[character] as [boolean, boolean]);
    return [halves.map(([upper]) => upper), halves.map(([, lower]) => lower)];
  });
}

test("CP-068 the half blocks of a terminal are read in colour, black on white", (t) => {
  const lines = terminalQr(qrCode("otpauth://totp/x"), true).trimEnd().split("\n");
  const bare = lines.map((line) => /^\u001b\[38;5;16;48;5;231m([█▀▄ ]+)\u001b\[0m$/.exec(line)?.[1] ?? "?");
  assert.equal(readQr(t, inkOf(bare)), "otpauth://totp/x");
});

test("CP-068 the half blocks without colour draw what is light, for light text on a dark ground", (t) => {
  const text = terminalQr(qrCode("otpauth://totp/x"), false);
  assert.doesNotMatch(text, /\u001b/);
  const ink = inkOf(text.replace(/\n$/, "").split("\n"));
  assert.equal(
    readQr(
      t,
      ink.map((row) => row.map((drawn) => !drawn)),
    ),
    "otpauth://totp/x",
  );
});
