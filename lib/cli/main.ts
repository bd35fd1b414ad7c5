import { within } from "../core/async.ts";
import { explain, Failure, hasErrno, messageOf, systemSentence } from "../core/errors.ts";
import { programRelease } from "../core/self.ts";
import { quote } from "../core/shape.ts";
import {
  type Command,
  type CommandRow,
  commandNamed,
  commandOf,
  EXIT,
  findCommand,
  groupNamed,
  type Parsed,
  parseFlags,
} from "./base/flags.ts";
import { commandHelp, groupHelp, programHelp } from "./base/help.ts";
import { jsonLine, printAnswer, toStderr, toStdout } from "./base/terminal.ts";
import { APPROVAL_COMMANDS } from "./commands/approval.ts";
import { AUDIT_COMMANDS } from "./commands/audit.ts";
import { PEOPLE_COMMANDS } from "./commands/people.ts";
import { READING_COMMANDS } from "./commands/reading.ts";
import { RUN_COMMANDS } from "./commands/runs.ts";
import { SERVER_COMMANDS } from "./commands/server.ts";
import { STATE_COMMANDS } from "./commands/state.ts";
import { KEY_COMMANDS, UPKEEP_COMMANDS } from "./commands/upkeep.ts";
import { WATCH_COMMANDS } from "./commands/watch.ts";

const VERSION: CommandRow = {
  name: "version",
  summary: "Print the program's version",
  flags: [{ name: "json", help: "Print version, commit (null where the program is no release) and Node as JSON" }],
  async run(input) {
    const told = { ...programRelease(), node: process.versions.node };
    return printAnswer(input, told, `ops ${told.version} (node ${told.node})\n`);
  },
};

const FLUSH_MS = 1_000;
const SHELLS: readonly string[] = ["bash", "zsh", "fish"];

const COMPLETION: readonly CommandRow[] = [
  {
    name: "completion",
    summary: "Print the script that lets a shell complete the commands, flags and names of ops",
    operands: [{ name: "shell", help: "Either bash, zsh or fish", choices: SHELLS }],
    noJson: true,
    async run({ operands: [shell = ""] }) {
      if (!SHELLS.includes(shell)) throw new Failure("usage", `${quote(shell)}: expected ${SHELLS.join(", ")}`);
      toStdout((await import("./bucket/completion.ts")).completionScript(shell));
      return EXIT.done;
    },
  },
  {
    name: "completion words",
    summary: "Print what the last of the words on stdin may become",
    hidden: true,
    noJson: true,
    async run() {
      toStdout((await import("./bucket/completion.ts")).completeWords(COMMANDS));
      return EXIT.done;
    },
  },
];

/** Every command of the program. Each loads its modules when it runs, so that all start fast. */
export const COMMANDS: readonly Command[] = [
  ...RUN_COMMANDS,
  ...STATE_COMMANDS,
  ...APPROVAL_COMMANDS,
  ...READING_COMMANDS,
  ...UPKEEP_COMMANDS,
  ...WATCH_COMMANDS,
  ...KEY_COMMANDS,
  ...PEOPLE_COMMANDS,
  ...SERVER_COMMANDS,
  ...AUDIT_COMMANDS,
  ...COMPLETION,
  VERSION,
].map(commandOf);

/** Carries out one command line and answers the exit code; prints an error once, as a sentence. */
export async function runProgram(args: readonly string[]): Promise<number> {
  // A reader that has gone away (`| head`, a closed terminal) must not end a command.
  let unwritten: Error | undefined;
  process.stderr.on("error", () => {});
  process.stdout.on("error", (error) => {
    if (!hasErrno(error, "EPIPE")) unwritten ??= error;
  });
  const code = await performCommand(args);
  const flushed = new Promise<true>((resolve) => process.stdout.write("", () => resolve(true)));
  // A reader that stands still must not keep a cancelled command.
  if (code === EXIT.cancelled && !(await within(flushed, FLUSH_MS))) process.exit(code);
  await flushed;
  if (unwritten === undefined) return code;
  toStderr(`ops: Cannot write to stdout: ${messageOf(unwritten)}\n`);
  return code === EXIT.done ? EXIT.failed : code;
}

async function performCommand(args: readonly string[]): Promise<number> {
  try {
    const first = args[0];
    if (first === undefined || first === "help" || first === "--help" || first === "-h") return showHelp(args.slice(1));
    const words = first === "--version" || first === "-v" ? ["version"] : args;
    const asked = words.filter((word) => word !== "--help" && word !== "-h");
    if (isGroup(asked)) return showHelp(asked);
    const { command, rest } = findCommand(COMMANDS, words);
    const parsed = parseFlags(command, rest);
    if (!parsed.switches.has("help")) return await carriedOut(command, parsed);
    toStdout(helpOf(command));
    return EXIT.done;
  } catch (error) {
    const isJson = args.slice(0, args.includes("--") ? args.indexOf("--") : undefined).includes("--json");
    toStderr(isJson ? `${jsonLine(asObject(error))}\n` : `ops: ${sentence(error)}\n`);
    return exitCode(error);
  }
}

/** Carries a command out on the server that it is meant for, else here. */
async function carriedOut(command: Command, parsed: Parsed): Promise<number> {
  const { remote, hereOnly } = command;
  const target = remote || hereOnly ? await (await import("./remote/target.ts")).targetOf(parsed) : undefined;
  if (target && hereOnly)
    throw new Failure("usage", `ops ${command.name} works only here: give --local to mean the bucket of this folder`);
  if (target && command.remote) return await command.remote(parsed, target);
  if (command.run) return await carriedOutHere(command, parsed, command.run);
  const how = "give --server, set OPS_SERVER, or name it in the table [server] of ops.conf";
  throw new Failure("usage", `no server is named: ${how} (see \`ops ${command.name} --help\`)`);
}

/** A command that changes a bucket is written into the audit where the bucket is one of a server. */
async function carriedOutHere(
  { changes, ...command }: Command,
  parsed: Parsed,
  run: NonNullable<Command["run"]>,
): Promise<number> {
  const isChange = changes === true || changes?.(parsed) === true;
  return isChange ? await (await import("./audit/audited.ts")).carriedOutAudited(command, parsed, run) : await run(parsed);
}

function isGroup(args: readonly string[]): boolean {
  return commandNamed(COMMANDS, args) === undefined && groupNamed(COMMANDS, args).length > 0;
}

function helpOf(command: Command): string {
  return commandHelp(command, groupNamed(COMMANDS, [command.name]));
}

function showHelp(args: readonly string[]): number {
  if (isGroup(args)) toStdout(groupHelp(groupNamed(COMMANDS, args)));
  else toStdout(args.length === 0 ? programHelp(COMMANDS) : helpOf(findCommand(COMMANDS, args).command));
  return EXIT.done;
}

/** An error as `--json` prints it: as the API answers errors. */
function asObject(error: unknown): object {
  const isSystem = (error as NodeJS.ErrnoException | null)?.syscall !== undefined || systemSentence(error) !== undefined;
  if (!(error instanceof Failure)) return { error: isSystem ? "failed" : "internal", message: explain(error) };
  const { code, message, details } = error;
  return { error: code, message, ...(details !== undefined && { details }) };
}

function sentence(error: unknown): string {
  if (!(error instanceof Failure) || error.code !== "bucket_busy") return explain(error);
  const { holder } = (error.details ?? {}) as { holder?: string };
  return holder === undefined ? error.message : `${error.message}\n${holder}`;
}

function exitCode(error: unknown): number {
  if (!(error instanceof Failure)) return EXIT.failed;
  if (error.code === "usage") return EXIT.usage;
  if (error.code === "bucket_busy") return EXIT.busy;
  return error.code === "cancelled" ? EXIT.cancelled : EXIT.failed;
}
