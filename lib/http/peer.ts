import { isIPv6, type Socket } from "node:net";

/** The address of a socket's other end: `::ffff:127.0.0.1` and `127.0.0.1` are one peer. */
export function peerOf(socket: Socket): string {
  const address = socket.remoteAddress ?? "unknown";
  return address.startsWith("::") ? plainAddress(address) : address;
}

/**
 * What limits count as one peer: an IPv4 address, or the /64 of an IPv6 address, because a host usually has a whole
 * /64.
 */
export function networkOf(address: string): string {
  const plain = plainAddress(address);
  if (!isIPv6(plain)) return plain;
  const [before = "", after] = (plain.split("%")[0] as string).split("::");
  const [left, right] = [before, after ?? ""].map((part) => part.split(":").filter((one) => one !== ""));
  const zeros = Array.from({ length: 8 - (left?.length ?? 0) - (right?.length ?? 0) }, () => "0");
  const first = [...(left ?? []), ...zeros, ...(right ?? [])].slice(0, 4);
  return `${first.map((part) => Number.parseInt(part, 16).toString(16)).join(":")}::/64`;
}

function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, "");
}
