import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { type Exchange, listen } from "../../lib/http/listen.ts";
import { json, raw } from "../../lib/http/message.ts";
import type { Limits } from "../../lib/http/node-server.ts";

/** More than the sockets on both sides take in while nobody reads. */
const UNREAD = Buffer.alloc(64 * 1024 * 1024);
const DRIPS = 20;

/**
 * Clients that are each too slow in one way, all at the same time, against a server with these limits. Answers after
 * how many milliseconds each was cut off, and the status of a long-poll that lasts half as long again as an answer may.
 */
export async function slowClients(
  limits: Limits,
): Promise<{ headers: number; body: number; write: number; idle: number; longPoll: number }> {
  let unread: (exchange: Exchange) => void = () => {};
  const cut = new Promise<Exchange>((resolve) => {
    unread = resolve;
  });
  const listener = await listen({
    host: "127.0.0.1",
    port: 0,
    limits,
    async handle(request) {
      if (request.path === "/unread") return raw("application/octet-stream", UNREAD);
      if (request.path === "/poll") {
        request.longPoll();
        await delay(1.5 * limits.writeMs);
      }
      if (request.path === "/body") for await (const _ of request.body);
      return json(200, {});
    },
    onExchange: (exchange) => exchange.request.path === "/unread" && unread(exchange),
  });
  const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: h\r\n`;
  const stuck = connect(listener.port, "127.0.0.1").on("error", () => {});
  try {
    stuck.write(`${get("/unread")}\r\n`);
    const [headers, body, idle, polled, { durationMs }] = await Promise.all([
      closedAfter(listener.port, get("/")),
      closedAfter(listener.port, `POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: ${DRIPS}\r\n\r\n`, limits),
      closedAfter(listener.port, `${get("/")}\r\n`),
      fetch(`${listener.url}/poll`),
      cut,
    ]);
    return { headers, body, write: durationMs, idle, longPoll: polled.status };
  } finally {
    stuck.destroy();
    await listener.close(0);
  }
}

/** How long a connection lasts on which this text is sent; `drip` adds a byte now and then, too slowly to ever end. */
async function closedAfter(port: number, text: string, drip?: Limits): Promise<number> {
  const socket = connect(port, "127.0.0.1")
    .on("error", () => {})
    .resume();
  const began = performance.now();
  socket.write(text);
  const drips = drip && setInterval(() => socket.writable && socket.write("x"), (drip.requestMs / DRIPS) * 1.5);
  if (!socket.closed) await once(socket, "close");
  clearInterval(drips);
  return performance.now() - began;
}
