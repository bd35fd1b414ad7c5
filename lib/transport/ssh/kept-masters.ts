import { connect } from "node:net";
import type { Duplex } from "node:stream";
import { unlessCut, within } from "../../core/async.ts";
import { cancelledFailure } from "../../core/errors.ts";
import { remove } from "../../core/files.ts";
import { identify, isAlive, type ProcessIdentity, signalProcess } from "../../core/process.ts";
import { selfArguments } from "../../core/self.ts";
import type { Launcher } from "../../core/spawn.ts";
import { digestIn, type KeptFolder, makeSshFolder, type SshSetup } from "./folder.ts";
import { type FromKeeper, hear, say, type ToKeeper } from "./keeper.ts";
import { type Master, type Masters, OPEN_LIMIT_MS, OwnMasters } from "./masters.ts";
import { SSH_FILES, sshConfig } from "./openssh.ts";

/** How connections outlive a run. */
export interface Keeping {
  /** `ssh_keep_seconds`. */
  seconds: number;
  /** The server of the run, with which the connections end; null on the command line. */
  server: ProcessIdentity | null;
}

/** A keeper answers at once, but its start takes a moment, and all takes longer on a busy machine. */
const READY_LIMIT_MS = 5_000;
const ANSWER_LIMIT_MS = OPEN_LIMIT_MS + READY_LIMIT_MS;

/** What the connections of a run are opened with. */
interface Setup extends SshSetup {
  launcher: Launcher;
  keeping: Keeping;
}

/**
 * The connections of the bucket's keeper, and their folder: of the one that lives, or of a new one where there is none,
 * where it does not answer, or where it keeps connections that were opened with other settings, keys or host keys.
 * Undefined where no keeper can be had. Only for the holder of the bucket's lock: there is one keeper at most.
 */
export async function keptMasters(setup: Setup, living: readonly KeptFolder[]) {
  for (const place of living) {
    if (setup.keeping.seconds === 0) {
      signalProcess(-place.owner.pid, "SIGTERM");
      continue;
    }
    const channel = connect(`${place.folder}/${SSH_FILES.keeper}`);
    const config = sshConfig(SSH_FILES.config, place.folder, setup.settings, setup.workers);
    const masters = await attached(channel, place, setup, config);
    if (masters) return { folder: place.folder, masters };
    // A keeper that refuses ends by itself; one that hangs would be asked again by every run.
    if (isAlive(place.owner)) signalProcess(-place.owner.pid, "SIGKILL");
    await remove(place.folder);
  }
  if (setup.keeping.seconds === 0) return undefined;
  const { pid, channel } = await setup.launcher.detach(selfArguments("keep"));
  const owner = identify(pid);
  if (!owner) {
    channel.destroy();
    return undefined;
  }
  const folder = await makeSshFolder(owner, setup, "kept");
  const masters = await attached(channel, { folder, owner }, setup);
  if (masters) return { folder, masters };
  signalProcess(-pid, "SIGKILL");
  await remove(folder);
  return undefined;
}

async function attached(
  channel: Duplex,
  { folder, owner }: KeptFolder,
  { launcher, keeping }: Setup,
  config?: string,
): Promise<Masters | undefined> {
  const masters = new KeptMasters(channel, owner, new OwnMasters(folder, launcher));
  // Who must end at once says no farewell, and the keeper ends, too.
  launcher.ending.addEventListener("abort", () => channel.destroy(), { once: true });
  const { seconds, server } = keeping;
  say(channel, { type: "hello", folder, digest: await digestIn(folder, config), seconds, server });
  if (await within(masters.isReady, READY_LIMIT_MS)) return masters;
  channel.destroy();
  return undefined;
}

/** What is known about a connection that the keeper was asked for. */
interface Asked {
  socket: string;
  opened: PromiseWithResolvers<Master | string | undefined>;
  ended: PromiseWithResolvers<string>;
}

/** Connections of a keeper. Where the keeper ends before the run, further ones are the run's own. */
class KeptMasters implements Masters {
  /** False when the channel ends instead. */
  readonly isReady: Promise<boolean>;
  readonly #channel: Duplex;
  readonly #keeper: ProcessIdentity;
  readonly #own: OwnMasters;
  readonly #asked: Asked[] = [];
  #isLeft = false;

  constructor(channel: Duplex, keeper: ProcessIdentity, own: OwnMasters) {
    this.#channel = channel;
    this.#keeper = keeper;
    this.#own = own;
    const { promise, resolve } = Promise.withResolvers<boolean>();
    this.isReady = promise;
    hear<FromKeeper>(channel, (answer) => {
      if (answer.type === "ready") resolve(true);
      else this.#onAnswer(answer);
    });
    channel.once("close", () => {
      resolve(false);
      for (const { opened, ended } of this.#asked) {
        opened.resolve(undefined);
        ended.resolve("the process that keeps the connections has ended");
      }
    });
  }

  async open(socket: string, host: string, signal: AbortSignal): Promise<Master | string> {
    if (this.#channel.destroyed) return await this.#own.open(socket, host, signal);
    const asked: Asked = { socket, opened: Promise.withResolvers(), ended: Promise.withResolvers() };
    const id = this.#asked.push(asked) - 1;
    this.#say({ type: "open", id, socket, host });
    const opened = await unlessCut(asked.opened.promise, { signal, timeoutMs: ANSWER_LIMIT_MS });
    if (opened === "cancelled") {
      this.#say({ type: "close", socket });
      throw cancelledFailure();
    }
    if (opened !== undefined && opened !== "timeout") return opened;
    if (opened === "timeout") signalProcess(-this.#keeper.pid, "SIGKILL");
    return await this.#own.open(socket, host, signal);
  }

  async close(): Promise<void> {
    if (this.#isLeft) return;
    this.#isLeft = true;
    if (this.#channel.destroyed) return await this.#own.close();
    this.#say({ type: "bye" });
    await new Promise<void>((resolve) => this.#channel.end(resolve));
    this.#channel.destroy();
  }

  #say(line: ToKeeper): void {
    say(this.#channel, line);
  }

  #onAnswer(answer: Exclude<FromKeeper, { type: "ready" }>): void {
    const { socket, opened, ended } = this.#asked[answer.id] as Asked;
    if (answer.type === "ended") {
      ended.resolve(answer.messages);
      opened.resolve(answer.messages);
      return;
    }
    const close = async () => {
      this.#say({ type: "close", socket });
      await ended.promise;
    };
    const release = async (isSound: boolean) => {
      if (!isSound) await close();
    };
    opened.resolve({ ended: ended.promise, close, release, isOld: answer.isOld });
  }
}
