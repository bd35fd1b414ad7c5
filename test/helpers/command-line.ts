// Command lines of the program without the start of a process for each: most of what a short command costs is the
// loading of its modules. test/cli/wrapper.test.ts, test/cli/base/terminal.test.ts and test/e2e start the real program: that
// a command leaves nothing running, and that its process ends, only those tests see.
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { type Ended, ops as opsProcess } from "../../scripts/local-server.ts";

/** A command line, as it is sent to a process that carries such out. */
export interface Asked {
  args: string[];
  env: Record<string, string>;
  cwd: string | undefined;
  input: string | Uint8Array | undefined;
}

/** What such a process tells: what the command prints, and at last its exit code. */
export type Told = { name: "stdout" | "stderr"; bytes: Uint8Array } | { code: number };

const FIXTURE = path.join(import.meta.dirname, "../fixtures/command-line.ts");
const IMPORTS = new URL("../../lib/cli/imports.ts", import.meta.url).href;
/** Processes that wait for a command line; they end when this one does. */
const idle: ChildProcess[] = [];

function processForOne(): ChildProcess {
  const kept = idle.pop();
  if (kept?.connected) return kept;
  const stdio: ["ignore", "inherit", "inherit", "ipc"] = ["ignore", "inherit", "inherit", "ipc"];
  const started = fork(FIXTURE, { stdio, serialization: "advanced", execArgv: [`--import=${IMPORTS}`] });
  started.setMaxListeners(0);
  started.once("exit", (code, signal) => {
    if (idle.includes(started)) throw new Error(`after its last command line a process ended with ${code ?? signal}`);
  });
  return started;
}

function hold(child: ChildProcess, isHeld: boolean): void {
  for (const one of [child, child.channel]) isHeld ? one?.ref() : one?.unref();
}

/**
 * Carries out a command line as `ops` of scripts/local-server.ts does, in a process that has carried out others before.
 * Without `input` its stdin is empty. An installed program (`OPS_PROGRAM`) is started as what it is.
 */
export async function ops(
  args: string[],
  options: { cwd?: string; env?: Record<string, string>; input?: string | Uint8Array; onText?: (text: string) => void } = {},
): Promise<Ended> {
  if (process.env.OPS_PROGRAM) return await opsProcess(args, options);
  const child = processForOne();
  hold(child, true);
  const { cwd, env, input, onText } = options;
  const said = { stdout: "", stderr: "" };
  const told = Promise.withResolvers<number>();
  const listen = (one: Told) => {
    if ("code" in one) return told.resolve(one.code);
    const text = Buffer.from(one.bytes).toString();
    said[one.name] += text;
    onText?.(text);
  };
  child.on("message", listen);
  const exit = once(child, "exit");
  child.send({ args, env: { ...process.env, ...env } as Record<string, string>, cwd, input } satisfies Asked);
  // A command may also end its process, but one that breaks off did not carry out the command line.
  const ended = exit.then(([exitCode, signal]) => {
    if (exitCode !== 1 && signal === null) return exitCode as number;
    throw new Error(`ops ${args.join(" ")}: its process broke off with ${exitCode ?? signal}`);
  });
  const code = await Promise.race([told.promise, ended]);
  ended.catch(() => {});
  child.off("message", listen);
  if (child.exitCode === null && child.signalCode === null && child.connected) idle.push(child);
  hold(child, false);
  return { ...said, code };
}
