import { createInterface, type Interface } from "node:readline/promises";
import { Writable } from "node:stream";
import { cancelledFailure, Failure } from "../../core/errors.ts";
import { byteSize } from "../../core/plain-text.ts";
import { toStderr } from "./terminal.ts";

let asking = 0;

/** Whether a person is being asked something: nothing else is drawn on the terminal meanwhile. */
export function isAsking(): boolean {
  return asking > 0;
}

/** Whether there is a person at a terminal on stdin and stderr, who can be asked. */
export function canAsk(): boolean {
  return process.stdin.isTTY && process.stderr.isTTY;
}

/**
 * Asks the person at the terminal on stderr for one line; undefined where there is nobody, or at Ctrl-D. With
 * `secret` nothing of what is typed is shown. Throws `cancelled` at Ctrl-C.
 */
export async function askedOnTerminal(question: string, { secret = false } = {}): Promise<string | undefined> {
  if (!canAsk()) return undefined;
  return await fromTerminal(secret, async (lines) => {
    if (secret) toStderr(question);
    const ended = new Promise<undefined>((resolve) => lines.once("close", () => resolve(undefined)));
    const answer = await Promise.race([lines.question(secret ? "" : question), ended]);
    // A terminal shows neither a secret's Enter nor Ctrl-D.
    if (secret || answer === undefined) toStderr("\n");
    return answer?.trim();
  });
}

/**
 * The lines that the person at the terminal on stdin types or pastes up to Ctrl-D, without the newline of the last; nothing of
 * them is shown. Throws `cancelled` at Ctrl-C.
 */
export async function secretTyped(question: string): Promise<string> {
  return await fromTerminal(true, async (lines) => {
    const typed: string[] = [];
    toStderr(question);
    for await (const line of lines) typed.push(line);
    return typed.join("\n");
  });
}

/** All bytes on stdin. Throws `usage` once there are more than `most`, and reads no further. */
export async function stdinBytes(most: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  let length = 0;
  for await (const piece of process.stdin as AsyncIterable<Buffer>) {
    length += piece.length;
    if (length > most) throw new Failure("usage", `stdin has more than ${byteSize(most)}`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

/**
 * Reads lines that are typed at the terminal on stdin. Afterwards the terminal is as before, also after Ctrl-C and Ctrl-D.
 * Ctrl-C means the whole command: throws `cancelled` where the signal does not end the process.
 */
async function fromTerminal<T>(secret: boolean, read: (lines: Interface) => Promise<T>): Promise<T> {
  const mute = new Writable({ write: (_, __, done) => done() });
  const lines = createInterface({ input: process.stdin, output: secret ? mute : process.stderr, terminal: true, historySize: 0 });
  let isCancelled = false;
  lines.once("SIGINT", () => {
    isCancelled = true;
    lines.close();
    process.kill(process.pid, "SIGINT");
  });
  asking++;
  try {
    const answer = await read(lines);
    if (isCancelled) throw cancelledFailure();
    return answer;
  } finally {
    asking--;
    lines.close();
  }
}
