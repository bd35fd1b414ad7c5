import { within } from "../../core/async.ts";
import { Failure } from "../../core/errors.ts";
import { quote } from "../../core/shape.ts";
import { scriptText } from "../base/scripts.ts";
import { SshSession } from "./session.ts";

const CHILD = `sh -c 'IFS= read -r ops_line; eval "$ops_line"'`;

/**
 * What every channel asks the worker's sshd to run. sshd gives the text to the user's login shell, whatever shell that
 * is: the text means the same to sh, csh and fish. All else follows on standard input, where no other user of the
 * worker sees it. `read` takes one line byte by byte, so that the bytes behind the line are left for the script.
 */
const REMOTE_COMMAND = `exec ${CHILD}`;

/** Runs the lines that follow as root, through `sudo -n` where the user is not root. */
const SUDO_LINE = `if [ "$(id -u)" = 0 ]; then set --; else set -- sudo -n; fi; exec "$@" ${CHILD}\n`;

/** A newline cannot be part of a line: a variable stands for it. */
const NEWLINE_VARIABLE = `ops_newline=$(printf '\\nx'); ops_newline=\${ops_newline%x}; `;

/** A script with all that it needs. */
export interface ShellScript {
  /** Where the script runs. */
  folder: string;
  /**
   * Unless there is no need, the folder is made and looked at first (scripts/prepare.sh), in the same exchange. Where an
   * optional one is missing, the script runs where sshd starts a shell. A mark tells why a folder is `unusable`.
   */
  need: "none" | "needed" | "optional";
  text: string;
  args: readonly string[];
  env: Readonly<Record<string, string>>;
}

/**
 * Starts a shell in a process group of its own for the line after this one, and tells the exit code of the shell. Marks
 * on both outputs, before and after, tell the group's output from what login files print, and from what a daemon that
 * the group left behind may still write.
 */
function groupLine(mark: string): string {
  const end = `ops_code=$?; echo '${mark} end' >&3; echo "${mark} end $ops_code"`;
  return `exec 3>&2 2>/dev/null; echo '${mark} start' >&3; setsid ${CHILD} 2>&3 3>&-; ${end}\n`;
}

/** The shell of a group says which group it leads, and since which start of the machine the group's number counts. */
function announcement(mark: string): string {
  const boot = "IFS= read -r ops_boot </proc/sys/kernel/random/boot_id";
  return `${boot}; echo "${mark} start $$ $ops_boot"; ${NEWLINE_VARIABLE}`;
}

/** A line for the shell of a group: the shell becomes this script. */
export function scriptLine(mark: string, script: ShellScript): string {
  return `${announcement(mark)}${runningOf(mark, script, shellWord(script.text))}\n`;
}

/**
 * A line for the shell of a group: from now on the shell runs the lines that begin with the mark, which nobody else
 * knows. So input that a script has not read is never taken for a line.
 */
export function loopLine(mark: string): string {
  const run = `case $ops_line in '${mark} '*) eval "\${ops_line#* }" ;; esac`;
  return `${announcement(mark)}while IFS= read -r ops_line; do ${run}; done\n`;
}

/** A shell that runs lines keeps a text under a number: it reads its lines byte by byte, so each text is sent once. */
export function keepLine(mark: string, number: number, text: string): string {
  return `\n${mark} ops_text_${number}=${shellWord(text)}\n`;
}

/**
 * A shell that runs lines reads its lines byte by byte. So a longer script has a channel of its own, and longer input
 * follows the line as bytes.
 */
export const SHORT_CHARACTERS = 64 * 1024;

/**
 * What a shell that runs lines gets for a script whose text it keeps: the script's line, and its input in the line or
 * behind the line. Marks tell when the script has ended. busybox's `head` takes more than it passes on: nothing may
 * follow the input before the end is told.
 */
export function questionLines(mark: string, script: ShellScript, kept: number, input: WholeInput): Buffer {
  // A shell passes a short text on by itself; a NUL cannot be part of a line.
  const isInLine = typeof input === "string" && input.length <= SHORT_CHARACTERS && !input.includes("\0");
  const behind = Buffer.from(isInLine ? "" : input);
  const passed = isInLine ? `printf %s ${shellWord(input)} | ` : `head -c ${behind.length} | `;
  const [source, from] = input.length === 0 ? ["", " </dev/null"] : [passed, ""];
  const end = `ops_code=$?; echo '${mark} answer' >&2; echo "${mark} answer $ops_code"`;
  // The newline in front ends what is left of earlier input.
  const line = `\n${mark} ${source}(${runningOf(mark, script, `"$ops_text_${kept}"`)})${from}; ${end}\n`;
  return Buffer.concat([Buffer.from(line), behind]);
}

function runningOf(mark: string, script: ShellScript, text: string): string {
  const { args, env } = script;
  const exports = Object.entries(env).map(([name, value]) => `export ${variableName(name)}=${shellWord(value)} && `);
  return `${enteringOf(mark, script)} && ${exports.join("")}set -- ${args.map(shellWord).join(" ")} && eval ${text}`;
}

/** Exit code of scripts/prepare.sh: there is no folder. */
const NO_FOLDER = 3;

function enteringOf(mark: string, { folder, need }: ShellScript): string {
  const enter = `cd ${shellWord(folder)}`;
  if (need === "none") return enter;
  const look = `{ set -- ${shellWord(folder)} ${need}; eval ${shellWord(scriptText("prepare"))}; } 2>&1 </dev/null`;
  const refuse = `echo "${mark} unusable \${ops_said##*"$ops_newline"}"; exit 1`;
  return `ops_said=$(${look}); case $? in 0) ${enter} ;; ${NO_FOLDER}) ;; *) ${refuse} ;; esac`;
}

/** Text as one word of a POSIX shell, on one line. */
function shellWord(text: string): string {
  if (text.includes("\0")) throw new Failure("failed", "Cannot send a NUL character to a shell");
  return `'${text.replaceAll("'", `'\\''`).replaceAll("\n", `'"$ops_newline"'`)}'`;
}

function variableName(name: string): string {
  if (/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) return name;
  throw new Failure("failed", `Cannot use ${quote(name)} as the name of an environment variable`);
}

/** A process group on a worker. */
export interface RemoteGroup {
  id: string;
  /** The start of the machine that the number belongs to. */
  bootId: string;
}

type StreamName = "stdout" | "stderr";

/** Gets what a channel brings between the marks of its start and its end. */
export interface ChannelReader {
  onOutput(chunk: Buffer, stream: StreamName): void;
  /** Any other mark, by the words behind the mark. */
  onMark?(words: readonly string[], stream: StreamName): void;
}

/**
 * A process group on a worker, and the session that leads to the group. The group has ended when its marks say so; what
 * the group left running may keep its outputs open, which is not waited for.
 */
export type Channel = ReturnType<typeof openChannel>;

const SESSION_DRAIN_MS = 200;
/** Of messages that nobody may ever read, the end is kept. */
const MESSAGE_CHARACTERS = 4_000;

/** Adds to messages, of which the last 4,000 characters are kept. */
export function withMessage(messages: string, chunk: Buffer): string {
  return `${messages}${chunk}`.slice(-MESSAGE_CHARACTERS);
}

/** Input that is there as a whole. */
export type WholeInput = string | Uint8Array;

/**
 * Opens a channel over the master with this control socket, and starts a group for `line` there, as root with
 * `useSudo`. The mark, a text that nobody else can know, goes before each message of the shells. `input` follows at
 * once, and is all that the group gets.
 */
export function openChannel(
  socket: string,
  { mark, line, useSudo, input }: { mark: string; line: string; useSudo: boolean; input?: WholeInput | undefined },
  reader: ChannelReader,
) {
  const started = Promise.withResolvers<RemoteGroup | undefined>();
  const code = Promise.withResolvers<number | undefined>();
  const stderrEnded = Promise.withResolvers<void>();
  let messages = "";
  const listenTo = (stream: StreamName) => {
    let isOfGroup = false;
    const onData = (data: Buffer) => {
      if (isOfGroup) reader.onOutput(data, stream);
      else messages = withMessage(messages, data);
    };
    const onMark = (words: readonly string[]) => {
      const [word, first = "", second = ""] = words;
      if (word !== "start" && word !== "end") return reader.onMark?.(words, stream);
      isOfGroup = word === "start";
      if (isOfGroup && stream === "stdout") started.resolve({ id: first, bootId: second });
      else if (stream === "stdout") code.resolve(Number(first));
      else if (!isOfGroup) stderrEnded.resolve();
    };
    return splitAtMarks(mark, onData, onMark);
  };
  const listeners = { stdout: listenTo("stdout"), stderr: listenTo("stderr") };
  const session = new SshSession(socket, REMOTE_COMMAND, (chunk, stream) => listeners[stream](chunk));
  void session.ended.then(() => {
    started.resolve(undefined);
    code.resolve(undefined);
    stderrEnded.resolve();
  });
  session.stdin.write(`${useSudo ? SUDO_LINE : ""}${groupLine(mark)}${line}`);
  if (input !== undefined) session.stdin.end(input);
  return {
    stdin: session.stdin,
    /** The group, once it runs; undefined when the channel ended before. */
    started: started.promise,
    /** The exit code of the group's leader, once all output was read; undefined when the channel ended before. */
    ended: code.promise.then(async (ended) => {
      await within(stderrEnded.promise, SESSION_DRAIN_MS);
      return ended;
    }),
    /** How the session ended. */
    closed: session.ended,
    /** Resolves once the worker's sshd has opened the channel. */
    opened: session.opened,
    isOpen: () => session.isOpen,
    /** Sees to it that nothing is started any more where the channel is not open yet. */
    giveUp: () => session.close(),
    /** The end of what came beside the output of the group: from the user's login files and from sudo. */
    messages: () => messages,
    /** Gives the channel back: at once when the group has ended, else the group's outputs are cut. */
    async close() {
      session.stdin.end();
      if ((await within(session.ended, SESSION_DRAIN_MS)) === undefined) session.close();
      await session.ended;
    },
  };
}

const LINE_FEED = 0x0a;

/**
 * Splits a stream into data and marks: `<mark> <words…>` up to the end of the line, wherever the mark begins, in a
 * stream that can hold anything else.
 */
function splitAtMarks(mark: string, onData: (data: Buffer) => void, onMark: (words: string[]) => void) {
  let held: Buffer = Buffer.alloc(0);
  const pass = (data: Buffer) => data.length > 0 && onData(data);
  return (chunk: Buffer): void => {
    let rest = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    for (let at = rest.indexOf(mark); at >= 0; at = rest.indexOf(mark)) {
      pass(rest.subarray(0, at));
      rest = rest.subarray(at);
      const end = rest.indexOf(LINE_FEED);
      if (end < 0) break;
      onMark(rest.toString("utf8", mark.length + 1, end).split(" "));
      rest = rest.subarray(end + 1);
    }
    const whole = rest.length - beginningOfMark(rest, mark);
    pass(rest.subarray(0, whole));
    held = rest.subarray(whole);
  };
}

/** How many bytes at the end are a mark that is not complete yet. */
function beginningOfMark(rest: Buffer, mark: string): number {
  if (rest.indexOf(mark) === 0) return rest.length;
  for (let length = Math.min(mark.length - 1, rest.length); length > 0; length--)
    if (rest.toString("latin1", rest.length - length) === mark.slice(0, length)) return length;
  return 0;
}
