/** What a semaphore belongs to: the same name under another job or event is another semaphore. */
interface Scope {
  job: string;
  event: string;
  name: string;
}

/** How an attempt ended: `conflict` for another capacity or a second wait, `cancelled` when the signal was aborted. */
type Acquired = "acquired" | "timeout" | "conflict" | "cancelled";

interface SlotRequest {
  capacity: number;
  timeoutMs: number;
  signal: AbortSignal;
}

interface Waiter {
  holder: string;
  /** On the clock of `performance.now()`. */
  deadline: number;
  settle(outcome: Acquired): void;
}

interface Semaphore {
  scope: Scope;
  capacity: number;
  holders: Set<string>;
  /** In the order of their coming. */
  waiters: Set<Waiter>;
}

/**
 * The semaphores of one session, in memory only (hook-runtime.md, Semaphore; decisions: Hook runtime API). First come,
 * first served. An allocation holds at most one slot of a semaphore, until it releases the slot or the session ends.
 * The capacity is that of the first request while nobody holds or waits.
 */
export class Semaphores {
  readonly #semaphores = new Map<string, Semaphore>();

  /**
   * Takes a slot for `holder`, waiting at most `timeoutMs`; at once where `holder` has one already. An aborted signal
   * ends the wait, and gets no slot.
   */
  async acquire(scope: Scope, holder: string, request: SlotRequest): Promise<Acquired> {
    const { capacity, signal } = request;
    if (signal.aborted) return "cancelled";
    const semaphore = this.#open(scope, capacity);
    if (semaphore.capacity !== capacity) return "conflict";
    if (semaphore.holders.has(holder)) return "acquired";
    for (const waiter of semaphore.waiters) if (waiter.holder === holder) return "conflict";
    if (semaphore.holders.size >= capacity) return wait(semaphore, holder, request);
    semaphore.holders.add(holder);
    return "acquired";
  }

  /** Gives the slot of `holder` to the next waiter; false when `holder` has none. */
  release(scope: Scope, holder: string): boolean {
    const semaphore = this.#semaphores.get(scopeKey(scope));
    if (!semaphore?.holders.delete(holder)) return false;
    grant(semaphore);
    return true;
  }

  /** A name that nobody has used has one free slot. */
  status(scope: Scope) {
    const { capacity, holders, waiters } = this.#semaphores.get(scopeKey(scope)) ?? unused(scope, 1);
    return { name: scope.name, capacity, holders: [...holders], waiting: waiters.size, available: capacity - holders.size };
  }

  /** The names of the semaphores under a job and event that `holder` has a slot of. */
  heldBy(job: string, event: string, holder: string): string[] {
    const held = [...this.#semaphores.values()].filter(({ holders }) => holders.has(holder));
    const scopes = held.map(({ scope }) => scope).filter((scope) => scope.job === job && scope.event === event);
    return scopes.map(({ name }) => name);
  }

  #open(scope: Scope, capacity: number): Semaphore {
    const key = scopeKey(scope);
    const known = this.#semaphores.get(key);
    if (known && known.holders.size + known.waiters.size > 0) return known;
    const semaphore = unused(scope, capacity);
    this.#semaphores.set(key, semaphore);
    return semaphore;
  }
}

function scopeKey({ job, event, name }: Scope): string {
  return JSON.stringify([job, event, name]);
}

function unused(scope: Scope, capacity: number): Semaphore {
  return { scope, capacity, holders: new Set(), waiters: new Set() };
}

function wait(semaphore: Semaphore, holder: string, { timeoutMs, signal }: SlotRequest): Promise<Acquired> {
  return new Promise((resolve) => {
    const settle = (outcome: Acquired) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", leave);
      semaphore.waiters.delete(waiter);
      resolve(outcome);
    };
    const waiter = { holder, deadline: performance.now() + timeoutMs, settle };
    const timer = setTimeout(() => settle("timeout"), timeoutMs);
    const leave = () => settle("cancelled");
    signal.addEventListener("abort", leave);
    semaphore.waiters.add(waiter);
  });
}

/** Gives free slots to waiters; none to a waiter whose time is up although its timer has not fired yet. */
function grant(semaphore: Semaphore): void {
  for (const waiter of semaphore.waiters) {
    if (semaphore.holders.size >= semaphore.capacity) return;
    const isInTime = performance.now() < waiter.deadline;
    if (isInTime) semaphore.holders.add(waiter.holder);
    waiter.settle(isInTime ? "acquired" : "timeout");
  }
}
