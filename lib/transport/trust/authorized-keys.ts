import { Failure, messageOf, throwIfCancelled } from "../../core/errors.ts";
import type { Launcher } from "../../core/spawn.ts";
import { runScriptOn } from "../base/scripts.ts";
import type { Transport, WorkerAddress } from "../base/transport.ts";
import { WorkerFailure } from "../base/transport.ts";
import { parseJump, type SshSettings } from "../ssh/openssh.ts";
import { SshConnections } from "../ssh/ssh.ts";

/** A machine whose user the new key is to let in: a worker, or a jump host before workers. */
export interface KeyHolder {
  /** The worker's host, or `user@host:port` of a jump host. */
  name: string;
  isJump: boolean;
  address: WorkerAddress;
}

/** How holders are reached. */
interface HolderTools {
  /** With the keys that let in now. */
  settings: SshSettings;
  /** The file of the new private key. */
  newFile: string;
  /** The two keys of the change, as `<type> <base64>`. */
  keys: Record<"oldKey" | "newKey", string>;
  launcher: Launcher;
  signal: AbortSignal;
}

/** Longer than a login, with its repetitions. */
const LIMIT_MS = 60_000;

/** The workers over ssh, behind the jump hosts that they are reached by. */
export function keyHolders(workers: readonly WorkerAddress[], settings: SshSettings): KeyHolder[] {
  const jumps = new Map<string, KeyHolder>();
  for (const { sshJump } of workers) {
    if (sshJump === undefined) continue;
    const { user, host, port } = parseJump(sshJump, settings.user);
    const name = `${user}@${host}:${port}`;
    // No script of the bucket runs there, so there is no folder.
    const address: WorkerAddress = { host, connection: "ssh", root: "/nowhere", sshUser: user, sshPort: port };
    jumps.set(name, { name, isJump: true, address });
  }
  return [...jumps.values(), ...workers.map((address) => ({ name: address.host, isJump: false, address }))];
}

/**
 * The way to one holder during a change of the key. First the new key is put into its authorized_keys and tried out, then,
 * once the new key is in use everywhere, the old one is taken away.
 */
export class KeyHolding {
  readonly #holder: KeyHolder;
  readonly #tools: HolderTools;
  #proven: SshConnections | undefined;

  constructor(holder: KeyHolder, tools: HolderTools) {
    this.#holder = holder;
    this.#tools = tools;
  }

  /**
   * Installs the new key by the keys that let in now, and signs in with the new one alone. Throws `unreachable`, `cancelled`, or
   * `failed` where the machine answers and the new key does not let in.
   */
  async install(): Promise<void> {
    const { settings, signal } = this.#tools;
    const trouble = await this.#installed(settings).catch((error: unknown) => {
      if (!(error instanceof Failure)) throw error;
      return error;
    });
    // Where no key lets in now, the new one may: somebody may have put it there.
    if (trouble instanceof WorkerFailure && trouble.code === "unreachable" && !trouble.lasts) throw trouble;
    try {
      await this.#prove();
    } catch (error) {
      throwIfCancelled(signal);
      if (trouble) throw trouble;
      throw this.#refused(error);
    }
  }

  /** Takes the old key away, over the connection that the new key has opened. Throws like {@link install}. */
  async remove(): Promise<void> {
    const transport = this.#transport(this.#proven ?? (await this.#connected(this.#newSettings)));
    await this.#run(transport, "remove", "Cannot remove the old key on {workers}");
  }

  /** Closes what is open. */
  async close(): Promise<void> {
    await this.#proven?.close();
  }

  async #installed(settings: SshSettings): Promise<undefined> {
    const connections = await this.#connected(settings);
    try {
      await this.#run(this.#transport(connections), "install", "Cannot install the new key on {workers}");
    } finally {
      await connections.close();
    }
  }

  async #prove(): Promise<void> {
    const connections = await this.#connected(this.#newSettings);
    this.#proven = connections;
    const { signal } = this.#tools;
    await this.#transport(connections).script(":", { timeoutMs: LIMIT_MS, signal, isFolderOptional: true, isShort: true });
  }

  get #newSettings(): SshSettings {
    const { oldKeyFile: _, ...settings } = this.#tools.settings;
    return { ...settings, keyFile: this.#tools.newFile };
  }

  async #connected(settings: SshSettings): Promise<SshConnections> {
    // As the user who signs in, whose authorized_keys are meant.
    return await SshConnections.open({ ...settings, useSudo: false }, [this.#holder.address], this.#tools.launcher);
  }

  #transport(connections: SshConnections): Transport {
    return connections.transport(this.#holder.address, "none");
  }

  async #run(transport: Transport, what: "install" | "remove", doing: string): Promise<void> {
    const { keys, signal } = this.#tools;
    const [, old = ""] = keys.oldKey.split(" ");
    const args = [what, old, ...keys.newKey.split(" ")];
    await runScriptOn(transport, "authorize", doing.replace("{workers}", this.#holder.name), {
      args,
      timeoutMs: LIMIT_MS,
      signal,
      isFolderOptional: true,
    });
  }

  #refused(error: unknown): Failure {
    const { name } = this.#holder;
    const why = `the new key is in ~/.ssh/authorized_keys of ${name}, and does not let in: ${messageOf(error)}`;
    const advice = `does sshd there read another file (AuthorizedKeysFile)? put this line there, then again: ${this.#tools.keys.newKey}`;
    return new Failure("failed", `${why}; ${advice}`);
  }
}
