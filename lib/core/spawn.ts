import { type ChildProcess, type SpawnOptions, type StdioOptions, spawn } from "node:child_process";
import { once } from "node:events";
import type { Duplex, Readable, Writable } from "node:stream";
import { setImmediate as nextRound } from "node:timers/promises";
import { aborted, expired, within } from "./async.ts";
import { Failure, hasErrno, messageOf, throwIfCancelled } from "./errors.ts";
import { endGroup, type GroupEnd, type GroupIdentity, identify, signalProcess } from "./process.ts";
import { feed, type Input, Output, type Uncut } from "./streams.ts";

/** A command and its arguments; never a string that a shell would split. */
export type Argv = readonly [string, ...string[]];

/** Another user of this machine, for commands that must not have the rights of this program. */
export interface OtherUser {
  readonly name: string;
  readonly uid: number;
  readonly gid: number;
  /** A folder that there is. */
  readonly home: string;
}

/** How a command ended. `reason` is the first reason that happened. */
export interface CommandOutcome {
  reason: "exit" | "timeout" | "cancelled";
  /** How its group was ended, after a timeout or a cancel; `unreachable`: the worker of the group does not answer. */
  receipt?: GroupEnd | "unreachable";
  exitCode: number | null;
  signal: string | null;
  /** The first `keepBytes` of each stream. */
  stdout: string;
  stderr: string;
  durationMs: number;
}

/** The environment, input and limits of a command, and the listener for its output. */
export interface CommandOptions {
  cwd?: string;
  /** Added to the launcher's environment. */
  env?: Record<string, string>;
  /** The whole environment, instead of the launcher's. */
  environment?: Record<string, string>;
  /** Runs the command as this user, who must be able to enter `cwd` (default /); only root can. */
  user?: OtherUser | undefined;
  /**
   * Written to the command's standard input, which is then closed; without it, standard input is empty. A command may
   * end without reading all of it. Where the source throws, the group is ended and `run` throws the same.
   */
  input?: Input;
  /**
   * Called for every line without its newline; a line of more than 64 KiB comes in parts of at most that.
   * Where it throws, the group is ended and `run` throws the same.
   */
  onLine?: (line: string, stream: "stdout" | "stderr") => void;
  /** How much of each stream to keep in the outcome; default 1 MiB. */
  keepBytes?: number;
  /** Texts within which no long line and no kept output is cut. */
  secrets?: Uncut;
  signal?: AbortSignal;
  timeoutMs?: number;
  /** Between TERM and KILL when it is cancelled or out of time; default 5 s. */
  graceMs?: number;
}

/** How a child ended. */
interface Exit {
  exitCode: number | null;
  signal: string | null;
}

/** A child that speaks over an IPC channel: a run's process, or the process that initialises a bucket. */
export interface Channel {
  pid: number;
  send(message: unknown): void;
  /** Its standard output, where that is a pipe; `ended` waits until all of it was read, or until it is destroyed. */
  output: Readable | null;
  /** Resolves once, after the process is gone and its last message has been delivered. */
  ended: Promise<Exit>;
}

/** A child that goes on until its work is done or it is ended. */
interface Companion {
  /** Null where its standard input is empty. */
  stdin: Writable | null;
  /** Resolves once, when the child has exited. */
  ended: Promise<Exit>;
  /** Ends it and its group: TERM, `graceMs` to unwind, then KILL. Resolves with `ended`, at most 5 s later. */
  end(graceMs: number): Promise<void>;
}

/** Where the streams of a companion lead, and the group that it belongs to. */
interface CompanionOptions {
  stdin?: "pipe" | "ignore";
  stderr?: number | "ignore";
  isMember?: boolean;
}

/** A child that outlives its starter. */
interface Detached {
  pid: number;
  /** Leads to the descriptor 3 of the child. */
  channel: Duplex;
}

const DRAIN_MS = 200;
const TERM_GRACE_MS = 5_000;
const COLLECT_MS = 5_000;

/**
 * The one way to start a process. Every child leads a process group of its own, and the launcher keeps the list of
 * the groups that are open, so that a cancel can end them all (decisions: Runs).
 */
export class Launcher {
  readonly #environment: NodeJS.ProcessEnv;
  readonly #onGroup: (change: "open" | "close", group: GroupIdentity) => void;
  readonly #open = new Map<number, GroupIdentity>();
  readonly #ending = new AbortController();

  constructor(environment: NodeJS.ProcessEnv, onGroup: (change: "open" | "close", group: GroupIdentity) => void = () => {}) {
    this.#environment = environment;
    this.#onGroup = onGroup;
  }

  /** The environment of children that get no other one. */
  get environment(): Readonly<NodeJS.ProcessEnv> {
    return this.#environment;
  }

  /** The groups whose leader has not been seen to end. */
  get groups(): GroupIdentity[] {
    return [...this.#open.values()];
  }

  /**
   * Runs a command until its leader exits; then its output is read for at most 200 ms more. Processes that the command
   * left in the background are not waited for. A signal or a timeout ends the whole group before this resolves. Exit
   * codes are not errors here. Throws `failed` when the command cannot be started.
   */
  async run(argv: Argv, options: CommandOptions = {}): Promise<CommandOutcome> {
    throwIfCancelled(options.signal);
    const started = performance.now();
    const stdin = options.input === undefined ? "ignore" : "pipe";
    const { cwd, env, environment = { ...this.#environment, ...env }, user } = options;
    const [command, place] = user
      ? [argvAs(user, argv, cwd ?? "/"), { cwd: "/", env: environmentAs(user, environment) }]
      : [argv, { cwd, env: environment }];
    const { child, group, exited } = await this.#launch(command, [stdin, "pipe", "pipe"], place);
    const stop = new AbortController();
    const trouble = new AbortController();
    const stdout = new Output("stdout", options, trouble);
    const stderr = new Output("stderr", options, trouble);
    const read = [readInto(stdout, child.stdout), readInto(stderr, child.stderr)];
    const fed = child.stdin && feed(child.stdin, options.input ?? "", trouble);
    try {
      const reason = await Promise.race([
        exited.then(() => "exit" as const),
        aborted(options.signal, stop.signal),
        aborted(trouble.signal, stop.signal),
        expired(options.timeoutMs, stop.signal),
      ]);
      const ended = reason !== "exit" && { receipt: await endGroup(group.pgid, options.graceMs ?? TERM_GRACE_MS) };
      // A process without an exit by now is one that the kernel does not let go of.
      const exit = (await within(exited, COLLECT_MS)) ?? { exitCode: null, signal: "SIGKILL" };
      await drained(Promise.all([...read, fed]));
      const texts = { stdout: stdout.finish(), stderr: stderr.finish() };
      trouble.signal.throwIfAborted();
      return { reason, ...ended, ...exit, ...texts, durationMs: performance.now() - started };
    } finally {
      stop.abort();
      this.#closed(group);
      for (const stream of [child.stdin, child.stdout, child.stderr]) stream?.destroy();
    }
  }

  /**
   * Starts a command that stays: its group is open until the command has ended, and its children end with it. With
   * `isMember` it belongs to the group of this process instead, and is ended alone. Its messages go to the descriptor
   * `stderr`; there is no other output. Throws `failed` when it cannot be started.
   */
  async start(argv: Argv, { stdin = "ignore", stderr = "ignore", isMember = false }: CompanionOptions = {}): Promise<Companion> {
    const options = { env: this.#environment, detached: !isMember };
    const { child, group, exited } = await this.#launch(argv, [stdin, "ignore", stderr], options);
    // A failed write is ignored: `ended` tells that the child has ended.
    child.stdin?.on("error", () => {});
    const target = isMember ? group.pgid : -group.pgid;
    const ended = exited.then((exit) => {
      if (!isMember) signalProcess(target, "SIGKILL");
      this.#closed(group);
      return exit;
    });
    const end = async (graceMs: number) => {
      child.stdin?.destroy();
      if (child.exitCode === null && child.signalCode === null) signalProcess(target, "SIGTERM");
      if (await within(ended, graceMs)) return;
      signalProcess(target, "SIGKILL");
      await within(ended, COLLECT_MS);
    };
    return { stdin: child.stdin, ended, end };
  }

  /**
   * Starts a child that goes on when this process ends, in a group of its own that is not listed in `groups`. Throws
   * `failed` when the child cannot be started.
   */
  async detach(argv: Argv): Promise<Detached> {
    const child = await launch(argv, { cwd: "/", env: this.#environment, stdio: ["ignore", "ignore", "ignore", "pipe"] });
    child.unref();
    return { pid: child.pid as number, channel: child.stdio[3] as Duplex };
  }

  /**
   * Starts a child with an IPC channel, its output (both streams, one descriptor) going to `output`, or its stdout alone
   * to a pipe. The child is not listed in `groups`: its starter decides when it must end.
   */
  async channel(argv: Argv, output: number | "ignore" | "pipe", onMessage: (message: unknown) => void): Promise<Channel> {
    const errors = output === "pipe" ? "ignore" : output;
    const child = await launch(argv, { env: this.#environment, stdio: ["ignore", output, errors, "ipc"], serialization: "json" });
    const ended = new Promise<Exit>((resolve) => {
      // "close" follows "exit" once the channel has been read to its end.
      child.once("close", (exitCode, signal) => resolve({ exitCode, signal }));
    });
    child.on("message", onMessage);
    const send = (message: unknown) => {
      if (child.connected) child.send(message as object, () => {});
    };
    return { pid: child.pid as number, send, output: child.stdout, ended };
  }

  /** Aborted when all that was started is to end at once. */
  get ending(): AbortSignal {
    return this.#ending.signal;
  }

  /** Ends every open group; used when the process itself must go. */
  async endAll(graceMs: number): Promise<void> {
    this.#ending.abort();
    await Promise.all(this.groups.map((group) => endGroup(group.pgid, graceMs)));
  }

  /** Starts a child and reports its group. */
  async #launch(argv: Argv, stdio: StdioOptions, options: SpawnOptions) {
    const child = await launch(argv, { ...options, stdio });
    const exited = new Promise<Exit>((resolve) => {
      child.once("exit", (exitCode, signal) => resolve({ exitCode, signal }));
    });
    const pgid = child.pid as number;
    const group = { pgid, start_time: identify(pgid)?.start_time ?? "" };
    this.#open.set(pgid, group);
    this.#onGroup("open", group);
    return { child, group, exited };
  }

  #closed(group: GroupIdentity): void {
    this.#open.delete(group.pgid);
    this.#onGroup("close", group);
  }
}

async function launch(argv: Argv, options: SpawnOptions): Promise<ChildProcess> {
  try {
    const child = spawn(argv[0], argv.slice(1), { detached: true, ...options });
    if (child.pid === undefined) throw (await once(child, "error"))[0];
    child.on("error", () => {});
    return child;
  } catch (error) {
    const why = hasErrno(error, "ENOENT") ? "it is not installed or the folder to run in is missing" : messageOf(error);
    throw new Failure("failed", `Cannot start ${argv[0]}: ${why}`, { cause: error });
  }
}

/** Waits for the end of outputs, then one round of the event loop more: a busy process may not have read the pipes. */
async function drained(ended: Promise<unknown>): Promise<void> {
  await within(ended, DRAIN_MS);
  await nextRound();
}

/** Reads a stream into an output, to its end. */
function readInto(output: Output, stream: Readable | null): Promise<unknown> {
  stream?.on("data", (chunk: Buffer) => output.take(chunk));
  return stream ? once(stream, "close").catch(() => {}) : Promise.resolve();
}

/** The other user enters the folder itself: this program could be led by a link into one that is closed to that user. */
const ENTER = 'cd -- "$1" && shift && unset OLDPWD && exec "$@"';
/** What is about the user of this program. */
const OWN_VARIABLES = /^(HOME|USER|LOGNAME|SHELL|MAIL|TMPDIR|SSH_AUTH_SOCK|PWD|OLDPWD|XDG_.*)$/;
/** Not the login shell, which is often nologin: ssh starts its way over a jump host by `SHELL`. */
const SHELL = "/bin/sh";

/**
 * The command line with which root runs a command as another user in a folder: with the groups of that user, without
 * capabilities, and with no program that could give it any (setuid). The process stays the same one, so it leads its group
 * and signals reach it. Needs setpriv of util-linux.
 */
function argvAs({ uid, gid }: OtherUser, argv: Argv, folder: string): Argv {
  const user = [`--reuid=${uid}`, `--regid=${gid}`, "--init-groups"];
  const rights = ["--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"];
  return ["setpriv", ...user, ...rights, "--", "sh", "-c", ENTER, "sh", folder, ...argv];
}

/** The environment of a command of another user: what is about the user of this program is that user's. */
export function environmentAs({ name, home }: OtherUser, environment: NodeJS.ProcessEnv): Record<string, string> {
  const kept = Object.entries(environment).filter((one): one is [string, string] => {
    return one[1] !== undefined && !OWN_VARIABLES.test(one[0]);
  });
  return { ...Object.fromEntries(kept), HOME: home, USER: name, LOGNAME: name, SHELL };
}
