import { closeSync, existsSync, type FSWatcher, openSync, watch } from "node:fs";
import { open } from "node:fs/promises";
import { unlessCut } from "../../core/async.ts";
import { cancelledFailure, Failure, messageOf } from "../../core/errors.ts";
import { PRIVATE_FILE, remove } from "../../core/files.ts";
import { identify, type ProcessIdentity } from "../../core/process.ts";
import type { Launcher } from "../../core/spawn.ts";
import { makeSshFolder, type SshSetup } from "./folder.ts";
import { masterArgv } from "./openssh.ts";

/** The open connection to a worker: a foreground ssh whose control socket the channels use. */
export interface Master {
  /** Resolves with the messages of the ssh when it has ended. */
  ended: Promise<string>;
  /** Closes the connection with all channels; what runs on the worker is not ended by that. */
  close(): Promise<void>;
  /** The end of the run: the connection is closed, unless it is sound and outlives the run. */
  release(isSound: boolean): Promise<void>;
  /** True for a connection of an earlier run that has not answered yet: the worker may be gone unnoticed. */
  isOld: boolean;
}

/** Opens connections whose control sockets are in one folder. */
export interface Masters {
  /**
   * Connects and signs in; answers the messages of ssh where that failed. `socket` is the name of the control socket.
   * Throws `cancelled` when the signal is aborted.
   */
  open(socket: string, host: string, signal: AbortSignal): Promise<Master | string>;
  /** The end of a run. */
  close(): Promise<void>;
}

/** The longest that a login takes; then it is given up. */
export const OPEN_LIMIT_MS = 40_000;
const MASTER_GRACE_MS = 2_000;
/** Of messages that nobody may ever read, the end is kept. */
const MESSAGE_BYTES = 4_000;

/** Connections that are children of this process, and end with it. */
export class OwnMasters implements Masters {
  readonly #folder: string;
  readonly #launcher: Launcher;
  readonly #isMember: boolean;
  readonly #awaited = new Map<string, () => unknown>();
  #watcher: FSWatcher | undefined;
  #opened = 0;

  /** With `isMember` each ssh belongs to the group of this process, else it leads one that the launcher reports. */
  constructor(folder: string, launcher: Launcher, isMember = false) {
    this.#folder = folder;
    this.#launcher = launcher;
    this.#isMember = isMember;
  }

  async open(socket: string, host: string, signal: AbortSignal): Promise<Master | string> {
    const path = `${this.#folder}/${socket}`;
    // A socket that a dead master left behind would keep the new master from listening.
    if (existsSync(path)) await remove(path);
    const made = this.#made(socket);
    // A file, because a pipe for each connection would cost descriptors; one of its own, because the messages of the
    // connection before may not have been read.
    const file = `${path}.log${++this.#opened}`;
    const log = openSync(file, "w", PRIVATE_FILE);
    const start = { stderr: log, isMember: this.#isMember };
    const child = await this.#launcher.start(masterArgv(this.#folder, socket, host), start).finally(() => closeSync(log));
    const ended = child.ended.then(() => endOf(file));
    const close = () => child.end(MASTER_GRACE_MS);
    const first = await unlessCut(Promise.race([made, child.ended]), { signal, timeoutMs: OPEN_LIMIT_MS });
    if (first === "made") return { ended, close, release: close, isOld: false };
    if (first === "cancelled" || first === "timeout") await close();
    if (first === "cancelled") throw cancelledFailure();
    return first === "timeout" ? "the login timed out" : await ended;
  }

  /** Removes the folder; the connections have been closed. */
  async close(): Promise<void> {
    this.#watcher?.close();
    await remove(this.#folder);
  }

  /** Resolves when something of that name is made in the folder. */
  #made(name: string): Promise<"made"> {
    const { promise, resolve } = Promise.withResolvers<"made">();
    // What is told late is that an earlier one was removed.
    this.#awaited.set(name, () => existsSync(`${this.#folder}/${name}`) && resolve("made"));
    try {
      this.#watcher ??= watch(this.#folder, { persistent: false }, (_event, found) => this.#awaited.get(found ?? "")?.());
    } catch (cause) {
      throw new Failure("failed", `Cannot watch ${this.#folder} for connections: ${messageOf(cause)}`, { cause });
    }
    return promise;
  }
}

/** Connections that end with the run, and their folder. */
export async function ownMasters(setup: SshSetup & { launcher: Launcher }): Promise<{ folder: string; masters: Masters }> {
  const folder = await makeSshFolder(identify(process.pid) as ProcessIdentity, setup, "own");
  return { folder, masters: new OwnMasters(folder, setup.launcher) };
}

/** Takes the end of a file of messages, and removes the file; nothing where it is gone. */
async function endOf(file: string): Promise<string> {
  await using handle = await open(file).catch(() => undefined);
  if (!handle) return "";
  await remove(file);
  const { size } = await handle.stat();
  const from = Math.max(0, size - MESSAGE_BYTES);
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(MESSAGE_BYTES), 0, MESSAGE_BYTES, from);
  return buffer.toString("utf8", 0, bytesRead);
}
