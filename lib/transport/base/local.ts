import { lstat, mkdir } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { exists } from "../../core/files.ts";
import type { Launcher, OtherUser } from "../../core/spawn.ts";
import { type Transport, type WorkerAddress, WorkerFailure } from "./transport.ts";

const OTHERS_MAY_WRITE = 0o022;
/** The commands of another user make what they need themselves. */
const MAKE = 'umask 022 && mkdir -p -- "$1"';
const MAKE_LIMIT_MS = 10_000;

/**
 * This machine as a worker: scripts run as the user of this program, or as `user` where one is given, never through sudo.
 * Throws `failed` for a bucket folder that another user owns or may write to: scripts there would be under that user's
 * control.
 */
export function localTransport(worker: WorkerAddress, bucketId: string, launcher: Launcher, user?: OtherUser): Transport {
  const folder = path.join(worker.root, bucketId);
  return {
    worker,
    folder,
    async script(text, { args = [], isFolderOptional = false, onBegin, ...options } = {}) {
      const isThere = !isFolderOptional || (await exists(folder));
      if (isThere) await (user ? prepareFor(user, worker, folder, launcher) : prepare(worker, folder));
      const cwd = isThere ? folder : (user?.home ?? homedir());
      if (!options.signal?.aborted) onBegin?.();
      return launcher.run(["sh", "-c", text, "sh", ...args], { cwd, user, ...options });
    },
    async close() {},
  };
}

async function prepare(worker: WorkerAddress, folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o755 });
    if (await isOf(process.getuid?.(), folder)) return;
  } catch (cause) {
    throw new WorkerFailure("failed", worker.host, `Cannot make the folder of {workers}: ${String(cause)}`);
  }
  const text = `Cannot use ${folder} on {workers}: it must be a folder of the user who runs ops, with mode 0755 or less`;
  throw new WorkerFailure("failed", worker.host, text);
}

async function prepareFor(user: OtherUser, worker: WorkerAddress, folder: string, launcher: Launcher): Promise<void> {
  const { name } = user;
  if (!(await exists(folder))) {
    const { exitCode, stderr } = await launcher.run(["sh", "-c", MAKE, "sh", folder], { user, timeoutMs: MAKE_LIMIT_MS });
    const text = `Cannot make the folder of {workers} as ${name}: ${stderr.trim()}; make it: install -d -o ${name} ${folder}`;
    if (exitCode !== 0) throw new WorkerFailure("failed", worker.host, text);
  }
  if (await isOf(user.uid, folder)) return;
  const text = `Cannot use ${folder} on {workers}: it must be a folder of ${name} (--hook-user), with mode 0755 or less; run: chown -R ${name}: ${folder}`;
  throw new WorkerFailure("failed", worker.host, text);
}

async function isOf(uid: number | undefined, folder: string): Promise<boolean> {
  const found = await lstat(folder);
  return found.isDirectory() && found.uid === uid && !(found.mode & OTHERS_MAY_WRITE);
}
