import { spawn } from "node:child_process";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { type Channel, type ChannelReader, GroupOutput } from "../../lib/transport/ssh/channel.ts";
import type { StartedChannel } from "../../lib/transport/ssh/link.ts";

/** A mark as runs make them. */
export const MARK = `ops-${"0123456789abcdef".repeat(2)}`;

/** A channel to a shell of this machine, which gets these lines as a worker's shell does, without any ssh. */
export async function localChannel(
  t: Pick<TestContext, "after">,
  lines: string | Uint8Array,
  reader: ChannelReader = { onOutput() {} },
  cwd = "/",
) {
  const child = spawn("sh", ["-c", `sh -c 'IFS= read -r ops_line; eval "$ops_line"'`], { cwd, detached: true });
  const output = new GroupOutput(MARK, reader);
  // The shell in front goes first: it would tell of the end of its group.
  const killAll = () => {
    for (const pid of [child.pid, Number(output.group?.id)]) kill(pid);
  };
  t.after(killAll);
  child.stdout.on("data", (chunk: Buffer) => output.take(chunk, "stdout"));
  child.stderr.on("data", (chunk: Buffer) => output.take(chunk, "stderr"));
  child.stdin.on("error", () => {});
  let written = "";
  const stdin = {
    write(bytes: string | Uint8Array) {
      written += Buffer.from(bytes).toString("latin1");
      child.stdin.write(bytes);
    },
    end: () => child.stdin.end(),
  };
  stdin.write(lines);
  const exited = once(child, "close");
  const close = async () => {
    killAll();
    await exited;
  };
  const ended = Promise.race([output.ended, exited.then(() => output.exitCode)]);
  const channel = { stdin, output, ended, closed: exited.then(([code]) => code ?? "lost"), close };
  const started = { channel: channel as unknown as Channel, mark: MARK, master: {} } as StartedChannel;
  return { started, output, stdin, close, exited, written: () => written };
}

function kill(pid: number | undefined): void {
  try {
    if (pid) process.kill(-pid, "SIGKILL");
  } catch {}
}
