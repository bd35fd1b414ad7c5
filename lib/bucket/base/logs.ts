import { appendFileSync, closeSync, fstatSync, mkdirSync, renameSync } from "node:fs";
import path from "node:path";
import { Failure, messageOf } from "../../core/errors.ts";
import { APPEND, openRegularSync, PRIVATE_FOLDER } from "../../core/files.ts";
import type { Redactor } from "../../core/redact.ts";
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
