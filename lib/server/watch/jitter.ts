import { createHash } from "node:crypto";

/**
 * How much later than its calendar a schedule starts: always the same number of whole seconds, from 0 to `mostMs`, which
 * follows from the bucket and the name, so that schedules of many buckets do not start at once.
 */
export function jitterOf(bucketId: string, name: string, mostMs: number): number {
  const random = createHash("sha256").update(`${bucketId} ${name}`).digest().readUInt32BE();
  return Math.floor((random / 2 ** 32) * (mostMs / 1_000 + 1)) * 1_000;
}
