import { readFileSync } from "node:fs";
import type { Server, Socket } from "node:net";
import { networkOf } from "./peer.ts";

/** How many connections a server takes. */
export interface ConnectionCaps {
  /** In all; fewer where half of the descriptors that the process may have are fewer. */
  all: number;
  /** Of one peer, as long as none of them was admitted. */
  ofStranger: number;
  /** Gets a sentence when a cap is met: at most one a minute for each. */
  onMet: (sentence: string) => void;
}

/** The caps of the control plane. One who is admitted may have as many as there are: a proxy brings all its clients. */
export const CONNECTION_CAPS = { all: 5_000, ofStranger: 64 } as const;

const PAUSE_MS = 60_000;

/** Counts the connections of a server and cuts those that are too many. */
export class Connections {
  readonly #caps: ConnectionCaps;
  /** By network: how many there are, and how many of them were admitted. */
  readonly #peers = new Map<string, { open: number; admitted: number }>();
  readonly #admitted = new WeakSet<Socket>();

  constructor(server: Server, caps: ConnectionCaps) {
    this.#caps = caps;
    server.maxConnections = Math.min(caps.all, Math.floor(descriptors() / 2));
    const allTaken = teller(
      caps.onMet,
      `there are ${server.maxConnections} connections, the cap of this server`,
    );
    const peerTaken = teller(
      caps.onMet,
      `a peer has ${caps.ofStranger} connections, none of them authenticated`,
    );
    server.on("drop", (dropped) => allTaken(dropped?.remoteAddress));
    server.on("connection", (socket: Socket) => {
      if (!this.#take(socket)) peerTaken(socket.remoteAddress);
    });
  }

  /** Says that whoever sends over a connection has proven who that is. */
  admit(socket: Socket): void {
    const peer = this.#peers.get(networkOf(socket.remoteAddress ?? ""));
    if (!peer || socket.destroyed || this.#admitted.has(socket)) return;
    this.#admitted.add(socket);
    peer.admitted++;
    socket.once("close", () => peer.admitted--);
  }

  #take(socket: Socket): boolean {
    const network = networkOf(socket.remoteAddress ?? "");
    const peer = this.#peers.get(network) ?? { open: 0, admitted: 0 };
    if (peer.admitted === 0 && peer.open >= this.#caps.ofStranger) {
      socket.destroy();
      return false;
    }
    peer.open++;
    this.#peers.set(network, peer);
    socket.once("close", () => {
      if (--peer.open === 0) this.#peers.delete(network);
    });
    return true;
  }
}

/** Tells of what was refused, the first time at once and then at most once a minute with how many there were since. */
function teller(tell: (sentence: string) => void, why: string): (peer: string | undefined) => void {
  let [refused, quietUntil] = [0, 0];
  return (peer = "unknown") => {
    refused++;
    if (performance.now() < quietUntil) return;
    tell(`${why}: ${refused} more ${refused === 1 ? "was" : "were"} refused, the last of ${peer}`);
    [refused, quietUntil] = [0, performance.now() + PAUSE_MS];
  };
}

/** How many descriptors this process may have: Node has raised it to the most that it can be. */
function descriptors(): number {
  const limits = readFileSync("/proc/self/limits", "utf8");
  return Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
}
