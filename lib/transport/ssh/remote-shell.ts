import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";

/**
 * What every channel asks the worker's sshd to run. sshd hands it to the user's login shell, whatever that is: this
 * text means the same to sh, csh and fish. All else follows on standard input, where no other user of the worker sees
 * it: `read` takes a line byte by byte, so that what comes behind it is left for the script.
 */
export const REMOTE_COMMAND = `exec sh -c 'IFS= read -r ops_line; eval "$ops_line"'`;

const CHILD = `sh -c 'IFS= read -r ops_line; eval "$ops_line"'`;

/** A line for {@link REMOTE_COMMAND}: what follows is run by root, through `sudo -n` where the user is another. */
export const SUDO_LINE = `if [ "$(id -u)" = 0 ]; then set --; else set -- sudo -n; fi; exec "$@" ${CHILD}\n`;

/**
 * A line for {@link REMOTE_COMMAND}: starts a shell in a process group of its own for the line after it, and tells the
 * code it ended with. Marks on both outputs, before and after, tell the command's own output from what login files
 * print, and from what a daemon left behind may still write.
 */
export function groupLine(mark: string): string {
  const end = `ops_code=$?; echo '${mark} end' >&3; echo "${mark} end $ops_code"`;
  return `exec 3>&2 2>/dev/null; echo '${mark} start' >&3; setsid ${CHILD} 2>&3 3>&-; ${end}\n`;
}

/** Said by a shell that leads its group: which group, and since which start of the machine its number counts. */
function announcement(mark: string): string {
  return `IFS= read -r ops_boot </proc/sys/kernel/random/boot_id; echo "${mark} start $$ $ops_boot"`;
}

/** A script with all that it needs. */
export interface ShellScript {
  /** Where it runs. */
  folder: string;
  text: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
}

/** A line for the shell that {@link groupLine} starts: becomes that script. */
export function scriptLine(mark: string, script: ShellScript): string {
  return `${announcement(mark)}; ${NEWLINE}${running(script, word(script.text))}\n`;
}

/** A line for the shell that {@link groupLine} starts: from now on it runs lines. */
export function loopLine(mark: string): string {
  return `${announcement(mark)}; ${NEWLINE}while IFS= read -r ops_line; do eval "$ops_line"; done\n`;
}

/** A line for the shell that {@link loopLine} started: keeps a script's text there under a number. */
export function keepLine(number: number, text: string): string {
  return `ops_text_${number}=${word(text)}\n`;
}

/**
 * A line for the shell that {@link loopLine} started: runs a script, whose text may be one that it keeps under a number,
 * and tells by marks when it has ended. Input of a given number of bytes follows the line, and {@link restLine} that.
 */
export function questionLine(
  mark: string,
  script: ShellScript,
  input: string | number,
  kept: number | undefined,
): string {
  const text = running(script, kept === undefined ? word(script.text) : `"$ops_text_${kept}"`);
  const code = "; ops_code=$?; ";
  const end = `echo '${mark} answer' >&2; echo "${mark} answer $ops_code"\n`;
  if (typeof input === "number") {
    // What the script has left of its input must not be taken for lines.
    const skip = `while IFS= read -r ops_line && [ "$ops_line" != '${mark} rest' ]; do :; done; `;
    return `head -c ${input} | (${text})${code}${skip}${end}`;
  }
  const source = input === "" ? "" : `printf %s ${word(input)} | `;
  const from = input === "" ? " </dev/null" : "";
  return `${source}(${text})${from}${code}${end}`;
}

/** Ends the input that follows a {@link questionLine}. */
export function restLine(mark: string): string {
  return `\n${mark} rest\n`;
}

/** A newline cannot be part of a line: a variable stands for it. */
const NEWLINE = `ops_newline=$(printf '\\nx'); ops_newline=\${ops_newline%x}; `;

function running({ folder, args, env }: ShellScript, text: string): string {
  const exports = Object.entries(env).map(([name, value]) => `export ${variable(name)}=${word(value)} && `);
  const set = `set -- ${args.map(word).join(" ")}`;
  return `cd ${word(folder)} && ${exports.join("")}${set} && eval ${text}`;
}

/** Text as one word of a POSIX shell, on one line. */
function word(text: string): string {
  if (text.includes("\0")) throw new Failure("failed", "Cannot send a NUL character to a shell");
  return `'${text.replaceAll("'", `'\\''`).replaceAll("\n", `'"$ops_newline"'`)}'`;
}

function variable(name: string): string {
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name;
  throw new Failure("failed", `Cannot use ${quote(name)} as the name of an environment variable`);
}

/**
 * A script that sends a signal (`$3`, or `0` for none) to the process group `$1` of the machine's start `$2` and says
 * `running` or `gone`. Zombies that nobody collects have ended.
 */
export const SIGNAL_GROUP = `
IFS= read -r boot </proc/sys/kernel/random/boot_id
lives() {
  kill -0 "-$1" 2>/dev/null || return 1
  [ -n "$(cat /proc/[0-9]*/stat 2>/dev/null | sed -n "s/^.*) [^ZX] [0-9]* $1 .*/x/p")" ]
}
if [ "$boot" != "$2" ] || ! lives "$1"; then
  echo gone
else
  [ "$3" = 0 ] || kill "-$3" "-$1" 2>/dev/null
  echo running
fi`;

/** {@link PREPARE_FOLDER} ends with it where there is no folder. */
export const NO_FOLDER = 3;

/**
 * A script that makes the bucket's folder \`$1\`, unless \`$2\` is \`optional\`, and refuses one that somebody else owns or
 * may write to, by one line on standard error: what runs there would be theirs.
 */
export const PREPARE_FOLDER = `
umask 022
[ "$2" != optional ] || [ -d "$1" ] || exit ${NO_FOLDER}
mkdir -p "$1" || exit 1
found=$(ls -ldn "$1") || exit 1
set -- "$1" $found
case $2 in
  d????-??-*) [ "$4" != "$(id -u)" ] || exit 0 ;;
esac
echo "$1 must be a folder of the user who runs commands there (number $(id -u)), with mode 0755 or less" >&2
exit 1`;
