import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

const MOST_HEAD_BYTES = 2_000;
const BUFFER_BYTES = 64 * 1024;

/** What a server could do. */
export interface Load {
  perSecond: number;
  p99Ms: number;
}

/**
 * Asks for one thing over a number of connections at a time, each asking again as soon as it has its answer, or at most
 * once in so many milliseconds. Written on bare sockets, because an HTTP client costs more than the servers do.
 */
export async function load(
  url: string,
  path: string,
  headers: Record<string, string>,
  connections: number,
  durationMs: number,
  everyMs = 0,
): Promise<Load> {
  const request = requestText(url, path, headers);
  const until = performance.now() + durationMs;
  const times: number[] = [];
  const started = performance.now();
  await Promise.all(
    Array.from({ length: connections }, async (_, index) => {
      const connection = await Connection.open(url);
      if (everyMs > 0) await sleep((everyMs * index) / connections);
      while (performance.now() < until) {
        const asked = performance.now();
        await connection.ask(request);
        const took = performance.now() - asked;
        times.push(took);
        if (everyMs > 0) await sleep(Math.max(0, everyMs - took));
      }
      connection.destroy();
    }),
  );
  const seconds = (performance.now() - started) / 1000;
  times.sort((a, b) => a - b);
  return { perSecond: times.length / seconds, p99Ms: times[Math.floor(times.length * 0.99)] ?? 0 };
}

/** The text of a GET request that keeps its connection. */
export function requestText(url: string, path: string, headers: Record<string, string>): string {
  const lines = Object.entries({ Host: new URL(url).host, ...headers }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/** A connection to a server, which is asked for one thing at a time. */
export class Connection {
  readonly #socket: Socket;
  #head = "";
  #received = 0;
  #wanted = Number.POSITIVE_INFINITY;
  #done: PromiseWithResolvers<void> | undefined;

  static async open(url: string): Promise<Connection> {
    const connection = new Connection(url);
    await once(connection.#socket, "connect");
    return connection;
  }

  private constructor(url: string) {
    const { hostname, port } = new URL(url);
    // Into one buffer: the collector of a client that gets a new one for each answer would be measured, too.
    const onread = {
      buffer: Buffer.alloc(BUFFER_BYTES),
      callback: (size: number, bytes: Uint8Array) => this.#take(size, bytes as Buffer),
    };
    this.#socket = connect({ port: Number(port), host: hostname, onread }).setNoDelay();
  }

  /** Sends a request and resolves when the whole answer is there; throws for any but a 200. */
  ask(request: string): Promise<void> {
    this.#head = "";
    [this.#received, this.#wanted] = [0, Number.POSITIVE_INFINITY];
    this.#done = Promise.withResolvers();
    this.#socket.write(request);
    return this.#done.promise;
  }

  destroy(): void {
    this.#socket.destroy();
  }

  #take(size: number, bytes: Buffer): boolean {
    this.#received += size;
    // Of the headers only: to make text of each answer would cost more than to send it.
    if (this.#wanted === Number.POSITIVE_INFINITY) {
      this.#head += bytes.toString("latin1", 0, Math.min(size, MOST_HEAD_BYTES));
      const end = this.#head.indexOf("\r\n\r\n");
      const length = Number(/\r\ncontent-length: (\d+)/i.exec(this.#head)?.[1]);
      if (end >= 0) this.#wanted = end + 4 + length;
    }
    if (this.#received < this.#wanted) return true;
    if (this.#head.startsWith("HTTP/1.1 200 ")) this.#done?.resolve();
    else this.#done?.reject(new Error(this.#head));
    return true;
  }
}
