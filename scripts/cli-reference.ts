import { type Command, type Flag, operandLabel } from "../lib/cli/base/flags.ts";

const INTRODUCTION = `# The command line

\`node bin/ops.js <command> [flags]\`. Generated from the table of commands (\`npm run reference\`).

Dashes and underscores are the same in the names of commands. \`--help\` works on each. Results go to stdout, errors to
stderr, one sentence each.

Wherever a command takes the id of a run or a revision, or the name of a snapshot, its beginning or its end is enough: at
least 4 letters that name one alone. Tables on a terminal show the last 8 letters of ids; in a pipe and with \`--json\` ids
are whole.

| Exit code | Meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong usage; nothing was done |
| 75 | the bucket is busy: another operation goes on there |
| 130 | cancelled |
`;

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
    ...command.flags.map((flag) => `| \`${label(flag)}\` | ${flag.help} |\n`),
  ];
  const table = rows.length === 0 ? "" : `\n| | |\n|---|---|\n${rows.join("")}`;
  return `\n## ${usage}\n\n${command.summary}.\n${table}`;
}

function label(flag: Flag): string {
  return `--${flag.name}${flag.value ? ` ${flag.value}` : ""}${flag.short ? `, -${flag.short}` : ""}`;
}
