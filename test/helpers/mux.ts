// What is said on the control socket of an ssh connection in proxy mode (OpenSSH, PROTOCOL.mux; RFC 4254).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";

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
export async function playMaster(t: Pick<TestContext, "after">, file: string, fate: (session: number) => Fate, path?: string) {
  const state = { sessions: 0, commands: 0 };
  rmSync(file, { force: true });
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket.on("error", () => {}));
    playSession(socket, fate(++state.sessions), () => state.commands++, path);
  }).listen(file);
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return state;
}

function playSession(socket: Socket, fate: Fate, onCommand: () => void, path = process.env.PATH): void {
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
    else if (type === EXEC && fate === "runs") child = runHere(socket, body.subarray(17).toString(), path);
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

function runHere(socket: Socket, command: string, path?: string) {
  // In a group of its own, as sshd starts it: a shell that waits for nobody any more ends its group.
  const child = spawn("/bin/sh", ["-c", command], { env: { PATH: path }, detached: true });
  child.stdin.on("error", () => {});
  child.stdout.on("data", (chunk: Buffer) => socket.write(message(94, uint32(0), text(chunk))));
  child.stderr.on("data", (chunk: Buffer) => socket.write(message(95, uint32(0), uint32(1), text(chunk))));
  child.on("close", (code) => socket.write(Buffer.concat([status(code ?? 255), CLOSE])));
  return child;
}
