import assert from "node:assert/strict";
import { test } from "node:test";
import type { Argv, CommandOptions, Launcher } from "../../../lib/core/spawn.ts";
import { runMessageCommand } from "../../../lib/server/messages/command.ts";
import { temporaryFolder } from "../../helpers/temporary.ts";

/** Gives a command, which ends like this, a message; answers what went wrong, and the limits that it had. */
async function given(t: { signal: AbortSignal }, command: Argv, ended: object) {
  const limits: unknown[] = [];
  const run = async (_: Argv, { cwd, keepBytes, timeoutMs }: CommandOptions) => {
    limits.push([cwd, keepBytes, timeoutMs]);
    return { stdout: "", stderr: "", ...ended };
  };
  const why = await runMessageCommand({ launcher: { run } as unknown as Launcher }, command, "text", t.signal).then(
    () => null,
    (error: Error) => error.message,
  );
  return { why, limits };
}

test("CP-869 a command has taken a message where it ends with 0 and in time, and is a file", async (t) => {
  for (const [ended, expected] of [
    [{ reason: "exit", exitCode: 0 }, null],
    [{ reason: "timeout", exitCode: 0 }, "the command has not ended within 30 s"],
    [{ reason: "exit", exitCode: null, signal: "SIGKILL", stdout: "out" }, "the command ended by signal SIGKILL: out"],
  ] as const) {
    const { why, limits } = await given(t, ["/bin/true"], ended);
    assert.deepEqual([why, limits], [expected, [["/", 16 * 1024, 30_000]]]);
  }
  const folder = await given(t, [temporaryFolder(t)], { reason: "exit", exitCode: 0 });
  assert.deepEqual(folder, { why: "the command is not a file", limits: [] });
});
