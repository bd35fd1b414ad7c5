/** The median of some numbers. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
}

/** The value that so many percent of the numbers do not exceed. */
export function percentile(values: readonly number[], percent: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil((sorted.length * percent) / 100) - 1)] ?? 0;
}

/** Milliseconds that `work` takes. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const started = performance.now();
  await work();
  return performance.now() - started;
}

/**
 * Runs several things in turn (A, B, C, A, B, C, …), so that a machine whose speed drifts slows all of them alike,
 * and prints each one's median, range and ratio to the first.
 */
export async function sideBySide(rounds: number, work: Record<string, () => Promise<number>>): Promise<void> {
  const times = new Map(Object.keys(work).map((name) => [name, [] as number[]]));
  for (let round = -1; round < rounds; round++)
    for (const [name, one] of Object.entries(work)) {
      const ms = await one();
      // The first round warms caches and is not counted.
      if (round >= 0) times.get(name)?.push(ms);
    }
  const base = median([...times.values()][0] ?? []);
  for (const [name, values] of times) {
    const middle = median(values);
    const range = `${Math.min(...values).toFixed(0)}-${Math.max(...values).toFixed(0)} ms`;
    console.log(
      `${name.padEnd(44)} ${middle.toFixed(1).padStart(8)} ms   ${range.padStart(14)}   x ${(middle / base).toFixed(2)}`,
    );
  }
}
