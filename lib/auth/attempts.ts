import { Failure } from "../core/errors.ts";
import { networkOf } from "../http/connections.ts";

/** How many failures a peer has in which time, and how many peers are remembered. */
interface AttemptRule {
  /** The failures that are counted, for the sentence of the refusal. */
  readonly what: string;
  readonly perPeer: number;
  readonly windowMs: number;
  /** When the table is full, the peer whose window began first is forgotten. */
  readonly peers: number;
}

const MINUTE = { windowMs: 60_000, peers: 10_000 };
/** control-plane.md, Limits: 20 bearer failures per direct peer and minute. */
export const BEARER_ATTEMPTS: AttemptRule = { what: "wrong API tokens from this address", perPeer: 20, ...MINUTE };
/** control-plane.md, Limits: 20 TOTP failures per direct peer and minute. */
export const TOTP_ATTEMPTS: AttemptRule = { what: "wrong TOTP codes from this address", perPeer: 20, ...MINUTE };
/** control-plane.md, Limits: 100 TOTP failures of all peers together per minute. */
export const TOTP_ATTEMPTS_OF_ALL: AttemptRule = { what: "wrong TOTP codes", perPeer: 100, ...MINUTE };

interface Window {
  began: number;
  failures: number;
}

/**
 * Counts failures per peer (an IPv4 address, or the /64 of an IPv6 address), in memory only. A window begins with the
 * first failure of a peer, lasts `windowMs` and is not prolonged by further failures (decisions: HTTP conventions).
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

  /** Throws `rate_limited`, with the seconds to wait, where this peer has used up its failures. */
  admit(peer: string): void {
    const window = this.#current(peer);
    if (!window || window.failures < this.#rule.perPeer) return;
    const seconds = Math.ceil((window.began + this.#rule.windowMs - this.#now()) / 1000);
    throw new Failure("rate_limited", `too many ${this.#rule.what}; try again in ${seconds} s`, {
      details: { retry_after_s: seconds },
    });
  }

  /** Notes a failure. */
  fail(peer: string): void {
    const window = this.#current(peer);
    if (window) return void window.failures++;
    const network = networkOf(peer);
    this.#windows.delete(network);
    const oldest = this.#windows.keys().next();
    if (this.#windows.size >= this.#rule.peers && !oldest.done) this.#windows.delete(oldest.value);
    this.#windows.set(network, { began: this.#now(), failures: 1 });
  }

  /** Forgets the failures of an address. */
  clear(peer: string): void {
    this.#windows.delete(networkOf(peer));
  }

  #current(peer: string): Window | undefined {
    const window = this.#windows.get(networkOf(peer));
    // A clock that was set back would prolong the minute.
    const age = this.#now() - (window?.began ?? 0);
    return age >= 0 && age < this.#rule.windowMs ? window : undefined;
  }
}
