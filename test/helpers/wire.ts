import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import type { TestContext } from "node:test";

/** How many bytes of a connection come through; at the end of one of them `reached` is called, by default the connection is cut. */
export interface Allowed {
  /** From the client. */
  up?: number;
  /** From the server. */
  down?: number;
  reached?: () => void;
}

/** A wire to a server that can be cut after a given number of bytes. */
export class Wire {
  /** What a client connects to. */
  readonly url: string;
  /** How many connections there were. */
  count = 0;
  /** Says of each new connection, counted from 1, how much of it comes through. */
  allow: (count: number) => Allowed = () => ({});

  private constructor(url: string) {
    this.url = url;
  }

  static async to(t: Pick<TestContext, "after">, target: string): Promise<Wire> {
    const { hostname, port } = new URL(target);
    const open = new Set<Socket>();
    const server = createServer((client) => {
      const { up = Number.POSITIVE_INFINITY, down = Number.POSITIVE_INFINITY, reached } = wire.allow(++wire.count);
      const far = connect(Number(port), hostname);
      const ends = [client, far];
      const cut = () => ends.forEach((end) => void end.resetAndDestroy());
      for (const end of ends) {
        open.add(end);
        end.on("error", cut).on("close", () => {
          open.delete(end);
          cut();
        });
      }
      forward(client, far, up, reached ?? cut);
      forward(far, client, down, reached ?? cut);
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    t.after(() => {
      for (const end of open) end.destroy();
      server.close();
    });
    const wire = new Wire(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    return wire;
  }
}

/** Forwards so many bytes; then, with the first that is too much, calls `reached`, and forwards nothing any more. */
function forward(from: Socket, to: Socket, limit: number, reached: () => void): void {
  let left = limit;
  from.on("data", (chunk) => {
    if (left > 0) to.write(chunk.subarray(0, left));
    if (left < chunk.length && left >= 0) {
      left = -1;
      // What is underway gets there first.
      setImmediate(reached);
    } else if (left >= 0) left -= chunk.length;
  });
}
