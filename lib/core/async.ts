import { setMaxListeners } from "node:events";
import { setTimeout as timer } from "node:timers/promises";
import { cancelledFailure, throwIfCancelled } from "./errors.ts";

/** The longest that a timer of Node waits; a longer one would fire at once. */
const LONGEST_WAIT_MS = 2 ** 31 - 1;

/**
 * Waits `ms` milliseconds, at most 24.8 days; ends at once with the failure `cancelled` when the signal is aborted.
 */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  await timer(Math.min(ms, LONGEST_WAIT_MS), undefined, { signal }).catch(() => {
    throw cancelledFailure();
  });
}

/**
 * Puts a function into `waiting` and waits until somebody calls the function, until the signal is aborted, or for `ms`
 * milliseconds. Never throws. Thousands may wait at a time.
 */
export function woken(waiting: Set<() => void>, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timeout);
      signal.removeEventListener("abort", finish);
      waiting.delete(finish);
      resolve();
    };
    const timeout = setTimeout(finish, Math.min(ms, LONGEST_WAIT_MS));
    signal.addEventListener("abort", finish);
    waiting.add(finish);
    if (signal.aborted) finish();
  });
}

/** A controller to whose signal any number may listen. */
export function openController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}

/** Waits for a promise at most `ms` milliseconds; afterwards answers `undefined` and leaves the promise alone. */
export async function within<T>(promise: Promise<T>, ms: number): Promise<T | undefined> {
  return await unlessFirst(promise, async (stop) => void (await expired(ms, stop)));
}

/**
 * Waits for a promise until the signal is aborted, which answers `cancelled`, or for so many milliseconds, which answers
 * `timeout`; then leaves the promise alone.
 */
export async function unlessCut<T>(
  promise: Promise<T>,
  { signal, timeoutMs }: { signal: AbortSignal | undefined; timeoutMs: number },
) {
  return await unlessFirst(promise, (stop) => Promise.race([aborted(signal, stop), expired(timeoutMs, stop)]));
}

/** Waits for a promise until the signal is aborted: then throws `cancelled` and leaves the promise alone. */
export async function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return await unlessFirst(promise, async (stop): Promise<never> => {
    await aborted(signal, stop);
    throw cancelledFailure();
  });
}

/** The promise or the wait, whichever ends first; then the signal `stop` ends the wait. */
async function unlessFirst<T, C>(promise: Promise<T>, wait: (stop: AbortSignal) => Promise<C>): Promise<T | C> {
  const stop = new AbortController();
  try {
    return await Promise.race([promise, wait(stop.signal)]);
  } finally {
    stop.abort();
  }
}

/** Answers `cancelled` once the signal is aborted; without a signal never. `stop` ends the wait. */
export function aborted(signal: AbortSignal | undefined, stop: AbortSignal): Promise<"cancelled"> {
  return new Promise((resolve) => {
    if (signal?.aborted) resolve("cancelled");
    signal?.addEventListener("abort", () => resolve("cancelled"), { once: true, signal: stop });
  });
}

/** Answers `timeout` after this time; without a time never. `stop` ends the wait. */
export function expired(timeoutMs: number | undefined, stop: AbortSignal): Promise<"timeout"> {
  return new Promise((resolve) => {
    if (timeoutMs === undefined || stop.aborted) return;
    const timer = setTimeout(() => resolve("timeout"), Math.min(timeoutMs, LONGEST_WAIT_MS));
    stop.addEventListener("abort", () => clearTimeout(timer), { once: true });
  });
}

/** Splits a list into consecutive parts of `width` items; width 0 means one part (hook-runtime.md, Batching rules). */
export function batches<T>(items: readonly T[], width: number): T[][] {
  const size = width < 1 ? items.length : width;
  const result: T[][] = [];
  for (let at = 0; at < items.length; at += size) result.push(items.slice(at, at + size));
  return result;
}

/**
 * Runs `work` on every item, at most `limit` at a time, and waits for all of them. Answers the outcomes in the order of
 * the items. After an abort no further item starts: the rest end `cancelled`.
 */
export async function runAll<T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<R>,
  signal?: AbortSignal,
): Promise<PromiseSettledResult<R>[]> {
  const results: PromiseSettledResult<R>[] = [];
  let next = 0;
  const lane = async () => {
    for (let at = next++; at < items.length; at = next++) {
      try {
        throwIfCancelled(signal);
        results[at] = { status: "fulfilled", value: await work(items[at] as T) };
      } catch (reason) {
        results[at] = { status: "rejected", reason };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(Math.max(1, limit), items.length) }, lane));
  return results;
}

/**
 * {@link runAll} for work that should not fail: answers the results in the order of the items. Throws `cancelled` where
 * the signal was aborted, else what the first item that failed has thrown; in either case after all have ended.
 */
export async function mapAll<T, R>(
  items: readonly T[],
  limit: number,
  work: (item: T) => Promise<R>,
  signal?: AbortSignal,
): Promise<R[]> {
  const results = await runAll(items, limit, work, signal);
  throwIfCancelled(signal);
  return results.map((result) => {
    if (result.status === "rejected") throw result.reason;
    return result.value;
  });
}
