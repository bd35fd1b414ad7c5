import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { Attempts, BEARER_ATTEMPTS } from "../../lib/auth/attempts.ts";
import { LocalServer } from "../../scripts/local-server.ts";
import { listenFor } from "../helpers/http.ts";
import { TestServer, TOKEN } from "../helpers/server.ts";
import { temporaryFolder, until } from "../helpers/temporary.ts";

/** A connection to the server; `isCut` once the server has ended it. */
interface Client {
  socket: Socket;
  isCut: boolean;
}

/**
 * Opens connections to a port one after the other. Call this before the server is started: what is registered first for
 * the end of a test is done first, and so the connections end before the server.
 */
function opener(t: TestContext): (port: number, count: number, from?: string) => Promise<Client[]> {
  const sockets: Socket[] = [];
  t.after(() => {
    for (const socket of sockets) socket.destroy();
  });
  return async (port, count, from = "127.0.0.1") => {
    const all: Client[] = [];
    for (let one = 0; one < count; one++) {
      const socket = connect({ port, host: "127.0.0.1", localAddress: from });
      sockets.push(socket);
      const made = { socket, isCut: false };
      all.push(made);
      socket.on("error", () => {});
      socket.on("close", () => {
        made.isCut = true;
      });
      await Promise.race([once(socket, "connect"), once(socket, "close")]);
    }
    return all;
  };
}

/** Asks over a connection and answers the status. */
async function ask({ socket }: Client, headers: string): Promise<number> {
  socket.write(`GET /api/buckets HTTP/1.1\r\nHost: h\r\n${headers}\r\n`);
  const [chunk] = await once(socket, "data");
  return Number(String(chunk).split(" ")[1]);
}

/** Whether the server answers over a new connection. */
async function isTaken(open: ReturnType<typeof opener>, port: number, from?: string): Promise<boolean> {
  const [late] = (await open(port, 1, from)) as [Client];
  if (late.isCut) return false;
  const isAnswered = ask(late, "").then(() => true);
  const isTaken = await Promise.race([isAnswered, once(late.socket, "close").then(() => false)]);
  late.socket.destroy();
  return isTaken;
}

const cut = (all: readonly Client[]) => all.filter(({ isCut }) => isCut).length;
const portOf = (server: { url: string }) => Number(new URL(server.url).port);
const CREDENTIAL = `Authorization: Bearer ${TOKEN}\r\n`;

test("a peer without an admitted connection gets at most 64, other peers get theirs, and the log says so once", async (t) => {
  const open = opener(t);
  const server = await TestServer.start(t);
  const strangers = await open(portOf(server), 70);
  await until("the cut", () => cut(strangers) === 6);
  assert.equal(cut(strangers.slice(0, 64)), 0);
  const [other] = (await open(portOf(server), 1, "127.0.0.2")) as [Client];
  assert.equal(await ask(other, CREDENTIAL), 200);
  const told = server.lines.filter((line) => /a peer has 64 connections, none of them authenticated/.test(line));
  assert.equal(told.length, 1, server.lines.join("\n"));
  assert.match(told[0] ?? "", /: 1 more was refused, the last of 127\.0\.0\.1$/);
});

test("a wrong token admits no connection; an admitted one lifts the peer's cap until the last of them is gone", async (t) => {
  const open = opener(t);
  const server = await TestServer.start(t);
  const strangers = await open(portOf(server), 64);
  assert.equal(await ask(strangers[0] as Client, "Authorization: Bearer wrong\r\n"), 401);
  assert.equal(await isTaken(open, portOf(server)), false);
  const admitted = strangers[1] as Client;
  assert.equal(await ask(admitted, CREDENTIAL), 200);
  const more = await open(portOf(server), 200);
  assert.equal(await ask(more.at(-1) as Client, CREDENTIAL), 200);
  assert.deepEqual([cut(more), cut(strangers)], [0, 0]);
  for (const { socket } of [admitted, more.at(-1) as Client]) socket.destroy();
  // The server sees the ends a moment later.
  await until("the peer to be a stranger", async () => !(await isTaken(open, portOf(server))));
});

test("a peer is admitted by a long-poll as long as that goes on, and by a request for what does not exist", async (t) => {
  const open = opener(t);
  const server = await TestServer.start(t);
  const { body } = await server.call("GET", "/api/events");
  for (const [from, target] of [
    ["127.0.0.3", `/api/events?after=${encodeURIComponent(body.next)}&timeout=60`],
    ["127.0.0.4", "/api/nothing"],
  ] as const) {
    const strangers = await open(portOf(server), 64, from);
    assert.equal(await isTaken(open, portOf(server), from), false);
    strangers[0]?.socket.write(`GET ${target} HTTP/1.1\r\nHost: h\r\n${CREDENTIAL}\r\n`);
    await until("the peer to be admitted", () => isTaken(open, portOf(server), from));
  }
});

test("a connection beyond the cap of all of them is cut, and the log says so once", async (t) => {
  const open = opener(t);
  const told: string[] = [];
  const caps = { all: 3, ofStranger: 64, onMet: (sentence: string) => told.push(sentence) };
  const { port } = await listenFor(t, { caps });
  const all = await open(port, 5);
  await until("the cut", () => cut(all) === 2);
  assert.equal(cut(all.slice(0, 3)), 0);
  assert.deepEqual(told, ["there are 3 connections, the cap of this server: 1 more was refused, the last of 127.0.0.1"]);
  all[0]?.socket.destroy();
  await until("room", () => isTaken(open, port));
});

test("a server that may open 80 files takes half as many connections", async (t) => {
  const open = opener(t);
  const node = ["sh", "-c", 'ulimit -n 80; exec "$0" "$@"', process.execPath] as const;
  const server = await LocalServer.start(temporaryFolder(t), { node });
  t.after(() => server.stop("SIGKILL"));
  const all = await open(portOf(server), 45);
  await until("the cut", () => cut(all) === 5);
  await until("the line", () => /there are 40 connections, the cap of this server: /.test(server.log));
});

test("CP-334 the limit of wrong tokens holds for all of a /64 together, and not for the next", () => {
  const attempts = new Attempts(BEARER_ATTEMPTS, () => 0);
  for (let count = 1; count <= 20; count++) attempts.fail(`2001:db8:1:2::${count}`);
  assert.throws(() => attempts.admit("2001:db8:1:2:ffff::1"), { code: "rate_limited" });
  attempts.admit("2001:db8:1:3::1");
  attempts.clear("2001:db8:1:2::7");
  attempts.admit("2001:db8:1:2::1");
});
