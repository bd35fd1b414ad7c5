import { readFileSync } from "node:fs";
import path from "node:path";
import { type Content, createFile } from "../bucket/base/contents.ts";
import type { Layout } from "../bucket/base/layout.ts";
import { Failure, hasErrno } from "../core/errors.ts";
import { exists, makePrivateFolder, namesIn, PRIVATE_FILE, remove } from "../core/files.ts";
import { PROGRAM_ROOT, selfArguments } from "../core/self.ts";
import type { Argv, CommandOptions, CommandOutcome, Launcher } from "../core/spawn.ts";

/** Where a job keeps its scripts. */
const HOOKS_FOLDER = "_hooks";

/** A file for a script; its path is relative to the folder of the job. */
export interface ScriptFile {
  path: string;
  mode: number;
  content: Content;
}

/** Makes Node read `.js` and `.ts` as modules, whatever package.json the folders above have. */
const MODULES: ScriptFile = {
  path: `${HOOKS_FOLDER}/package.json`,
  mode: PRIVATE_FILE,
  content: Buffer.from('{"type": "module"}\n'),
};
/** Bash stays while the script runs, so that bash tells how the script was ended. */
const BASH = ["bash", "-c", '"$@"; exit $?', "bash"] as const;
/** Below the job; `_modules` is an older name of `_hooks`. */
const VIRTUAL_ENVIRONMENTS = ["_hooks/.venv", "_hooks/venv", "_modules/.venv", "_modules/venv"];
const SCRIPT_KINDS = ["py", "ts", "js"];

let helpers: readonly ScriptFile[] | undefined;

/**
 * The libraries that hook scripts import, staged beside them (hook-runtime.md, Helper libraries). Their sources are in
 * lib/hook/helpers.
 */
export function helperFiles(): readonly ScriptFile[] {
  helpers ??= ["ops.py", "ops.ts"].map((name) => ({
    path: `${HOOKS_FOLDER}/${name}`,
    mode: PRIVATE_FILE,
    content: readFileSync(`${PROGRAM_ROOT}lib/hook/helpers/${name}`),
  }));
  return helpers;
}

/** All that is staged for a script: helpers go before files of the job with the same name. */
export function scriptFiles(files: readonly ScriptFile[]): ScriptFile[] {
  const all = [MODULES, ...files, ...helperFiles()];
  return [...new Map(all.map((file) => [file.path, file])).values()];
}

/**
 * Puts {@link scriptFiles} into the staging folder of an allocation (hook-runtime.md, Execution model 6). `_hooks` is made
 * anew each time. Other files that a deploy has staged stay as they are.
 */
export async function stageScripts(folder: string, files: readonly ScriptFile[]): Promise<void> {
  await remove(path.join(folder, HOOKS_FOLDER));
  for (const file of files) {
    const target = path.join(folder, file.path);
    await makePrivateFolder(path.dirname(target));
    await createFile(target, file.content, file.mode).catch((error: unknown) => {
      if (!hasErrno(error, "EEXIST")) throw error;
    });
  }
}

/** A script that is staged: in a folder, these files. */
interface StagedScript {
  folder: string;
  files: readonly ScriptFile[];
  job: string;
  hook: string;
}

/**
 * The command that runs a staged hook of the bucket: for Python the virtual environment of the job, else the `python3` on PATH,
 * output unbuffered; for TypeScript and JavaScript the Node that runs this program. Throws `ErrHookFileNotFound`.
 */
export async function scriptCommand(layout: Layout, { folder, files, job, hook }: StagedScript): Promise<Argv> {
  for (const kind of SCRIPT_KINDS) {
    const name = `${HOOKS_FOLDER}/${hook}.${kind}`;
    if (!files.some((file) => file.path === name)) continue;
    const file = path.join(folder, name);
    return kind === "py" ? [await pythonFor(layout, job), "-u", file] : selfArguments("hook-run", file);
  }
  throw new Failure("ErrHookFileNotFound", `Cannot run hook ${hook} of job ${job}: it has no script`);
}

async function pythonFor(layout: Layout, job: string): Promise<string> {
  // The folder may have capitals that the name in the catalog does not have.
  const folder = (await namesIn(layout.jobs)).find((name) => name.toLowerCase() === job) ?? job;
  for (const name of VIRTUAL_ENVIRONMENTS) {
    const interpreter = path.join(layout.jobs, folder, name, "bin", "python3");
    if (await exists(interpreter)) return interpreter;
  }
  return "python3";
}

/** How a script runs: `cwd` is the bucket's root, `environment` all that the script sees, apart from `user`'s own. */
type HookScriptOptions = Required<Pick<CommandOptions, "cwd" | "environment" | "onLine" | "secrets" | "signal">> &
  Pick<CommandOptions, "user">;

/**
 * Runs a script to its end, in a process group of its own that a cancel ends; a script has no time limit (decisions:
 * Hook runtime API). Exit codes are not errors here. Throws `failed` when the script cannot be started.
 */
export function runScript(launcher: Launcher, argv: Argv, options: HookScriptOptions): Promise<CommandOutcome> {
  return launcher.run([...BASH, ...argv], { ...options, keepBytes: 0 });
}
