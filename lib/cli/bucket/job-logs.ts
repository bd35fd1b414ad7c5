import { layoutOf } from "../../bucket/base/layout.ts";
import { Failure, hasErrno } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { Launcher } from "../../core/spawn.ts";
import { readJobLogs, type WantedJobLogs } from "../../operation/tend/job-logs.ts";
import { bucketDir, EXIT, flagList, flagNumber, type Parsed, wantsJson, withoutServerVariables } from "../base/flags.ts";
import { jsonLine, stopRequest, toStderr, visible, writeWhole } from "../base/terminal.ts";

/** What is about the lines of runs alone. */
const OF_RUNS: readonly string[] = ["run", "job", "phase", "event", "run-dir", "format"];
const TAIL = 100;
/** The most lines of a log. */
const MOST_LINES = 1_000_000;

/** `ops logs <job>`: what a job logs on its workers. */
export async function jobLogsCommand(input: Parsed): Promise<number> {
  const wanted = wantedJobLogs(input);
  using stop = stopRequest();
  const launcher = new Launcher(withoutServerVariables(process.env));
  void stop.insisted.then(() => launcher.endAll(0));
  const printer = new JobLogPrinter(wantsJson(input));
  const context = { layout: layoutOf(bucketDir(input)), launcher, signal: stop.signal };
  try {
    await readJobLogs(context, wanted, (line) => printer.take(line));
  } catch (error) {
    // The reader has gone away (`| head`).
    if (!hasErrno(error, "EPIPE")) throw error;
  }
  return printer.exitCode;
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

/** Prints the lines that {@link readJobLogs} tells; of one worker without its name, or as JSON; errors on stderr. */
export class JobLogPrinter {
  /** The command's, once the last line has come. */
  exitCode: number = EXIT.done;
  readonly #asJson: boolean;
  /** True once the last line has come. */
  hasEnded = false;
  #isOne = false;

  constructor(asJson: boolean) {
    this.#asJson = asJson;
  }

  /** Takes a line without its newline. */
  take(line: string): void {
    const [word = ""] = line.split(" ", 1);
    const rest = line.slice(word.length + 1);
    if (word === "asked:") this.#isOne = !rest.includes(" ");
    else if (word === "end:") [this.hasEnded, this.exitCode] = [true, rest === "0" ? EXIT.done : EXIT.failed];
    else if (word === "error:") toStderr(`ops: ${rest}\n`);
    else if (word !== "alive:") writeWhole(`${this.#shown(word, rest)}\n`);
  }

  #shown(worker: string, rest: string): string {
    const text = rest.slice(2);
    if (this.#asJson) return jsonLine({ worker, stream: rest.startsWith("!") ? "stderr" : "stdout", text });
    return visible(this.#isOne ? text : `${worker} ${rest}`);
  }
}
