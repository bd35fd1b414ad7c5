import { hash } from "node:crypto";
import { statSync } from "node:fs";
import { lstat, mkdtemp, readdir, readFile, readlink, symlink, writeFile } from "node:fs/promises";
import path from "node:path";
import { placed } from "../../core/errors.ts";
import { exists, OF_OTHERS, PRIVATE_FILE, remove } from "../../core/files.ts";
import { isAlive, type ProcessIdentity } from "../../core/process.ts";
import { programVersion } from "../../core/self.ts";
import { type WorkerAddress, WorkerFailure } from "../base/transport.ts";
import { SSH_FILES, type SshSettings, sshConfig, storeKey } from "./openssh.ts";

/**
 * Where folders are made: in memory where that can be, because a connection costs two files. The paths are short: that of a
 * control socket has at most 104 bytes.
 */
export const SSH_PLACES = ["/dev/shm", "/tmp"];
/** `ops-ssh-<pid>-<start of the process>-`; the rest makes it a folder of its own. */
const FOLDER_NAME = /^ops-ssh-(?<pid>\d+)-(?<start_time>\d+)-(?<kept>kept-)?/;

/** What the connections of a folder are opened with. */
export interface SshSetup {
  settings: SshSettings;
  workers: readonly WorkerAddress[];
}

/** Throws `failed` where there is no private key for the workers. */
export async function requireKey(settings: SshSettings): Promise<void> {
  if (await exists(settings.keyFile)) return;
  const missing = `Cannot reach workers over ssh: there is no private key secrets/${path.basename(settings.keyFile)}`;
  const advice = `make one: \`ops ssh-key create\`, or store yours: ${storeKey(settings)}`;
  throw new WorkerFailure("failed", "", `${missing}; ${advice}`);
}

/**
 * Makes the folder of connections, `kept` for those of a keeper. It counts as left behind once its owner is gone.
 */
export async function makeSshFolder(
  { pid, start_time }: ProcessIdentity,
  { settings, workers }: SshSetup,
  kept: "kept" | "own",
): Promise<string> {
  const name = `ops-ssh-${pid}-${start_time}-${kept === "kept" ? "kept-" : ""}`;
  const [inMemory, onDisk] = SSH_PLACES.map((place) => path.join(place, name)) as [string, string];
  const folder = await mkdtemp(inMemory).catch(() => mkdtemp(onDisk));
  try {
    for (const file of [SSH_FILES.config, SSH_FILES.masters])
      await writeFile(path.join(folder, file), sshConfig(file, folder, settings, workers), { mode: PRIVATE_FILE });
    await symlink(path.resolve(settings.keyFile), path.join(folder, SSH_FILES.key));
    if (settings.oldKeyFile !== undefined) await symlink(path.resolve(settings.oldKeyFile), path.join(folder, SSH_FILES.oldKey));
    await symlink(path.resolve(settings.knownHostsFile), path.join(folder, SSH_FILES.knownHosts));
    return folder;
  } catch (error) {
    await remove(folder);
    throw placed(error, folder);
  }
}

/** The folder of a keeper's connections. */
export interface KeptFolder {
  folder: string;
  owner: ProcessIdentity;
}

/** The folders of living keepers of the bucket with these known hosts. What dead processes left behind is removed. */
export async function keptFolders(knownHostsFile: string): Promise<KeptFolder[]> {
  const found: KeptFolder[] = [];
  const names = SSH_PLACES.map(async (place) => (await readdir(place).catch(() => [])).map((name) => path.join(place, name)));
  for (const folder of (await Promise.all(names)).flat()) {
    const { pid, start_time = "", kept } = FOLDER_NAME.exec(path.basename(folder))?.groups ?? {};
    if (pid === undefined) continue;
    const stats = await lstat(folder).catch(() => undefined);
    // In a folder that only this user may enter, nobody else can have made the link.
    const isOurs = stats?.isDirectory() && stats.uid === process.getuid?.() && (stats.mode & OF_OTHERS) === 0;
    const link = isOurs ? await readlink(path.join(folder, SSH_FILES.knownHosts)).catch(() => "") : "";
    if (link !== path.resolve(knownHostsFile)) continue;
    const owner = { pid: Number(pid), start_time };
    if (!isAlive(owner)) await remove(folder);
    else if (kept) found.push({ folder, owner });
  }
  return found;
}

/** What changes with every write to the files that {@link digestIn} reads. */
export function stampIn(folder: string): string {
  const files = [SSH_FILES.config, SSH_FILES.key, SSH_FILES.oldKey, SSH_FILES.knownHosts];
  return files.map((name) => stampOf(path.join(folder, name))).join();
}

function stampOf(file: string): string {
  try {
    const { ino, size, ctimeNs } = statSync(file, { bigint: true });
    return `${ino} ${size} ${ctimeNs}`;
  } catch {
    return "";
  }
}

/** A digest of all that decides which connections are opened with the files in this folder. */
export async function digestIn(folder: string, config?: string): Promise<string> {
  const content = async (name: string) => readFile(path.join(folder, name), "utf8").catch(() => null);
  const named = [SSH_FILES.key, SSH_FILES.oldKey, SSH_FILES.knownHosts].map(content);
  const files = [config ?? (await content(SSH_FILES.config)), ...(await Promise.all(named))];
  return hash("sha256", JSON.stringify([programVersion(), ...files]));
}
