import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

const MOST_HEAD_BYTES = 2_000;

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
      const socket = await dial(url);
      if (everyMs > 0) await sleep((everyMs * index) / connections);
      while (performance.now() < until) {
        const asked = performance.now();
        await ask(socket, request);
        const took = performance.now() - asked;
        times.push(took);
        if (everyMs > 0) await sleep(Math.max(0, everyMs - took));
      }
      socket.destroy();
    }),
  );
  const seconds = (performance.now() - started) / 1000;
  times.sort((a, b) => a - b);
  return { perSecond: times.length / seconds, p99Ms: times[Math.floor(times.length * 0.99)] ?? 0 };
}

/** The text of a GET request that keeps its connection. */
export function requestText(url: string, path: string, headers: Record<string, string>): string {
  const lines = Object.entries({ Host: new URL(url).host, ...headers }).map(
    ([name, value]) => `${name}: ${value}\r\n`,
  );
  return `GET ${path} HTTP/1.1\r\n${lines.join("")}\r\n`;
}

/** A connection to a server. */
export async function dial(url: string): Promise<Socket> {
  const { hostname, port } = new URL(url);
  const socket = connect(Number(port), hostname).setNoDelay();
  await once(socket, "connect");
  return socket;
}

/** Sends a request and resolves when the whole answer is there; throws for any but a 200. */
export function ask(socket: Socket, request: string): Promise<void> {
  return new Promise((resolve, reject) => {
    let head = "";
    let [received, wanted] = [0, Number.POSITIVE_INFINITY];
    const onData = (chunk: Buffer) => {
      received += chunk.length;
      // Of the headers only: to make text of each answer would cost more than to send it.
      if (wanted === Number.POSITIVE_INFINITY) {
        head += chunk.toString("latin1", 0, MOST_HEAD_BYTES);
        const end = head.indexOf("\r\n\r\n");
        const length = Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1]);
        if (end >= 0) wanted = end + 4 + length;
      }
      if (received < wanted) return;
      socket.off("data", onData);
      if (head.startsWith("HTTP/1.1 200 ")) resolve();
      else reject(new Error(head));
    };
    socket.on("data", onData);
    socket.write(request);
  });
}
