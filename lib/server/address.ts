import type { LookupAddress } from "node:dns";
import { lookup } from "node:dns/promises";
import { BlockList, isIP } from "node:net";
import { quote } from "../core/shape.ts";
import { refusal } from "./refusal.ts";

/** control-plane.md, Limits. */
export const DEFAULT_ADDRESS = "127.0.0.1:9090";

type Resolve = (host: string, options: { all: true }) => Promise<LookupAddress[]>;

/** Where a server listens. */
export interface ListenAddress {
  /** The address to bind, resolved; empty for all of this host. */
  host: string;
  port: number;
  /** Whether only this host can reach it. */
  loopback: boolean;
}

/**
 * Reads `HOST:PORT`. What a name, or another spelling of an address, stands for is looked up once, and that very
 * address is bound: what was judged is what listens. A name counts as loopback only when all its addresses do.
 * Throws a refusal for what cannot be read or resolved.
 */
export async function listenAddress(text: string, resolve: Resolve = lookup): Promise<ListenAddress> {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]*)\]|([^:[\]]*)):(\d{1,5})$/.exec(text) ?? [];
  const port = Number(digits ?? Number.NaN);
  if (!(port <= 65_535) || (bracketed !== undefined && isIP(bracketed) !== 6))
    throw refusal(`--addr ${quote(text)}: expected HOST:PORT, such as ${DEFAULT_ADDRESS} or [::1]:9090`);
  return { ...(await resolved(bracketed ?? plain ?? "", resolve)), port };
}

async function resolved(host: string, resolve: Resolve): Promise<Omit<ListenAddress, "port">> {
  if (host === "") return { host: "", loopback: false };
  try {
    const found = await resolve(host, { all: true });
    const first = found.find((one) => one.family === 4) ?? found[0];
    return { host: first?.address ?? host, loopback: found.every((one) => isLoopback(one.address)) };
  } catch (error) {
    throw refusal(`--addr: the host name ${quote(host)} cannot be resolved`, error);
  }
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

function isLoopback(address: string): boolean {
  const [plain = ""] = address.split("%");
  return LOOPBACK.check(plain, isIP(plain) === 6 ? "ipv6" : "ipv4");
}
