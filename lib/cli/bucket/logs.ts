import { layoutOf, runLayout } from "../../bucket/base/layout.ts";
import { type LogEntry, type LogFilter, type LogLine, readLogs } from "../../bucket/base/logs.ts";
import { isUuid } from "../../codec/uuid.ts";
import { exists } from "../../core/files.ts";
import { jsonLine, visible } from "../base/table.ts";
import { toStdout } from "../base/terminal.ts";

/** How lines are shown: as they were written, for people, or as one JSON object a line. */
type LogForm = "raw" | "human" | "json";

/** Lines of one command that are held back, so that what runs at the same time does not mix; then they are shown. */
const HELD_LINES = 10_000;

/**
 * `ops logs`: the structured lines of a bucket that match, in the order of time; with `tail` only the last ones. They
 * come from `folder`, else from the folder of the run when the filter names exactly one, else from `logs/`.
 */
export async function logsCommand(
  dir: string,
  filter: LogFilter,
  options: { tail: number | undefined; folder: string | undefined; form: LogForm },
): Promise<number> {
  const lines = readLogs(options.folder ?? (await folderFor(dir, filter)), filter);
  const wanted = options.tail === undefined ? lines : await lastOf(lines, options.tail);
  const printer = new HumanLog((text) => toStdout(`${text}\n`));
  for await (const { text, entry } of wanted)
    if (options.form === "human") printer.line(entry);
    else toStdout(`${options.form === "json" ? jsonLine(entry) : visible(text)}\n`);
  printer.end();
  return 0;
}

async function folderFor(dir: string, { run = [] }: LogFilter): Promise<string> {
  const layout = layoutOf(dir);
  const [id = ""] = run;
  const { folder } = runLayout(layout, id);
  return run.length === 1 && isUuid(id) && (await exists(folder)) ? folder : layout.logs;
}

async function lastOf(lines: AsyncIterable<LogLine>, count: number): Promise<LogLine[]> {
  const last: LogLine[] = [];
  for await (const line of lines) {
    last.push(line);
    if (last.length > 2 * count) last.splice(0, last.length - count);
  }
  return count === 0 ? [] : last.slice(-count);
}

/** Groups lines under their run and keeps the output of one command together. */
export class HumanLog {
  readonly #print: (text: string) => void;
  readonly #open = new Map<string, string[]>();
  #run = "";

  constructor(print: (text: string) => void) {
    this.#print = print;
  }

  line(entry: LogEntry): void {
    this.#header(entry);
    const place = [entry.job, entry.worker].filter((one) => one !== undefined && one !== "-").join("@");
    const key = `${place} ${entry.phase ?? ""}`;
    if (entry.event === "command_begin") this.#open.set(key, [`${place} $ ${entry.cmd ?? entry.action ?? ""}`]);
    else if (entry.event === "command_end") this.#close(key, `${place} ${outcomeOf(entry)}`);
    else if (entry.stream !== undefined)
      this.#hold(key, `${place} ${entry.stream === "stderr" ? "!" : "|"} ${entry.msg ?? ""}`);
    else this.#show(textOf(entry, place));
  }

  /** Shows what is still held: commands whose end was not among the lines. */
  end(): void {
    for (const held of this.#open.values()) for (const text of held) this.#show(text);
    this.#open.clear();
  }

  #header(entry: LogEntry): void {
    if (entry.run === this.#run) return;
    this.end();
    this.#run = entry.run ?? "";
    const time = (entry.ts ?? "").slice(0, 19).replace("T", " ");
    const sequence = entry.seq === undefined ? "" : `  seq=${entry.seq}`;
    this.#print(visible(`${time}  ${entry.ops ?? ""}${sequence}  run=${this.#run.slice(0, 8)}`));
  }

  #hold(key: string, text: string): void {
    const held = this.#open.get(key);
    if (held && held.length < HELD_LINES) held.push(text);
    else this.#show(text);
  }

  #close(key: string, text: string): void {
    for (const held of this.#open.get(key) ?? []) this.#show(held);
    this.#open.delete(key);
    this.#show(text);
  }

  #show(text: string): void {
    this.#print(`  ${visible(text)}`);
  }
}

function outcomeOf({ exit, duration_ms: duration, reason }: LogEntry): string {
  const seconds = duration === undefined ? [] : [`${(Number(duration) / 1000).toFixed(1)} s`];
  const failed = exit === "0" ? [] : [...(exit === undefined ? [] : [`exit ${exit}`]), ...(reason ? [reason] : [])];
  return [exit === "0" ? "ok" : "FAIL", ...failed, ...seconds].join(", ");
}

function textOf(entry: LogEntry, place: string): string {
  const level = entry.level === "info" ? "" : `${entry.level}: `;
  const what = [entry.event, entry.action, entry.reason, entry.msg].filter((one) => one !== undefined).join(" ");
  return `${place === "" ? "" : `${place} `}${level}${what}`;
}
