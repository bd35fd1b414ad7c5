import type { AuditEntry } from "../../audit/line.ts";
import { networkOf } from "../../http/connections.ts";
import type { Exchange } from "../../http/listen.ts";

/** The statuses of answers that refuse: nobody known, not allowed, too often. */
const REFUSED: ReadonlySet<number> = new Set([401, 403, 429]);
/** How many addresses have a line of their own in a minute; all others share one. */
const MOST_ADDRESSES = 32;
/** How many names are told of an address. */
const NAMES_TOLD = 10;
const ALL_OTHERS = "others";

interface Refusals {
  count: number;
  byStatus: Record<string, number>;
  names: Set<string>;
  since: string;
  /** One of them. */
  example: { request: string; action: string; why: string };
}

/**
 * The requests that were refused, folded to one entry for each address (an IPv4 address, or the /64 of an IPv6 address) until
 * they are taken. Whoever sends requests can cause at most {@link MOST_ADDRESSES} entries and one more.
 */
export class FoldedRefusals {
  #byAddress = new Map<string, Refusals>();

  /** Whether an answer of this status refuses. */
  static has(status: number): boolean {
    return REFUSED.has(status);
  }

  /** Notes a request that was refused. */
  note({ request, status }: Pick<Exchange, "request" | "status">, at: string): void {
    const address = networkOf(request.peer);
    const key = this.#byAddress.has(address) || this.#byAddress.size < MOST_ADDRESSES ? address : ALL_OTHERS;
    const { route = "an unknown path", name, refused = "not allowed" } = request.noted;
    const example = { request: request.id, action: `${shownMethod(request.method)} ${route}`, why: refused };
    const found = this.#byAddress.get(key) ?? { count: 0, byStatus: {}, names: new Set(), since: at, example };
    found.count++;
    found.byStatus[status] = (found.byStatus[status] ?? 0) + 1;
    if (name !== undefined && found.names.size < NAMES_TOLD) found.names.add(name);
    this.#byAddress.set(key, found);
  }

  /** The entries about what was noted since the last call. */
  take(): AuditEntry[] {
    const taken = [...this.#byAddress];
    this.#byAddress = new Map();
    return taken.map(([from, { count, byStatus, names, since, example }]) => {
      const [only, ...others] = names;
      const who = only !== undefined && others.length === 0 ? { who: only } : {};
      const { request, action, why } = example;
      const facts = { since, by_status: byStatus, example: why, ...(others.length > 0 && { names: [...names] }) };
      return Object.assign({ what: "refused" as const, from, request, action, outcome: "refused", count, facts }, who);
    });
  }
}

/** Whoever sends a request chooses its method. */
function shownMethod(method: string): string {
  return /^[A-Z]{1,10}$/.test(method) ? method : "-";
}
