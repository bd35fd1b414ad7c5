import { once } from "node:events";
import { createServer as createHttp, type IncomingMessage, type ServerResponse } from "node:http";
import { createServer as createHttps } from "node:https";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import type { TestContext } from "node:test";
import { openDatabase } from "../../lib/bucket/base/database.ts";
import { layoutOf } from "../../lib/bucket/base/layout.ts";

/** A request as the receiver got it. */
export interface Received {
  method: string;
  path: string;
  headers: IncomingMessage["headers"];
  body: string;
}

// biome-ignore lint/suspicious/noExplicitAny: tests read fields of JSON that ops has sent.
type Body = any;
type Behaviour = (response: ServerResponse, received: Received) => void;

/** How a receiver that takes everything answers. */
export const TAKES: Behaviour = (response) => void response.writeHead(204).end();

/** A real receiver of webhooks on this host, which answers as it is told to. */
export class Receiver {
  readonly received: Received[] = [];
  /** How many connections were opened. */
  connections = 0;
  behaviour: Behaviour = TAKES;
  url = "";

  static async start(t: Pick<TestContext, "after">, tls?: { key: string; cert: string }): Promise<Receiver> {
    const receiver = new Receiver();
    const handle = async (request: IncomingMessage, response: ServerResponse) => {
      const { method = "", url = "", headers } = request;
      const received = { method, path: url, headers, body: await text(request) };
      receiver.received.push(received);
      receiver.behaviour(response, received);
    };
    const server = tls ? createHttps(tls, handle) : createHttp(handle);
    server.on("connection", () => receiver.connections++);
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => {
      server.closeAllConnections();
      server.close();
    });
    receiver.url = `${tls ? "https" : "http"}://127.0.0.1:${(server.address() as AddressInfo).port}`;
    return receiver;
  }

  /** The bodies as JSON. */
  get bodies(): Body[] {
    return this.received.map(({ body }) => JSON.parse(body));
  }
}

/** Stores what a build would have found in notify.json. */
export function storeNotify(bucketFolder: string, file: object, templates: Record<string, string> = {}): void {
  using db = openDatabase(layoutOf(bucketFolder).database);
  db.run("UPDATE bucket SET notify = ?", JSON.stringify({ file, templates }));
}
