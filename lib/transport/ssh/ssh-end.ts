import { sleep, unlessAborted } from "../../core/async.ts";
import type { Receipt } from "../base/transport.ts";
import { SIGNAL_GROUP } from "./remote-shell.ts";
import type { RemoteGroup } from "./ssh-channel.ts";
import { Execution } from "./ssh-execution.ts";
import type { KeptShell } from "./ssh-shell.ts";

/** Together less than the time after which the processes of a cancelled run are killed. */
const LIMIT_MS = 7_500;
const GRACE_MS = 4_000;
const KILL_WAIT_MS = 2_000;
const FIRST_PAUSE_MS = 20;
const LONGEST_PAUSE_MS = 250;

/**
 * Ends a process group on a worker, asked for over a shell of its own: TERM, 4 s to unwind, then KILL. Answers what
 * became of it within 7.5 s; `unreachable` where the worker does not tell in that time.
 */
export async function endRemoteGroup(shell: KeptShell, group: RemoteGroup): Promise<Receipt> {
  const signal = AbortSignal.timeout(LIMIT_MS);
  const send = (name: "TERM" | "KILL" | "0") => sendSignal(shell, group, name, signal);
  const emptied = async (limitMs: number) => {
    const until = performance.now() + limitMs;
    for (let pause = FIRST_PAUSE_MS; performance.now() < until; pause = Math.min(pause * 2, LONGEST_PAUSE_MS)) {
      await sleep(pause, signal);
      if ((await send("0")) === "gone") return true;
    }
    return false;
  };
  try {
    if ((await send("TERM")) === "gone") return "gone";
    if (await emptied(GRACE_MS)) return "stopped";
    await send("KILL");
    return (await emptied(KILL_WAIT_MS)) ? "killed" : "remaining";
  } catch {
    return "unreachable";
  }
}

async function sendSignal(
  shell: KeptShell,
  { id, bootId }: RemoteGroup,
  name: string,
  signal: AbortSignal,
): Promise<string> {
  const script = { folder: "/", text: SIGNAL_GROUP, args: [id, bootId, name], env: {} };
  const leave = await shell.turn.enter(signal);
  const execution = new Execution({ signal });
  try {
    const take = (chunk: Buffer, stream: "stdout" | "stderr") => execution.take(chunk, stream);
    const { code } = await unlessAborted(shell.ask({ script, input: "" }, take, execution.cut), signal);
    const said = execution.outcome("exit", null).stdout.trim();
    if (code !== 0 || (said !== "gone" && said !== "running")) throw new Error("no answer");
    return said;
  } finally {
    execution.close();
    leave();
  }
}
