import { layoutOf } from "../../bucket/base/layout.ts";
import type { LogEntry, LogFilter, LogLine } from "../../bucket/base/logs.ts";
import { cancelledFailure, Failure, throwIfCancelled } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { Launcher } from "../../core/spawn.ts";
import { linesOf } from "../../core/streams.ts";
import type { WantedJobLogs } from "../../operation/tend/job-logs.ts";
import { LogReadings } from "../../server/log-readings.ts";
import { bucketDir, EXIT, flagList, flagNumber, type Parsed, wantsJson, withoutServerVariables } from "../base/flags.ts";
import { jsonLine, shortId, stopRequest, toStderr, visible, written } from "../base/terminal.ts";
import { runLogLines } from "../server/run-logs.ts";
import { initialisedBucket } from "./bucket.ts";

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

/** What is about the lines of runs alone. */
const OF_RUNS: readonly string[] = ["run", "job", "phase", "event", "run-dir", "format"];
const TAIL = 100;
/** The most lines of a log. */
const MOST_LINES = 1_000_000;

/** `ops logs <job>`: what a job logs on its workers. A process of its own reads, as on a server. */
export async function jobLogsCommand(input: Parsed): Promise<number> {
  const wanted = wantedJobLogs(input);
  using stop = stopRequest();
  // The other process ends by itself when this one is gone.
  void stop.insisted.then(() => process.exit(EXIT.cancelled));
  const readings = new LogReadings(new Launcher(withoutServerVariables(process.env)));
  const { root } = await initialisedBucket(bucketDir(input));
  const task = { name: "job_logs", bucketDir: root, bucketId: "", input: wanted } as const;
  try {
    const { read } = await readings.pieces(task, stop.signal);
    return await printJobLogs(input, linesOf(read()), stop.signal);
  } finally {
    await readings.closed();
  }
}

/**
 * Prints the lines that `readJobLogs` tells, as fast as they are read, until nobody reads any more. Answers the exit code of
 * the command. Throws `cancelled`, also while nobody reads, and `failed` where the last line does not come.
 */
export async function printJobLogs(input: Parsed, lines: AsyncIterable<string>, signal: AbortSignal): Promise<number> {
  throwIfCancelled(signal);
  const printer = new JobLogPrinter(wantsJson(input));
  const print = async () => {
    for await (const line of lines) if (!(await printer.take(line))) return printer.exitCode;
    if (printer.hasEnded) return printer.exitCode;
    throw new Failure("failed", "the server's answer was cut");
  };
  const { promise: cancelled, reject } = Promise.withResolvers<never>();
  signal.addEventListener("abort", () => reject(cancelledFailure()));
  return await Promise.race([print(), cancelled]);
}

/** What the words of `ops logs <job>` ask for. Throws `usage` for flags that go without a job. */
export function wantedJobLogs(input: Parsed): WantedJobLogs {
  const other = OF_RUNS.find((name) => input.values.has(name));
  if (other !== undefined)
    throw new Failure("usage", `--${other} goes without a job: it is about the lines of runs (see \`ops logs --help\`)`);
  const tail = flagNumber(input, "tail") ?? TAIL;
  if (tail > MOST_LINES) throw new Failure("usage", `--tail: expected at most ${MOST_LINES}, found ${quote(String(tail))}`);
  return { job: input.operands[0] ?? "", workers: flagList(input, "worker"), tail, follow: input.switches.has("follow") };
}

/** Prints the lines one by one: of one worker without its name, or as JSON; errors on stderr. */
class JobLogPrinter {
  /** The command's, once the last line has come. */
  exitCode: number = EXIT.done;
  readonly #asJson: boolean;
  /** True once the last line has come. */
  hasEnded = false;
  #isOne = false;

  constructor(asJson: boolean) {
    this.#asJson = asJson;
  }

  /** Prints a line, which comes without its newline, and answers whether somebody reads. */
  async take(line: string): Promise<boolean> {
    const [word = ""] = line.split(" ", 1);
    const rest = line.slice(word.length + 1);
    if (word === "asked:") this.#isOne = !rest.includes(" ");
    else if (word === "end:") [this.hasEnded, this.exitCode] = [true, rest === "0" ? EXIT.done : EXIT.failed];
    else if (word === "error:") toStderr(`ops: ${rest}\n`);
    else if (word !== "alive:") return await written(`${this.#shown(word, rest)}\n`);
    return true;
  }

  #shown(worker: string, rest: string): string {
    const text = rest.slice(2);
    if (this.#asJson) return jsonLine({ worker, stream: rest.startsWith("!") ? "stderr" : "stdout", text });
    return visible(this.#isOne ? text : `${worker} ${rest}`);
  }
}
