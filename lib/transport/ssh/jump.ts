/** A host to go through, as `ssh_jump` names it. */
export interface JumpHost {
  user: string;
  host: string;
  port: number;
}

/** The parts of `[user@]host[:port]`, an IPv6 address with a port in brackets; which it is was checked when it was read. */
export function parseJump(jump: string, defaultUser: string): JumpHost {
  const at = jump.indexOf("@");
  const user = at < 0 ? defaultUser : jump.slice(0, at);
  const target = jump.slice(at + 1);
  const [, bracketed, plain, port] = /^(?:\[([^\]]+)\]|([^:]+)):(\d+)$/.exec(target) ?? [];
  return { user, host: bracketed ?? plain ?? target, port: Number(port ?? 22) };
}
