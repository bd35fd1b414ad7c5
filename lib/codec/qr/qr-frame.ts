/** The modules of a QR code while it is drawn: rows from the top, undefined where data goes. */
export type Frame = (boolean | undefined)[][];

/** All that does not depend on the data (ISO/IEC 18004). Where format and version go is taken, but still light. */
export function frameOf(version: number): Frame {
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
