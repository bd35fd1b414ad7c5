import { type Command, EXIT, flagLabel, operandLabel } from "../lib/cli/base/flags.ts";

const MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  done: "done",
  failed: "failed",
  usage: "wrong usage; nothing was done",
  busy: "the bucket is busy: another operation goes on there",
  cancelled: "cancelled",
};

/** Each exit code of the program with what it means. */
export const EXIT_CODES: readonly (readonly [string, string])[] = (Object.keys(MEANINGS) as (keyof typeof EXIT)[]).map((name) => [
  String(EXIT[name]),
  MEANINGS[name],
]);

const INTRODUCTION = `# The command line

\`node bin/ops.js <command> [flags]\`. Generated from the table of commands (\`npm run reference\`).

Dashes and underscores are the same in the names of commands. \`--help\` works on each. Results go to stdout, errors to
stderr, one sentence each.

Wherever a command takes the id of a run or a revision, or the name of a snapshot, its beginning or its end is enough: at
least 4 letters that name one alone. Tables on a terminal show the last 8 letters of ids; in a pipe and with \`--json\` ids
are whole.

| Exit code | Meaning |
|---|---|
${EXIT_CODES.map(([code, meaning]) => `| ${code} | ${meaning} |\n`).join("")}`;

/** The reference of all commands as Markdown: docs/cli.md. */
export function commandReference(commands: readonly Command[]): string {
  return (
    INTRODUCTION +
    commands
      .filter((one) => !one.hidden)
      .map(section)
      .join("")
  );
}

function section(command: Command): string {
  const operands = command.operands ?? [];
  const usage = ["ops", command.name, ...operands.map(operandLabel)].join(" ");
  const rows = [
    ...operands.map((one) => `| \`${operandLabel(one)}\` | ${one.help} |\n`),
    ...command.flags.map((flag) => `| \`${flagLabel(flag)}\` | ${flag.help} |\n`),
  ];
  const table = rows.length === 0 ? "" : `\n| | |\n|---|---|\n${rows.join("")}`;
  return `\n## ${usage}\n\n${command.summary}.\n${table}`;
}
