import { writeFile } from "node:fs/promises";
import path from "node:path";
import { hasErrno } from "../core/errors.ts";
import { makePrivateFolder, PRIVATE_FILE, remove } from "../core/files.ts";
import { helperFiles } from "./helpers.ts";

/** Where a job keeps its scripts. */
export const HOOKS_FOLDER = "_hooks";

/** A file for a script; its path is relative to the folder of the job. */
export interface ScriptFile {
  path: string;
  mode: number;
  content: Buffer;
}

/** Makes Node read `.js` and `.ts` as the modules they are, whatever lies in the folders above. */
const MODULES = { name: "package.json", content: Buffer.from('{"type": "module"}\n') };

/**
 * Puts the files of an allocation into its staging folder for a script (hook-runtime.md, Execution model 6). `_hooks`
 * is made anew each time, the helpers going before files of the job that have their names; of all other files, what a
 * deploy has staged there stays as it is.
 */
export async function stageScripts(folder: string, files: readonly ScriptFile[]): Promise<void> {
  await remove(path.join(folder, HOOKS_FOLDER));
  const own = ({ name, content }: { name: string; content: Buffer }) => ({
    path: `${HOOKS_FOLDER}/${name}`,
    mode: PRIVATE_FILE,
    content,
  });
  for (const file of [...helperFiles().map(own), ...files, own(MODULES)]) {
    const target = path.join(folder, file.path);
    await makePrivateFolder(path.dirname(target));
    await writeFile(target, file.content, { mode: file.mode, flag: "wx" }).catch((error: unknown) => {
      if (!hasErrno(error, "EEXIST")) throw error;
    });
  }
}
