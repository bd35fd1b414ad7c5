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

/** A newline cannot be part of a line: a variable stands for it, the third character that a shell splits words at. */
const NEWLINE_VARIABLE = `ops_n=\${IFS#??}; `;

/** A script with all that it needs. */
export interface ShellScript {
  /** Where the script runs. */
  folder: string;
  /**
   * Unless there is no need, the folder is made and looked at first (scripts/prepare.sh), in the same exchange. Where an
   * optional one is missing, the script runs where sshd starts a shell. A mark tells why a folder is `unusable`.
   */
  need: "none" | "needed" | "optional";
  /** The token of the run, where what other runs have left is looked for: then marks tell of it, and nothing runs. */
  run?: string | undefined;
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

/**
 * The shell of a group says which group it leads, since which start of the machine the group's number counts, which
 * shell waits for it, and what the command is.
 */
function announcement(mark: string, label = ""): string {
  const boot = "IFS= read -r ops_boot </proc/sys/kernel/random/boot_id";
  return `${boot}; echo "${mark} start $$ $ops_boot $PPID" ${shellWord(label)}; ${NEWLINE_VARIABLE}`;
}

/** Lines that start a group whose shell becomes this script. */
export function scriptLines(mark: string, script: ShellScript): string {
  return `${groupLine(mark)}${scriptOf(mark, script)}`;
}

/** A line for the shell of a group: the shell becomes this script. */
function scriptOf(mark: string, script: ShellScript, label?: string): string {
  return `${announcement(mark, label)}${runningOf(mark, script, shellWord(script.text))}\n`;
}

/** What the worker keeps of a command's output for the case that the connection is lost. */
export interface Spool {
  /** The beginning of the names of the spool's files, in the folder where the command runs. */
  name: string;
  /** What the command is. */
  label: string;
  /** The most bytes of each output. */
  bytes: number;
}

/**
 * Lines that start a group as {@link scriptLines} do, with `input` for the script, and that keep both outputs, marks
 * included, in files beside passing them on: `tee` writes the files whether anybody reads on or not. Each has an end
 * at the limit, and /dev/null keeps `tee` going behind it. The shell that waits for the group holds the spool open as
 * descriptor 5, by which scripts/attach.sh knows the shell. `done` on the input tells this shell that all was read: then
 * the files go; without it they stay. In the end the shell ends what still passes on output of daemons.
 */
export function spooledLines(mark: string, script: ShellScript, input: string, { name, label, bytes }: Spool): string {
  const limits = `umask 077; ulimit -f ${Math.ceil(bytes / 512)}; trap '' PIPE XFSZ`;
  const tee = (stream: "out" | "err") => `(${limits}; exec tee -a "$ops_place.${stream}" /dev/null) 2>/dev/null`;
  const told = scriptOf(mark, { ...script, folder: ".", need: "none" }, label) + input;
  const group = `printf %s ${shellWord(told)} | (cd "\${ops_place%/*}" && exec setsid ${CHILD} 5<&-); ops_code=$?`;
  const kept = '{ umask 077; echo $ops_code >"$ops_place.code"; } 2>/dev/null';
  const end = `exec >&- 2>&-; trap '' TERM; IFS= read -r ops_line || { sleep 1; kill 0; exit; }; kill 0`;
  const files = '"$ops_place.err" "$ops_place.code" "$ops_place.out"';
  const waiting = [
    `[ ! -e "$ops_place.out" ] || exec 5<"$ops_place.out"; echo '${mark} start' >&2; ${group}; ${kept}; `,
    `echo '${mark} end' >&2; echo "${mark} end $ops_code"; ${end}; exec rm -f ${files}`,
  ].join("");
  const leave = `echo '${mark} start' >&3; echo '${mark} start 0 -'; echo '${mark} end' >&3; echo '${mark} end 1'; exit`;
  return [
    `${NEWLINE_VARIABLE}exec 3>&2 2>/dev/null; ${enteringOf(mark, script, leave)}; ops_place=$PWD/${name}; cd /; `,
    // Where the file is there already, nobody waits for the command any more.
    `(umask 077; set -C; : >"$ops_place.out") || [ ! -e "$ops_place.out" ] || exit; `,
    `{ { ${waiting}; } 2>&1 >&4 3>&- 4>&- | ${tee("err")} >&3 3>&- 4>&-; } 4>&1 | ${tee("out")} 3>&-\n`,
  ].join("");
}

/**
 * Lines that start a group whose shell, from now on, runs the lines that begin with the mark, which nobody else
 * knows. So input that a script has not read is never taken for a line.
 */
export function loopLines(mark: string): string {
  const run = `case $ops_line in '${mark} '*) eval "\${ops_line#* }" ;; esac`;
  return `${groupLine(mark)}${announcement(mark)}while IFS= read -r ops_line; do ${run}; done\n`;
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

/** Exit codes of scripts/prepare.sh: there is no folder; other runs have left commands. */
const NO_FOLDER = 3;
const LEFT = 4;

/** Goes to the folder of a script. Where the script cannot run, marks say why, and `leave` follows. */
function enteringOf(mark: string, { folder, need, run = "" }: ShellScript, leave = "exit 1"): string {
  const enter = `cd ${shellWord(folder)}`;
  if (need === "none") return enter;
  const look = `{ set -- ${shellWord(folder)} ${need} '${run}' '${mark}'; eval ${shellWord(scriptText("prepare"))}; } 2>&1 </dev/null`;
  const refuse = `echo "${mark} unusable \${ops_said##*"$ops_n"}"; ${leave}`;
  const left = `echo "$ops_said"; ${leave}`;
  return `ops_said=$(${look}); case $? in 0) ${enter} ;; ${NO_FOLDER}) ;; ${LEFT}) ${left} ;; *) ${refuse} ;; esac`;
}

/** Text as one word of a POSIX shell, on one line. */
function shellWord(text: string): string {
  if (text.includes("\0")) throw new Failure("failed", "Cannot send a NUL character to a shell");
  return `'${text.replaceAll("'", `'\\''`).replaceAll("\n", `'"$ops_n"'`)}'`;
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

const SESSION_DRAIN_MS = 200;
/** Of messages that nobody may ever read, the end is kept. */
const MESSAGE_CHARACTERS = 4_000;

/** Adds to messages, of which the last 4,000 characters are kept. */
export function withMessage(messages: string, chunk: Buffer): string {
  return `${messages}${chunk}`.slice(-MESSAGE_CHARACTERS);
}

/** Input that is there as a whole. */
export type WholeInput = string | Uint8Array;

/** The output of a group with its marks, whichever session brings it: a session may go on where another one was cut. */
export class GroupOutput {
  readonly #started = Promise.withResolvers<RemoteGroup>();
  readonly #code = Promise.withResolvers<number>();
  readonly #stderrEnded = Promise.withResolvers<void>();
  readonly #streams: Record<StreamName, ReturnType<typeof splitAtMarks>>;
  /** Once the group runs. */
  group: RemoteGroup | undefined;
  /** Once the end of standard output was read; not a number where nobody on the worker knows the exit code. */
  exitCode: number | undefined;
  /** What came beside the output of the group: from the user's login files and from sudo. Only its end is kept. */
  messages = "";

  constructor(mark: string, reader: ChannelReader) {
    const listenTo = (stream: StreamName) => {
      let isOfGroup = false;
      const onData = (data: Buffer) => {
        if (isOfGroup) reader.onOutput(data, stream);
        else this.messages = withMessage(this.messages, data);
      };
      const onMark = (words: readonly string[]) => {
        const [word] = words;
        if (word !== "start" && word !== "end") return reader.onMark?.(words, stream);
        isOfGroup = word === "start";
        if (stream === "stdout") this.#onLeader(words);
        else if (!isOfGroup) this.#stderrEnded.resolve();
      };
      return splitAtMarks(mark, onData, onMark);
    };
    this.#streams = { stdout: listenTo("stdout"), stderr: listenTo("stderr") };
  }

  /** The group, once it runs. */
  get started(): Promise<RemoteGroup> {
    return this.#started.promise;
  }

  /** The exit code of the group's leader, once all output was read that comes within a moment. */
  get ended(): Promise<number> {
    return this.#code.promise.then(async (code) => {
      await within(this.#stderrEnded.promise, SESSION_DRAIN_MS);
      return code;
    });
  }

  /** The exit code of the group's leader, once all output was read. */
  get whole(): Promise<number> {
    return this.#stderrEnded.promise.then(() => this.#code.promise);
  }

  /** Takes the next bytes of a stream. */
  take(chunk: Buffer, stream: StreamName): void {
    this.#streams[stream].take(chunk);
  }

  /** How many bytes of a stream were taken from the first mark on. */
  bytes(stream: StreamName): number {
    return this.#streams[stream].bytes();
  }

  #onLeader([word, first = "", second = ""]: readonly string[]): void {
    if (word === "start") {
      this.group = { id: first, bootId: second };
      this.#started.resolve(this.group);
    } else {
      this.exitCode = Number(first);
      this.#code.resolve(this.exitCode);
    }
  }
}

/**
 * A process group on a worker, and the session that leads to the group. The group has ended when its marks say so; what
 * the group left running may keep its outputs open, which is not waited for.
 */
export type Channel = ReturnType<typeof openChannel>;

/**
 * Opens a channel over the master with this control socket, for lines that start a group, as root with `useSudo`. The
 * mark, a text that nobody else can know, goes before each message of the shells. `input` follows at once, and is all that
 * the group gets.
 */
export function openChannel(
  socket: string,
  { mark, lines, useSudo, input }: { mark: string; lines: string; useSudo: boolean; input?: WholeInput | undefined },
  reader: ChannelReader,
) {
  const output = new GroupOutput(mark, reader);
  const session = new SshSession(socket, REMOTE_COMMAND, (chunk, stream) => output.take(chunk, stream));
  session.stdin.write(`${useSudo ? SUDO_LINE : ""}${lines}`);
  if (input !== undefined) session.stdin.end(input);
  return {
    stdin: session.stdin,
    output,
    /** The group, once it runs; undefined when the channel ended before. */
    started: Promise.race([output.started, Promise.race([output.ended, session.ended]).then(() => undefined)]),
    /** The exit code of the group's leader, once all output was read; undefined when the channel ended before. */
    ended: Promise.race([output.ended, session.ended.then(() => output.exitCode)]),
    /** How the session ended. */
    closed: session.ended,
    /** Resolves once the worker's sshd has opened the channel. */
    opened: session.opened,
    isOpen: () => session.isOpen,
    /** Sees to it that nothing is started any more where the channel is not open yet. */
    giveUp: () => session.close(),
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
  let bytes = 0;
  const pass = (data: Buffer) => data.length > 0 && onData(data);
  const take = (chunk: Buffer): void => {
    if (bytes > 0) bytes += chunk.length;
    let rest = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    for (let at = rest.indexOf(mark); at >= 0; at = rest.indexOf(mark)) {
      pass(rest.subarray(0, at));
      rest = rest.subarray(at);
      bytes ||= rest.length;
      const end = rest.indexOf(LINE_FEED);
      if (end < 0) break;
      onMark(rest.toString("utf8", mark.length + 1, end).split(" "));
      rest = rest.subarray(end + 1);
    }
    const whole = rest.length - beginningOfMark(rest, mark);
    pass(rest.subarray(0, whole));
    held = rest.subarray(whole);
  };
  return { take, bytes: () => bytes };
}

/** How many bytes at the end are a mark that is not complete yet. */
function beginningOfMark(rest: Buffer, mark: string): number {
  if (rest.indexOf(mark) === 0) return rest.length;
  for (let length = Math.min(mark.length - 1, rest.length); length > 0; length--)
    if (rest.toString("latin1", rest.length - length) === mark.slice(0, length)) return length;
  return 0;
}
