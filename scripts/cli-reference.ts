import { type Command, EXIT, flagLabel, operandLabel, SERVER_FLAGS, whereElse } from "../lib/cli/base/flags.ts";

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
${EXIT_CODES.map(([code, meaning]) => `| ${code} | ${meaning} |\n`).join("")}
## On a server

Commands that say so work on a bucket of a server, with the same words, output and exit codes, when a flag, the environment
or the table \`[server]\` of the folder's ops.conf names one: see [client.md](client.md). They take these flags besides their
own:

| | |
|---|---|
${SERVER_FLAGS.map((flag) => `| \`${flagLabel(flag)}\` | ${flag.help} |\n`).join("")}`;

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
  const where = whereElse(command);
  const elsewhere = where === undefined ? "" : ` ${where}.`;
  return `\n## ${usage}\n\n${command.summary}.${elsewhere}\n${table}`;
}
