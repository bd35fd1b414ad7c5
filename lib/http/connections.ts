import { isIPv6, type Server, type Socket } from "node:net";
import { limitOf } from "../core/process.ts";

/** How many connections a server takes, and where refused connections are reported. */
export interface ConnectionCaps {
  /** Of all peers together; half of the process's descriptor limit where that is less. */
  all: number;
  /** Of one peer, while none of its connections is authenticated. */
  ofStranger: number;
  /** Gets a sentence when a cap is met, at most once a minute for each cap. */
  onMet: (sentence: string) => void;
}

/**
 * The caps of the control plane. For a peer with an authenticated connection only the cap of all peers counts: a proxy
 * brings the connections of all its clients.
 */
export const CONNECTION_CAPS = { all: 5_000, ofStranger: 64 } as const;

const PAUSE_MS = 60_000;

/** Counts the connections of a server and closes those beyond a cap. */
export class Connections {
  readonly #caps: ConnectionCaps;
  /** By network: how many connections are open, and how many of them are authenticated. */
  readonly #peers = new Map<string, { open: number; admitted: number }>();
  readonly #admitted = new WeakSet<Socket>();

  constructor(server: Server, caps: ConnectionCaps) {
    this.#caps = caps;
    server.maxConnections = Math.min(caps.all, Math.floor(limitOf("open files") / 2));
    const allTaken = teller(caps.onMet, `there are ${server.maxConnections} connections, the cap of this server`);
    const peerTaken = teller(caps.onMet, `a peer has ${caps.ofStranger} connections, none of them authenticated`);
    server.on("drop", (dropped) => allTaken(dropped?.remoteAddress));
    server.on("connection", (socket: Socket) => {
      if (!this.#take(socket)) peerTaken(socket.remoteAddress);
    });
  }

  /** Notes that a request over this connection was authenticated. */
  admit(socket: Socket): void {
    const peer = this.#peers.get(networkOf(socket.remoteAddress ?? ""));
    if (!peer || socket.destroyed || this.#admitted.has(socket)) return;
    this.#admitted.add(socket);
    peer.admitted++;
    socket.once("close", () => peer.admitted--);
  }

  /** How many are open. */
  get open(): number {
    return this.#peers.values().reduce((sum, { open }) => sum + open, 0);
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

/**
 * Reports refused connections: the first at once, then at most once a minute with their number since the last report.
 */
function teller(tell: (sentence: string) => void, why: string): (peer: string | undefined) => void {
  let [refused, quietUntil] = [0, 0];
  return (peer = "unknown") => {
    refused++;
    if (performance.now() < quietUntil) return;
    tell(`${why}: ${refused} more ${refused === 1 ? "was" : "were"} refused, the last of ${peer}`);
    [refused, quietUntil] = [0, performance.now() + PAUSE_MS];
  };
}

/** The address of a socket's other end: `::ffff:127.0.0.1` and `127.0.0.1` are one peer. */
export function peerOf(socket: Socket): string {
  return plainAddress(socket.remoteAddress ?? "unknown");
}

/**
 * The part of an address that limits count as one peer: an IPv4 address, or the /64 of an IPv6 address, because a host
 * usually has a whole /64.
 */
export function networkOf(address: string): string {
  const plain = plainAddress(address);
  if (!isIPv6(plain)) return plain;
  const [before = "", after] = (plain.split("%")[0] as string).split("::");
  const [left = [], right = []] = [before, after ?? ""].map((part) => part.split(":").filter((one) => one !== ""));
  const zeros = Array.from({ length: 8 - left.length - right.length }, () => "0");
  const first = [...left, ...zeros, ...right].slice(0, 4);
  return `${first.map((part) => Number.parseInt(part, 16).toString(16)).join(":")}::/64`;
}

function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, "");
}
