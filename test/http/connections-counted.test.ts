import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import type { Server, Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { CONNECTION_CAPS, Connections, networkOf, peerOf } from "../../lib/http/connections.ts";

for (const [address, network] of [
  ["192.0.2.7", "192.0.2.7"],
  ["::ffff:192.0.2.7", "192.0.2.7"],
  ["::FFFF:192.0.2.7", "192.0.2.7"],
  ["2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"],
  ["2001:db8:1:2::9", "2001:db8:1:2::/64"],
  ["2001:db8::9", "2001:db8:0:0::/64"],
  ["2001:0DB8:0000:0:ffff::", "2001:db8:0:0::/64"],
  ["::1", "0:0:0:0::/64"],
  ["1::8:7:6:5:4", "1:0:0:8::/64"],
  ["1::ffff:192.0.2.7", "1:0:0:0::/64"],
  ["fe80::1%eth0", "fe80:0:0:0::/64"],
  ["", ""],
] as const)
  test(`the address ${address || "of nobody"} counts as ${network || "itself"}`, () => {
    assert.equal(networkOf(address), network);
  });

/** A socket as far as it is counted. */
class CountedSocket extends EventEmitter {
  destroyed = false;
  readonly remoteAddress: string | undefined;

  constructor(remoteAddress: string | undefined) {
    super();
    this.remoteAddress = remoteAddress;
  }

  destroy(): void {
    if (this.destroyed) return;
    this.destroyed = true;
    this.emit("close");
  }
}

/** The connections of a server that has none yet, and what was told of caps. */
function counting(ofStranger = 2) {
  const told: string[] = [];
  const server = new EventEmitter() as Server;
  const connections = new Connections(server, { all: 5, ofStranger, onMet: (sentence) => told.push(sentence) });
  const connect = (address: string | undefined) => {
    const socket = new CountedSocket(address) as unknown as Socket;
    server.emit("connection", socket);
    return socket;
  };
  return { told, server, connections, connect };
}

/** The clock stands, until it is moved. */
function standing(t: TestContext): { ms: number } {
  const clock = { ms: 0 };
  t.mock.method(performance, "now", () => clock.ms);
  return clock;
}

test("a stranger's connections up to the cap are taken, the next one is cut and told of; other peers have their own", () => {
  const { told, connections, connect } = counting();
  const sockets = ["10.0.0.2", "10.0.0.1", "::ffff:10.0.0.1", "10.0.0.1", undefined].map(connect);
  assert.deepEqual(
    sockets.map(({ destroyed }) => destroyed),
    [false, false, false, true, false],
  );
  assert.deepEqual(told, ["a peer has 2 connections, none of them authenticated: 1 more was refused, the last of 10.0.0.1"]);
  assert.equal(connections.open, 4);
  sockets[1]?.destroy();
  assert.deepEqual([connections.open, connect("10.0.0.1").destroyed], [3, false]);
  assert.equal(connect("10.0.0.1").destroyed, true);
});

test("a peer has as many as it likes while one of them is authenticated, and not for longer", () => {
  const { connections, connect } = counting();
  const [first, second] = [connect("10.0.0.1"), connect("10.0.0.1")];
  const isTaken = () => !connect("10.0.0.1").destroyed;
  assert.equal(isTaken(), false);
  for (const socket of [first, first, second]) connections.admit(socket);
  assert.equal(first.listenerCount("close"), second.listenerCount("close"), "who is authenticated again is counted once");
  assert.deepEqual([isTaken(), isTaken()], [true, true]);
  first.destroy();
  assert.equal(isTaken(), true, "the other one is authenticated still");
  second.destroy();
  assert.equal(isTaken(), false);
});

test("nothing is kept of a peer whose last connection is closed", (t) => {
  const { connect } = counting();
  const sockets = [connect("10.0.0.1"), connect("10.0.0.1")];
  const removed = t.mock.method(Map.prototype, "delete");
  const gone = () => removed.mock.calls.filter(({ arguments: [key] }) => key === "10.0.0.1").length;
  sockets[0]?.destroy();
  assert.equal(gone(), 0);
  sockets[1]?.destroy();
  assert.equal(gone(), 1);
});

test("a connection that is closed, or that was never taken, authenticates nobody", () => {
  const { connections, connect } = counting(1);
  const first = connect("10.0.0.1");
  const late = new CountedSocket("10.0.0.1");
  late.destroyed = true;
  connections.admit(late as unknown as Socket);
  connections.admit(new CountedSocket("10.0.0.9") as unknown as Socket);
  assert.equal(connect("10.0.0.1").destroyed, true);
  assert.equal(connections.open, 1);
  first.destroy();
  assert.equal(connections.open, 0);
});

test("refused connections are told of at once, then once a minute with their number", (t) => {
  const clock = standing(t);
  const { told, server } = counting();
  const drop = (address?: string) => server.emit("drop", address === undefined ? undefined : { remoteAddress: address });
  const why = "there are 5 connections, the cap of this server";
  drop("10.0.0.1");
  for (const address of ["10.0.0.2", "10.0.0.3"]) drop(address);
  assert.deepEqual(told.splice(0), [`${why}: 1 more was refused, the last of 10.0.0.1`]);
  clock.ms += 59_999;
  drop("10.0.0.4");
  assert.deepEqual(told.splice(0), []);
  clock.ms += 1;
  drop();
  assert.deepEqual(told.splice(0), [`${why}: 4 more were refused, the last of unknown`]);
  clock.ms += 60_000;
  drop("10.0.0.5");
  assert.deepEqual(told, [`${why}: 1 more was refused, the last of 10.0.0.5`]);
});

test("the control plane takes 5,000 connections, 64 of them of a stranger", () => {
  assert.deepEqual(CONNECTION_CAPS, { all: 5_000, ofStranger: 64 });
});

test("a server takes as many connections as its cap says, but at most half of the files that it may open", (t) => {
  let limit = 1_000;
  const read = t.mock.method(fs, "readFileSync", () => `Max open files            ${limit}            4096         files`);
  syncBuiltinESMExports();
  t.after(() => {
    read.mock.restore();
    syncBuiltinESMExports();
  });
  const most = () => counting().server.maxConnections;
  assert.equal(most(), 5);
  limit = 9;
  assert.equal(most(), 4);
});

test("a peer is told by its address; an IPv4 address in IPv6 form is an IPv4 address", () => {
  const told = ["10.0.0.1", "::ffff:10.0.0.1", "2001:db8::ffff:1", "::1", undefined].map((address) =>
    peerOf(new CountedSocket(address) as unknown as Socket),
  );
  assert.deepEqual(told, ["10.0.0.1", "10.0.0.1", "2001:db8::ffff:1", "::1", "unknown"]);
});
