/** Between two columns. */
const GAP = 2;
/** The narrowest that a column is made where a terminal is too narrow. */
const NARROWEST = 8;

/** Text of unknown origin for a terminal: control characters, also those that turn the writing around, are written out. */
export function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    const code = character.codePointAt(0) as number;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
}

/** Several lines of unknown origin for a terminal: all but line ends and tabs as {@link visible} has it. */
export function visibleLines(text: string): string {
  return text.replace(/[^\n\t]+/g, visible);
}

/** A value as JSON for a terminal or a pipe: what a terminal would obey stands in it as an escape of JSON. */
export function jsonText(value: unknown): string {
  return `${escaped(JSON.stringify(value ?? null, null, 2))}\n`;
}

/** A value as JSON on one line, without the newline. */
export function jsonLine(value: unknown): string {
  return escaped(JSON.stringify(value));
}

function escaped(json: string): string {
  return json.replace(/[^\P{C}\n]/gu, (character) => escapesOf(character));
}

function escapesOf(character: string): string {
  return character.replace(/[\s\S]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/**
 * Rows as an aligned table under their column names, numbers to the right; lines end with a newline. With a `width`
 * the widest columns are cut (`…`) until a line fits; without one, in a pipe, nothing is cut.
 */
export function textTable(
  columns: readonly string[],
  rows: readonly (readonly (string | number | boolean | null)[])[],
  width?: number,
): string {
  const cells = [columns, ...rows].map((row) => row.map((cell) => visible(cell === null ? "-" : String(cell))));
  const natural = columns.map((_, column) => Math.max(...cells.map((row) => row[column]?.length ?? 0)));
  const widths = width === undefined ? natural : fitting(natural, width);
  const isNumber = columns.map(
    (_, column) =>
      rows.some((row) => typeof row[column] === "number") &&
      rows.every((row) => typeof row[column] === "number" || row[column] === null),
  );
  const line = (row: string[]) =>
    row.map((cell, column) => aligned(cell, widths[column] as number, isNumber[column] === true)).join(" ".repeat(GAP));
  return cells.map((row) => `${line(row).trimEnd()}\n`).join("");
}

function fitting(natural: readonly number[], width: number): number[] {
  const widths = [...natural];
  const total = () => widths.reduce((sum, one) => sum + one, GAP * (widths.length - 1));
  while (total() > width) {
    const widest = widths.indexOf(Math.max(...widths));
    const second = Math.max(NARROWEST, ...widths.filter((_, index) => index !== widest));
    const before = widths[widest] as number;
    if (before <= NARROWEST) break;
    widths[widest] = Math.max(NARROWEST, Math.min(before - 1, second), before - (total() - width));
  }
  return widths;
}

function aligned(cell: string, width: number, right: boolean): string {
  const text = cell.length > width ? `${cell.slice(0, width - 1)}…` : cell;
  return right ? text.padStart(width) : text.padEnd(width);
}
