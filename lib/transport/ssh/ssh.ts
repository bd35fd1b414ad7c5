import { lstat, mkdtemp, readdir, readlink, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { Failure, messageOf } from "../../core/errors.ts";
import { exists, PRIVATE_FILE, remove } from "../../core/files.ts";
import { identify, isAlive, type ProcessIdentity } from "../../core/process.ts";
import type { Launcher } from "../../core/spawn.ts";
import type { Transport, WorkerAddress } from "../base/transport.ts";
import { SSH_FILES, type SshSettings, socketName, sshConfig } from "./argv.ts";
import { SshConnection } from "./ssh-connection.ts";
import { Handshakes, Limit } from "./ssh-limits.ts";
import type { SshRun } from "./ssh-link.ts";
import { SocketFolder } from "./ssh-master.ts";

/** Short, because a control socket's path has at most 104 bytes. */
const PLACE = "/tmp";
/** `ops-ssh-<pid>-<start of the process>-`; the rest makes it a folder of its own. */
const FOLDER = /^ops-ssh-(?<pid>\d+)-(?<start_time>\d+)-/;

/** All ssh connections of a run: one per worker at most, each opened when it is first needed (decisions: Workers and transports). */
export class SshConnections {
  readonly #run: SshRun;
  readonly #workers: readonly WorkerAddress[];
  readonly #open = new Map<string, SshConnection>();

  private constructor(run: SshRun, workers: readonly WorkerAddress[]) {
    this.#run = run;
    this.#workers = workers;
  }

  /**
   * Writes the configuration for these workers; connects to none yet. Throws `failed` where there is no private key,
   * or where a value cannot be part of a configuration.
   */
  static async open(
    settings: SshSettings,
    workers: readonly WorkerAddress[],
    launcher: Launcher,
  ): Promise<SshConnections> {
    const { keyFile } = settings;
    if (!(await exists(keyFile)))
      throw new Failure(
        "failed",
        `Cannot reach workers over ssh: there is no private key secrets/${path.basename(keyFile)}; upload one (see docs/ssh.md)`,
      );
    const knownHosts = path.resolve(settings.knownHostsFile);
    await removeLeftovers(knownHosts);
    const { pid, start_time } = identify(process.pid) as ProcessIdentity;
    const folder = await mkdtemp(path.join(PLACE, `ops-ssh-${pid}-${start_time}-`));
    try {
      const text = sshConfig(folder, settings, workers);
      await writeFile(path.join(folder, SSH_FILES.config), text, { mode: PRIVATE_FILE });
      await symlink(path.resolve(keyFile), path.join(folder, SSH_FILES.key));
      await symlink(knownHosts, path.join(folder, SSH_FILES.knownHosts));
      const { concurrency } = settings;
      const limits = { sessions: new Limit(concurrency), handshakes: new Handshakes(concurrency) };
      return new SshConnections({ settings, launcher, sockets: watched(folder), ...limits }, workers);
    } catch (error) {
      await remove(folder);
      throw error;
    }
  }

  /** The file for `ssh -F`; it has an entry per worker, under the worker's own name. */
  get configFile(): string {
    return path.join(this.#run.sockets.folder, SSH_FILES.config);
  }

  /** The way to one of the workers. */
  transport(worker: WorkerAddress, bucketId: string): Transport {
    const index = this.#workers.findIndex(({ host }) => host === worker.host);
    if (index < 0) throw new Failure("internal", `no ssh connection was prepared for worker ${worker.host}`);
    const folder = path.posix.join(worker.root, bucketId);
    const open = this.#open.get(worker.host);
    const connection = open ?? new SshConnection(this.#run, worker, socketName(index), folder);
    this.#open.set(worker.host, connection);
    return {
      worker,
      folder,
      script: (text, options = {}) => connection.script(text, options),
      close: () => connection.close(),
    };
  }

  /** Closes every connection and removes the configuration. */
  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map((connection) => connection.close()));
    const { sockets } = this.#run;
    sockets.close();
    await remove(sockets.folder);
  }
}

function watched(folder: string): SocketFolder {
  try {
    return new SocketFolder(folder);
  } catch (cause) {
    throw new Failure("failed", `Cannot watch ${folder} for connections: ${messageOf(cause)}`, { cause });
  }
}

/** Removes the folders that runs of this bucket left behind when they were killed. */
async function removeLeftovers(knownHosts: string): Promise<void> {
  for (const name of await readdir(PLACE)) {
    const { pid, start_time = "" } = FOLDER.exec(name)?.groups ?? {};
    if (pid === undefined || isAlive({ pid: Number(pid), start_time })) continue;
    const folder = path.join(PLACE, name);
    const found = await lstat(folder).catch(() => undefined);
    // In a folder that only this user may enter, nobody else can have made the link.
    const isOurs = found?.isDirectory() && found.uid === process.getuid?.() && (found.mode & 0o077) === 0;
    const link = isOurs ? await readlink(path.join(folder, SSH_FILES.knownHosts)).catch(() => "") : "";
    if (link === knownHosts) await remove(folder);
  }
}
