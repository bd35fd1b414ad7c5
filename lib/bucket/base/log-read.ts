import path from "node:path";
import { createInterface } from "node:readline";
import { hasErrno } from "../../core/errors.ts";
import { namesIn, openRegular } from "../../core/files.ts";
import { isObject } from "../../core/shape.ts";

/** One structured line, field by field, as it was written. */
export type LogEntry = Record<string, string>;

/** Which lines are wanted: those that match one of the values in every field that is given. */
export type LogFilter = Partial<Record<"worker" | "run" | "job" | "phase" | "event", readonly string[]>>;

/** A line with what it says. */
export interface LogLine {
  text: string;
  entry: LogEntry;
}

/** Reads a structured line of either `log_format`; undefined for anything else, such as a line cut by a crash. */
export function parseLogLine(text: string): LogEntry | undefined {
  return text.startsWith("{") ? parseJson(text) : parsePairs(text);
}

function parseJson(text: string): LogEntry | undefined {
  try {
    const value: unknown = JSON.parse(text);
    if (!isObject(value) || typeof value.ts !== "string") return undefined;
    return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, String(field)]));
  } catch {
    return undefined;
  }
}

function parsePairs(text: string): LogEntry | undefined {
  const pair = /(\w+)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?: |$)/y;
  const entry: LogEntry = {};
  while (pair.lastIndex < text.length) {
    const [, name = "", value = ""] = pair.exec(text) ?? [];
    if (name === "") return undefined;
    entry[name] = value.startsWith('"') ? unquoted(value) : value;
  }
  return entry.ts === undefined ? undefined : entry;
}

function unquoted(value: string): string {
  try {
    return String(JSON.parse(value));
  } catch {
    return value;
  }
}

/**
 * A run matches by the beginning of its id; the other fields as a whole or up to a boundary, so that `10.0` stands for
 * `10.0.0.7` and `10.0.0.1` not for `10.0.0.17`.
 */
export function matchesLog(entry: LogEntry, filter: LogFilter): boolean {
  return Object.entries(filter).every(([name, values]) =>
    values.some((value) => matches(entry[name] ?? "", value, name === "run")),
  );
}

function matches(field: string, value: string, anyPrefix: boolean): boolean {
  if (!field.startsWith(value)) return false;
  return anyPrefix || field.length === value.length || /^[^\p{L}\p{N}]/u.test(field.slice(value.length));
}

/**
 * The matching lines of all logs in a folder (`ops.log` and one for each worker, the rotated ones before), in the order
 * of their times. Nothing where there is no folder.
 */
export async function* readLogs(folder: string, filter: LogFilter): AsyncGenerator<LogLine> {
  const names = (await namesIn(folder)).filter((name) => /\.log$/.test(name) && name !== "activity.log");
  // Sorted, so that lines of one moment always come in the same order.
  const logs = names.sort().map((name) => linesOf(folder, name, filter));
  const heads = await Promise.all(logs.map((log) => log.next()));
  for (;;) {
    let first = -1;
    for (const [index, head] of heads.entries())
      if (!head.done && (first < 0 || timeOf(head) < timeOf(heads[first]))) first = index;
    const head = heads[first];
    if (!head || head.done) return;
    yield head.value;
    heads[first] = await (logs[first] as AsyncGenerator<LogLine>).next();
  }
}

function timeOf(head: IteratorResult<LogLine> | undefined): string {
  return head && !head.done ? (head.value.entry.ts ?? "") : "";
}

async function* linesOf(folder: string, name: string, filter: LogFilter): AsyncGenerator<LogLine> {
  for (const file of [`${name}.1`, name])
    for await (const text of linesOfFile(path.join(folder, file))) {
      const entry = parseLogLine(text);
      if (entry && matchesLog(entry, filter)) yield { text, entry };
    }
}

async function* linesOfFile(file: string): AsyncGenerator<string> {
  try {
    await using handle = await openRegular(file);
    const input = handle.createReadStream({ autoClose: false });
    yield* createInterface({ input, crlfDelay: Number.POSITIVE_INFINITY });
  } catch (error) {
    if (!hasErrno(error, "ENOENT")) throw error;
  }
}
