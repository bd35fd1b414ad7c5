import { randomBytes, randomUUID, timingSafeEqual } from "node:crypto";
import { base32Encode } from "../codec/crypto/totp.ts";
import { openController } from "../core/async.ts";
import { Failure } from "../core/errors.ts";
import { writeAtomic } from "../core/files.ts";
import { quote } from "../core/shape.ts";
import { type AccessState, type AccessToken, MOST_TOKENS, readAccess } from "./access-file.ts";
import { newTokenText, tokenSum } from "./token.ts";
import { NEW_SECRET_BYTES } from "./totp.ts";

/** The longest delay of a timer of Node. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A token that is wanted. */
export interface NewToken extends Pick<AccessToken, "name" | "role" | "buckets" | "totp" | "created_by"> {
  /** How long it is valid; undefined for ever. */
  lifetimeMs?: number | undefined;
}

/** What ends all that goes on with a token. */
interface TokenEnd {
  controller: AbortController;
  timer?: NodeJS.Timeout;
}

/**
 * The tokens beside the server's own, and how many approvals each bucket asks for: `access.json`, of which this process is
 * the only writer. A change is on the disk before it holds.
 */
export class AccessStore {
  readonly #file: string;
  readonly #now: () => number;
  readonly #onTrouble: (error: unknown) => void;
  #state: AccessState;
  #sums: readonly (readonly [sum: Buffer, token: AccessToken])[] = [];
  readonly #ends = new Map<string, TokenEnd>();
  /** The tokens whose use is being noted. */
  readonly #noting = new Set<string>();
  #lastChange: Promise<unknown> = Promise.resolve();

  private constructor(file: string, state: AccessState, options: { now: () => number; onTrouble: (error: unknown) => void }) {
    this.#file = file;
    this.#now = options.now;
    this.#onTrouble = options.onTrouble;
    this.#state = state;
    this.#use(state);
  }

  /** Reads the file; `onTrouble` hears where a use could not be noted. Throws `failed` for a file that cannot be used. */
  static async open(
    file: string,
    { now = Date.now, onTrouble = () => {} }: { now?: () => number; onTrouble?: (error: unknown) => void } = {},
  ): Promise<AccessStore> {
    return new AccessStore(file, await readAccess(file), { now, onTrouble });
  }

  /** All tokens, the oldest first, those that have expired too. */
  get tokens(): readonly AccessToken[] {
    return this.#state.tokens;
  }

  /** The token of this text, valid or expired. Every token is compared, so that the time tells nothing. */
  find(text: string): AccessToken | undefined {
    const given = tokenSum(text);
    let found: AccessToken | undefined;
    for (const [sum, token] of this.#sums) if (timingSafeEqual(sum, given)) found = token;
    return found;
  }

  /** The token with this id, valid or expired. */
  byId(id: string): AccessToken | undefined {
    return this.#state.tokens.find((token) => token.id === id);
  }

  /** Whether a token has expired. */
  isExpired({ expires_at }: Pick<AccessToken, "expires_at">): boolean {
    return expires_at !== null && Date.parse(expires_at) <= this.#now();
  }

  /** Is aborted when the token is revoked or expires. */
  endOf({ id, expires_at }: AccessToken): AbortSignal {
    const end = this.#ends.get(id) ?? { controller: openController() };
    this.#ends.set(id, end);
    const leftMs = expires_at === null ? Number.POSITIVE_INFINITY : Date.parse(expires_at) - this.#now();
    // No request and no session lasts as long as the longest timer; a later one asks again.
    if (leftMs <= LONGEST_TIMER_MS) end.timer ??= setTimeout(() => end.controller.abort(), leftMs).unref();
    return end.controller.signal;
  }

  /**
   * Makes a token. Its text is kept nowhere. Throws `invalid_request` where its name is in use, or there are as many tokens
   * as there may be.
   */
  async create({ lifetimeMs, ...wanted }: NewToken): Promise<{ token: AccessToken; text: string }> {
    const text = newTokenText();
    const now = this.#now();
    const token: AccessToken = {
      id: randomUUID(),
      ...wanted,
      created_at: new Date(now).toISOString(),
      expires_at: lifetimeMs === undefined ? null : new Date(now + lifetimeMs).toISOString(),
      last_used_on: null,
      sha256: tokenSum(text).toString("hex"),
      totp_secret: wanted.totp === "own" ? base32Encode(randomBytes(NEW_SECRET_BYTES)) : null,
    };
    await this.#change(({ tokens, approvals }) => {
      const isTaken = tokens.some(({ name }) => name.toLowerCase() === wanted.name.toLowerCase());
      if (isTaken) throw new Failure("invalid_request", `name: a token ${quote(wanted.name)} is there already; revoke it first`);
      if (tokens.length >= MOST_TOKENS)
        throw new Failure("invalid_request", `there are ${MOST_TOKENS} tokens, no more are possible; revoke one first`);
      return { tokens: [...tokens, token], approvals };
    });
    return { token, text };
  }

  /**
   * Takes a token, by its name or id, out of use: it is refused from now on, and all that goes on with it ends. Answers what
   * it was. Throws `not_found`.
   */
  async revoke(given: string): Promise<AccessToken> {
    const isMeant = ({ id, name }: AccessToken) => id === given || name.toLowerCase() === given.toLowerCase();
    let revoked: AccessToken | undefined;
    await this.#change(({ tokens, approvals }) => {
      revoked = tokens.find(isMeant);
      if (!revoked) throw new Failure("not_found", `there is no token ${quote(given)}`);
      return { tokens: tokens.filter((one) => one !== revoked), approvals };
    });
    const { id } = revoked as unknown as AccessToken;
    const { controller, timer } = this.#ends.get(id) ?? {};
    clearTimeout(timer);
    this.#ends.delete(id);
    controller?.abort();
    return revoked as unknown as AccessToken;
  }

  /** Notes that a token is used today. Returns at once; a use that cannot be noted is no reason to refuse it. */
  noteUse({ id, last_used_on }: Pick<AccessToken, "id" | "last_used_on">): void {
    const today = new Date(this.#now()).toISOString().slice(0, 10);
    if (last_used_on === today || this.#noting.has(id)) return;
    this.#noting.add(id);
    const used = (token: AccessToken) => (token.id === id ? { ...token, last_used_on: today } : token);
    this.#change(({ tokens, approvals }) => ({ tokens: tokens.map(used), approvals }))
      .catch(this.#onTrouble)
      .finally(() => this.#noting.delete(id));
  }

  /** How many others must approve a run in a bucket; 0 where nothing was set. */
  approvalsOf(bucketId: string): number {
    return this.#state.approvals[bucketId] ?? 0;
  }

  /** Sets how many others must approve a run in a bucket: 0, 1 or 2. */
  async setApprovals(bucketId: string, count: number): Promise<void> {
    await this.#change(({ tokens, approvals: { [bucketId]: _, ...others } }) => {
      return { tokens, approvals: count === 0 ? others : { ...others, [bucketId]: count } };
    });
  }

  /** Waits until everything is written, and gives its timers up. */
  async close(): Promise<void> {
    for (const { timer } of this.#ends.values()) clearTimeout(timer);
    await this.#lastChange;
  }

  /** One change after the other, each on what the one before has left. */
  async #change(change: (state: AccessState) => AccessState): Promise<void> {
    const done = this.#lastChange.then(async () => {
      const state = change(this.#state);
      await writeAtomic(this.#file, `${JSON.stringify(state, undefined, 2)}\n`);
      this.#use(state);
    });
    this.#lastChange = done.catch(() => {});
    await done;
  }

  #use(state: AccessState): void {
    this.#state = state;
    this.#sums = state.tokens.map((token) => [Buffer.from(token.sha256, "hex"), token]);
  }
}
