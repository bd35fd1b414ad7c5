import { type FSWatcher, watch } from "node:fs";
import { aborted, expired } from "../../core/async.ts";
import { cancelledFailure } from "../../core/errors.ts";
import { remove } from "../../core/files.ts";
import type { Argv, Companion, Launcher } from "../../core/spawn.ts";

const OPEN_LIMIT_MS = 40_000;
const GRACE_MS = 2_000;
const MESSAGE_CHARACTERS = 4_000;

/** Tells when a control socket appears in the folder where all of a run are. */
export class SocketFolder {
  readonly folder: string;
  readonly #watcher: FSWatcher;
  readonly #waiting = new Map<string, () => void>();

  constructor(folder: string) {
    this.folder = folder;
    this.#watcher = watch(folder, (_event, name) => this.#waiting.get(name ?? "")?.());
  }

  /** Resolves when something of that name is made. */
  async made(name: string): Promise<"made"> {
    await new Promise<void>((resolve) => this.#waiting.set(name, resolve));
    this.#waiting.delete(name);
    return "made";
  }

  /** Ends the watch. */
  close(): void {
    this.#watcher.close();
  }
}

/** The open connection to a worker: a foreground ssh whose control socket the channels use. */
export class Master {
  /** True until its ssh has ended. */
  isAlive = true;
  readonly #child: Companion;
  #messages = "";

  private constructor(child: Companion) {
    this.#child = child;
    // It has no session, so there is no output but its messages.
    child.stdout.resume();
    child.stderr.on("data", (chunk: Buffer) => {
      this.#messages = `${this.#messages}${chunk}`.slice(-MESSAGE_CHARACTERS);
    });
    void child.ended.then(() => {
      this.isAlive = false;
    });
  }

  /**
   * Connects and signs in; answers what ssh said where that failed. Throws `cancelled` when the signal is aborted first.
   */
  static async open(
    launcher: Launcher,
    sockets: SocketFolder,
    socket: string,
    argv: Argv,
    signal: AbortSignal | undefined,
  ): Promise<Master | string> {
    // What a master that died left behind would keep the new one from listening.
    await remove(`${sockets.folder}/${socket}`);
    const made = sockets.made(socket);
    const master = new Master(await launcher.start(argv));
    const stop = new AbortController();
    try {
      const first = await Promise.race([
        made,
        master.#child.ended.then(() => "ended" as const),
        aborted(signal, stop.signal),
        expired(OPEN_LIMIT_MS, stop.signal),
      ]);
      if (first === "made") return master;
      if (first !== "ended") await master.close();
      if (first === "cancelled") throw cancelledFailure();
      return first === "timeout" ? "the login timed out" : master.#messages;
    } finally {
      stop.abort();
    }
  }

  /** Resolves with what it said when its ssh has ended. */
  get ended(): Promise<string> {
    return this.#child.ended.then(() => this.#messages);
  }

  /** Closes the connection with all that runs over it; what runs on the worker is not ended by that. */
  close(): Promise<void> {
    return this.#child.end(GRACE_MS);
  }
}
