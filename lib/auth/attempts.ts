/** How many failures are allowed in which time, and how many addresses are remembered. */
export interface AttemptRule {
  perPeer: number;
  windowMs: number;
  /** When the table is full the address whose window began first is forgotten. */
  peers: number;
}

/** control-plane.md, Limits: 20 bearer failures per direct peer and minute. */
export const BEARER_ATTEMPTS: Readonly<AttemptRule> = { perPeer: 20, windowMs: 60_000, peers: 10_000 };

interface Window {
  began: number;
  failures: number;
}

/**
 * Counts failures per address, in memory only. A window begins with an address's first failure, lasts its time and
 * is not prolonged by more of them (decisions: HTTP conventions).
 */
export class Attempts {
  readonly #rule: AttemptRule;
  readonly #now: () => number;
  /** In the order in which the windows began. */
  readonly #windows = new Map<string, Window>();

  constructor(rule: AttemptRule, now: () => number = Date.now) {
    this.#rule = rule;
    this.#now = now;
  }

  /** Milliseconds until this address may try again; 0 when it may now. */
  blockedMs(peer: string): number {
    const window = this.#current(peer);
    if (!window || window.failures < this.#rule.perPeer) return 0;
    return window.began + this.#rule.windowMs - this.#now();
  }

  /** Notes a failure. */
  fail(peer: string): void {
    const window = this.#current(peer);
    if (window) window.failures++;
    else this.#begin(peer);
  }

  #begin(peer: string): void {
    this.#windows.delete(peer);
    const oldest = this.#windows.keys().next();
    if (this.#windows.size >= this.#rule.peers && !oldest.done) this.#windows.delete(oldest.value);
    this.#windows.set(peer, { began: this.#now(), failures: 1 });
  }

  #current(peer: string): Window | undefined {
    const window = this.#windows.get(peer);
    return window && this.#now() - window.began < this.#rule.windowMs ? window : undefined;
  }
}
