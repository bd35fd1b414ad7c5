import { createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import type { Duplex } from "node:stream";
import { messageOf } from "../../core/errors.ts";
import { isAlive, type ProcessIdentity } from "../../core/process.ts";
import type { Launcher } from "../../core/spawn.ts";
import { digestIn, stampIn } from "./folder.ts";
import { type Master, OwnMasters } from "./masters.ts";
import { SSH_FILES } from "./openssh.ts";

/** What a run says to a keeper, each a line of JSON. */
export type ToKeeper =
  | {
      type: "hello";
      /** The folder of the connections, and the digest of all that they were opened with. */
      folder: string;
      digest: string;
      /** For how long the connections are kept without a run. */
      seconds: number;
      /** The connections end with this server; null for a run of the command line. */
      server: ProcessIdentity | null;
    }
  /** Asks for a connection; the answers have the same number. */
  | { type: "open"; id: number; socket: string; host: string }
  | { type: "close"; socket: string }
  | { type: "bye" };

/** What a keeper says to a run, each a line of JSON. */
export type FromKeeper =
  | { type: "ready" }
  | { type: "opened"; id: number; isOld: boolean }
  | { type: "ended"; id: number; messages: string };

/** Says a line of JSON. */
export function say(channel: Duplex, line: ToKeeper | FromKeeper): void {
  if (channel.writable) channel.write(`${JSON.stringify(line)}\n`);
}

/** Hears lines of JSON; a line that is none ends the channel. */
export function hear<T extends ToKeeper | FromKeeper>(channel: Duplex, onLine: (line: T) => void): void {
  channel.on("error", () => {});
  const lines = createInterface({ input: channel });
  lines.on("error", () => {});
  lines.on("line", (text) => {
    try {
      onLine(JSON.parse(text) as T);
    } catch {
      channel.destroy();
    }
  });
}

const LOOK_MS = 1_000;
/** Ends the group that it belongs to, once its standard input ends. */
const GUARD = "read _; kill -9 0";

/** A connection that is kept, or on its way. */
interface Held {
  stop: AbortController;
  opened: Promise<Master | string>;
}

/**
 * The process that keeps the connections of a bucket (decisions: Workers and transports). It serves the run that has
 * started it, over `first`, and later runs that find its socket in the folder. Resolves when all connections have ended:
 * because the signal was aborted, a run ended without a farewell, or no run came for too long; because the server is
 * gone; or because key, known hosts or configuration are other ones now.
 */
export async function keepConnections(first: Duplex, launcher: Launcher, signal: AbortSignal): Promise<void> {
  const keeper = new Keeper(launcher);
  signal.addEventListener("abort", () => keeper.end(), { once: true });
  keeper.serve(first);
  await keeper.over;
}

class Keeper {
  readonly #launcher: Launcher;
  readonly #over = Promise.withResolvers<void>();
  readonly #held = new Map<string, Held>();
  readonly #runs = new Set<Duplex>();
  #folder = "";
  #digest = "";
  #masters: OwnMasters | undefined;
  #server: ProcessIdentity | null = null;
  #keptMs = 0;
  #idleSince = 0;
  /** Of the files, when their digest was last the right one. */
  #stamp = "";
  #isEnding = false;

  constructor(launcher: Launcher) {
    this.#launcher = launcher;
  }

  get over(): Promise<void> {
    return this.#over.promise;
  }

  /** Serves a run until its end. */
  serve(run: Duplex): void {
    let isOver = false;
    this.#runs.add(run);
    hear<ToKeeper>(run, (order) => {
      if (order.type === "bye") isOver = this.#leave(run);
      else if (order.type === "hello") void this.#welcome(run, order).catch(() => this.end());
      else if (order.type === "open") void this.#open(run, order);
      else if (order.type === "close") void this.#close(order.socket);
    });
    run.once("close", () => {
      this.#leave(run);
      // A run that was killed may have left commands in sessions of these connections.
      if (!isOver) this.end();
    });
  }

  /** True: the run is over. */
  #leave(run: Duplex): true {
    this.#runs.delete(run);
    this.#idleSince = performance.now();
    return true;
  }

  end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    void this.#ended()
      .catch(() => {})
      .finally(this.#over.resolve);
  }

  async #ended(): Promise<void> {
    await Promise.all([...this.#held.keys()].map((socket) => this.#close(socket)));
    // A run that is still here goes on in the folder without this process.
    if (this.#runs.size === 0) await this.#masters?.close();
  }

  async #welcome(run: Duplex, hello: ToKeeper & { type: "hello" }): Promise<void> {
    if (this.#folder === "") await this.#begin(hello);
    if (this.#isEnding || hello.digest !== this.#digest) return this.end();
    this.#keptMs = hello.seconds * 1000;
    this.#server = hello.server ?? this.#server;
    say(run, { type: "ready" });
  }

  async #begin({ folder, digest }: ToKeeper & { type: "hello" }): Promise<void> {
    this.#folder = folder;
    this.#digest = digest;
    this.#masters = new OwnMasters(folder, this.#launcher, true);
    const guard = await this.#launcher.start(["sh", "-c", GUARD], { stdin: "pipe", isMember: true });
    void guard.ended.then(() => this.end());
    // While there is something to be kept, the guard keeps the process.
    const server = createServer((run: Socket) => this.serve(run)).unref();
    server.on("error", () => this.end());
    await new Promise<void>((resolve) => server.listen(`${folder}/${SSH_FILES.keeper}`, resolve));
    setInterval(() => void this.#look(), LOOK_MS).unref();
  }

  /** Ends what nobody may use any more. */
  async #look(): Promise<void> {
    if (this.#runs.size > 0) return;
    const isOverdue = performance.now() - this.#idleSince >= this.#keptMs;
    const isAlone = this.#server !== null && !isAlive(this.#server);
    if (isOverdue || isAlone || (await this.#isStale())) this.end();
  }

  /** The files are read only where something has changed: a keeper looks often. */
  async #isStale(): Promise<boolean> {
    const stamp = stampIn(this.#folder);
    if (stamp === this.#stamp) return false;
    this.#stamp = stamp;
    return (await digestIn(this.#folder)) !== this.#digest;
  }

  async #open(run: Duplex, { id, socket, host }: ToKeeper & { type: "open" }): Promise<void> {
    const known = this.#held.get(socket);
    const opened = await (known ?? this.#begun(socket, host)).opened;
    if (typeof opened !== "string") say(run, { type: "opened", id, isOld: known !== undefined });
    say(run, { type: "ended", id, messages: typeof opened === "string" ? opened : await opened.ended });
  }

  #begun(socket: string, host: string): Held {
    const stop = new AbortController();
    const opened = (this.#masters as OwnMasters).open(socket, host, stop.signal).catch(messageOf);
    const held = { stop, opened };
    this.#held.set(socket, held);
    void opened.then(async (master) => {
      if (typeof master !== "string") await master.ended;
      this.#held.delete(socket);
    });
    return held;
  }

  async #close(socket: string): Promise<void> {
    const held = this.#held.get(socket);
    held?.stop.abort();
    const master = await held?.opened;
    if (typeof master === "object") await master.close();
  }
}
