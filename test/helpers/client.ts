import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import type { Readable } from "node:stream";
import { COMMAND, type Ended } from "../../scripts/local-server.ts";
import { until } from "./temporary.ts";

/** A command of ops that is going on. */
export class Going {
  readonly child: ChildProcessByStdio<null, Readable, Readable>;
  readonly ended: Promise<Ended>;
  readonly #said: Ended = { code: null, stdout: "", stderr: "" };

  /** Starts it; its variables are those of this process and these. */
  constructor(args: readonly string[], env: Record<string, string>, cwd?: string) {
    const [file, ...before] = COMMAND;
    const stdio: ["ignore", "pipe", "pipe"] = ["ignore", "pipe", "pipe"];
    this.child = spawn(file, [...before, ...args], { cwd, env: { ...process.env, ...env }, stdio });
    for (const name of ["stdout", "stderr"] as const)
      this.child[name].setEncoding("utf8").on("data", (text: string) => {
        this.#said[name] += text;
      });
    this.ended = once(this.child, "close").then(([code]) => ({ ...this.#said, code }));
  }

  /** All that it has printed up to now. */
  get said(): string {
    return this.#said.stdout + this.#said.stderr;
  }

  /** Waits until it has printed this. */
  async says(text: string): Promise<void> {
    const isOver = () => this.child.exitCode !== null || this.child.signalCode !== null;
    await until(`${JSON.stringify(text)} of a command`, () => this.said.includes(text) || isOver());
    if (!this.said.includes(text)) throw new Error(`the command ended without ${JSON.stringify(text)}: ${this.said}`);
  }

  /** Sends it a signal and waits for its end. */
  async stop(signal: NodeJS.Signals): Promise<Ended> {
    this.child.kill(signal);
    return await this.ended;
  }
}
