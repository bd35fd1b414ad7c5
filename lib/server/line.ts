import { unlessAborted } from "../core/async.ts";
import type { RunKind } from "../run/protocol.ts";
import type { Actor } from "../run/record.ts";

/** How long a place is kept while no request holds it. */
const KEPT_MS = 30_000;
/** How many starts may wait in one bucket. */
const MOST_WAITING = 100;

/** A start that waits until its bucket is free. */
interface Waiting {
  readonly key: string;
  readonly kind: RunKind;
  readonly by: Actor;
  /** When it came, RFC 3339. */
  readonly since: string;
}

interface StartPlace extends Waiting {
  /** The requests that hold it now. */
  held: number;
  /** Gives it up, while nobody holds it. */
  end?: NodeJS.Timeout;
}

/** The hold of a request on the place of its key; disposed when the request ends. */
export interface Hold extends Disposable {
  /** 1 for the next to start; null once the place is gone, and where the line was full. */
  readonly position: number | null;
  /** Gives the place up; false where it is gone already. */
  leave(): boolean;
}

/**
 * The starts that wait, in line before each bucket: first come, first served. A place belongs to its key, also between two
 * requests, for 30 s. Kept in memory: a server that starts has no lines.
 */
export class Lines {
  readonly #lines = new Map<string, readonly StartPlace[]>();
  /** The end of the last work of each name. */
  readonly #last = new Map<string, Promise<void>>();
  readonly #keptMs: number;

  /** `keptMs` is for tests. */
  constructor(keptMs = KEPT_MS) {
    this.#keptMs = keptMs;
  }

  /** Those that wait in a bucket, the next to start first. */
  waiting(bucketId: string) {
    const shown = ({ key, kind, by, since, held }: StartPlace, at: number) =>
      ({ position: at + 1, key, kind, by, since, connected: held > 0 }) as const;
    return this.#line(bucketId).map(shown);
  }

  /** The next to start in a bucket. */
  next(bucketId: string): Waiting | undefined {
    return this.#line(bucketId)[0];
  }

  /** Takes the place that the key has, else the last one. At most 100 may wait. */
  enter(bucketId: string, waiting: Waiting): Hold {
    const line = this.#line(bucketId);
    let place = line.find(({ key }) => key === waiting.key);
    if (!place && line.length < MOST_WAITING) {
      place = { ...waiting, held: 0 };
      this.#lines.set(bucketId, [...line, place]);
    }
    if (place) this.#hold(bucketId, place, 1);
    const position = () => this.#line(bucketId).indexOf(place as StartPlace) + 1;
    return {
      get position() {
        return position() || null;
      },
      leave: () => this.#remove(bucketId, place),
      [Symbol.dispose]: () => {
        if (place) this.#hold(bucketId, place, -1);
      },
    };
  }

  /** Gives up the place of a key; false where the key has none. */
  leave(bucketId: string, key: string): boolean {
    return this.#remove(
      bucketId,
      this.#line(bucketId).find((place) => place.key === key),
    );
  }

  /** Does the works of one name one after the other. Throws `cancelled` where the signal is aborted before its turn. */
  async alone<T>(name: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(name) ?? Promise.resolve();
    const mine = unlessAborted(before, signal).then(work);
    const over: Promise<void> = Promise.allSettled([before, mine]).then(() => {
      if (this.#last.get(name) === over) this.#last.delete(name);
    });
    this.#last.set(name, over);
    return await mine;
  }

  #line(bucketId: string): readonly StartPlace[] {
    return this.#lines.get(bucketId) ?? [];
  }

  #hold(bucketId: string, place: StartPlace, change: 1 | -1): void {
    place.held += change;
    clearTimeout(place.end);
    if (place.held === 0) place.end = setTimeout(() => this.#remove(bucketId, place), this.#keptMs).unref();
  }

  #remove(bucketId: string, place: StartPlace | undefined): boolean {
    const line = this.#line(bucketId);
    if (!place || !line.includes(place)) return false;
    const left = line.filter((one) => one !== place);
    if (left.length > 0) this.#lines.set(bucketId, left);
    else this.#lines.delete(bucketId);
    return true;
  }
}
