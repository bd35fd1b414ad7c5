import type { QrCode } from "./qr.ts";

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
