import type { Seal } from "../../codec/crypto/seal-key.ts";
import { Failure, type Problem } from "../../core/errors.ts";
import type { Schema } from "../../core/shape.ts";
import { isRepeatable, parametersOf, RUNS, type RunKind, type RunParams, type RunSecrets } from "../../run/protocol.ts";
import {
  BUCKET_DIR,
  bucketDir,
  type Command,
  type CommandRow,
  commaList,
  type Flag,
  flagList,
  flagNumber,
  type Operand,
  type Parsed,
  wantsJson,
} from "../base/flags.ts";
import { DETACH_FLAG, JSON_VIEW, STARTING, startOf, WAIT_FLAG } from "../base/start-flags.ts";
import type { RunView } from "../bucket/output.ts";
import type { RemoteBucket } from "../remote/remote-bucket.ts";

/** What names mean, in a bucket here or on a server. The first two throw where there is none, and where it may be several. */
export interface Names {
  runNamed(given: string): Promise<string>;
  snapshotNamed(given: string): Promise<string>;
  /** How a snapshot, as `snapshotNamed` names it, is opened; null for one in clear. */
  sealOf(snapshot: string): Promise<Seal | null>;
  /** The hooks of all jobs; one on several events comes several times. */
  hooks(): Promise<readonly Record<string, unknown>[]>;
}

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
  /** Makes the parameters whole: names in full, and values that no flag gives. */
  complete?(params: RunParams, input: Parsed, names: Names): Promise<void>;
  /** What the run gets besides its parameters, and nothing keeps. */
  secrets?(input: Parsed, params: RunParams, names: Names): Promise<RunSecrets>;
  /** Shows the result in place of Activity, unless `--json` is given. */
  view?(input: Parsed): Promise<RunView["show"] | undefined>;
  /** Shows the result on a terminal after Activity. */
  summarise?: RunView["show"];
}

const RETRY_FLAG: Flag = {
  name: "retry",
  value: "RUN",
  help: "Repeat this run where it failed, was unreachable or never started; goes alone",
};

/**
 * The command that carries out runs of a kind, here or on a server. Its flags are the parameters of the kind (`run/protocol.ts`), with dashes for
 * underscores; a list is given with commas, a truth value as a switch. With `--json` the command prints the run's result.
 */
export function runCommand(kind: RunKind, command: RunCommand): Command {
  const { name, summary, operands = [], short = {}, flags = [] } = command;
  const { properties } = RUNS[kind].parameters.schema as { properties: Record<string, Schema> };
  const placed = new Set(operands.map((operand) => operand.name));
  const named = Object.entries(properties).filter(([parameter]) => !placed.has(parameter));
  BY_KIND.set(kind, command);
  return {
    name,
    ...changesOf(kind),
    summary: summary ?? RUNS[kind].summary,
    operands,
    flags: [
      BUCKET_DIR,
      ...named.map(([parameter, schema]) => flagOf(parameter, schema, short[parameter])),
      ...(isRepeatable(kind) ? [RETRY_FLAG] : []),
      ...flags,
      ...STARTING.filter(({ name }) => !(name in properties)),
    ],
    run: (input) => runHere(kind, command, input),
    async remote(input, target) {
      const { openRemoteBucket } = await import("../remote/remote-bucket.ts");
      return await runThere(kind, command, input, await openRemoteBucket(target));
    },
  };
}

/** Flags of a run that is started, and not of one that is only proposed. */
const OF_STARTS: readonly string[] = [RETRY_FLAG, ...STARTING].map(({ name }) => name);

/** `ops propose <kind>`: takes what the command of the kind takes, and proposes it to others. */
export function proposeCommand(kind: RunKind, flags: Flag[]): CommandRow {
  const command = BY_KIND.get(kind) as RunCommand;
  const started = runCommand(kind, command);
  return {
    name: `propose ${command.name}`,
    summary: `Ask others to approve: ${started.summary[0]?.toLowerCase()}${started.summary.slice(1)}`,
    operands: started.operands ?? [],
    flags: [...started.flags.filter(({ name }) => !OF_STARTS.includes(name)), ...flags],
    async remote(input, target) {
      const { openRemoteBucket } = await import("../remote/remote-bucket.ts");
      const bucket = await openRemoteBucket(target);
      const { params } = await requestOf(kind, command, input, bucket);
      const { propose } = await import("../remote/proposals.ts");
      return await propose(bucket, { kind, params }, input);
    },
  };
}

/** Kinds of runs that only read. */
const READINGS: ReadonlySet<RunKind> = new Set<RunKind>([
  "health_check",
  "drift",
  "job_status",
  "worker_uptime",
  "worker_sysstat",
]);

/** Whether a run of a kind changes something here. */
function changesOf(kind: RunKind): Pick<Command, "changes"> {
  const isDry = ({ switches }: Parsed) => switches.has("dry-run") && !switches.has("build") && !switches.has("with-hooks");
  if (kind === "deploy") return { changes: (input) => !isDry(input) };
  if (kind === "worker_facts") return { changes: (input) => input.switches.has("generate-workers") && !isDry(input) };
  return READINGS.has(kind) ? {} : { changes: true };
}

/** The commands of the kinds of runs, for {@link RETRY_COMMAND}. */
const BY_KIND = new Map<string, RunCommand>();

/** `ops runs retry <run>`: what the command of the run's kind does with `--retry`. */
export const RETRY_COMMAND: CommandRow = {
  name: "runs retry",
  changes: true,
  summary: "Repeat a run where it failed, was unreachable or never started",
  operands: [{ name: "run", help: "Its id, or the beginning or end of it" }],
  flags: [BUCKET_DIR, ...STARTING],
  async run(input) {
    const { readRecord } = await import("../../run/record.ts");
    const { initialisedBucket } = await import("../bucket/bucket.ts");
    const layout = await initialisedBucket(bucketDir(input));
    const id = await (await namesOf(layout.root)).runNamed(input.operands[0] ?? "");
    const kind = readRecord(layout, id)?.kind;
    return await runHere(kind as RunKind, repeatable(kind), retryInput(input, id));
  },
  async remote(input, target) {
    const { openRemoteBucket } = await import("../remote/remote-bucket.ts");
    const bucket = await openRemoteBucket(target);
    const id = await bucket.runNamed(input.operands[0] ?? "");
    const { kind } = await bucket.get(`/runs/${id}`);
    return await runThere(kind as RunKind, repeatable(kind), retryInput(input, id), bucket);
  },
};

function repeatable(kind: unknown): RunCommand {
  const command = BY_KIND.get(String(kind));
  if (command && isRepeatable(kind as RunKind)) return command;
  const advice = command ? `: start it anew with \`ops ${command.name}\`` : "";
  throw new Failure("retry_impossible", `Cannot repeat a run of the kind ${kind}${advice}`);
}

function retryInput({ values, switches }: Parsed, id: string): Parsed {
  return { operands: [], values: new Map([...values, [RETRY_FLAG.name, id]]), switches };
}

async function runHere(kind: RunKind, command: RunCommand, input: Parsed): Promise<number> {
  if (input.switches.has(DETACH_FLAG.name))
    throw new Failure("usage", "--detach goes with --server: a run here ends with its command");
  const dir = bucketDir(input);
  const { params, secrets, retryOf } = await requestOf(kind, command, input, await namesOf(dir));
  const { runInBucket } = await import("../bucket/bucket.ts");
  const whole = retryOf === undefined ? params : await repeatedHere(kind, dir, retryOf);
  return await runInBucket(kind, whole, dir, { ...(await optionsOf(input, command)), secrets });
}

async function runThere(kind: RunKind, command: RunCommand, input: Parsed, bucket: RemoteBucket): Promise<number> {
  const { runOnServer } = await import("../remote/run.ts");
  const { params, secrets, retryOf } = await requestOf(kind, command, input, bucket);
  const asked = retryOf === undefined ? params : { retry_of: retryOf };
  return await runOnServer(bucket, kind, asked, { ...(await optionsOf(input, command)), secrets });
}

/** How a run is carried out, here or on a server. */
async function optionsOf(input: Parsed, command: RunCommand) {
  return { view: await runView(input, command), ...(await startOf(input)) };
}

/** What a command line asks for: the checked parameters of a run, or the id of the run that is repeated. */
async function requestOf(
  kind: RunKind,
  { name, operands = [], complete, secrets }: RunCommand,
  input: Parsed,
  names: Names,
): Promise<{ params: RunParams; secrets?: RunSecrets; retryOf: string | undefined }> {
  const { properties } = RUNS[kind].parameters.schema as { properties: Record<string, Schema> };
  const params: RunParams = {};
  const placed = new Set(operands.map((operand) => operand.name));
  for (const [index, { name: parameter }] of operands.entries()) {
    const text = input.operands[index];
    if (text !== undefined) params[parameter] = properties[parameter]?.type === "array" ? commaList(text, parameter) : text;
  }
  for (const [parameter, schema] of Object.entries(properties)) {
    const value = placed.has(parameter) ? undefined : parameterOf(input, dashed(parameter), schema);
    if (value !== undefined) params[parameter] = value;
  }
  const given = input.values.get(RETRY_FLAG.name);
  if (given === undefined) {
    await complete?.(params, input, names);
    const nameOf = (parameter: string) => (placed.has(parameter) ? parameter : `--${dashed(parameter)}`);
    const checked = checkedParameters(kind, params, nameOf, `ops ${name} --help`);
    return { params: checked, secrets: (await secrets?.(input, checked, names)) ?? {}, retryOf: undefined };
  }
  if (Object.keys(params).length > 0)
    throw new Failure("usage", "--retry goes alone: all other parameters are those of the run that it names");
  return { params, retryOf: await names.runNamed(given) };
}

async function repeatedHere(kind: RunKind, dir: string, id: string): Promise<RunParams> {
  const { repeated } = await import("../../run/request.ts");
  const { initialisedBucket } = await import("../bucket/bucket.ts");
  return await repeated(await initialisedBucket(dir), kind, id);
}

/** The names of a bucket here. */
async function namesOf(dir: string): Promise<Names> {
  const { initialisedBucket } = await import("../bucket/bucket.ts");
  return {
    runNamed: async (given) => (await import("../../run/record.ts")).runNamed(await initialisedBucket(dir), given),
    snapshotNamed: async (given) => (await import("../bucket/snapshots.ts")).snapshotFile(dir, given),
    sealOf: async (file) => (await (await import("../../bucket/snapshots/envelope.ts")).readFace(file)).seal,
    hooks: async () => (await (await (await import("../state/access.ts")).accessHere(dir)).view("hooks", {})).items,
  };
}

async function runView(input: Parsed, { view, summarise }: RunCommand): Promise<RunView | undefined> {
  // Called first, because it also refuses flags that do not go together.
  const show = await view?.(input);
  if (wantsJson(input)) return JSON_VIEW;
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
  // A wait for health waits for the bucket, too.
  if (parameter === WAIT_FLAG.name)
    return { ...WAIT_FLAG, help: `${schema.description}; first in line where the bucket is busy, for that time` };
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
