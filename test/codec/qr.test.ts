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
