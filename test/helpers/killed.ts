import assert from "node:assert/strict";
import { sleep } from "../../lib/core/async.ts";
import { signalProcess } from "../../lib/core/process.ts";
import { Launcher } from "../../lib/core/spawn.ts";

/** Starts a program and kills it `afterMs` after its first line. */
export async function runUntilKilled(argv: [string, ...string[]], afterMs: number): Promise<void> {
  const launcher = new Launcher(process.env);
  const kill = async () => {
    await sleep(afterMs);
    for (const { pgid } of launcher.groups) signalProcess(-pgid, "SIGKILL");
  };
  const outcome = await launcher.run(argv, { onLine: () => void kill() });
  assert.equal(outcome.signal, "SIGKILL", outcome.stderr);
}
