// What is said on the control socket of an ssh connection in proxy mode (OpenSSH, PROTOCOL.mux; RFC 4254).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync, writeSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import path from "node:path";
import type { TestContext } from "node:test";
import type { Launcher } from "../../lib/core/spawn.ts";

export function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

export function text(value: string | Buffer): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([uint32(bytes.length), bytes]);
}

export function framed(...parts: Buffer[]): Buffer {
  return text(Buffer.concat(parts));
}

/** A message of the connection protocol, without padding. */
export function message(type: number, ...parts: Buffer[]): Buffer {
  return framed(Buffer.of(0, type), ...parts);
}

export function opened(room: number, longest: number): Buffer {
  return message(91, uint32(0), uint32(7), uint32(room), uint32(longest));
}

export function status(code: number): Buffer {
  return message(98, uint32(0), text("exit-status"), Buffer.of(0), uint32(code));
}

export const GREETING = Buffer.concat([framed(uint32(1), uint32(4)), framed(uint32(0x8000_000f), uint32(0))]);
export const OPENED = opened(1_000_000_000, 32_768);
export const CLOSE = message(97, uint32(0));

/**
 * What becomes of a session: its command runs here, or ends at once with what it says and this code; sshd refuses the
 * session or says nothing, says nothing more once the session is open, or the connection ends before or after that.
 */
export type Fate = "runs" | "refused" | "silent" | "mute" | "unconnected" | "lost" | { says: string; code: number };

/** Plays the master at a control socket, without any ssh. Answers how many sessions, and commands in them, were asked for. */
export async function playMaster(
  t: Pick<TestContext, "after">,
  file: string,
  fate: (session: number) => Fate,
  env: NodeJS.ProcessEnv = {},
) {
  const state = { sessions: 0, commands: 0 };
  rmSync(file, { force: true });
  const sockets = new Map<Socket, Fate>();
  const server = createServer((socket) => {
    const its = fate(++state.sessions);
    sockets.set(
      socket.on("error", () => {}),
      its,
    );
    playSession(socket, its, () => state.commands++, { PATH: process.env.PATH, ...env });
  }).listen(file);
  await once(server, "listening");
  const close = () => {
    for (const socket of sockets.keys()) socket.destroy();
    server.close();
  };
  t.after(close);
  /** How many sessions are open; those that were refused are none. */
  const open = () =>
    [...sockets].filter(([socket, its]) => its !== "refused" && !socket.destroyed && !socket.readableEnded).length;
  return Object.assign(state, { open, close });
}

/** What a played ssh does: its sessions, and why it does not connect, where it does not. */
interface PlayedSsh {
  fate?: (session: number) => Fate;
  says?: (host: string, folder: string) => string | undefined;
  env?: NodeJS.ProcessEnv;
}

/** A launcher whose ssh is played here: `noted` tells of each that is started and ended, `masters` are those that connect. */
export function playedSsh(t: Pick<TestContext, "after">, { fate = () => "runs", says = () => undefined, env }: PlayedSsh = {}) {
  const noted: string[] = [];
  const masters: Awaited<ReturnType<typeof playMaster>>[] = [];
  const start = async (argv: readonly string[], { stderr }: { stderr: number }) => {
    const [socket, host] = [argv[4] as string, argv.at(-1) as string];
    noted.push(`ssh ${host}`);
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const why = says(host, path.dirname(socket));
    const master = why === undefined ? await playMaster(t, socket, fate, env) : undefined;
    if (master) masters.push(master);
    else {
      writeSync(stderr, why as string);
      resolve();
    }
    const end = async () => {
      noted.push(`end ${host}`);
      master?.close();
      resolve();
    };
    return { ended, end };
  };
  return { noted, masters, launcher: { start, ending: new AbortController().signal } as unknown as Launcher };
}

function playSession(socket: Socket, fate: Fate, onCommand: () => void, env: NodeJS.ProcessEnv): void {
  const [openings, [EXEC, DATA, EOF]] = [3, [98, 94, 96]];
  let [rest, heard] = [Buffer.alloc(0), 0];
  let child: ReturnType<typeof runHere> | undefined;
  const take = (type: number | undefined, body: Buffer) => {
    if (type === EXEC) onCommand();
    if (++heard < openings || fate === "silent") return;
    if (heard === openings) {
      if (fate === "unconnected") socket.destroy();
      else socket.write(Buffer.concat([GREETING, fate === "refused" ? message(92, uint32(0), uint32(1)) : OPENED]));
    } else if (type === EXEC && fate === "lost") socket.destroy();
    else if (type === EXEC && typeof fate === "object")
      socket.write(Buffer.concat([message(95, uint32(0), uint32(1), text(fate.says)), status(fate.code), CLOSE]));
    else if (type === EXEC && fate === "runs") child = runHere(socket, body.subarray(17).toString(), env);
    else if (type === DATA) child?.stdin.write(body.subarray(8));
    else if (type === EOF) child?.stdin.end();
  };
  socket.on("data", (chunk: Buffer) => {
    rest = Buffer.concat([rest, chunk]);
    while (rest.length >= 4 && rest.length >= 4 + rest.readUInt32BE()) {
      const end = 4 + rest.readUInt32BE();
      take(rest[5], rest.subarray(6, end));
      rest = rest.subarray(end);
    }
  });
  socket.on("close", () => child?.stdin.destroy());
}

function runHere(socket: Socket, command: string, env: NodeJS.ProcessEnv) {
  // In a group of its own, as sshd starts it: a shell that waits for nobody any more ends its group.
  const child = spawn("/bin/sh", ["-c", command], { env, detached: true });
  child.stdin.on("error", () => {});
  child.stdout.on("data", (chunk: Buffer) => socket.write(message(94, uint32(0), text(chunk))));
  child.stderr.on("data", (chunk: Buffer) => socket.write(message(95, uint32(0), uint32(1), text(chunk))));
  child.on("close", (code) => socket.write(Buffer.concat([status(code ?? 255), CLOSE])));
  return child;
}
