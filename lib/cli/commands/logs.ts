import { Failure } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import { quote } from "../../core/shape.ts";
import { BUCKET_DIR, bucketDir, type Command, listOf, numberOf } from "../base/flags.ts";

const FIELDS = ["worker", "run", "job", "phase", "event"] as const;

/** Commands that show what runs have said. */
export const LOG_COMMANDS: readonly Command[] = [
  {
    name: "logs",
    summary: "Show the log lines of runs and of their commands on workers",
    flags: [
      BUCKET_DIR,
      { name: "worker", value: "A,B", help: "Only lines about these workers; - stands for lines about no worker" },
      { name: "run", value: "ID", help: "Only lines of this run; the beginning of its id is enough" },
      { name: "job", value: "A,B", help: "Only lines about these jobs" },
      { name: "phase", value: "A,B", help: "Only lines of these phases, for example rollout" },
      { name: "event", value: "A,B", help: "Only these events, for example command_end" },
      { name: "tail", value: "N", help: "Only the last lines" },
      { name: "run-dir", value: "DIR", help: "Read the logs in this folder instead" },
      {
        name: "format",
        value: "FORM",
        help: "Either human (default), or raw: the lines as they were written, with control characters escaped",
      },
      { name: "json", help: "Print one JSON object a line" },
    ],
    async run(input) {
      const { logsCommand } = await import("../bucket/logs.ts");
      const format = input.values.get("format") ?? "human";
      if (format !== "human" && format !== "raw")
        throw new Failure("usage", `--format: expected human or raw, found ${quote(format)}`);
      const given = FIELDS.map((name) => [name, listOf(input, name)] as const);
      const filter = Object.fromEntries(given.filter(([, values]) => values !== undefined));
      const folder = input.values.get("run-dir");
      return logsCommand(bucketDir(input), filter, {
        tail: numberOf(input, "tail"),
        folder: folder === undefined ? undefined : realPlace(folder),
        form: input.switches.has("json") ? "json" : format,
      });
    },
  },
];
