import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import type { TestContext } from "node:test";
import { type CommandOptions, type CommandOutcome, Launcher } from "../../lib/core/spawn.ts";
import { helperFiles } from "../../lib/hook/helpers.ts";
import { temporaryFolder } from "./temporary.ts";

/** The languages that have a helper library, with what a script of each starts with. */
export type Language = "py" | "ts";
const IMPORTS: Record<Language, string> = {
  py: "import json, os, subprocess, sys\nimport ops\n",
  ts: 'import * as ops from "./ops.ts";\n',
};

/** A `_hooks` folder for one test, with the helper libraries. */
export class HookScripts {
  readonly folder: string;
  readonly #launcher = new Launcher({ PATH: process.env.PATH, PYTHONDONTWRITEBYTECODE: "1" });
  #count = 0;

  constructor(t: TestContext) {
    this.folder = path.join(temporaryFolder(t), "_hooks");
    mkdirSync(this.folder);
    for (const { name, content } of helperFiles()) writeFileSync(path.join(this.folder, name), content);
    t.after(() => this.#launcher.endAll(0));
  }

  /** Runs the text of a script, the helper imported before, in this environment. */
  run(language: Language, text: string, env: Record<string, string>, options: CommandOptions = {}) {
    const file = path.join(this.folder, `script${this.#count++}.${language}`);
    writeFileSync(file, `${IMPORTS[language]}${text}\n`);
    const interpreter = language === "py" ? (["python3", "-u"] as const) : ([process.execPath] as const);
    return this.#launcher.run([...interpreter, file], { timeoutMs: 60_000, env, ...options });
  }

  /** Runs a script that succeeds; answers what it printed as JSON. */
  async answer(language: Language, text: string, env: Record<string, string>): Promise<unknown> {
    return JSON.parse((await this.succeed(language, text, env)).stdout);
  }

  /** Runs a script that succeeds. */
  async succeed(language: Language, text: string, env: Record<string, string>): Promise<CommandOutcome> {
    const outcome = await this.run(language, text, env);
    if (outcome.exitCode !== 0)
      throw new Error(`the script ended with ${outcome.exitCode}: ${outcome.stderr}`);
    return outcome;
  }
}
