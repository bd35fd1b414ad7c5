import { layoutOf } from "../../bucket/base/layout.ts";
import { cancelledFailure, Failure, throwIfCancelled } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { Launcher } from "../../core/spawn.ts";
import { linesOf } from "../../core/streams.ts";
import type { WantedJobLogs } from "../../operation/tend/job-logs.ts";
import { LogReadings } from "../../server/log-readings.ts";
import { bucketDir, EXIT, flagList, flagNumber, type Parsed, wantsJson, withoutServerVariables } from "../base/flags.ts";
import { jsonLine, stopRequest, toStderr, visible, written } from "../base/terminal.ts";

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
  const task = { name: "job_logs", bucketDir: layoutOf(bucketDir(input)).root, bucketId: "", input: wanted } as const;
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
  signal.addEventListener("abort", () => reject(cancelledFailure()), { once: true });
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
