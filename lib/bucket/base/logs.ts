import { appendFileSync, closeSync, fstatSync, mkdirSync, renameSync } from "node:fs";
import path from "node:path";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { APPEND, namesIn, openRegular, openRegularSync, PRIVATE_FOLDER } from "../../core/files.ts";
import { byteSize } from "../../core/plain-text.ts";
import { LOG_SHARE, limitOf } from "../../core/process.ts";
import type { Redactor } from "../../core/redact.ts";
import { isObject, parsedJson } from "../../core/shape.ts";
import { linesOf } from "../../core/streams.ts";
import { type Layout, runLayout } from "./layout.ts";
import { type About, type LinePlace, prefixOf } from "./line-place.ts";

/** The fields of one structured line; a field that is undefined is left out. */
interface LogFields {
  event?: string;
  worker?: string;
  job?: string;
  /** The command is the phase of a line that names none. */
  phase?: string;
  action?: string;
  /** What was run; only the first 200 characters are written. */
  cmd?: string;
  stream?: "stdout" | "stderr";
  exit?: number;
  duration_ms?: number;
  reason?: string;
  msg?: string;
}

/** The order of the fields in a line. */
const ORDER = [
  ...["ts", "level", "event", "run", "ops", "seq", "worker", "job", "phase", "action"],
  ...["cmd", "stream", "exit", "duration_ms", "reason", "msg"],
];

type Level = "info" | "warn" | "error";
type StreamField = Required<Pick<LogFields, "stream">>;

/** The fields that may quote people or programs; all others hold names, or words of ops. */
const TEXTS = ["cmd", "reason", "msg"] as const;
const CMD_LENGTH = 200;
const ROTATE_BYTES = 32 * 1024 * 1024;
/** How much of a worker's name the name of its log has: with `.log.1` that makes the 255 characters that file systems take. */
const LONGEST_NAME = 249;

interface RunLogOptions {
  layout: Layout;
  runId: string;
  command: string;
  redactor: Redactor;
  /** Appends text of one place to Activity. */
  activity: (text: string, place: LinePlace) => void;
  /** How structured lines look (`log_format` of ops.conf). */
  format: "kv" | "json";
  /** How many bytes of each worker's output go to the run's copy of its log (`run_output_limit`); all without it. */
  outputLimit?: number;
}

/**
 * Where a run says what happens. Every text passes the redactor first; fields that hold names do not. Activity gets
 * lines for people; `logs/<worker>.log` or `logs/ops.log`, each with a copy in the run's folder, get structured lines
 * (hook-runtime.md, Script rules 1). Every method throws `failed` where a line cannot be written, on a full disk say: a
 * run that nobody could follow must not go on.
 */
export class RunLog {
  /** For secrets that turn up while the run goes on. */
  readonly redactor: Redactor;
  readonly #options: RunLogOptions;
  readonly #open = new Map<string, { descriptor: number; size: number }>();
  readonly #mostOpen = Math.max(2, LOG_SHARE * limitOf("open files"));
  /** What each worker's output has taken, and how much of the output was left out. */
  readonly #outputs = new Map<string, { written: number; leftOut: number }>();
  /** The deploy's update sequence, once there is one. */
  updateSeq: number | undefined;

  constructor(options: RunLogOptions) {
    this.#options = options;
    this.redactor = options.redactor;
  }

  /** A sentence for people, in Activity and in ops.log. `about` is the place of all its lines. */
  info(message: string, about?: About): void {
    this.#tell(message, "", "info", about);
  }

  /** Like `info`: from here on a batch of the job is put back. */
  restores(message: string, about: About): void {
    this.#print(this.redactor.sentence(message), { ...about, stream: "restore" });
    this.record({ msg: message });
  }

  /** Like `info`, marked as a warning. */
  warn(message: string, about?: About): void {
    this.#tell(message, "warning: ", "warn", about);
  }

  /** Like `info`, marked as an error. */
  error(message: string, about?: About): void {
    this.#tell(message, "error: ", "error", about);
  }

  /**
   * A line of output of a command on a worker: `worker | text`, or `job@worker | text` of one that acts for a job. Where
   * the worker's output has reached the limit, the line is only counted.
   */
  output(job: string | undefined, worker: string, line: string, fields: LogFields & StreamField): void {
    const output = this.#outputs.get(worker) ?? { written: 0, leftOut: 0 };
    this.#outputs.set(worker, output);
    const { outputLimit = Number.POSITIVE_INFINITY } = this.#options;
    if (output.written < outputLimit) {
      output.written += this.#show({ ...fields, worker, job, msg: this.redactor.apply(line) });
      return;
    }
    if (output.leftOut === 0) this.#tellLimit(worker, `from here on this worker's output is left out`);
    output.leftOut += Buffer.byteLength(line) + 1;
  }

  /** Says for each worker how much of its output was left out. Call it when the last output has come. */
  endOutput(): void {
    for (const [worker, { leftOut }] of this.#outputs)
      if (leftOut > 0) this.#tellLimit(worker, `${byteSize(leftOut)} more of this worker's output were left out`);
    this.#outputs.clear();
  }

  /** A sentence of ops about a job on a worker, among the output of that job. */
  remark(job: string, worker: string, sentence: string, fields: LogFields & StreamField): void {
    this.#show({ ...fields, worker, job, msg: this.redactor.sentence(sentence) });
  }

  /** A structured line only; for a worker when the fields name one, else for the bucket. */
  record(fields: LogFields, level: Level = "info"): void {
    const masked = { ...fields };
    // Before the fields are quoted: the redactor does not know a secret that is quoted twice.
    for (const name of TEXTS) if (masked[name] !== undefined) masked[name] = this.redactor.sentence(masked[name]);
    this.#write(masked, level);
  }

  /** Closes the files; a later line opens them again. */
  close(): void {
    for (const { descriptor } of this.#open.values()) closeSync(descriptor);
    this.#open.clear();
  }

  #tell(message: string, mark: string, level: Level, { job, worker }: About = {}): void {
    this.#print(this.redactor.sentence(mark + message), { job, worker, stream: level === "error" ? "error" : "ops" });
    this.record({ msg: message }, level);
  }

  #tellLimit(worker: string, sentence: string): void {
    this.#show({ worker, stream: "stderr", msg: `… ${sentence} (run_output_limit)` });
  }

  /** A text that is masked already, with the job and the worker that it is about. Answers the length of the log's line. */
  #show(fields: LogFields & StreamField & { msg: string }): number {
    // Each line has its prefix: so a reader knows which lines are of the place, whatever they say.
    const prefix = prefixOf(fields);
    this.#print(prefix + fields.msg.replaceAll("\n", `\n${prefix}`), fields);
    return this.#write(fields, "info");
  }

  #write(fields: LogFields, level: Level): number {
    const { layout, runId } = this.#options;
    // `ops` and `activity` are other logs. A `_` keeps workers apart from them: no worker's name begins with one.
    const own = fields.worker?.slice(0, LONGEST_NAME).replace(/^(ops|activity)$/i, "_$1");
    const file = `${own ?? "ops"}.log`;
    const line = Buffer.from(this.#line(fields, level));
    this.#append(path.join(runLayout(layout, runId).folder, file), line, Number.POSITIVE_INFINITY);
    this.#append(path.join(layout.logs, file), line, ROTATE_BYTES);
    return line.length;
  }

  #append(file: string, line: Buffer, limit: number): void {
    try {
      let open = this.#open.get(file) ?? this.#openFile(file);
      if (open.size >= limit) {
        this.#open.delete(file);
        closeSync(open.descriptor);
        renameSync(file, `${file}.1`);
        open = this.#openFile(file);
      }
      appendFileSync(open.descriptor, line);
      open.size += line.length;
    } catch (cause) {
      throw new Failure("failed", `Cannot write ${file}: ${messageOf(cause)}`, { cause });
    }
  }

  #openFile(file: string): { descriptor: number; size: number } {
    mkdirSync(path.dirname(file), { recursive: true, mode: PRIVATE_FOLDER });
    const [oldest] = this.#open;
    if (oldest && this.#open.size >= this.#mostOpen) {
      this.#open.delete(oldest[0]);
      closeSync(oldest[1].descriptor);
    }
    const descriptor = openRegularSync(file, APPEND);
    const open = { descriptor, size: fstatSync(descriptor).size };
    this.#open.set(file, open);
    return open;
  }

  #print(text: string, place: LinePlace): void {
    const { layout, runId, activity } = this.#options;
    try {
      activity(`${text}\n`, place);
    } catch (cause) {
      throw new Failure("failed", `Cannot write ${runLayout(layout, runId).activity}: ${messageOf(cause)}`, { cause });
    }
  }

  #line(fields: LogFields, level: Level): string {
    const { runId, command, format } = this.#options;
    const own = { ts: new Date().toISOString(), level, run: runId, ops: command, seq: this.updateSeq };
    const { worker = "-", phase = command, cmd } = fields;
    const all: Record<string, unknown> = { ...fields, ...own, worker, phase, cmd: cmd?.slice(0, CMD_LENGTH) };
    const present = ORDER.filter((name) => all[name] !== undefined && all[name] !== "");
    if (format === "json") return `${JSON.stringify(all, present)}\n`;
    return `${present.map((name) => `${name}=${quoted(String(all[name]))}`).join(" ")}\n`;
  }
}

function quoted(value: string): string {
  return /[\s="]/.test(value) ? JSON.stringify(value) : value;
}

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
  return text.startsWith("{") ? parseJsonLine(text) : parsePairs(text);
}

function parseJsonLine(text: string): LogEntry | undefined {
  const value = parsedJson(text);
  if (!isObject(value) || typeof value.ts !== "string") return undefined;
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, String(field)]));
}

function parsePairs(text: string): LogEntry | undefined {
  const pair = /(\w+)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?: |$)/y;
  const entry: LogEntry = {};
  while (pair.lastIndex < text.length) {
    const [, name = "", value = ""] = pair.exec(text) ?? [];
    if (name === "") return undefined;
    entry[name] = value.startsWith('"') ? String(parsedJson(value) ?? value) : value;
  }
  return entry.ts === undefined ? undefined : entry;
}

/**
 * True for an entry that matches every field of the filter. A run matches by the beginning or the end of its id, the other
 * fields as a whole or up to a boundary: `10.0` stands for `10.0.0.7`, and `10.0.0.1` does not stand for `10.0.0.17`.
 */
export function matchesLog(entry: LogEntry, filter: LogFilter): boolean {
  const matches = (name: string, wanted: string) => {
    const field = entry[name] ?? "";
    const rest = field.slice(wanted.length);
    if (name === "run") return field.startsWith(wanted) || field.endsWith(wanted);
    return field.startsWith(wanted) && (rest === "" || /^[^\p{L}\p{N}]/u.test(rest));
  };
  return Object.entries(filter).every(([name, values]) => values.some((wanted) => matches(name, wanted)));
}

/**
 * The matching lines of all logs in a folder (`ops.log` and one for each worker, the rotated ones before), in the order
 * of their times. Nothing where there is no folder.
 */
export async function* readLogs(folder: string, filter: LogFilter): AsyncGenerator<LogLine> {
  const names = (await namesIn(folder)).filter((name) => /\.log$/.test(name) && name !== "activity.log");
  // Sorted, so that lines of one moment always come in the same order.
  const logs = names.sort().map((name) => matchingLines(folder, name, filter));
  const heads = new Map<(typeof logs)[0], LogLine>();
  const advance = async (log: (typeof logs)[0]) => {
    const { done, value } = await log.next();
    if (done) heads.delete(log);
    else heads.set(log, value);
  };
  for (const log of logs) await advance(log);
  while (heads.size > 0) {
    const [log, line] = [...heads].reduce((first, one) => (timeOf(one[1]) < timeOf(first[1]) ? one : first));
    yield line;
    await advance(log);
  }
}

function timeOf({ entry }: LogLine): string {
  return entry.ts ?? "";
}

async function* matchingLines(folder: string, name: string, filter: LogFilter): AsyncGenerator<LogLine, void> {
  for (const file of [`${name}.1`, name])
    for await (const text of fileLines(path.join(folder, file))) {
      const entry = parseLogLine(text);
      if (entry && matchesLog(entry, filter)) yield { text, entry };
    }
}

async function* fileLines(file: string): AsyncGenerator<string> {
  try {
    await using handle = await openRegular(file);
    yield* linesOf(handle.createReadStream({ autoClose: false }));
  } catch (error) {
    if (!hasErrno(error, "ENOENT")) throw error;
  }
}
