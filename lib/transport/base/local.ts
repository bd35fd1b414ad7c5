import { lstat, mkdir } from "node:fs/promises";
import { homedir } from "node:os";
import path from "node:path";
import { exists } from "../../core/files.ts";
import type { Launcher } from "../../core/spawn.ts";
import { type Transport, type WorkerAddress, WorkerFailure } from "./transport.ts";

const OTHERS_MAY_WRITE = 0o022;

/**
 * This machine as a worker: scripts run as the user of this program, never through sudo. Throws `failed` for a bucket
 * folder that another user owns or may write to: scripts there would be under that user's control.
 */
export function localTransport(worker: WorkerAddress, bucketId: string, launcher: Launcher): Transport {
  const folder = path.join(worker.root, bucketId);
  return {
    worker,
    folder,
    async script(text, { args = [], isFolderOptional = false, onBegin, ...options } = {}) {
      const isThere = !isFolderOptional || (await exists(folder));
      if (isThere) await prepare(worker, folder);
      const cwd = isThere ? folder : homedir();
      if (!options.signal?.aborted) onBegin?.();
      return launcher.run(["sh", "-c", text, "sh", ...args], { cwd, ...options });
    },
    async close() {},
  };
}

async function prepare(worker: WorkerAddress, folder: string): Promise<void> {
  try {
    await mkdir(folder, { recursive: true, mode: 0o755 });
    const found = await lstat(folder);
    if (found.isDirectory() && found.uid === process.getuid?.() && !(found.mode & OTHERS_MAY_WRITE)) return;
  } catch (cause) {
    throw new WorkerFailure("failed", worker.host, `Cannot make the folder of {workers}: ${String(cause)}`);
  }
  const text = `Cannot use ${folder} on {workers}: it must be a folder of the user who runs ops, with mode 0755 or less`;
  throw new WorkerFailure("failed", worker.host, text);
}
