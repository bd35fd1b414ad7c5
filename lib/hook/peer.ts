import { createReadStream } from "node:fs";
import { endianness } from "node:os";
import { unlessMissing } from "../core/files.ts";
import type { Connection } from "../http/listen.ts";
import type { HttpRequest } from "../http/message.ts";

/** The kernel's tables of TCP sockets; a program may reach an IPv4 address by a socket of either kind. */
const TABLES = ["/proc/net/tcp", "/proc/net/tcp6"];
/** About 100,000 sockets; a peer beyond them is refused. */
const TABLE_BYTES = 16 * 1024 * 1024;
const ROOT = 0;

/**
 * True when the request comes over loopback and its Host header is the address of this server, or `localhost`. The
 * request of a web page whose name was made to point here (DNS rebinding) has that name in the header.
 */
export function isOwnHost(request: HttpRequest, { localAddress, localPort }: Connection): boolean {
  const own = [`${localAddress}:${localPort}`, `localhost:${localPort}`];
  return request.peer.startsWith("127.") && own.includes(String(request.headers.host).toLowerCase());
}

/**
 * Tells whether the other end of a connection belongs to our user or to root, or else to the user of hooks, so that no
 * other user of this host can use an API that has no password (decisions: Hook runtime API). Node cannot ask the kernel
 * for the owner of a TCP peer; the kernel's table of sockets tells the owner. On systems without that table every peer
 * passes.
 */
export class PeerCheck {
  readonly #own: number | undefined;
  readonly #admitsRoot: boolean;
  readonly #known = new WeakMap<Connection, Promise<boolean>>();
  readonly #tables = TABLES.map(sharedReader);

  /** `own` is the user whose processes may call, besides those of root. With `alone` no other's may. */
  constructor(own = process.geteuid?.(), alone?: "alone") {
    this.#own = own;
    this.#admitsRoot = alone === undefined;
  }

  /** Looked up once per connection. A peer that has closed its socket is refused, because its owner is not known. */
  admits(connection: Connection): Promise<boolean> {
    if (process.platform !== "linux") return Promise.resolve(true);
    const known = this.#known.get(connection) ?? this.#look(connection);
    this.#known.set(connection, known);
    return known;
  }

  async #look(connection: Connection): Promise<boolean> {
    const owner = await this.#owner(connection);
    if (owner === this.#own) return owner !== undefined;
    // Before Linux 6.16 a socket that is closed while its line is written may be shown as root's: only then look twice.
    return this.#admitsRoot && owner === ROOT && (await this.#owner(connection)) === ROOT;
  }

  async #owner(connection: Connection): Promise<number | undefined> {
    for (const read of this.#tables) {
      const owner = ownerOf(connection, await read());
      if (owner !== undefined) return owner;
    }
    return undefined;
  }
}

/**
 * Reads a table. A read takes milliseconds on some kernels: all requests that come before a read begins share its text.
 */
function sharedReader(file: string): () => Promise<string> {
  let current: Promise<unknown> = Promise.resolve();
  let next: Promise<string> | undefined;
  return () => {
    next ??= current.then(() => {
      next = undefined;
      const text = readTable(file);
      current = text.catch(() => {});
      return text;
    });
    return next;
  };
}

/** A kernel without IPv6 has no table of IPv6 sockets. */
async function readTable(file: string): Promise<string> {
  const stream = createReadStream(file, { encoding: "latin1", end: TABLE_BYTES - 1 });
  return ((await unlessMissing(stream.toArray())) ?? []).join("");
}

/** The uid of the socket at the peer's end, or undefined when no process has that socket open. */
function ownerOf(connection: Connection, table: string): number | undefined {
  const { localAddress, localPort, remoteAddress, remotePort } = connection;
  const ends = ` ${socketEnd(remoteAddress, remotePort)} ${socketEnd(localAddress, localPort)} `;
  const line = new RegExp(`${ends}.*`).exec(table)?.[0].trim().split(/\s+/) ?? [];
  const [uid, inode] = [line[6], line[8]];
  return uid === undefined || inode === undefined || inode === "0" ? undefined : Number(uid);
}

/** A pattern for an IPv4 address and port in the tables, as of an IPv4 or of an IPv6 socket. */
function socketEnd(address = "", port = 0): string {
  const bytes = Buffer.from(address.split(".").map(Number));
  const word = (endianness() === "LE" ? bytes.reverse() : bytes).toString("hex").toUpperCase();
  const mapped = endianness() === "LE" ? "0000000000000000FFFF0000" : "00000000000000000000FFFF";
  return `(?:${mapped})?${word}:${port.toString(16).toUpperCase().padStart(4, "0")}`;
}
