import { createInterface } from "node:readline/promises";
import { Writable } from "node:stream";

let asking = 0;

/** Whether a person is being asked something: nothing else is drawn on the terminal meanwhile. */
export function isAsking(): boolean {
  return asking > 0;
}

/**
 * Asks the person at the terminal on stderr for one line; undefined where stdin or stderr is no terminal, or at Ctrl-D. With
 * `secret` nothing of what is typed is shown.
 */
export async function askedOnTerminal(question: string, { secret = false } = {}): Promise<string | undefined> {
  if (!process.stdin.isTTY || !process.stderr.isTTY) return undefined;
  const mute = new Writable({ write: (_, __, done) => done() });
  const lines = createInterface({ input: process.stdin, output: secret ? mute : process.stderr, terminal: true, historySize: 0 });
  asking++;
  try {
    if (secret) process.stderr.write(question);
    const ended = new Promise<undefined>((resolve) => lines.once("close", () => resolve(undefined)));
    // Ctrl-C means the whole command.
    lines.once("SIGINT", () => {
      lines.close();
      process.kill(process.pid, "SIGINT");
    });
    const answer = await Promise.race([lines.question(secret ? "" : question), ended]);
    if (secret) process.stderr.write("\n");
    return answer?.trim();
  } finally {
    asking--;
    lines.close();
  }
}
