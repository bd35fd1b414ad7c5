import { realpath } from "node:fs/promises";
import { type Layout, layoutOf } from "../../bucket/base/layout.ts";
import { stagingFolder } from "../../bucket/catalog/staging.ts";
import { Failure } from "../../core/errors.ts";
import { makePrivateFolder, writeAtomic } from "../../core/files.ts";
import type { OtherUser } from "../../core/spawn.ts";
import { type ScriptFile, stageScripts } from "../../hook/scripts.ts";
import type { OperationContext } from "../base/context.ts";
import type { Fleet } from "../base/fleet.ts";

/** Where the scripts of a session run, and as whom. */
export interface ScriptPlace {
  /** Of the folder that is a bucket's root to the scripts: absolute, without symbolic links. */
  layout: Layout;
  /** Without one, scripts run as the user of this program. */
  user: OtherUser | undefined;
  /** The configuration for `ssh -F`; undefined where no worker can be reached over ssh. */
  sshConfig: string | undefined;
  /** Puts these files where a script of the allocation finds them, and answers the folder. */
  stage(worker: string, job: string, files: readonly ScriptFile[]): Promise<string>;
  close(): Promise<void>;
}

/** Opens the bucket itself as the place of a session's scripts. `workers` is the content of `OPS_WORKERS_FILE`. */
export async function openPlace(context: OperationContext, fleet: Fleet, workers: string): Promise<ScriptPlace> {
  const layout = layoutOf(await realpath(context.layout.root));
  await makePrivateFolder(layout.tmp);
  await writeAtomic(layout.hookWorkers, workers);
  return {
    layout,
    user: undefined,
    sshConfig: await unlessWithoutSsh(context, () => fleet.sshConfigFile()),
    async stage(worker, job, files) {
      const folder = stagingFolder(layout, worker, job);
      await stageScripts(folder, files);
      return folder;
    },
    async close() {},
  };
}

/** Scripts that never use ssh run without a key, too. */
export async function unlessWithoutSsh<T>(
  { log, signal }: Pick<OperationContext, "log" | "signal">,
  open: () => Promise<T | undefined>,
): Promise<T | undefined> {
  try {
    return await open();
  } catch (error) {
    if (!(error instanceof Failure) || signal.aborted) throw error;
    log.warn(`hooks cannot use ssh: ${error.message}`);
    return undefined;
  }
}
