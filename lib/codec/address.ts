import { BlockList, isIP, isIPv4 } from "node:net";

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet("127.0.0.0", 8, "ipv4");
LOOPBACK.addAddress("::1", "ipv6");

/** The addresses that are of this host, of a network or of nobody: RFC 6890 and what holds an address of IPv4 in itself. */
const INSIDE = new BlockList();
for (const [network, bits] of [
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["224.0.0.0", 3],
  ["::", 96],
  ["64:ff9b:1::", 48],
  ["2001::", 32],
  ["2002::", 16],
  ["fc00::", 7],
  ["fe80::", 10],
  ["fec0::", 10],
  ["ff00::", 8],
] as const)
  INSIDE.addSubnet(network, bits, isIPv4(network) ? "ipv4" : "ipv6");

/** IPv4 in IPv6: `::ffff:0:0/96`, and `64:ff9b::/96`, by which hosts without IPv4 reach it. */
const WITH_IPV4 = new BlockList();
WITH_IPV4.addSubnet("::ffff:0:0", 96, "ipv6");
WITH_IPV4.addSubnet("64:ff9b::", 96, "ipv6");

/** True for an address by which only this host can be reached; false for what is no address. */
export function isLoopback(address: string): boolean {
  return isIn(LOOPBACK, address);
}

/** True for an address of the public Internet; false for what is no address. */
export function isPublic(address: string): boolean {
  const inner = ipv4Within(address);
  return isIP(inner) !== 0 && !isIn(INSIDE, inner);
}

function isIn(addresses: BlockList, address: string): boolean {
  const [plain = ""] = address.split("%");
  return isIP(plain) !== 0 && addresses.check(plain, isIPv4(plain) ? "ipv4" : "ipv6");
}

/** The address of IPv4 that one of IPv6 stands for, else the address itself. */
function ipv4Within(address: string): string {
  const [plain = ""] = address.split("%");
  if (isIP(plain) !== 6 || !WITH_IPV4.check(plain, "ipv6")) return plain;
  // URL writes all addresses in one form, with the last 32 bits as two groups.
  const groups = new URL(`http://[${plain}]`).hostname.slice(1, -1).split("::").at(-1)?.split(":") ?? [];
  const [high = 0, low = 0] = [groups.at(-2), groups.at(-1)].map((group) => Number.parseInt(group || "0", 16));
  return [high >> 8, high & 255, low >> 8, low & 255].join(".");
}
