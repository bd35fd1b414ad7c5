import { type Command, flagLabel, type Operand, operandLabel, serverFlags, whereElse } from "../lib/cli/base/flags.ts";
import { SERVICE } from "../lib/cli/server/unit.ts";
import { EXIT_CODES } from "./cli-reference.ts";

/** What stands in the foot of each page. */
export interface Edition {
  version: string;
  /** Of the commit, as `2026-11-24`. */
  date: string;
}

const FILES = [
  [SERVICE.root, "the buckets of the service"],
  [SERVICE.token, "the API token of the service"],
  [SERVICE.unit, "the service, as ops-server-install(1) writes it"],
  ["~/.local/state/ops/logins/", "the sessions of ops-login(1)"],
] as const;
const ENVIRONMENT = [
  ["OPS_SERVER", "the address of the server that commands work on"],
  ["OPS_BUCKET", "its bucket, by name, project/name or id"],
  ["OPS_SERVE_ROOT", "the folder of the buckets of a server"],
  ["OPS_SERVE_TOKEN", "the API token, for ops-server(1) and for commands on a server"],
  ["OPS_SERVE_TOTP_SECRET_FILE", "the file of the TOTP secret of a server"],
] as const;

/** The man pages of the table of commands, by the name of the file: ops.1 and one for each command. */
export function manPages(commands: readonly Command[], edition: Edition): Map<string, string> {
  const shown = commands.filter((one) => !one.hidden);
  return new Map([
    ["ops.1", overview(shown, edition)],
    ...shown.map((one) => [`${pageName(one)}.1`, commandPage(one, edition)] as const),
  ]);
}

function overview(commands: readonly Command[], edition: Edition): string {
  return [
    head("ops", "deploys and operates stateful services on Linux hosts you own", edition),
    ".SH SYNOPSIS\n.B ops\n.I command\n.RI [ flags ]\n",
    `.SH DESCRIPTION\n${words("Each command has a page of its own, such as ops-deploy(1), and --help. Dashes and underscores are the same in the names of commands. Results go to standard output, errors to standard error.")}\n`,
    `.SH COMMANDS\n${commands.map((one) => item(`ops ${one.name}`, one.summary)).join("")}`,
    list("ENVIRONMENT", ENVIRONMENT),
    list("FILES", FILES),
    list("EXIT STATUS", EXIT_CODES),
  ].join("");
}

function commandPage(command: Command, edition: Edition): string {
  const operands = command.operands ?? [];
  const usage = operands.map(synopsis);
  return [
    head(pageName(command), command.summary, edition),
    `.SH SYNOPSIS\n.B ops ${bare(command.name)}\n${(operands.at(-1)?.many ? [FLAGS, ...usage] : [...usage, FLAGS]).join("")}`,
    `.SH DESCRIPTION\n${words(`${command.summary}.`)}\n`,
    list(
      "OPERANDS",
      operands.map((one) => [operandLabel(one), one.help]),
    ),
    list(
      "OPTIONS",
      command.flags.map((flag) => [flagLabel(flag), flag.help]),
    ),
    list(
      (whereElse(command) ?? "").toUpperCase(),
      serverFlags(command).map((flag) => [flagLabel(flag), flag.help]),
    ),
    ".SH SEE ALSO\n.BR ops (1)\n",
  ].join("");
}

const FLAGS = ".RI [ flags ]\n";

function synopsis({ name, optional, many }: Operand): string {
  if (many) return `.B \\-\\-\n.IR ${bare(name)} ...\n`;
  return optional ? `.RI [ ${bare(name)} ]\n` : `.I ${bare(name)}\n`;
}

function pageName(command: Command): string {
  return `ops-${command.name.replaceAll(/[ _]/g, "-")}`;
}

function head(name: string, about: string, { version, date }: Edition): string {
  return `.TH ${name.toUpperCase()} 1 ${date} "ops ${version}" "User Commands"\n.SH NAME\n${bare(name)} \\- ${words(about)}\n`;
}

function list(title: string, rows: readonly (readonly [string, string])[]): string {
  return rows.length === 0 ? "" : `.SH ${title}\n${rows.map(([left, right]) => item(left, right)).join("")}`;
}

function item(label: string, about: string): string {
  return `.TP\n.B ${bare(label)}\n${words(about)}\n`;
}

/** A word as it is typed: a minus is no hyphen, and nothing in it is a request. */
function bare(text: string): string {
  return text.replaceAll("\\", "\\e").replaceAll("-", "\\-").replaceAll("'", "\\(aq").replaceAll('"', "\\(dq");
}

/** Running text in short lines, none of which is a request; an ellipsis is three dots, and a flag keeps its minus. */
function words(text: string): string {
  const plain = text.replaceAll("…", "...").replaceAll("`", "").replaceAll("\\", "\\e");
  const flags = plain.replaceAll(/(?<=^|[\s(])--?(?=\w)/g, (dashes) => "\\-".repeat(dashes.length));
  const lines = flags.replaceAll(/(.{1,44}\S*)(?:\s+|$)/g, "$1\n").trimEnd();
  return lines.replaceAll(/^(?=[.'])/gm, "\\&");
}
