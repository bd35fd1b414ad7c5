import { Failure } from "../../core/errors.ts";
import { realPlace } from "../../core/files.ts";
import { nearest } from "../../core/nearest.ts";
import { quote } from "../../core/shape.ts";

// An import would load everything that node:util exports, which takes each command 4 ms.
const { parseArgs } = process.getBuiltinModule("node:util");

/** A server that a command works on, and the bucket as a person names it. */
export interface Target {
  address: string;
  /** Undefined where nobody has named one. */
  bucket: string | undefined;
  /** The address comes from a file of the folder: nothing but the session of `ops login` goes there. */
  fromFolder: boolean;
  caFile: string | undefined;
  /** The same, where a file of the folder names it. */
  folderCa: string | undefined;
  tokenFile: string | undefined;
  totp: string | undefined;
}

/** Exit codes (decisions: Command line). */
export const EXIT = { done: 0, failed: 1, usage: 2, busy: 75, cancelled: 130 } as const;

/** A flag of a command. A flag without `value` is a switch. */
export interface Flag {
  name: string;
  /** The kind of value, in capitals for the help. */
  value?: string;
  /** The value may be left out: `--wait`, `--wait=5m`. */
  mayLack?: true;
  /** The words that the value can be, where there are few; case and dashes for underscores do not count. */
  choices?: readonly string[];
  /** Other words are possible, too. */
  isOpen?: true;
  /** A one-letter form. */
  short?: string;
  help: string;
}

/** A word that is given by its place. Optional operands come last. */
export interface Operand {
  name: string;
  help: string;
  optional?: boolean;
  /** It takes all words that follow, at least one. Only the last operand can. */
  many?: true;
  /** The words that it can be, where there are few. */
  choices?: readonly string[];
}

/** A command of the program: the source of the help, of docs/cli.md and of the parser. */
export interface Command {
  /** As typed, with one blank between words. Dashes and underscores are the same. */
  name: string;
  summary: string;
  operands?: Operand[];
  flags: readonly Flag[];
  /** The program itself starts the command: the help does not show it. */
  hidden?: boolean;
  /** Carries the command out here, and answers the exit code. Left out where the command is only for servers. */
  run?(input: Parsed): Promise<number>;
  /** It works here, and never on a server: with one named it refuses, unless `--local` is given. */
  hereOnly?: true;
  /** It changes the bucket here, always or with this input: below the root of a server that is written into the audit. */
  changes?: true | ((input: Parsed) => boolean);
  /** The same on a server. */
  remote?(input: Parsed, target: Target): Promise<number>;
}

/** The words that were typed after a command's name. */
export interface Parsed {
  operands: string[];
  /** The values of flags that were given, by name. */
  values: Map<string, string>;
  /** The switches that were given. */
  switches: Set<string>;
}

/** The flag of every command that works in a bucket. */
export const BUCKET_DIR: Flag = { name: "bucket-dir", value: "DIR", help: "The bucket (default: the current folder)" };

/**
 * Prints JSON in place of text for people. {@link commandOf} gives the flag to each command that has no `--json` of its own
 * and no `noJson`.
 */
const AS_JSON: Flag = { name: "json", help: "Print JSON" };

/** Goes past what holds a start back. Every command that changes a bucket has it. */
export const BREAK_GLASS_FLAG: Flag = {
  name: "break-glass",
  value: "REASON",
  help: "As an admin, go past an approval or a freeze, or change a bucket of a server with named people here; the reason is kept",
};

/** A command as a table names it: without the flags that {@link commandOf} adds. */
export interface CommandRow extends Omit<Command, "flags"> {
  flags?: readonly Flag[];
  /** It has no `--json`. */
  noJson?: true;
}

/** A command of a table with the flags that many have: `--json`, and `--break-glass` where it changes a bucket. */
export function commandOf({ noJson, flags = [], ...row }: CommandRow): Command {
  const has = ({ name }: Flag) => flags.some((flag) => flag.name === name);
  const json = noJson || has(AS_JSON) ? [] : [AS_JSON];
  const breakGlass = row.changes === undefined || has(BREAK_GLASS_FLAG) ? [] : [BREAK_GLASS_FLAG];
  return { ...row, flags: [...flags, ...json, ...breakGlass] };
}

/** The flags of every command that works on a server, too. Each says where else the value may come from. */
export const SERVER_FLAGS: readonly Flag[] = [
  { name: "server", value: "URL", help: "Work on this server (or OPS_SERVER, or url in the table [server] of ops.conf)" },
  { name: "bucket", value: "NAME", help: "Its bucket, by name, project/name or id (or OPS_BUCKET, or bucket in [server])" },
  { name: "token-file", value: "FILE", help: "File of the API token (or OPS_SERVE_TOKEN; default: the session of ops login)" },
  { name: "ca-file", value: "FILE", help: "PEM certificates to trust besides the system's (default: those of ops login)" },
  { name: "totp", value: "CODE", help: "A fresh code, where the server asks for one" },
  { name: "local", help: "Work here, whatever names a server" },
];

/** The flags with which a command finds its server. */
export function serverFlags({ remote, run, hereOnly, flags }: Command): readonly Flag[] {
  if (hereOnly) return SERVER_FLAGS.filter(({ name }) => name === "local");
  const isOwn = (name: string) => flags.some((flag) => flag.name === name);
  return remote ? SERVER_FLAGS.filter(({ name }) => !isOwn(name) && (run !== undefined || name !== "local")) : [];
}

/** Where a command works, besides here; undefined where nothing has to be told. */
export function whereElse({ remote, run, hereOnly }: Command): string | undefined {
  if (hereOnly) return "Only here";
  return remote && (run ? "Also on a server" : "Only on a server");
}

/** The bucket that a command works in. */
export function bucketDir(input: Parsed): string {
  return realPlace(input.values.get(BUCKET_DIR.name) ?? ".");
}

/** The parts of a flag's list; undefined where it was not given. Throws `usage` for an empty part. */
export function flagList(input: Parsed, name: string): string[] | undefined {
  const text = input.values.get(name);
  return text === undefined ? undefined : commaList(text, `--${name}`);
}

/** The parts of a list with commas. Throws `usage`, with the name `what` of the list, for an empty part. */
export function commaList(text: string, what: string): string[] {
  const parts = text.split(",").map((part) => part.trim());
  if (parts.includes("")) throw new Failure("usage", `${what}: expected names with commas between them`);
  return parts;
}

/** True where `--json` was given. */
export function wantsJson(input: Pick<Parsed, "switches">): boolean {
  return input.switches.has("json");
}

/** A flag's whole number; undefined where it was not given. Throws `usage` for anything else, and outside of the bounds. */
export function flagNumber(input: Parsed, name: string, bounds?: readonly [least: number, most: number]): number | undefined {
  const text = input.values.get(name);
  if (text === undefined) return undefined;
  const [least, most] = bounds ?? [0, 999_999_999];
  if (/^\d{1,9}$/.test(text) && Number(text) >= least && Number(text) <= most) return Number(text);
  const told = bounds ? ` from ${least} to ${most}` : "";
  throw new Failure("usage", `--${name}: expected a whole number${told}, found ${quote(text)}`);
}

/** The environment without the variables of a server, which may hold secrets, and of its clients. */
export function withoutServerVariables(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([name]) => !/^OPS_(SERVE_.*|SERVER|BUCKET)$/.test(name)));
}

/** The flag of every command. */
export const HELP: Flag = { name: "help", short: "h", help: "Show this help" };

/** The command that the first words name, the longest name first. */
export function commandNamed(commands: readonly Command[], args: readonly string[]): Command | undefined {
  const words = args.map((arg) => arg.replaceAll("-", "_"));
  const matches = commands.filter((command) => {
    const name = command.name.replaceAll("-", "_").split(" ");
    return name.every((word, index) => words[index] === word);
  });
  return matches.sort((a, b) => b.name.length - a.name.length)[0];
}

/** Finds the command that the first words name; throws `usage` with the nearest one otherwise. */
export function findCommand(commands: readonly Command[], args: readonly string[]): { command: Command; rest: string[] } {
  const command = commandNamed(commands, args);
  const rest = args.slice(command?.name.split(" ").length);
  // What stands behind a command that takes no operand is meant to be one of its group.
  const isGroupWord = command && !command.operands?.length && rest[0]?.startsWith("-") === false;
  if (command && !(isGroupWord && groupNamed(commands, [command.name]).length > 0)) return { command, rest };
  const [first = "", second = ""] = args;
  if (first.startsWith("-")) throw usage(`${quote(first)} stands before the command: flags come after it`, undefined, "ops help");
  const isGroup = groupNamed(commands, [first]).length > 0;
  const typed = isGroup ? `${first} ${second}` : first;
  const names = commands.filter((one) => !one.hidden).map((one) => one.name);
  const foreign = (words: string) => Object.entries(FOREIGN_COMMANDS).find(([name]) => name === words.toLowerCase())?.[1];
  const known = foreign(`${first} ${second}`) ?? foreign(first);
  const close = known ?? nearest(`${first} ${second}`, names) ?? nearest(first, names);
  throw usage(`${quote(typed)} is not a command`, close, isGroup ? `ops help ${first}` : "ops help");
}

/** The commands that begin with these words, where none is named so: `cat` of `cat jobs`. */
export function groupNamed(commands: readonly Command[], args: readonly string[]): readonly Command[] {
  return commands.filter((one) => !one.hidden && one.name.startsWith(`${args.join(" ")} `));
}

/** Commands of other tools, and the command of ops that does the same. */
export const FOREIGN_COMMANDS: Readonly<Record<string, string>> = {
  alloc: "cat allocations",
  apply: "deploy",
  cancel: "runs cancel",
  diff: "drift",
  history: "runs list",
  "job list": "cat jobs",
  "job logs": "logs",
  key: "ssh-key show",
  "kv get": "cat kv get",
  "kv set": "kv set-secret",
  lint: "check",
  list: "buckets list",
  ls: "cat jobs",
  node: "cat workers",
  plan: "deploy --dry-run",
  ps: "cat allocations",
  releases: "revisions list",
  restart: "job restart",
  retry: "runs retry",
  revert: "revisions rollback",
  rollback: "revisions rollback",
  secret: "kv set-secret",
  secrets: "cat kv",
  ssh: "exec",
  start: "job start",
  stop: "job stop",
  tail: "runs follow",
  top: "worker sysstat",
  undo: "revisions rollback",
  up: "deploy",
  validate: "check",
  "worker list": "cat workers",
  workers: "cat workers",
  jobs: "cat jobs",
};

/** Reads the words after a command's name; throws `usage` for anything the command does not know. */
export function parseFlags(command: Command, args: readonly string[]): Parsed {
  const parsed: Parsed = { operands: [], values: new Map(), switches: new Set() };
  const flags = [...command.flags, ...serverFlags(command), HELP];
  const options = flags.map(({ name, value, mayLack, short }) => {
    const type = value === undefined || mayLack ? ("boolean" as const) : ("string" as const);
    return [name, short === undefined ? { type } : { type, short }] as const;
  });
  const rule = { options: Object.fromEntries(options), strict: false, tokens: true } as const;
  let lacking: string | undefined;
  for (const token of parseArgs({ args: [...args], ...rule }).tokens) {
    if (token.kind === "positional") {
      if (lacking !== undefined && /^(\d+[hms]|https?:)/.test(token.value))
        throw misuse(command, `write --${lacking}=${token.value}`);
      parsed.operands.push(token.value);
    }
    lacking = undefined;
    if (token.kind !== "option") continue;
    const { name, rawName: typed, value } = token;
    const flag = flags.find((one) => one.name === name);
    if (!flag) throw unknownFlag(command, typed, flags);
    if (flag.value === undefined || (flag.mayLack && value === undefined)) {
      if (flag.mayLack) lacking = name;
      if (value !== undefined) throw misuse(command, `${typed} takes no value`);
      parsed.switches.add(name);
      continue;
    }
    if (value === undefined) throw misuse(command, `${typed} needs a value: ${flag.value}`);
    if (parsed.values.has(name)) throw misuse(command, `${typed} is given twice`);
    parsed.values.set(name, flag.choices && !flag.isOpen ? chosen(command, flag, value) : value);
    if (flag.mayLack) parsed.switches.add(name);
  }
  if (!parsed.switches.has("help")) checkOperands(command, parsed.operands);
  return parsed;
}

/** A flag's word, or its words with commas between them, as its choices are written. Throws `usage` where one is none of them. */
function chosen(command: Command, { name, value, choices = [] }: Flag, given: string): string {
  const words = (value === "A,B" ? given.split(",") : [given]).map((word) => word.trim().toLowerCase().replaceAll("-", "_"));
  const wrong = words.find((word) => !choices.includes(word));
  if (wrong === undefined) return words.join(",");
  throw misuse(command, `--${name}: expected one of ${choices.join(", ")}, found ${quote(wrong)}`, nearest(wrong, choices));
}

function checkOperands(command: Command, operands: string[]): void {
  const wanted = command.operands ?? [];
  const missing = wanted[operands.length];
  if (missing && !missing.optional) throw misuse(command, `${missing.name} is missing`);
  const extra = wanted.at(-1)?.many ? undefined : operands[wanted.length];
  if (extra !== undefined) throw misuse(command, `${quote(extra)} is not expected here`);
}

function unknownFlag(command: Command, typed: string, flags: readonly Flag[]): Failure {
  const names = flags.map((flag) => `--${flag.name}`);
  return misuse(command, `ops ${command.name} has no flag ${quote(typed)}`, nearest(typed, names));
}

function misuse(command: Command, what: string, close?: string): Failure {
  return usage(what, close, `ops ${command.name} --help`);
}

function usage(what: string, close: string | undefined, help: string): Failure {
  const advice = close === undefined ? "" : `; did you mean ${close}?`;
  return new Failure("usage", `${what}${advice} (see \`${help}\`)`);
}

/** How an operand is shown: `<job>`, `[job]` where it may be left out, `-- <command…>` for all words that follow. */
export function operandLabel({ name, optional, many }: Operand): string {
  return optional ? `[${name}]` : many ? `-- <${name}…>` : `<${name}>`;
}

/** How a flag is shown: `-s, --selectors A,B`; `--wait[=TIME]`. */
export function flagLabel(flag: Flag): string {
  const value = flag.mayLack ? `[=${flag.value}]` : flag.value ? ` ${flag.value}` : "";
  return `${flag.short ? `-${flag.short}, ` : ""}--${flag.name}${value}`;
}
