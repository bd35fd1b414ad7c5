import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { TestContext } from "node:test";

/** A connection that can die in silence: a proxy of TCP that stops forwarding, accepts all that comes, and goes on later. */
export class FrozenConnection {
  readonly url: string;
  readonly #pairs = new Set<readonly [Socket, Socket]>();
  #isFrozen = false;

  private constructor(url: string) {
    this.url = url;
  }

  /** Stands before a server, until the end of the tests. */
  static async before(url: string, t: Pick<TestContext, "after">): Promise<FrozenConnection> {
    const { hostname, port } = new URL(url);
    const server: Server = createServer().listen(0, hostname);
    await once(server, "listening");
    const connection = new FrozenConnection(`http://${hostname}:${(server.address() as { port: number }).port}`);
    server.on("connection", (client) => connection.#join(client, connect(Number(port), hostname)));
    t.after(() => {
      for (const pair of connection.#pairs) for (const socket of pair) socket.destroy();
      server.close();
    });
    return connection;
  }

  /** Forwards nothing any more, in neither direction; connections stay open. */
  freeze(): void {
    this.#isFrozen = true;
    for (const pair of this.#pairs) for (const socket of pair) socket.pause();
  }

  /** Forwards again, what was held back first. */
  thaw(): void {
    this.#isFrozen = false;
    for (const pair of this.#pairs) for (const socket of pair) socket.resume();
  }

  #join(client: Socket, server: Socket): void {
    const pair = [client, server] as const;
    this.#pairs.add(pair);
    for (const [from, to] of [pair, [server, client] as const]) {
      from.on("data", (chunk) => to.write(chunk));
      from.on("error", () => {});
      from.on("close", () => {
        to.destroy();
        this.#pairs.delete(pair);
      });
      if (this.#isFrozen) from.pause();
    }
  }
}
