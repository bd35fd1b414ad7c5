import { EXIT, type Parsed, wantsJson } from "./flags.ts";

// Not imported, for the reason in flags.ts.
const { styleText } = process.getBuiltinModule("node:util");

/**
 * Writes text to stdout with control characters escaped, also into a pipe: the text may quote a server, a worker or a
 * file. `painted` adds colours to the escaped text.
 */
export function toStdout(text: string, painted: (text: string) => string = (same) => same): void {
  process.stdout.write(painted(visibleLines(text)));
}

/** Writes text to stderr in the same way. */
export function toStderr(text: string): void {
  process.stderr.write(visibleLines(text));
}

/**
 * Writes text to stdout as it is, and waits until it is taken: a slow reader slows its writer down. Answers false where it
 * cannot be written, as when nobody reads any more (`| head`); `runProgram` tells of other troubles.
 */
export function written(text: string): Promise<boolean> {
  return new Promise((resolve) => process.stdout.write(text, (error) => resolve(!error)));
}

/** Prints a value as JSON on stdout. */
export function printJson(value: unknown): void {
  toStdout(jsonText(value));
}

/**
 * Prints the answer of a command: with `--json` a value as JSON, else a text, which is made only where it is printed. Answers
 * the exit code of success.
 */
export function printAnswer(input: Pick<Parsed, "switches">, value: unknown, text: string | (() => string)): number {
  if (wantsJson(input)) printJson(value);
  else toStdout(typeof text === "string" ? text : text());
  return EXIT.done;
}

/** The columns of a table in their order: the head of each, and what it shows of an item. */
export type Columns<T> = Readonly<Record<string, (item: T) => Cell>>;

/** {@link printAnswer} of a list: all items as JSON, else as a table; `none` where there are none. */
export function printList<T>(input: Pick<Parsed, "switches">, items: readonly T[], none: string, columns: Columns<T>): number {
  return printAnswer(input, items, () => (items.length === 0 ? `${none}\n` : tableOf(items, columns)));
}

/** Items as a {@link textTable}; on a terminal no line is wider than the terminal. */
export function tableOf<T>(items: readonly T[], columns: Columns<T>): string {
  const rows = items.map((item) => Object.values(columns).map((cell) => cell(item)));
  return textTable(Object.keys(columns), rows, process.stdout.columns);
}

/** What a table can show; null is a dash. */
export type Cell = string | number | boolean | null;

/** Blanks between two columns. */
const GAP = 2;
/** Columns are made narrower for a narrow terminal down to the first width, and only where that is not enough to the next. */
const NARROWEST = [8, 4] as const;
const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?Z$/;
/** A hash: its beginning tells it from most others. */
const HASH = /^[0-9a-f]{12,128}$/;

/**
 * Text of unknown origin for a terminal: control characters are written out, also those that change the direction of the
 * text.
 */
export function visible(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, (character) => {
    const code = character.codePointAt(0) as number;
    return code < 0x100 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u{${code.toString(16)}}`;
  });
}

/** Lines of unknown origin for a terminal: {@link visible} but for line ends and tabs. */
export function visibleLines(text: string): string {
  return text.replace(/[^\n\t]+/g, visible);
}

/** A value as JSON for a terminal or a pipe; characters that a terminal would obey are escapes of JSON. */
export function jsonText(value: unknown): string {
  return `${terminalSafe(JSON.stringify(value ?? null, null, 2))}\n`;
}

/** A value as JSON on one line, without the newline. */
export function jsonLine(value: unknown): string {
  return terminalSafe(JSON.stringify(value));
}

function terminalSafe(json: string): string {
  return json.replace(/(?!\n)[\p{C}\p{Zl}\p{Zp}]/gu, (character) =>
    character.replace(/[\s\S]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
}

/**
 * Rows as an aligned table under their column names, numbers to the right; lines end with a newline. With a `width` UUIDs
 * are shown by {@link shortId} and times by {@link shownTime}, and columns are cut (`…`) until a line fits, hashes first,
 * then the widest; without one, in a pipe, nothing is cut.
 */
export function textTable(columns: readonly string[], rows: readonly (readonly Cell[])[], width?: number): string {
  const cells = [columns, ...rows].map((row) => row.map((cell) => cellText(cell, width !== undefined)));
  const natural = columns.map((_, column) => cells.reduce((most, row) => Math.max(most, row[column]?.length ?? 0), 0));
  const isHash = columns.map((_, column) => areHashes(rows, column));
  const widths = width === undefined ? natural : fitting(natural, width, isHash);
  const isNumber = columns.map(
    (_, column) =>
      rows.some((row) => typeof row[column] === "number") &&
      rows.every((row) => typeof row[column] === "number" || row[column] === null),
  );
  const line = (row: string[]) =>
    row.map((cell, column) => aligned(cell, widths[column] as number, isNumber[column] === true)).join(" ".repeat(GAP));
  return cells.map((row) => `${line(row).trimEnd()}\n`).join("");
}

/** Facts in two columns; those without a value are left out. */
export function factLines(facts: readonly (readonly [name: string, value: Cell])[]): string {
  const told = facts.filter(([, value]) => value !== null && value !== "");
  const width = Math.max(...told.map(([name]) => name.length));
  const lines = told.map(([name, value]) => {
    const [first = "", ...rest] = String(value).trimEnd().split("\n");
    return [`${name.padEnd(width)}  ${first}`, ...rest.map((line) => " ".repeat(width + 2) + line)].join("\n");
  });
  return visibleLines(`${lines.join("\n")}\n`);
}

/** How long something took: `0.4 s`, `12 s`, `3 min`, `2 h 5 min`, `4 d`. */
export function spanOf(ms: number): string {
  const seconds = Math.max(0, ms) / 1000;
  const minutes = Math.round(seconds / 60);
  const hours = Math.floor(minutes / 60);
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  if (hours === 0) return `${minutes} min`;
  if (hours < 48) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  return `${Math.round(hours / 24)} d`;
}

/** How long ago a moment was: `3 min ago`. */
export function ago(at: string, now = Date.now()): string {
  return `${spanOf(now - Date.parse(at))} ago`;
}

/** A time in UTC: whole in a pipe; on a terminal without seconds, and without the year where it is the present one. */
export function shownTime(at: string): string {
  if (!process.stdout.isTTY) return at;
  const hasYear = at.slice(0, 4) !== String(new Date().getUTCFullYear());
  return at.slice(hasYear ? 0 : 5, 16).replace("T", " ");
}

/** How people are shown an id: its last letters. Ids of neighbours begin with the same time. */
export function shortId(id: string): string {
  return id.slice(-8);
}

function cellText(cell: Cell, isShort: boolean): string {
  const text = cell === null ? "-" : String(cell);
  if (isShort && UUID.test(text)) return shortId(text);
  return isShort && TIME.test(text) ? shownTime(text) : visible(text);
}

function areHashes(rows: readonly (readonly Cell[])[], column: number): boolean {
  return rows.every((row) => (row[column] ?? "") === "" || HASH.test(String(row[column])));
}

function fitting(natural: readonly number[], width: number, isHash: readonly boolean[]): readonly number[] {
  const [least] = NARROWEST;
  const steps = [{ least, isCut: isHash }, ...NARROWEST.map((each) => ({ least: each, isCut: natural.map(() => true) }))];
  const room = width - GAP * (natural.length - 1);
  let widths = natural;
  for (const step of steps)
    for (let most = width; most >= step.least && widths.reduce((sum, one) => sum + one, 0) > room; most--)
      widths = widths.map((one, column) => (step.isCut[column] ? Math.min(one, most) : one));
  return widths;
}

function aligned(cell: string, width: number, right: boolean): string {
  const text = cell.length > width ? `${cell.slice(0, width - 1)}…` : cell;
  return right ? text.padStart(width) : text.padEnd(width);
}

const DIFF_COLOURS: Record<string, "red" | "green"> = { "-": "red", "+": "green" };

/** True where stdout is a terminal that shows colours, and its user wants them. */
export function hasColours(): boolean {
  return process.stdout.isTTY && !process.env.NO_COLOR && process.env.TERM !== "dumb";
}

/** Colours the diffs in a log, indented or not: removed lines red, added lines green, names of files bold. */
export function diffColours(text: string): string {
  return text.replace(/^( *)((?:@@ |[-+]).*)/gm, (_, indent: string, line: string) => {
    const style = /^(---|\+\+\+) /.test(line) ? "bold" : (DIFF_COLOURS[line.charAt(0)] ?? "cyan");
    return indent + styleText(style, line, { validateStream: false });
  });
}

/** Signals that come as close together are one Ctrl-C. */
const SAME_PRESS_MS = 250;

/** How a person asks a command to stop. */
export interface StopRequest extends Disposable {
  /** Aborted by the first INT, TERM or HUP. */
  signal: AbortSignal;
  /** Resolves at the second signal: the person does not want to wait any longer. */
  insisted: Promise<void>;
}

/**
 * Listens for INT, TERM and HUP until it is disposed of. A terminal sends Ctrl-C to every process of the command, and npm
 * and the wrapper send it again, so signals within a quarter of a second count as one. With `onHangUp`, HUP calls that and
 * does not ask to stop.
 */
export function stopRequest(onHangUp?: () => void): StopRequest {
  const controller = new AbortController();
  const { promise: insisted, resolve: insist } = Promise.withResolvers<void>();
  let first = 0;
  const onSignal = () => {
    if (first === 0) {
      first = performance.now();
      controller.abort();
    } else if (performance.now() - first > SAME_PRESS_MS) insist();
  };
  const handlers = { SIGINT: onSignal, SIGTERM: onSignal, SIGHUP: onHangUp ?? onSignal };
  for (const [name, handler] of Object.entries(handlers)) process.on(name, handler);
  return {
    signal: controller.signal,
    insisted,
    [Symbol.dispose]() {
      for (const [name, handler] of Object.entries(handlers)) process.removeListener(name, handler);
    },
  };
}
