import path from "node:path";
import type { Layout } from "../bucket/base/layout.ts";
import { Failure } from "../core/errors.ts";
import { exists, namesIn } from "../core/files.ts";
import { selfArguments } from "../core/self.ts";
import type { Argv, CommandOutcome, Launcher } from "../core/spawn.ts";
import type { Uncut } from "../core/streams.ts";
import { HOOKS_FOLDER } from "./staging.ts";

/** Bash stays, so that it is the one that tells how the script was ended. */
const BASH = ["bash", "-c", '"$@"; exit $?', "bash"] as const;
const VIRTUAL_ENVIRONMENTS = [".venv", "venv"];
const KINDS = ["py", "ts", "js"];

/** One process of a hook. */
interface ScriptRun {
  argv: Argv;
  /** The working directory. */
  bucketRoot: string;
  environment: Record<string, string>;
  onLine: (line: string, stream: "stdout" | "stderr") => void;
  secrets: Uncut;
  signal: AbortSignal;
}

/**
 * Runs a script to its end, in a process group of its own that a cancel ends; it has no time limit of its own
 * (decisions: Hook runtime API). Exit codes are not errors here. Throws `failed` when it cannot be started.
 */
export function runScript(launcher: Launcher, script: ScriptRun): Promise<CommandOutcome> {
  const { argv, bucketRoot, environment, ...watched } = script;
  return launcher.run([...BASH, ...argv], { cwd: bucketRoot, environment, ...watched, keepBytes: 0 });
}

/**
 * The command that runs a hook whose files are staged: Python with the virtual environment of the job where it has one,
 * else the one on PATH, its output unbuffered; TypeScript and JavaScript with the Node that runs this program.
 */
export async function scriptCommand(layout: Layout, folder: string, job: string, hook: string): Promise<Argv> {
  for (const kind of KINDS) {
    const file = path.join(folder, HOOKS_FOLDER, `${hook}.${kind}`);
    if (!(await exists(file))) continue;
    return kind === "py" ? [await python(layout, job), "-u", file] : selfArguments("hook-run", file);
  }
  throw new Failure("ErrHookFileNotFound", `Cannot run hook ${hook} of job ${job}: it has no script`);
}

async function python(layout: Layout, job: string): Promise<string> {
  const hooks = path.join(layout.jobs, await folderOf(layout, job), HOOKS_FOLDER);
  for (const name of VIRTUAL_ENVIRONMENTS) {
    const interpreter = path.join(hooks, name, "bin", "python3");
    if (await exists(interpreter)) return interpreter;
  }
  return "python3";
}

/** The folder may have capitals that the name in the catalog has not. */
async function folderOf(layout: Layout, job: string): Promise<string> {
  return (await namesIn(layout.jobs)).find((name) => name.toLowerCase() === job) ?? job;
}
