import { type Command, type Flag, flagLabel, HELP, operandLabel, serverFlags, whereElse } from "./flags.ts";

/** The first words of commands, by what one wants to do. */
const HEADINGS: readonly (readonly [heading: string, words: readonly string[]])[] = [
  ["Write and send the source", ["init", "check", "fmt", "schema", "migrate", "metrics", "push", "revisions"]],
  ["Build and deploy", ["build", "deploy", "drift", "hooks", "gc", "kv"]],
  ["Look after jobs and workers", ["status", "job", "worker", "run_command", "exec", "health_check", "health", "logs", "runs"]],
  ["Know what there is", ["info", "cat", "doctor", "open"]],
  ["Let the server watch", ["schedules", "notify"]],
  ["Ask and approve", ["propose", "proposals", "approve", "reject", "withdraw"]],
  ["Keep keys and copies", ["ssh-key", "ca", "snapshot"]],
  ["Run a server", ["server", "serve", "buckets", "audit"]],
  ["Sign in", ["login", "logout", "whoami", "tokens", "sessions"]],
  ["This program", ["completion", "version"]],
];

/** The help of one command, and of the group that has its name. */
export function commandHelp(command: Command, group: readonly Command[] = []): string {
  const labels = (command.operands ?? []).map(operandLabel);
  // Behind such an operand a flag would be one of its words.
  const usage = command.operands?.at(-1)?.many ? ["[flags]", ...labels] : [...labels, "[flags]"];
  const rows = [
    ...(command.operands ?? []).map((one) => [operandLabel(one), one.help] as const),
    ...[...command.flags, HELP].map(flagRow),
  ];
  const where = whereElse(command);
  const elsewhere = where !== undefined ? `\n${where}:\n${helpTable(serverFlags(command).map(flagRow))}` : "";
  const more = group.length > 0 ? `\n${groupHelp(group)}` : "";
  return `${wrapped(command.summary, process.stdout.columns ?? 80).join("\n")}\n\nUsage: ops ${command.name} ${usage.join(" ")}\n\n${helpTable(rows)}${elsewhere}${more}`;
}

function flagRow(flag: Flag): readonly [string, string] {
  return [flagLabel(flag), flag.help];
}

/** The help of a group of commands. */
export function groupHelp(commands: readonly Command[]): string {
  return `${helpTable(commands.map((one) => [one.name, one.summary] as const))}\n${MORE_HELP}`;
}

/** The help of the whole program: a line for each first word, by what one wants to do. */
export function programHelp(commands: readonly Command[]): string {
  const shown = commands.filter((one) => !one.hidden);
  const groups = Map.groupBy(shown, ({ name }) => name.split(" ")[0] ?? name);
  const width = Math.max(...[...groups.keys()].map((word) => word.length));
  const parts = HEADINGS.map(([heading, words]) => {
    const rows = words.map((word) => [word, groups.get(word) ?? []] as const).filter(([, group]) => group.length > 0);
    const lines = rows.map(([word, group]) => [word, groupSummary(word, group)] as const);
    return `${heading}\n${helpTable(lines, width)}\n`;
  });
  return `ops: deploys and operates stateful services on Linux hosts you own\n\nUsage: ops <command> [flags]\n\n${parts.join("")}${MORE_HELP}`;
}

const MORE_HELP = "ops <command> --help tells more about one of them.\n";

/** What the command of this name does, and the words that may follow; the word alone often stands for `list`. */
function groupSummary(word: string, group: readonly Command[]): string {
  const own = group.find(({ name }) => name === word);
  const more = group.filter(({ name, summary }) => name !== word && summary !== own?.summary);
  const words = more.map(({ name }) => name.slice(word.length + 1)).join(", ");
  if (own === undefined) return words;
  return words === "" ? own.summary : `${own.summary}; ${words}`;
}

function helpTable(rows: readonly (readonly [string, string])[], width = Math.max(...rows.map(([left]) => left.length))): string {
  const room = Math.max(NARROWEST_HELP, (process.stdout.columns ?? 80) - width - 4);
  return rows
    .map(([left, right]) => `  ${left.padEnd(width)}  ${wrapped(right, room).join(`\n${" ".repeat(width + 4)}`)}\n`)
    .join("");
}

const NARROWEST_HELP = 30;

/** Lines of at most so many characters, unless a word is longer. */
function wrapped(text: string, room: number): string[] {
  const lines: string[] = [];
  for (const word of text.split(" ")) {
    const last = lines.at(-1);
    if (last === undefined || last.length + 1 + word.length > room) lines.push(word);
    else lines[lines.length - 1] = `${last} ${word}`;
  }
  return lines;
}
