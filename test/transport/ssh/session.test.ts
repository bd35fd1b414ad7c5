import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import path from "node:path";
import { type TestContext, test } from "node:test";
import { SshSession } from "../../../lib/transport/ssh/session.ts";
import { CLOSE, framed, GREETING, message, OPENED, opened, status, text, uint32 } from "../../helpers/mux.ts";
import { temporaryFolder, until } from "../../helpers/temporary.ts";

const OPEN = message(90, text("session"), uint32(0), uint32(2 * 1024 * 1024), uint32(32 * 1024));
const EXEC = message(98, uint32(7), text("exec"), Buffer.of(0), text("do it"));

/** A control socket on which we play the master: what the session says to it is `said`. */
async function master(t: TestContext) {
  const file = path.join(temporaryFolder(t), "s0");
  const server = createServer().listen(file);
  await once(server, "listening");
  const state = { said: Buffer.alloc(0), output: "", socket: undefined as Socket | undefined };
  const session = new SshSession(file, "do it", (chunk, stream) => {
    state.output += `${stream}: ${chunk}`;
  });
  t.after(() => {
    session.close();
    state.socket?.destroy();
    server.close();
  });
  const [socket] = (await once(server, "connection")) as [Socket];
  state.socket = socket.on("error", () => {});
  socket.on("data", (chunk: Buffer) => {
    state.said = Buffer.concat([state.said, chunk]);
  });
  const heard = async (...parts: Buffer[]) => {
    const wanted = Buffer.concat(parts);
    await until("the session speaks", () => state.said.length >= wanted.length);
    assert.deepEqual(state.said.subarray(0, wanted.length), wanted);
    state.said = state.said.subarray(wanted.length);
  };
  await heard(framed(uint32(1), uint32(4)), framed(uint32(0x1000_000f), uint32(0)));
  return { session, socket, state, heard };
}

const ENDS: [string, (Buffer | "close")[], number | string][] = [
  ["a greeting of another version", [framed(uint32(1), uint32(5))], "unconnected"],
  ["a greeting that breaks off", [framed(uint32(1))], "unconnected"],
  ["a master that knows no proxy mode", [framed(uint32(0x8000_0003), uint32(0))], "unconnected"],
  ["a master that hangs up", [GREETING, "close"], "unconnected"],
  ["a session that sshd does not open", [GREETING, message(92, uint32(0), uint32(1))], "refused"],
  ["an opening that breaks off", [GREETING, message(91, uint32(0))], "unconnected"],
  ["a connection that ends", [GREETING, OPENED, "close"], "lost"],
  ["a message of 2 GiB", [GREETING, OPENED, uint32(2 ** 31)], "lost"],
  ["a message without a type", [GREETING, OPENED, framed(Buffer.of(0))], "lost"],
  ["an exit code that breaks off", [GREETING, OPENED, message(98, uint32(0), text("exit-status"))], "lost"],
  ["output that has ended without a code", [GREETING, OPENED, CLOSE], 255],
  ["an exit code", [GREETING, OPENED, status(3), CLOSE], 3],
  ["an exit code before the connection ends", [GREETING, OPENED, status(0), "close"], 0],
  ["a window without an end and packets of no size", [GREETING, opened(2 ** 32 - 1, 0), CLOSE], 255],
];

for (const [what, answers, end] of ENDS)
  test(`${what} ends a session as ${JSON.stringify(end)}`, async (t) => {
    const { session, socket } = await master(t);
    session.stdin.write("x");
    for (const answer of answers) answer === "close" ? socket.destroy() : socket.write(answer);
    assert.equal(await session.ended, end);
    assert.equal(session.stdin.destroyed, true, "nobody waits to write on");
  });

test("a control socket where nobody listens ends a session as unconnected", async (t) => {
  const session = new SshSession(path.join(temporaryFolder(t), "s0"), "do it", () => {});
  assert.equal(await session.ended, "unconnected");
});

test("a session opens, asks for its command, and passes on both outputs, however they are cut up", async (t) => {
  const { session, socket, state, heard } = await master(t);
  socket.write(GREETING);
  await heard(OPEN);
  const said = [
    ...[OPENED, message(94, uint32(0), text("out")), message(95, uint32(0), uint32(1), text("err"))],
    ...[status(0), CLOSE],
  ];
  for (const byte of Buffer.concat(said)) socket.write(Buffer.of(byte));
  assert.equal(await session.ended, 0);
  assert.equal(state.output, "stdout: outstderr: err");
  await heard(EXEC, message(97, uint32(7)));
});

test("input keeps to the room and the packet size that the worker allows, and then it ends", async (t) => {
  const { session, socket, heard } = await master(t);
  session.stdin.end("abcdefgh");
  socket.write(Buffer.concat([GREETING, opened(5, 3)]));
  const data = (value: string) => message(94, uint32(7), text(value));
  await heard(OPEN, EXEC, data("abc"), data("de"));
  socket.write(message(93, uint32(0), uint32(10)));
  await heard(data("fgh"), message(96, uint32(7)));
});

test("room is given back for what was taken, and a question for a sign of life is answered", async (t) => {
  const { socket, heard } = await master(t);
  socket.write(Buffer.concat([GREETING, OPENED]));
  await heard(OPEN, EXEC);
  socket.write(message(98, uint32(0), text("keepalive@openssh.com"), Buffer.of(1)));
  await heard(message(100, uint32(7)));
  for (let sent = 0; sent < 64; sent++) socket.write(message(94, uint32(0), text("x".repeat(32 * 1024))));
  const room = message(93, uint32(7), uint32(1024 * 1024));
  await heard(room, room);
});

test("a session that is given up while it opens keeps its socket until it is open: ssh would end with all others", async (t) => {
  const { session, socket, heard } = await master(t);
  socket.write(GREETING);
  await heard(OPEN);
  session.close();
  assert.equal(await session.ended, "lost");
  assert.equal(socket.readyState, "open");
  const closed = once(socket, "close");
  socket.write(OPENED);
  await closed;
});

test("a session that is given up closes its socket", async (t) => {
  const { session, socket, heard } = await master(t);
  socket.write(Buffer.concat([GREETING, OPENED]));
  await heard(OPEN, EXEC);
  const closed = once(socket, "close");
  session.close();
  await closed;
  assert.equal(await session.ended, "lost");
});

test("a session that sshd does not open keeps its socket, too", async (t) => {
  const { session, socket } = await master(t);
  socket.write(Buffer.concat([GREETING, message(92, uint32(0), uint32(1))]));
  assert.equal(await session.ended, "refused");
  await new Promise((resolve) => socket.write(message(93, uint32(0), uint32(1)), resolve));
  assert.equal(socket.readyState, "open");
});

test("a message of 256 KiB is taken, and a longer one ends the session", async (t) => {
  const { session, socket, state } = await master(t);
  const frame = 4 + 2 + 4 + 4;
  const longest = message(94, uint32(0), text("x".repeat(256 * 1024 - frame)));
  socket.write(Buffer.concat([GREETING, OPENED, longest]));
  await until("the output", () => state.output.length > 256 * 1024 - frame);
  socket.write(message(94, uint32(0), text("x".repeat(256 * 1024 - frame + 1))));
  assert.equal(await session.ended, "lost");
});
