import { cancelledFailure, Failure } from "../../core/errors.ts";
import type { CommandOrder, RunningScript } from "../../hook/routes.ts";
import { exitCodeOf } from "../base/outcome.ts";
import type { ScriptHost } from "./hook-script.ts";

/** The code with which ssh itself ends where it has no connection. */
const NO_CONNECTION = 255;
const CUT = "\n… more was not kept (run_output_limit)\n";

/**
 * The command line is the input, so that no list of processes shows its secrets. All of the input is read before the
 * command begins, which finds its own input empty.
 */
const RUN_INPUT = `cd "$1" 2>/dev/null || cd /
shell=sh
if command -v bash >/dev/null; then shell=bash; fi
exec "$shell" -c 'ops_text=$(cat; echo x); exec </dev/null; eval " \${ops_text%x}"'`;

/** What commands of scripts need; `outputLimit` is for the bytes of each output. */
type CommandHost = Pick<ScriptHost, "context" | "fleet"> & { outputLimit: number };

/** Runs a command line of a script on a worker, for `command` of the options of its API. */
export async function runHookCommand(
  { context, fleet, outputLimit }: CommandHost,
  { job, worker: own, hook }: RunningScript,
  { worker, command, timeout_seconds }: CommandOrder,
  signal: AbortSignal,
): Promise<object | undefined> {
  if (!fleet.workers.some(({ host }) => host === worker)) return undefined;
  const timeoutMs = timeout_seconds * 1000;
  const run = async (onBegin: () => void) => {
    const survivesAs = `a command of hook ${hook} of ${job} (run ${context.run.id})`;
    const transport = await fleet.openUnmasked(worker);
    return await transport.script(RUN_INPUT, {
      args: [transport.folder],
      input: command,
      keepBytes: outputLimit,
      isFolderOptional: true,
      survivesAs,
      onBegin,
      timeoutMs,
      signal,
    });
  };
  const wait = { reason: "command", job, worker: own, detail: `a command of hook ${hook} on ${worker}` } as const;
  try {
    const outcome = await context.progress.during(wait, timeoutMs, run);
    const { reason, stdout, stderr } = outcome;
    if (reason === "cancelled") throw cancelledFailure();
    const shown = (text: string) => (Buffer.byteLength(text) < outputLimit ? text : text + CUT);
    return { exit_code: exitCodeOf(outcome), stdout: shown(stdout), stderr: shown(stderr), reason };
  } catch (error) {
    if (!(error instanceof Failure) || error.code === "cancelled") throw error;
    return { exit_code: NO_CONNECTION, stdout: "", stderr: `${error.message}\n`, reason: "exit" };
  }
}
