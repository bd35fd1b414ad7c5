import { type Layout, layoutOf, runLayout } from "../../bucket/base/layout.ts";
import { type LogEntry, type LogFilter, type LogLine, readLogs } from "../../bucket/base/logs.ts";
import { isUuid } from "../../codec/uuid.ts";
import { Failure } from "../../core/errors.ts";
import { exists, realPlace } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { runNamed } from "../../run/record.ts";
import { bucketDir, flagList, flagNumber, type Parsed, wantsJson } from "../base/flags.ts";
import { jsonLine, shortId, toStdout, visible } from "../base/terminal.ts";

/** So many lines of one command are held back until the command ends: commands that run at the same time do not mix. */
const HELD_LINES = 10_000;

const FILTERS = ["worker", "run", "job", "phase", "event"] as const;

/**
 * `ops logs`: the structured lines of a bucket that match, in the order of time; with `--tail` only the last ones. They
 * come from `--run-dir`, else from the folder of the run when the filter names exactly one, else from `logs/`.
 */
export async function logsCommand(input: Parsed): Promise<number> {
  const format = input.values.get("format") ?? "human";
  if (format !== "human" && format !== "raw")
    throw new Failure("usage", `--format: expected human or raw, found ${quote(format)}`);
  const given = FILTERS.map((name) => [name, flagList(input, name)] as const);
  const filter: LogFilter = Object.fromEntries(given.filter(([, values]) => values !== undefined));
  const lines = readLogs(await folderFor(input, filter), filter);
  const tail = flagNumber(input, "tail");
  const human = humanLog((text) => toStdout(`${text}\n`));
  let isEmpty = true;
  for await (const { text, entry } of tail === undefined ? lines : await lastOf(lines, tail)) {
    isEmpty = false;
    if (wantsJson(input)) toStdout(`${jsonLine(entry)}\n`);
    else if (format === "raw") toStdout(`${visible(text)}\n`);
    else human.line(entry);
  }
  human.end();
  // The ids of runs that exist are whole by now.
  const unknown = isEmpty && tail !== 0 ? filter.run?.find((run) => !isUuid(run)) : undefined;
  if (unknown !== undefined) throw new Failure("run_not_found", `there is no run ${quote(unknown)}`);
  return 0;
}

/** The id of a run. A run whose folder is gone may still have lines in `logs/`. */
async function runOf(layout: Layout, given: string): Promise<string> {
  return runNamed(layout, given).catch((error: unknown) => {
    if (error instanceof Failure && error.code === "run_not_found") return given;
    throw error;
  });
}

/** The folder of the logs; runs in the filter get their whole ids. */
async function folderFor(input: Parsed, filter: LogFilter): Promise<string> {
  const given = input.values.get("run-dir");
  if (given !== undefined) return realPlace(given);
  const layout = layoutOf(bucketDir(input));
  if (filter.run) filter.run = await Promise.all(filter.run.map((run) => runOf(layout, run)));
  const [id = "", ...others] = filter.run ?? [];
  const { folder } = runLayout(layout, id);
  return others.length === 0 && isUuid(id) && (await exists(folder)) ? folder : layout.logs;
}

async function lastOf(lines: AsyncIterable<LogLine>, count: number): Promise<LogLine[]> {
  const last: LogLine[] = [];
  for await (const line of lines) {
    last.push(line);
    if (last.length > 2 * count) last.splice(0, last.length - count);
  }
  return count === 0 ? [] : last.slice(-count);
}

/**
 * Prints lines under a header for each run and keeps the output of one command together. `end` prints what is still held:
 * commands whose end was not among the lines.
 */
export function humanLog(print: (text: string) => void): { line(entry: LogEntry): void; end(): void } {
  /** The lines of commands that have begun, by place and phase. */
  const open = new Map<string, string[]>();
  let run = "";
  const show = (text: string) => print(`  ${visible(text)}`);
  const end = () => {
    for (const text of [...open.values()].flat()) show(text);
    open.clear();
  };
  const header = (entry: LogEntry) => {
    end();
    run = entry.run ?? "";
    const time = (entry.ts ?? "").slice(0, 19).replace("T", " ");
    const sequence = entry.seq === undefined ? "" : `  seq=${entry.seq}`;
    print(visible(`${time}  ${entry.ops ?? ""}${sequence}  run=${shortId(run)}`));
  };
  const line = (entry: LogEntry) => {
    if (entry.run !== run) header(entry);
    const place = [entry.job, entry.worker].filter((one) => one !== undefined && one !== "-").join("@");
    const key = `${place} ${entry.phase ?? ""}`;
    const held = open.get(key) ?? [];
    if (entry.event === "command_begin") open.set(key, [`${place} $ ${entry.cmd ?? entry.action ?? ""}`]);
    else if (entry.event === "command_end") {
      for (const text of [...held, `${place} ${commandOutcome(entry)}`]) show(text);
      open.delete(key);
    } else if (entry.stream !== undefined) {
      const text = `${place} ${entry.stream === "stderr" ? "!" : "|"} ${entry.msg ?? ""}`;
      if (held.length > 0 && held.length < HELD_LINES) held.push(text);
      else show(text);
    } else show(eventText(entry, place));
  };
  return { line, end };
}

function commandOutcome({ exit, duration_ms: duration, reason }: LogEntry): string {
  const seconds = duration === undefined ? [] : [`${(Number(duration) / 1000).toFixed(1)} s`];
  const failed = exit === "0" ? [] : [...(exit === undefined ? [] : [`exit ${exit}`]), ...(reason ? [reason] : [])];
  return [exit === "0" ? "ok" : "FAIL", ...failed, ...seconds].join(", ");
}

function eventText(entry: LogEntry, place: string): string {
  const level = entry.level === "info" ? "" : `${entry.level}: `;
  const what = [entry.event, entry.action, entry.reason, entry.msg].filter((one) => one !== undefined).join(" ");
  return `${place === "" ? "" : `${place} `}${level}${what}`;
}
