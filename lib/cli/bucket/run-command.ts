import { Failure, type Problem } from "../../core/errors.ts";
import type { Schema } from "../../core/shape.ts";
import { isRepeatable, parametersOf, RUNS, type RunKind, type RunParams } from "../../run/protocol.ts";
import {
  BUCKET_DIR,
  bucketDir,
  type Command,
  commaList,
  type Flag,
  flagList,
  flagNumber,
  type Operand,
  type Parsed,
  wantsJson,
} from "../base/flags.ts";
import { jsonText } from "../base/terminal.ts";
import type { RunView } from "./bucket.ts";

/** What the parameters of a kind of run do not tell about its command. */
interface RunCommand {
  /** As typed. */
  name: string;
  /** Default: the summary of the kind. */
  summary?: string;
  /** Parameters that are given by place, under their names; the others are flags. */
  operands?: Operand[];
  /** One-letter forms of flags, by parameter. */
  short?: Record<string, string>;
  /** Flags that are no parameters of the run. */
  flags?: Flag[];
  /** Completes the parameters with values that no flag gives. */
  complete?(params: RunParams, input: Parsed): Promise<void>;
  /** Shows the result in place of Activity, unless `--json` is given. */
  view?(input: Parsed): Promise<RunView["show"] | undefined>;
  /** Shows the result on a terminal after Activity. */
  summarise?: RunView["show"];
}

const RESULT_AS_JSON: Flag = { name: "json", help: "Print the result of the run as JSON; Activity goes to stderr" };

const RETRY_FLAG: Flag = {
  name: "retry",
  value: "RUN",
  help: "Repeat this run where it failed, was unreachable or never started; goes alone",
};

/**
 * The command that carries out runs of a kind. Its flags are the parameters of the kind (`run/protocol.ts`), with dashes for
 * underscores; a list is given with commas, a truth value as a switch. With `--json` the command prints the run's result.
 */
export function runCommand(kind: RunKind, command: RunCommand): Command {
  const { name, summary, operands = [], short = {}, flags = [], complete } = command;
  const { properties } = RUNS[kind].parameters.schema as { properties: Record<string, Schema> };
  const placed = new Set(operands.map((operand) => operand.name));
  const nameOf = (parameter: string) => (placed.has(parameter) ? parameter : `--${dashed(parameter)}`);
  const named = Object.entries(properties).filter(([parameter]) => !placed.has(parameter));
  return {
    name,
    summary: summary ?? RUNS[kind].summary,
    operands,
    flags: [
      BUCKET_DIR,
      ...named.map(([parameter, schema]) => flagOf(parameter, schema, short[parameter])),
      ...(isRepeatable(kind) ? [RETRY_FLAG] : []),
      ...flags,
      RESULT_AS_JSON,
    ],
    async run(input) {
      const params: RunParams = {};
      for (const [index, { name: parameter }] of operands.entries()) {
        const text = input.operands[index];
        if (text === undefined) continue;
        params[parameter] = properties[parameter]?.type === "array" ? commaList(text, parameter) : text;
      }
      for (const [parameter, schema] of named) {
        const value = parameterOf(input, dashed(parameter), schema);
        if (value !== undefined) params[parameter] = value;
      }
      const retryOf = input.values.get(RETRY_FLAG.name);
      if (retryOf === undefined) await complete?.(params, input);
      const checked =
        retryOf === undefined
          ? checkedParameters(kind, params, nameOf, `ops ${name} --help`)
          : await repeatedParameters(kind, params, bucketDir(input), retryOf);
      const { runInBucket } = await import("./bucket.ts");
      return runInBucket(kind, checked, bucketDir(input), await runView(input, command));
    },
  };
}

async function repeatedParameters(kind: RunKind, given: RunParams, dir: string, id: string): Promise<RunParams> {
  if (Object.keys(given).length > 0)
    throw new Failure("usage", "--retry goes alone: all other parameters are those of the run that it names");
  const { repeated } = await import("../../run/request.ts");
  const { initialisedBucket } = await import("./bucket.ts");
  return await repeated(await initialisedBucket(dir), kind, id);
}

async function runView(input: Parsed, { view, summarise }: RunCommand): Promise<RunView | undefined> {
  // Called first, because it also refuses flags that do not go together.
  const show = await view?.(input);
  if (wantsJson(input)) return { show: jsonText, meanwhile: "aside" };
  if (show) return { show, meanwhile: "quiet" };
  return summarise && process.stdout.isTTY ? { show: summarise, meanwhile: "before" } : undefined;
}

/** Checks the parameters before anything starts. On the command line a wrong parameter is wrong usage. */
function checkedParameters(kind: RunKind, params: RunParams, nameOf: (parameter: string) => string, help: string): RunParams {
  try {
    return parametersOf(kind, params);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const problems = error.details as Problem[];
    const sentences = problems.map(({ path, message }) => `${nameOf(path.split("/")[0] ?? "")}: ${message}`);
    throw new Failure("usage", `${sentences.join("; ")} (see \`${help}\`)`);
  }
}

const VALUE_NAMES: Record<string, string> = { array: "A,B", integer: "N", number: "N", string: "TEXT" };

function flagOf(parameter: string, schema: Schema, short: string | undefined): Flag {
  const value = VALUE_NAMES[schema.type as string];
  return {
    name: dashed(parameter),
    ...(value !== undefined && { value }),
    ...(short !== undefined && { short }),
    help: String(schema.description),
  };
}

function dashed(parameter: string): string {
  return parameter.replaceAll("_", "-");
}

function parameterOf(input: Parsed, name: string, schema: Schema): unknown {
  if (schema.type === "boolean") return input.switches.has(name) ? true : undefined;
  if (schema.type === "array") return flagList(input, name);
  return schema.type === "integer" ? flagNumber(input, name) : input.values.get(name);
}
