import { appendFileSync, closeSync, fstatSync, mkdirSync, renameSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { Failure, hasErrno, messageOf } from "../../core/errors.ts";
import { APPEND, namesIn, openRegular, openRegularSync, PRIVATE_FOLDER } from "../../core/files.ts";
import type { Redactor } from "../../core/redact.ts";
import { isObject } from "../../core/shape.ts";
import { type Layout, runLayout } from "./layout.ts";

/** The fields of one structured line, in the order they are written; what is undefined is left out. */
interface LogFields {
  event?: string;
  worker?: string;
  job?: string;
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

type Level = "info" | "warn" | "error";
type StreamField = Required<Pick<LogFields, "stream">>;

/** The fields that may quote people or programs; all others hold names, or words of ops. */
const TEXTS = ["cmd", "reason", "msg"] as const;
const CMD_LENGTH = 200;
const ROTATE_BYTES = 32 * 1024 * 1024;

interface RunLogOptions {
  layout: Layout;
  runId: string;
  command: string;
  redactor: Redactor;
  activity: (text: string) => void;
  /** How structured lines look (`log_format` of ops.conf). */
  format: "kv" | "json";
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
  /** The deploy's update sequence, once there is one. */
  updateSeq: number | undefined;

  constructor(options: RunLogOptions) {
    this.#options = options;
    this.redactor = options.redactor;
  }

  /** A sentence for people, in Activity and in ops.log. */
  info(message: string): void {
    this.#say(message);
    this.record({ msg: message });
  }

  /** Like `info`, marked as a warning. */
  warn(message: string): void {
    this.#say(`warning: ${message}`);
    this.record({ msg: message }, "warn");
  }

  /** Like `info`, marked as an error. */
  error(message: string): void {
    this.#say(`error: ${message}`);
    this.record({ msg: message }, "error");
  }

  /** A line of output of a command on a worker: `worker | text`, or `job@worker | text` of one that acts for a job. */
  output(
    job: string | undefined,
    worker: string,
    line: string,
    stream: "stdout" | "stderr",
    fields: LogFields = {},
  ): void {
    this.#show(job, worker, this.redactor.apply(line), { ...fields, stream });
  }

  /** A sentence of ops about a job on a worker, among the output of that job. */
  remark(job: string, worker: string, sentence: string, fields: LogFields & StreamField): void {
    this.#show(job, worker, this.redactor.sentence(sentence), fields);
  }

  /** A structured line only; for a worker when the fields name one, else for the bucket. */
  record(fields: LogFields, level: Level = "info"): void {
    this.#write(this.#masked(fields), level);
  }

  /** A text that is masked already, with the job and the worker that it is about. */
  #show(job: string | undefined, worker: string, text: string, fields: LogFields & StreamField): void {
    const place = job === undefined ? worker : `${job}@${worker}`;
    this.#print(`${place} ${fields.stream === "stderr" ? "!" : "|"} ${text}`);
    this.#write({ ...fields, worker, ...(job !== undefined && { job }), msg: text }, "info");
  }

  #write(fields: LogFields, level: Level): void {
    const file = fields.worker === undefined ? "ops.log" : `${fields.worker.replaceAll(":", "_")}.log`;
    const line = Buffer.from(this.#line(fields, level));
    this.#append(
      path.join(runLayout(this.#options.layout, this.#options.runId).folder, file),
      line,
      Number.POSITIVE_INFINITY,
    );
    this.#append(path.join(this.#options.layout.logs, file), line, ROTATE_BYTES);
  }

  /** Closes the files; a later line opens them again. */
  close(): void {
    for (const { descriptor } of this.#open.values()) closeSync(descriptor);
    this.#open.clear();
  }

  /** Before the fields are quoted: what is quoted twice is no form of a secret that the redactor knows. */
  #masked(fields: LogFields): LogFields {
    const texts = TEXTS.flatMap((name) => {
      const text = fields[name];
      return text === undefined ? [] : [[name, this.redactor.sentence(text)]];
    });
    return { ...fields, ...Object.fromEntries(texts) };
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
    const descriptor = openRegularSync(file, APPEND);
    const open = { descriptor, size: fstatSync(descriptor).size };
    this.#open.set(file, open);
    return open;
  }

  #say(message: string): void {
    this.#print(this.redactor.sentence(message));
  }

  #print(text: string): void {
    try {
      this.#options.activity(`${text}\n`);
    } catch (cause) {
      throw new Failure("failed", `Cannot write the run's Activity: ${messageOf(cause)}`, { cause });
    }
  }

  #line(fields: LogFields, level: string): string {
    const { event, worker, msg, ...rest } = fields;
    const all = {
      ts: new Date().toISOString(),
      level,
      event,
      run: this.#options.runId,
      ops: this.#options.command,
      seq: this.updateSeq,
      worker: worker ?? "-",
      job: rest.job,
      phase: rest.phase,
      action: rest.action,
      cmd: rest.cmd?.slice(0, CMD_LENGTH),
      stream: rest.stream,
      exit: rest.exit,
      duration_ms: rest.duration_ms,
      reason: rest.reason,
      msg,
    };
    const present = Object.entries(all).filter(([, value]) => value !== undefined && value !== "");
    if (this.#options.format === "json") return `${JSON.stringify(Object.fromEntries(present))}\n`;
    return `${present.map(([key, value]) => `${key}=${quoted(String(value))}`).join(" ")}\n`;
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
