import { layoutOf } from "../../bucket/base/layout.ts";
import type { LogEntry, LogFilter, LogLine } from "../../bucket/base/logs.ts";
import { Failure } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { bucketDir, EXIT, flagList, flagNumber, type Parsed, wantsJson } from "../base/flags.ts";
import { jsonLine, shortId, visible, written } from "../base/terminal.ts";
import { runLogLines } from "../server/run-logs.ts";

/** So many lines of one command are held back until the command ends: commands that run at the same time do not mix. */
const HELD_LINES = 10_000;

const FILTERS = ["worker", "run", "job", "phase", "event"] as const;

/** `ops logs`: the structured lines of a bucket that match, in the order of time. */
export async function logsCommand(input: Parsed): Promise<number> {
  const { filter, tail } = wantedLogs(input);
  const given = input.values.get("run-dir");
  const folder = given === undefined ? undefined : realPlace(given);
  return await printLogs(input, runLogLines(layoutOf(bucketDir(input)), { filter, tail, folder }));
}

/** Which lines the flags of `ops logs` ask for. Throws `usage`. */
export function wantedLogs(input: Parsed): { filter: LogFilter; tail: number | undefined } {
  if (input.switches.has("follow"))
    throw new Failure("usage", "--follow goes with a job: `ops logs <job> --follow` (see `ops logs --help`)");
  const format = input.values.get("format") ?? "human";
  if (format !== "human" && format !== "raw")
    throw new Failure("usage", `--format: expected human or raw, found ${quote(format)}`);
  const given = FILTERS.map((name) => [name, flagList(input, name)] as const);
  return { filter: Object.fromEntries(given.filter(([, values]) => values !== undefined)), tail: flagNumber(input, "tail") };
}

/** Prints lines in the form that the flags of `ops logs` ask for, as fast as they are read, until nobody reads any more. */
export async function printLogs(input: Parsed, lines: AsyncIterable<LogLine>): Promise<number> {
  let shown = "";
  const show = (text: string) => {
    shown += `${text}\n`;
  };
  const human = humanLog(show);
  for await (const { text, entry } of lines) {
    if (wantsJson(input)) show(jsonLine(entry));
    else if (input.values.get("format") === "raw") show(visible(text));
    else human.line(entry);
    if (shown !== "" && !(await written(shown))) return EXIT.done;
    shown = "";
  }
  human.end();
  await written(shown);
  return EXIT.done;
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
