import { cpSync, mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { bytesOf } from "../../lib/bucket/base/contents.ts";
import { selfArguments } from "../../lib/core/self.ts";
import { type CommandOptions, type CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import type { RunningScript } from "../../lib/hook/routes.ts";
import type { HookRuntime } from "../../lib/hook/runtime.ts";
import { helperFiles } from "../../lib/hook/scripts.ts";
import { patience } from "../../scripts/patience.ts";
import { temporaryFolder } from "./temporary.ts";

/** The languages that have a helper library, with what a script of each starts with. */
export type Language = "py" | "ts";
const IMPORTS: Record<Language, string> = {
  py: "import json, os, subprocess, sys\nimport ops\n",
  ts: 'import * as ops from "./ops.ts";\n',
};

/** What a script that runs is told, as far as the helper libraries read it. */
export function environmentOf(
  { host, port }: Pick<HookRuntime, "host" | "port">,
  { allocationId, job, worker, event, hook }: RunningScript,
): Record<string, string> {
  return {
    ALLOCATION_ID: allocationId,
    ALLOCATION_IP: worker,
    ALLOCATION_INDEX: "0",
    JOB: job,
    DISABLED: "0",
    EVENT: event,
    COMMAND: hook,
    HOOK: hook,
    BATCH_INDEX: "0",
    HOOK_API_HOST: host,
    HOOK_API_PORT: String(port),
  };
}

/** A `_hooks` folder for one test, with the helper libraries. */
export class HookScripts {
  readonly folder: string;
  readonly #launcher = new Launcher({ PATH: process.env.PATH, PYTHONDONTWRITEBYTECODE: "1" });
  #count = 0;

  /** `hooks` is a folder of scripts to begin with. */
  constructor(t: TestContext, hooks?: string) {
    this.folder = path.join(temporaryFolder(t), "_hooks");
    if (hooks === undefined) mkdirSync(this.folder);
    else cpSync(hooks, this.folder, { recursive: true });
    for (const { path: file, content } of helperFiles())
      writeFileSync(path.join(this.folder, path.basename(file)), bytesOf(content));
    t.after(() => this.#launcher.endAll(0));
  }

  /** Runs the text of a script, the helper imported before, in this environment. */
  run(language: Language, text: string, env: Record<string, string>, options: CommandOptions = {}) {
    const name = `script${this.#count++}.${language}`;
    writeFileSync(path.join(this.folder, name), `${IMPORTS[language]}${text}\n`);
    return this.runFile(name, env, options);
  }

  /** Runs a script that is in the folder. */
  runFile(name: string, env: Record<string, string>, options: CommandOptions = {}): Promise<CommandOutcome> {
    const file = path.join(this.folder, name);
    const argv = name.endsWith(".py") ? (["python3", "-u", file] as const) : selfArguments("hook-run", file);
    return this.#launcher.run(argv, { timeoutMs: patience(60_000), env, ...options });
  }

  /** Runs a script that succeeds; answers what it printed as JSON. */
  async answer(language: Language, text: string, env: Record<string, string>): Promise<unknown> {
    return JSON.parse((await this.succeed(language, text, env)).stdout);
  }

  /** Runs a script that succeeds. */
  async succeed(language: Language, text: string, env: Record<string, string>): Promise<CommandOutcome> {
    const outcome = await this.run(language, text, env);
    if (outcome.exitCode !== 0) throw new Error(`the script ended with ${outcome.exitCode}: ${outcome.stderr}`);
    return outcome;
  }
}
